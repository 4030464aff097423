"""mail send, list, show, ack, thread, dead, retry, stats, attachment, with the mesh down."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mesh.models import DeliveryState, Message
from mesh.service.mail_overview import latency
from mesh.store import Store
from tests.cli.stage import Done, Mesh, refused

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b31m\u202eback\u200bwards\r"
UGLY = ("\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\r")


def send(mesh: Mesh, to: str, *arguments: str, type_: str = "message") -> str:
    done = mesh("mail", "send", to, "--type", type_, *arguments)
    assert (done.status, done.err) == (0, ""), done.err
    return done.out.strip()


def inbox(mesh: Mesh, agent: str) -> list[dict[str, Any]]:
    folder = mesh.root / "agents" / agent / "inbox"
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def limits(mesh: Mesh, **values: Any) -> None:
    document = mesh.json("agents/registry.json")
    mesh.registry_file.write_text(json.dumps({**document, "limits": values}), encoding="utf-8")


def claim(mesh: Mesh, agent: str, *, shown: bool = False) -> None:
    """What the agent's process does when it takes its mail."""
    store = Store(str(mesh.root))
    for path in (mesh.root / "agents" / agent / "inbox").glob("*.json"):
        store.mail.receiving.claim(agent, path.name)
        store.mail.receiving.keep(agent, path.name, shown=shown)


def bury(mesh: Mesh, agent: str, state: DeliveryState = DeliveryState.DEAD, reason: str = "it crashed") -> None:
    store = Store(str(mesh.root))
    for path in (mesh.root / "agents" / agent / "inbox").glob("*.json"):
        message = store.mail.read(agent, path.name)
        assert message is not None
        store.mail.bury(agent, path.name, message, state, reason)


# -- send


def test_send_puts_a_message_into_the_inbox_and_prints_its_id(mesh: Mesh) -> None:
    id_ = send(mesh, "ada", "--text", "hello")
    [message] = inbox(mesh, "ada")
    assert (message["id"], message["from"], message["to"], message["via"]) == (id_, "human", "ada", "operator")
    assert (message["payload"], message["requiresAck"]) == ({"text": "hello"}, False)
    assert list((mesh.root / "system/human/outbox").glob(f"*{id_}*"))


