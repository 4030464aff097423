"""Mail through a real mesh: by hand, by script, by HTTP, by command, through kills and shutdowns."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mesh import Mailbox
from tests.live.harness import LiveMesh, exists, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

MOCK_AGENT = Path(__file__).with_name("mock_agent.sh")


def lie_in(mesh: LiveMesh, agent: str, place: str) -> list[dict[str, Any]]:
    """The messages in a folder of an agent, or of the human."""
    base = mesh.root / ("system/human" if agent == "human" else f"agents/{agent}")
    names = sorted(path for path in (base / place).glob("*.json") if not path.name.endswith(".reason.json"))
    return [json.loads(path.read_text()) for path in names]


def of_type(mesh: LiveMesh, agent: str, place: str, type_: str) -> list[dict[str, Any]]:
    return [message for message in lie_in(mesh, agent, place) if message["type"] == type_]


def test_mail_of_a_day(mesh: LiveMesh) -> None:
    mesh.up()
    dropped_by_hand(mesh)
    bad_files_are_in_nobodys_way(mesh)
    tasks_by_message(mesh)
    people_talk(mesh)
    nothing_lost_by_kills(mesh)
    shut_down_by_message(mesh)
    followed(mesh)


def dropped_by_hand(mesh: LiveMesh) -> None:
    """The mailbox document's section 11, with this mesh's paths: a file of any name, written with `cat`."""
    script = """cat > "$1/agents/coder/inbox/test.json" << 'EOF'
{
  "id": "test-123",
  "from": "devops",
  "to": "coder",
  "timestamp": "2026-02-16T21:00:00Z",
  "type": "status_request",
  "payload": { "text": "Test message" },
  "priority": "normal",
  "requiresAck": false
}
EOF"""
    subprocess.run(["sh", "-c", script, "sh", mesh.root], check=True)
    until(lambda: [m for m in lie_in(mesh, "coder", "processed") if m["id"] == "test-123"], 8, "it is handled")
    found = until(lambda: of_type(mesh, "devops", "inbox", "status_response"), 5, "the answer")
    assert found[0]["replyTo"] == "test-123" and "coder" in found[0]["payload"]["text"]
    assert mesh.json("mail", "show", "test-123")


def bad_files_are_in_nobodys_way(mesh: LiveMesh) -> None:
    inbox = mesh.root / "agents/sales/inbox"
    good = {"from": "chief", "to": "sales", "timestamp": "2026-02-16T21:00:00Z", "payload": {}}
    (inbox / "not.json").write_text("{ nothing")
    (inbox / "forged.json").write_text(json.dumps({"id": "f", "type": "note", **good, "from": "human"}))
    (inbox / "stranger.json").write_text(json.dumps({"id": "s", "type": "note", **good, "from": "nobody"}))
    (inbox / "elsewhere.json").write_text(json.dumps({"id": "e", "type": "note", **good, "to": "ops"}))
    (inbox / "large.json").write_text(
        json.dumps({"id": "l", "type": "note", **good, "payload": {"x": "x" * 1_100_000}})
    )
    (inbox / "link.json").symlink_to("/etc/hostname")
    os.mkfifo(inbox / "pipe.json")
    (inbox / "folder.json").mkdir()
    (inbox / "good.json").write_text(json.dumps({"id": "good", "type": "status_request", **good}))
    until(lambda: [m for m in lie_in(mesh, "sales", "processed") if m["id"] == "good"], 8, "the good one is handled")
    rejected = mesh.root / "agents/sales/rejected"
    wanted = {"not", "forged", "stranger", "elsewhere", "large", "link", "pipe", "folder"}
    until(lambda: {path.name.partition(".")[0] for path in rejected.iterdir()} == wanted, 12, "all bad ones are out")
    for name in wanted:
        assert json.loads((rejected / f"{name}.json.reason.json").read_text())["reason"]
    (alert,) = [alert for alert in mesh.json("alerts", "list") if alert["type"] == "mail_rejected"]
    assert alert["agentId"] == "sales" and alert["count"] == len(wanted)


def tasks_by_message(mesh: LiveMesh) -> None:
    """A task asked for by mail: its giver is told how it goes, and the ack is its end."""
    body = {"type": "task_request", "payload": {"task": {"title": "System Health Check"}}, "requiresAck": True}
    code, answer = mesh.call("devops", "POST", "/message", body, secret="chief")
    assert (code, answer["received"]) == (202, True)
    done = until(lambda: of_type(mesh, "chief", "processed", "task_complete"), 30, "the end is told")
    assert done[0]["payload"]["result"]["text"]
    assert of_type(mesh, "chief", "processed", "task_update")
    until(lambda: [m for m in lie_in(mesh, "devops", "processed") if m["id"] == answer["id"]], 8, "acked by its end")
    copy = until(
        lambda: next(
            (
                m
                for m in lie_in(mesh, "chief", "outbox")
                if m["id"] == answer["id"] and m["delivery"]["state"] == "acked"
            ),
            None,
        ),
        8,
        "the sender's copy says so",
    )
    assert list(copy["delivery"]["at"]) == ["written", "delivered", "acked"]
    # Not along canDelegate, and to nobody's buddy: refused, and nothing was written.
    code, answer = mesh.call("finance", "POST", "/message", body, secret="coder")
    assert code == 403 and "may not give" in answer["detail"]


@contextmanager
def mock_agent(mesh: LiveMesh, agent: str) -> Iterator[None]:
    process = subprocess.Popen([MOCK_AGENT, mesh.root, agent], start_new_session=True)
    try:
        yield
        assert process.poll() is None, "the mock agent ended"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def people_talk(mesh: LiveMesh) -> None:
    """`mesh say`, and an agent that is a shell script."""
    with mock_agent(mesh, "ops"):
        question = ("--from", "chief", "--type", "question", "--text", "Are you there")
        mesh.run("mail", "send", "ops", *question, "--wait", "15")
        answer = until(lambda: of_type(mesh, "chief", "inbox", "answer"), 10, "the script's answer")
        assert answer[0]["payload"]["text"] == "Are you there? Yes."
    said = mesh.run("say", "ops", "Hello", "there").stdout.split()[0]
    assert mesh.json("mail", "show", said)["payload"]["text"] == "Hello there"
    mesh.give("devops", title="System Health Check")
    until(lambda: "System Health Check" in mesh.run("inbox").stdout, 20, "the end of my task is in my inbox")
    before = sorted(path.name for path in (mesh.root / "system/human/inbox").iterdir())
    mesh.run("inbox")
    assert sorted(path.name for path in (mesh.root / "system/human/inbox").iterdir()) == before, (
        "looking changes nothing"
    )
    mesh.run("inbox", "--ack-all")
    assert lie_in(mesh, "human", "inbox") == []


def nothing_lost_by_kills(mesh: LiveMesh) -> None:
    """Twenty senders by HTTP while the recipient is killed again and again; each keeps trying until it is told yes."""
    accepted: set[str] = set()

    def send(number: int) -> None:
        body = {"type": "info_share", "payload": {"topic": f"fact {number}"}, "id": f"fact-{number}"}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                code, _ = mesh.call("intel", "POST", "/message", body, secret="chief")
            except (OSError, http.client.HTTPException, ValueError):
                code = 0
            if code == 202:
                accepted.add(body["id"])
                return
            time.sleep(0.1)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        os.kill(mesh.pid("intel"), signal.SIGKILL)
        time.sleep(0.3)
    for thread in threads:
        thread.join()
    assert len(accepted) == 20
    knowledge = mesh.root / "knowledge/insights.json"
    until(lambda: knowledge.exists() and len(json.loads(knowledge.read_text())["insights"]) >= 20, 20, "all are known")
    topics = [entry["topic"] for entry in json.loads(knowledge.read_text())["insights"]]
    assert sorted(topics) == sorted(f"fact {number}" for number in range(20)), "each once"


def shut_down_by_message(mesh: LiveMesh) -> None:
    """Within five seconds, and it stays so until a person starts it; only the orchestrator and people may."""
    order = {"type": "shutdown", "payload": {"reason": "night"}}
    assert mesh.call("comms", "POST", "/message", order, secret="coder")[0] == 403
    pid, began = mesh.pid("comms"), time.monotonic()
    code, _ = mesh.call(
        "comms", "POST", "/message", {"type": "shutdown", "payload": {"reason": "night"}}, secret="chief"
    )
    assert code == 202
    until(lambda: not exists(pid), 5, "it has ended")
    assert time.monotonic() - began < 5
    time.sleep(2)
    assert not mesh.healthy("comms")
    mesh.run("start", "comms")
    until(lambda: mesh.healthy("comms"), 10, "started again")
    time.sleep(1)
    assert mesh.healthy("comms"), "the message was acked: it is not obeyed twice"


def followed(mesh: LiveMesh) -> None:
    """The whole mesh's mail can be followed, and replayed from an offset; figures and states are there."""
    tail = ("mail", "tail", "--all", "--json")
    lines = [json.loads(line) for line in mesh.run(*tail, "--limit", "5").stdout.splitlines()]
    assert len(lines) == 5
    rest = mesh.run(*tail, "--since", str(lines[2]["offset"])).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in rest][:2] == [lines[3]["offset"], lines[4]["offset"]]
    stats = {row["agent"]: row for row in mesh.json("mail", "stats")}
    assert stats["intel"]["received"] >= 20 and stats["intel"]["waiting"] == 0
    assert mesh.status("intel")["mail"]["watcher"] == "ok"


