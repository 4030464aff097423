"""say and inbox, with the mesh down."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from mesh.store import Store
from tests.cli.stage import Mesh, refused


def waiting(mesh: Mesh, agent: str) -> list[dict[str, Any]]:
    return [dict(message) for message in mesh("mail", "list", agent, "--json").json["messages"]]


def tell(mesh: Mesh, sender: str, id_: str, payload: dict[str, Any], *options: str, type_: str = "message") -> None:
    arguments = ("--type", type_, "--from", sender, "--id", id_, "--payload", json.dumps(payload))
    done = mesh("mail", "send", "human", *arguments, *options)
    assert done.status == 0, done.err


def test_say(mesh: Mesh) -> None:
    done = mesh("say", "ada", "please", "review", "it")
    [message] = waiting(mesh, "ada")
    assert done.out == f"{message['id']} waits in ada's inbox.\n" and done.status == 0
    assert (message["from"], message["type"], message["payload"]) == ("human", "message", {"text": "please review it"})
    assert (message["priority"], message["requiresAck"], message["via"]) == ("normal", False, "operator")


def test_say_takes_every_option(mesh: Mesh) -> None:
    tell(mesh, "ada", "question", {"text": "which one?"})
    done = mesh(
        "say", "ada", "--urgent", "--ack", "--type", "status_request", "--reply-to", "question", "red", "--json"
    )
    assert done.status == 0 and done.json.keys() == {"id", "to", "delivery", "answers"}
    [message] = waiting(mesh, "ada")
    assert (message["id"], message["priority"], message["requiresAck"]) == (done.json["id"], "urgent", True)
    assert (message["type"], message["replyTo"], message["threadId"]) == ("status_request", "question", "question")
    assert waiting(mesh, "human") == [], "answering acks"


def test_say_over_the_rate(mesh: Mesh) -> None:
    document = mesh.json("agents/registry.json")
    mesh.registry_file.write_text(json.dumps({**document, "limits": {"messagesPerMinute": 1}}), encoding="utf-8")
    assert mesh("say", "ada", "one").status == 0
    assert "can go in" in refused(mesh("say", "ada", "two"), 1)


def test_say_waits_for_an_answer(mesh: Mesh) -> None:
    def answer() -> None:
        deadline = time.monotonic() + 10
        while not (found := Store(str(mesh.root)).mail.waiting("ada")) and time.monotonic() < deadline:
            time.sleep(0.02)
        id_ = found[0].id
        other = Mesh(mesh.root)
        update = {"taskId": "t", "progress": 0.5, "status": "working"}
        sent = [("task_update", update), ("message", {"text": "it is \x1b[2Jdone"})]
        for number, (type_, payload) in enumerate(sent):
            done = other.process(
                *("mail", "send", "human", "--from", "ada", "--type", type_, "--reply-to", id_),
                *("--payload", json.dumps(payload), "--id", f"a{number}"),
            )
            assert done.status == 0, done.err

    thread = threading.Thread(target=answer)
    thread.start()
    done = mesh("say", "ada", "how is it?", "--wait", "20")
    thread.join()
    assert done.status == 0, done.err
    assert '"t" is working, 50% done' in done.out and "    it is done" in done.out and "\x1b" not in done.out
    assert 'to your "how is it?"' in done.out
    assert done.out.index("working") < done.out.index("it is done")
    assert [message["id"] for message in waiting(mesh, "human")] == ["a0", "a1"], "waiting changes nothing"


def test_say_without_an_answer_says_how_far_it_came(mesh: Mesh) -> None:
    done = mesh("say", "ada", "hello", "--wait", "0.1")
    assert done.status == 1 and len(done.err.splitlines()) == 1
    assert "No answer within 0.1 s: the message waits in ada's inbox." in done.err
    done = mesh("say", "ada", "hello", "--wait", "0", "--json")
    assert done.status == 1 and done.json["answers"] == [] and done.json["delivery"]["state"] == "written"


WRONG: list[tuple[list[str], str]] = [
    (["say", "zoe", "x"], "ada, bob, cyd, human"),
    (["say", "ada"], "TEXT"),
    (["say", "ada", "x", "--type", "BAD"], "BAD"),
    (["say", "ada", "x", "--type", "escalation"], "payload.issue"),
    (["say", "ada", "x", "--reply-to", "nothing"], "'nothing'"),
    (["say", "ada", "x", "--wait", "-1"], "--wait"),
    (["inbox", "--ack", "nothing"], "'nothing'"),
    (["inbox", "--ack", "../x"], "no message"),
    (["inbox", "--ack", "x", "--ack-all"], "not both"),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG)
def test_what_is_refused(mesh: Mesh, arguments: list[str], reason: str) -> None:
    assert reason in refused(mesh(*arguments))
    assert waiting(mesh, "ada") == []


# -- inbox


def test_inbox_tells_in_words_newest_last(mesh: Mesh) -> None:
    assert mesh("inbox").out == "Nothing waits for you.\n" and mesh("inbox", "--json").json == []
    id_ = mesh("say", "ada", "please review pull request 7").out.split()[0]
    tell(mesh, "ada", "a", {"text": "I have.\nIt is fine."}, "--reply-to", id_)
    result = {"text": "# Report\n" + "\n".join(f"line {n}" for n in range(20)), "files": []}
    tell(mesh, "bob", "b", {"taskId": "t", "title": "Scan", "result": result}, type_="task_complete")
    tell(mesh, "cyd", "c", {"taskId": "u", "title": "Build", "error": "no\x1b[2J disk"}, type_="task_failed")
    cancelled = {"taskId": "v", "title": "Ship", "status": "cancelled", "error": None}
    tell(mesh, "cyd", "d", cancelled, "--priority", "urgent", type_="task_failed")
    shown = mesh("inbox").out
    places = [
        shown.index(text) for text in ("I have.", '"Scan" is completed', '"Build" has failed', '"Ship" is cancelled')
    ]
    assert places == sorted(places)
    assert 'to your "please review pull request 7"' in shown and "    It is fine." in shown
    assert "    line 6\n    … 13 more lines: mesh mail show b" in shown and "line 7" not in shown
    assert "    no disk" in shown and "\x1b" not in shown and "cyd, task_failed, urgent" in shown
    found = mesh("inbox", "--json").json
    assert [message["id"] for message in found] == ["a", "b", "c", "d"]
    assert found[1]["headline"].startswith('"Scan" is completed') and found[1]["delivery"]["state"] == "written"
    assert len(waiting(mesh, "human")) == 4, "looking changes nothing"


def test_a_task_that_ended_is_told(mesh: Mesh) -> None:
    mesh.ran_once("ada", "Echo")
    assert mesh("task", "add", "Echo", "--to", "ada", "--id", "t").status == 0
    assert mesh("task", "cancel", "t").status == 0
    assert '"Echo" is cancelled' in mesh("inbox").out


def test_results_of_any_shape_are_shown(mesh: Mesh) -> None:
    for number, result in enumerate(["done", {"files": 3}, None, {"text": "in\x1b[2J words"}]):
        tell(mesh, "ada", f"m{number}", {"taskId": "t", "result": result}, type_="task_complete")
    shown = mesh("inbox").out
    assert "    done\n" in shown and "    in words\n" in shown and shown.count('"t" is completed') == 4


def test_ack_puts_away(mesh: Mesh) -> None:
    for id_ in ("a", "b", "c"):
        tell(mesh, "ada", id_, {"text": f"this is {id_}"})
    assert mesh("inbox", "--ack", "a").out == "1 message is put away.\n"
    assert mesh("inbox", "--ack", "a", "--json").json == {"acked": ["a"]}, "again is harmless"
    assert "'nothing'" in refused(mesh("inbox", "--ack", "b", "--ack", "nothing"))
    assert [message["id"] for message in mesh("inbox", "--json").json] == ["b", "c"]
    found = mesh("inbox", "--all", "--json").json
    assert [(message["id"], message["delivery"]["state"]) for message in found] == [
        ("a", "acked"),
        ("b", "written"),
        ("c", "written"),
    ]
    assert "a (put away)" in mesh("inbox", "--all").out
    assert mesh("inbox", "--ack-all").out == "2 messages are put away.\n"
    assert mesh("inbox").out == "Nothing waits for you.\n"
    assert mesh("mail", "list", "ada", "--json").json["messages"] == [], "the sender sees it on the message itself"