def test_send_takes_every_option(mesh: Mesh, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("attached", encoding="utf-8")
    first = send(mesh, "bob", "--text", "first", "--from", "ada")
    options = ["--payload", '{"topic": "x", "data": [1]}', "--from", "bob", "--priority", "high", "--attach", str(note)]
    options += ["--ack-by", "2999-01-01T00:00:00Z", "--expires-in", "30", "--reply-to", first, "--thread", "talk"]
    assert send(mesh, "ada", *options, "--id", "mine", type_="info_share") == "mine"
    [message] = inbox(mesh, "ada")
    assert (message["from"], message["via"], message["priority"]) == ("bob", "operator", "high")
    assert message["payload"] == {"topic": "x", "data": [1]}
    assert (message["requiresAck"], message["ackBy"]) == (True, "2999-01-01T00:00:00.000Z")
    assert (message["replyTo"], message["threadId"]) == (first, "talk")
    assert message["expiresAt"] > message["timestamp"]
    [file] = message["attachments"]
    assert (file["name"], file["type"], file["bytes"]) == ("note.txt", "text/plain", 8)
    assert inbox(mesh, "bob") == [], "the answer acks what it answers"


def test_send_again_with_the_same_id_sends_nothing(mesh: Mesh) -> None:
    assert send(mesh, "ada", "--text", "x", "--id", "mine") == "mine"
    again = mesh("mail", "send", "ada", "--type", "message", "--text", "x", "--id", "mine")
    assert (again.status, again.out) == (0, "mine\n") and "before" in again.err
    assert len(inbox(mesh, "ada")) == 1
    other = mesh("mail", "send", "ada", "--type", "message", "--text", "y", "--id", "mine")
    assert "send a new id" in refused(other, 1)
    entry = mesh("mail", "send", "ada", "--type", "message", "--text", "x", "--id", "mine", "--json").json
    assert entry["duplicate"] is True and entry["delivery"]["state"] == "written"


def test_send_reads_from_standard_input(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    send(mesh, "ada", "--text", "-")
    monkeypatch.setattr("sys.stdin", io.StringIO('{"topic": "piped"}'))
    send(mesh, "ada", "--payload", "-", type_="info_share")
    assert [m["payload"] for m in inbox(mesh, "ada")] == [{"text": "from a pipe"}, {"topic": "piped"}]


@pytest.mark.parametrize(
    ("whom", "got"),
    [
        (["*"], {"ada", "bob", "cyd"}),
        (["*", "--from", "bob"], {"ada", "cyd"}),
        (["ada, cyd,ada"], {"ada", "cyd"}),
        (["--responsibility", "chores"], {"ada", "bob", "cyd"}),
    ],
)
def test_a_broadcast_is_one_copy_each(mesh: Mesh, whom: list[str], got: set[str]) -> None:
    done = mesh("mail", "send", *whom, "--type", "message", "--text", "all", "--json")
    assert done.status == 0, done.err
    assert {entry["to"] for entry in done.json["messages"]} == got
    copies = [copy for agent in ("ada", "bob", "cyd") for copy in inbox(mesh, agent)]
    assert len(copies) == len(got) and {copy["broadcastId"] for copy in copies} == {done.json["broadcastId"]}


def test_a_broadcast_with_an_id_is_repeatable(mesh: Mesh) -> None:
    arguments = ("mail", "send", "ada,bob", "--type", "message", "--text", "x", "--id", "mine")
    assert mesh(*arguments).lines() == ["ada mine-ada", "bob mine-bob"]
    assert mesh(*arguments).lines() == ["ada mine-ada", "bob mine-bob"]
    assert len(inbox(mesh, "ada")) == len(inbox(mesh, "bob")) == 1


def test_over_the_rate_it_says_in_how_many_seconds(mesh: Mesh) -> None:
    limits(mesh, messagesPerMinute=1)
    send(mesh, "ada", "--text", "x")
    error = refused(mesh("mail", "send", "ada", "--type", "message", "--text", "y"), 1)
    assert " s. " in error and "can go in" in error and "--queue" in error
    both = mesh("mail", "send", "ada,bob", "--type", "message", "--text", "y")
    assert both.status == 1 and both.out.startswith("bob ") and "not ada" in both.err and "can go in" in both.err
    assert len(both.err.strip().splitlines()) == 1
    told = mesh("mail", "send", "ada,bob", "--type", "message", "--text", "z", "--json")
    assert told.status == 1 and all("can go in" in entry["error"] for entry in told.json["messages"])


def test_a_full_inbox_refuses_or_queues(mesh: Mesh) -> None:
    limits(mesh, inboxWaitingMax=1)
    first = send(mesh, "ada", "--text", "x")
    assert "try again in 1 s" in refused(mesh("mail", "send", "ada", "--type", "message", "--text", "y"), 1)
    done = mesh("mail", "send", "ada", "--type", "message", "--text", "y", "--queue")
    assert done.status == 0 and "waits in human's outbox" in done.err
    queued = done.out.strip()
    assert "waits in the outbox" in mesh("mail", "show", queued).out
    assert [row["queued"] for row in mesh("mail", "stats", "human", "--json").json] == [1]
    assert mesh("mail", "ack", first).status == 0
    send(mesh, "bob", "--text", "the next thing that human sends")
    assert [message["id"] for message in inbox(mesh, "ada")] == [queued], "what waited goes first"


def test_wait_ends_with_the_ack(mesh: Mesh) -> None:
    def answer() -> None:
        deadline = time.monotonic() + 10
        while not inbox(mesh, "ada") and time.monotonic() < deadline:
            time.sleep(0.02)
        Store(str(mesh.root)).mail.ack("ada", "mine")

    thread = threading.Thread(target=answer)
    thread.start()
    done = mesh("mail", "send", "ada", "--type", "message", "--text", "x", "--id", "mine", "--wait", "10", "--json")
    thread.join()
    assert done.status == 0 and done.json["delivery"]["state"] == "acked"


def test_wait_says_how_far_it_came(mesh: Mesh) -> None:
    done = mesh("mail", "send", "ada", "--type", "message", "--text", "x", "--wait", "0")
    assert done.status == 1 and len(done.lines()) == 1 and "within 0 s: it waits in ada's inbox" in done.err
    claim(mesh, "ada", shown=True)
    done = mesh("mail", "send", "ada", "--type", "message", "--text", "y", "--id", "b", "--wait", "0")
    assert done.status == 1
    bury(mesh, "ada")
    done = mesh("mail", "send", "ada", "--type", "message", "--text", "y", "--id", "b", "--wait", "9")
    assert done.status == 1 and "b to ada is dead: it crashed" in done.err


SEND_WRONG: list[tuple[list[str], int, str]] = [
    ([], 2, "--responsibility"),
    (["ada", "--responsibility", "chores"], 2, "Say whom"),
    (["zoe"], 2, "ada, bob, cyd, human"),
    (["ada,zoe"], 2, "'zoe'"),
    (["--responsibility", "art"], 2, "chores"),
    (["ada", "--from", "zoe"], 2, "ada, bob, cyd"),
    (["ada", "--payload", "{"], 2, "not JSON"),
    (["ada", "--payload", "[1]"], 2, "JSON object"),
    (["ada", "--payload", "{}", "--text", "x"], 2, "not both"),
    (["ada", "--type", "escalation", "--payload", "{}"], 2, "payload.issue"),
    (["ada", "--type", "No Type"], 2, "No Type"),
    (["ada", "--priority", "asap"], 2, "asap"),
    (["ada", "--expires-at", "tomorrow"], 2, "such as 20"),
    (["ada", "--expires-at", "2020-01-01"], 2, "has passed"),
    (["ada", "--expires-at", "2999-01-01", "--expires-in", "5"], 2, "not both"),
    (["ada", "--expires-in", "0"], 2, "--expires-in"),
    (["ada", "--expires-in", "1e300"], 2, "calendar"),
    (["ada", "--ack-by", "soon"], 2, "--ack-by"),
    (["ada", "--reply-to", "nothing"], 2, "'nothing'"),
    (["ada", "--reply-to", "../x"], 2, "replyTo"),
    (["ada", "--id", "a/b"], 2, "id"),
    (["ada", "--attach", "/no/such/file"], 2, "/no/such/file"),
    (["ada", "--from", "ada", "--type", "shutdown"], 1, "may not shut down"),
    (["ada", "--from", "bob", "--type", "task_request", "--payload", '{"task": {"title": "x"}}'], 1, "may not give"),
]


@pytest.mark.parametrize(("arguments", "status", "reason"), SEND_WRONG)
def test_what_send_refuses(mesh: Mesh, arguments: list[str], status: int, reason: str) -> None:
    kind = [] if "--type" in arguments else ["--type", "message"]
    assert reason in refused(mesh("mail", "send", *arguments, *kind), status)
    assert [row["waiting"] for row in mesh("mail", "list", "--json").json] == [0, 0, 0, 0]


def test_send_refuses_what_is_too_large(mesh: Mesh) -> None:
    limits(mesh, messageBytesMax=1_000, resultBytesMax=10_000, attachmentBytesMax=10)
    assert "attachment" in refused(mesh("mail", "send", "ada", "--type", "message", "--text", "x" * 1_000), 1)
    big = mesh.root.parent / "big"
    big.write_bytes(b"x" * 11)
    assert "10 bytes" in refused(mesh("mail", "send", "ada", "--type", "message", "--attach", str(big)), 1)


# -- list


def test_list_is_in_the_order_of_serving(mesh: Mesh) -> None:
    send(mesh, "ada", "--text", "later", "--id", "a")
    send(mesh, "ada", "--text", "now", "--id", "b", "--priority", "urgent")
    send(
        mesh, "ada", "--id", "c", "--from", "bob", "--thread", "talk", "--payload", '{"topic": "t"}', type_="info_share"
    )
    done = mesh("mail", "list", "ada", "--json")
    found = done.json
    assert found["agent"] == "ada" and found["noMail"] == []
    assert [message["id"] for message in found["messages"]] == ["b", "a", "c"]
    assert {message["delivery"]["state"] for message in found["messages"]} == {"written"}
    lines = [line.split() for line in mesh("mail", "list", "ada").lines()]
    assert lines[0] == ["ID", "PRIORITY", "TYPE", "FROM", "AGE", "STATE", "TEXT"]
    assert lines[1][:4] == ["b", "urgent", "message", "human"] and lines[1][-2:] == ["written", "now"]

    def ids(*options: str) -> list[str]:
        return [message["id"] for message in mesh("mail", "list", "ada", *options, "--json").json["messages"]]

    assert ids("--type", "info_share") == ids("--from", "bob") == ids("--thread", "talk") == ["c"]
    assert ids("--limit", "2") == ["b", "a"] and ids("--type", "nothing") == []
    assert "Nothing that fits" in mesh("mail", "list", "ada", "--type", "nothing").out


def test_list_of_all_inboxes(mesh: Mesh) -> None:
    send(mesh, "ada", "--text", "now", "--priority", "urgent", "--ack")
    rows = {row["agent"]: row for row in mesh("mail", "list", "--json").json}
    assert list(rows) == ["ada", "bob", "cyd", "human"]
    assert (rows["ada"]["waiting"], rows["ada"]["urgent"], rows["ada"]["unacked"]) == (1, 1, 1)
    assert "message from human: now" in rows["ada"]["next"] and rows["bob"]["oldestS"] is None
    assert mesh("mail", "list").lines()[1].split()[:4] == ["ada", "1", "1", "1"]
    assert mesh("mail", "list", "--from", "bob", "--json").json[0]["waiting"] == 0


def test_list_tells_the_honest_state_and_changes_nothing(mesh: Mesh) -> None:
    send(mesh, "ada", "--text", "x", "--ack-by", "2020-01-01")
    before = sorted((path, path.stat().st_mtime_ns) for path in mesh.root.rglob("*"))
    assert "written, stale" in mesh("mail", "list", "ada").out
    for command in (["list"], ["stats"], ["dead"], ["tail"]):
        assert mesh("mail", *command).status == 0
    assert mesh("inbox").status == 0
    assert before == sorted((path, path.stat().st_mtime_ns) for path in mesh.root.rglob("*"))
    claim(mesh, "ada")
    assert mesh("mail", "list", "ada", "--json").json["messages"][0]["delivery"]["state"] == "delivered"
    claim(mesh, "ada", shown=True)
    assert mesh("mail", "list", "ada", "--json").json["messages"][0]["mark"] == "stale"


def test_urgent_mail_that_nobody_acked_is_overdue(mesh: Mesh) -> None:
    send(mesh, "ada", "--text", "x", "--priority", "urgent", "--ack-by", "2020-01-01")
    assert "written, overdue" in mesh("mail", "list", "ada").out


def test_list_counts_files_that_are_no_mail(mesh: Mesh) -> None:
    send(mesh, "ada", "--text", "x")
    (mesh.root / f"agents/ada/inbox/{ESCAPES.strip()}no mail.json").write_text("{", encoding="utf-8")
    done = mesh("mail", "list", "ada")
    assert "1 file is no mail" in done.lines()[-1] and "not JSON" in done.lines()[-1]
    assert not any(ugly in done.out for ugly in UGLY)
    assert len(mesh("mail", "list", "ada", "--json").json["noMail"]) == 1
    assert "1 (+1 no mail)" in mesh("mail", "list").out


def test_list_all_shows_what_no_longer_waits(mesh: Mesh) -> None:
    send(mesh, "ada", "--text", "x", "--id", "gone")
    bury(mesh, "ada", DeliveryState.EXPIRED, "it expired")
    send(mesh, "ada", "--text", "x", "--id", "done")
    assert mesh("mail", "ack", "done").status == 0
    (mesh.root / "agents/ada/inbox/x.json").write_text("{", encoding="utf-8")
    Store(str(mesh.root)).mail.reject("ada", "x.json", "it is not JSON")
    send(mesh, "ada", "--text", "x", "--id", "here")
    found = mesh("mail", "list", "ada", "--all", "--json").json["messages"]
    assert [(entry.get("id"), entry["place"]) for entry in found] == [
        ("here", "inbox"),
        (None, "rejected"),
        ("done", "processed"),
        ("gone", "dead"),
    ]
    assert found[3]["delivery"]["state"] == "expired"
    assert len(mesh("mail", "list", "ada", "--all", "--limit", "2", "--json").json["messages"]) == 2
    assert "it is not JSON" in mesh("mail", "list", "ada", "--all").out
    found = mesh("mail", "list", "ada", "--all", "--type", "message", "--json").json["messages"]
    assert [entry["id"] for entry in found] == ["here", "done", "gone"]
    assert "AGENT" in refused(mesh("mail", "list", "--all"))


# -- show, thread


def test_show(mesh: Mesh, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    id_ = send(mesh, "ada", "--text", "line one\nline two", "--ack", "--attach", str(tmp_path / "a.txt"))
    shown = mesh("mail", "show", id_).out
    assert "from human to ada, asks for an ack" in shown and "state written" in shown and "via operator" in shown
    assert "line one\nline two" in shown and "agents/ada/inbox/" in shown
    path = next(line.rpartition(": ")[2] for line in shown.splitlines() if line.startswith("attachment a.txt"))
    assert Path(path).read_text(encoding="utf-8") == "x"
    claim(mesh, "ada", shown=True)
    assert mesh("mail", "ack", id_).status == 0
    found = mesh("mail", "show", id_, "--json").json
    assert found["place"] == "processed" and found["file"].startswith("agents/ada/processed/")
    assert found["delivery"]["state"] == "acked" and list(found["delivery"]["at"]) == [
        "written",
        "delivered",
        "shown",
        "acked",
    ]
    copy = mesh("mail", "show", id_, "--agent", "human", "--json").json
    assert (copy["place"], copy["delivery"]["state"]) == ("outbox", "acked"), "the copy is told by where the mail lies"


def test_show_tells_why_it_ended(mesh: Mesh) -> None:
    id_ = send(mesh, "ada", "--text", "x")
    bury(mesh, "ada", reason=f"crashed {ESCAPES}")
    shown = mesh("mail", "show", id_).out
    assert "state dead: crashed redback" in shown and not any(ugly in shown for ugly in UGLY)
    dropped = {"id": "lost", "from": "ada", "to": "zoe", "timestamp": "2026-01-01T00:00:00Z", "type": "message"}
    file = mesh.root / "agents/bob/inbox/dropped.json"
    file.write_text(json.dumps({**dropped, "payload": {}}), encoding="utf-8")
    Store(str(mesh.root)).mail.reject("bob", "dropped.json", "it is addressed to 'zoe'")
    found = mesh("mail", "show", "lost", "--json").json
    assert found["delivery"]["state"] == "rejected" and found["delivery"]["reason"] == "it is addressed to 'zoe'"


def test_thread(mesh: Mesh) -> None:
    send(mesh, "ada", "--text", "question", "--id", "q")
    send(mesh, "bob", "--text", "passed on", "--id", "p", "--from", "ada", "--thread", "q")
    send(mesh, "ada", "--text", "known", "--id", "k", "--from", "bob", "--reply-to", "p")
    send(mesh, "human", "--text", "answer", "--id", "a", "--from", "ada", "--reply-to", "q")
    send(mesh, "ada", "--text", "other", "--id", "o")
    found = mesh("mail", "thread", "k", "--json").json
    assert [(message["id"], message["delivery"]["state"]) for message in found] == [
        ("q", "acked"),
        ("p", "acked"),
        ("k", "written"),
        ("a", "written"),
    ]
    lines = mesh("mail", "thread", "q").lines()
    assert "human to ada" in lines[0] and lines[1] == "    question"


def test_escapes_never_reach_the_terminal(mesh: Mesh) -> None:
    payload = json.dumps({"text": f"before {ESCAPES} after", f"key{ESCAPES}": ESCAPES})
    id_ = send(mesh, "human", "--payload", payload, "--from", "ada", "--id", "evil")
    folder = mesh.root / "system/human/inbox"
    [file] = folder.glob("*evil*")
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "via": ESCAPES}), encoding="utf-8")
    Store(str(mesh.root)).journal.event("ada", "mail_dead", ESCAPES, messageId=id_, **{"from": ESCAPES, "to": "ada"})
    looks: list[Done] = []
    for command in (["mail", "show", id_], ["mail", "list", "human"], ["mail", "list"], ["mail", "thread", id_]):
        looks += [mesh(*command), mesh(*command, "--json")]
    looks += [mesh("inbox"), mesh("inbox", "--json"), mesh("mail", "tail"), mesh("mail", "tail", "--json")]
    looks += [mesh("events"), mesh("events", "--json")]
    for done in looks:
        assert done.status == 0, done.err
        assert not any(ugly in done.out for ugly in UGLY)
    assert "before redbackwards" in mesh("mail", "show", id_).out
    told = mesh("mail", "show", id_, "--json").json
    assert told["payload"] == json.loads(payload) and told["via"] == ESCAPES, "as JSON nothing is lost"