def test_the_api_beside_a_running_mesh(mesh: LiveMesh) -> None:
    """`Mailbox` needs no server, works beside one, and is woken by the ack."""
    mesh.up("--one-process")

    async def talk() -> None:
        box = Mailbox(str(mesh.root), "coder")
        id_ = await box.send("devops", type="status_request", payload={"text": "well?"}, requires_ack=True)
        assert await box.wait_for_ack(id_, timeout_s=10)
        assert (await box.delivery(id_)).state == "acked"
        copies = await box.broadcast(type="info_share", payload={"topic": "hello", "data": 1})
        assert len(copies) == 7
        for copy in copies:
            assert await box.wait_for_ack(copy, timeout_s=10)
        attached = await box.attach(b"\x89PNG\r\n\x1a\n", "shot.png")
        assert (attached.type, attached.bytes) == ("image/png", 8)
        late = await box.send("ops", type="note", payload={"text": "see"}, attachments=[attached.dump()])
        assert not await box.wait_for_ack(late, timeout_s=0.5), "nobody reads text at ops, and nobody says so"
        assert (await box.delivery(late)).state == "delivered"
        await box.close()

    asyncio.run(talk())
    until(
        lambda: len(json.loads((mesh.root / "knowledge/insights.json").read_text())["insights"]) == 7,
        5,
        "seven effects",
    )


def test_the_unix_socket_survives_a_crash(mesh: LiveMesh) -> None:
    mesh.up()
    path = mesh.root / "agents/coder/agent.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    os.kill(mesh.pid("coder"), signal.SIGKILL)
    until(lambda: not _answers(path), 5, "the old socket is dead")
    until(lambda: _answers(path), 10, "a new one took its place")
    asked = ["curl", "-sS", "--unix-socket", path, "-H", "Content-Type: application/json", "http://localhost/wake"]
    found = subprocess.run([*asked, "-d", '{"from": "devops", "reason": "check"}'], capture_output=True, text=True)
    assert json.loads(found.stdout)["awake"] is True


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b" 200 " in sock.recv(100)
        except OSError:
            return False