# -- ack


def test_ack(mesh: Mesh) -> None:
    first = send(mesh, "ada", "--text", "x", "--from", "bob", "--ack")
    second = send(mesh, "bob", "--text", "x")
    done = mesh("mail", "ack", first, second, "--text", "by hand")
    assert done.lines() == [f"{first} to ada is acked.", f"{second} to bob is acked."]
    assert "it was before" in mesh("mail", "ack", first).out
    [answer] = inbox(mesh, "bob")
    assert (answer["type"], answer["replyTo"], answer["payload"]["text"]) == ("ack", first, "by hand")
    assert mesh("events", "--agent", "operator", "--json").out.count("message_acked") == 2


def test_ack_of_an_id_that_waits_twice_asks_for_whom(mesh: Mesh) -> None:
    for agent in ("ada", "bob"):
        send(mesh, agent, "--text", "x", "--id", "same")
    assert "--agent" in refused(mesh("mail", "ack", "same"))
    assert mesh("mail", "ack", "same", "--agent", "bob").status == 0
    assert (len(inbox(mesh, "ada")), len(inbox(mesh, "bob"))) == (1, 0)


def test_ack_of_an_unknown_id_acks_nothing(mesh: Mesh) -> None:
    id_ = send(mesh, "ada", "--text", "x")
    assert "'nothing'" in refused(mesh("mail", "ack", id_, "nothing"))
    assert "waits for bob" in refused(mesh("mail", "ack", id_, "--agent", "bob"))
    assert len(inbox(mesh, "ada")) == 1


# -- dead, retry


def test_dead_and_retry(mesh: Mesh) -> None:
    assert mesh("mail", "dead").out == "Nothing is dead or rejected.\n"
    id_ = send(mesh, "ada", "--text", "x")
    bury(mesh, "ada")
    [entry] = mesh("mail", "dead", "--json").json
    assert (entry["id"], entry["agent"], entry["place"], entry["reason"]) == (id_, "ada", "dead", "it crashed")
    assert entry["delivery"] == {"state": "dead"} and entry["at"]
    assert mesh("mail", "dead", "bob", "--json").json == []
    line = mesh("mail", "dead", "ada").lines()[1]
    assert line.split()[:3] == [id_, "ada", "dead"] and line.endswith("it crashed")
    assert mesh("mail", "retry", id_).lines() == [f"{id_} waits in ada's inbox again."]
    assert [message["id"] for message in inbox(mesh, "ada")] == [id_] and mesh("mail", "dead", "--json").json == []
    assert "lies in ada's inbox" in refused(mesh("mail", "retry", id_), 1)


def test_rejected_mail_cannot_be_retried(mesh: Mesh) -> None:
    (mesh.root / "agents/ada/inbox/x.json").write_text("{", encoding="utf-8")
    Store(str(mesh.root)).mail.reject("ada", "x.json", "it is not JSON")
    [entry] = mesh("mail", "dead", "--json").json
    assert (entry["file"], entry["place"], entry["reason"]) == ("x.json", "rejected", "it is not JSON")
    error = refused(mesh("mail", "retry", "x.json"), 1)
    assert "it is not JSON" in error and "send it anew" in error
    refused(mesh("mail", "retry", "nothing"))


def test_expired_mail_would_expire_again(mesh: Mesh) -> None:
    id_ = send(mesh, "ada", "--text", "x", "--expires-in", "0.0005")
    time.sleep(0.05)
    bury(mesh, "ada", DeliveryState.EXPIRED, "it expired")
    assert "would again" in refused(mesh("mail", "retry", id_), 1)


# -- stats


def test_stats(mesh: Mesh) -> None:
    limits(mesh, unackedAlert=1)
    for number in range(3):
        send(mesh, "ada", "--text", "x", "--ack", "--id", f"m{number}")
    assert mesh("mail", "ack", "m0").status == 0
    rows = {row["agent"]: row for row in mesh("mail", "stats", "--json").json}
    ada = rows["ada"]
    assert (ada["sent"], ada["received"], ada["waiting"], ada["unacked"], ada["unackedAlert"]) == (0, 3, 2, 2, True)
    assert (ada["dead"], ada["rejected"], ada["queued"], ada["archived"]) == (0, 0, 0, 0)
    assert rows["human"]["sent"] == 3 and rows["bob"]["latencyMs"] is None
    assert ada["latencyMs"]["count"] == 1 and ada["latencyMs"]["p50"] == ada["latencyMs"]["p99"] >= 0
    line = mesh("mail", "stats", "ada").lines()[1].split()
    assert line[0] == "ada" and line[5] == "2!" and line[-1].isdigit()
    bury(mesh, "ada")
    assert mesh("mail", "stats", "ada", "--json").json[0]["dead"] == 2


def test_latency_is_of_the_last_day(mesh: Mesh) -> None:
    store = Store(str(mesh.root))
    fields = {"from": "bob", "to": "ada", "type": "message", "payload": {}}
    message = Message.model_validate({"id": "old", "timestamp": "2020-01-01T00:00:00.000Z", **fields})
    store.mail.send(message)
    [file] = (mesh.root / "agents/ada/inbox").glob("*.json")
    store.mail.ack("ada", "old")
    assert mesh("mail", "stats", "ada", "--json").json[0]["latencyMs"]["count"] == 1
    processed = mesh.root / "agents/ada/processed" / file.name
    document = json.loads(processed.read_text(encoding="utf-8"))
    processed.write_text(json.dumps({**document, "ackedAt": "2020-01-01T00:00:01.000Z"}), encoding="utf-8")
    assert mesh("mail", "stats", "ada", "--json").json[0]["latencyMs"] is None


def test_percentiles() -> None:
    found = latency([float(number) for number in range(200, 0, -1)])
    assert found is not None and (found.count, found.p50, found.p95, found.p99) == (200, 100, 190, 198)
    assert latency([]) is None


# -- attachment


def test_attachment(mesh: Mesh, tmp_path: Path) -> None:
    content = bytes(range(256))
    (tmp_path / "a.bin").write_bytes(content)
    send(mesh, "ada", "--attach", str(tmp_path / "a.bin"))
    digest, out = hashlib.sha256(content).hexdigest(), tmp_path / "out"
    assert mesh("mail", "attachment", digest, "--out", str(out)).status == 0
    assert out.read_bytes() == content
    out.write_bytes(b"mine")
    assert "--force" in refused(mesh("mail", "attachment", digest, "--out", str(out)))
    assert out.read_bytes() == b"mine"
    assert mesh("mail", "attachment", digest, "--out", str(out), "--force").status == 0
    assert out.read_bytes() == content
    assert "can't be written" in refused(mesh("mail", "attachment", digest, "--out", "/no/such/folder/x"), 1)
    assert "SHA-256" in refused(mesh("mail", "attachment", "0" * 64, "--out", "-"))
    refused(mesh("mail", "attachment", "../../operator.header", "--out", "-"))


def test_attachment_to_a_pipe(mesh: Mesh, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("piped", encoding="utf-8")
    send(mesh, "ada", "--attach", str(tmp_path / "a.txt"))
    done = mesh.process("mail", "attachment", hashlib.sha256(b"piped").hexdigest())
    assert (done.status, done.out) == (0, "piped")


LOOK_WRONG: list[tuple[list[str], int, str]] = [
    (["list", "zoe"], 2, "ada, bob, cyd, human"),
    (["list", "ada", "--from", "zoe"], 2, "'zoe'"),
    (["list", "ada", "--limit", "0"], 2, "--limit"),
    (["show", "nothing"], 2, "'nothing'"),
    (["show", "../x"], 2, "no message"),
    (["show", "x", "--agent", "zoe"], 2, "'zoe'"),
    (["ack"], 2, "ID"),
    (["ack", "x", "--agent", "zoe"], 2, "'zoe'"),
    (["thread", "nothing"], 2, "'nothing'"),
    (["dead", "zoe"], 2, "'zoe'"),
    (["retry"], 2, "ID"),
    (["retry", "../x"], 2, "no message"),
    (["stats", "zoe"], 2, "'zoe'"),
    (["tail", "zoe"], 2, "'zoe'"),
    (["tail", "ada", "--all"], 2, "not both"),
    (["tail", "--since", "yesterday"], 2, "such as 20"),
    (["tail", "--since", "0123abcd:x"], 2, "neither"),
]


@pytest.mark.parametrize(("arguments", "status", "reason"), LOOK_WRONG)
def test_what_is_refused(mesh: Mesh, arguments: list[str], status: int, reason: str) -> None:
    assert reason in refused(mesh("mail", *arguments), status)


# -- status and doctor


def test_status_counts_waiting_mail(mesh: Mesh) -> None:
    send(mesh, "bob", "--text", "x")
    assert [row["mail"] for row in mesh("status", "--json").json["agents"]] == [0, 1, 0]
    assert "MAIL" in mesh("status").out


def test_doctor_looks_at_the_mail(mesh: Mesh) -> None:
    def bad() -> dict[str, tuple[str, str]]:
        return {f["check"]: (f["detail"], f["mend"]) for f in mesh("doctor", "--json").json if not f["ok"]}

    send(mesh, "ada", "--text", "x")
    assert bad() == {}
    [file] = (mesh.root / "agents/ada/inbox").glob("*.json")
    file.chmod(0o644)
    assert "others may use" in bad()["mail modes"][0] and "chmod 600" in bad()["mail modes"][1]
    file.chmod(0o600)
    (mesh.root / "agents/ada/inbox").chmod(0o755)
    assert "agents/ada/inbox is open to others" in bad()["mail modes"][0]
    (mesh.root / "agents/ada/inbox").chmod(0o700)
    bury(mesh, "ada")
    assert "1 in ada's dead/" in bad()["dead mail"][0] and "mesh mail dead ada" in bad()["dead mail"][1]
    limits(mesh, messagesPerMinute=1)
    send(mesh, "bob", "--text", "x")
    assert mesh("mail", "send", "bob", "--type", "message", "--queue").status == 0
    assert "mail queued" not in bad()
    [queued] = (mesh.root / "system/human/outbox/queued").glob("*.json")
    os.utime(queued, (time.time() - 7200, time.time() - 7200))
    assert "1 of human's messages wait" in bad()["mail queued"][0]
