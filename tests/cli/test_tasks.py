"""task add, list, show, cancel, resolve, with the mesh down."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from tests.cli.stage import Mesh, refused


@pytest.fixture
def ran(mesh: Mesh) -> Mesh:
    """ada has run before: her skills are known."""
    mesh.ran_once("ada", "Echo", "Scan")
    mesh.ran_once("bob", "Echo")
    return mesh


def test_a_task_waits_for_its_agent(ran: Mesh) -> None:
    done = ran("task", "add", "Echo", "--to", "ada", "--id", "mine", "--priority", "high", "--input", '{"days": 7}')
    assert (done.status, done.out) == (0, "mine\n") and "waits for it" in done.err
    again = ran("task", "add", "Echo", "--to", "ada", "--id", "mine", "--priority", "high", "--input", '{"days": 7}')
    assert (again.status, again.out) == (0, "mine\n")
    [task] = ran.json("agents/ada/inbox.json")["tasks"]
    assert (task["title"], task["owner"], task["from"], task["via"]) == ("Echo", "ada", "human", "operator")
    assert (task["priority"], task["input"], task["status"]) == ("high", {"days": 7}, "queued")
    found = ran("task", "show", "mine", "--json").json
    assert found["id"] == "mine" and "mine  queued  Echo" in ran("task", "show", "mine").out


def test_a_task_for_anyone(ran: Mesh) -> None:
    done = ran("task", "add", "Echo", "--any", "--needs", "chores", "--external", "--json")
    assert done.status == 0 and done.json["accepted"] is True
    [task] = ran.json("tasks/queue.json")["tasks"]
    assert (task["id"], task["owner"], task["needs"]) == (done.json["taskId"], "any", ["chores"])
    assert task["effects"] == "external"


def test_list(ran: Mesh) -> None:
    for number, priority in enumerate(("low", "urgent")):
        assert ran("task", "add", "Echo", "--to", "ada", "--id", f"t{number}", "--priority", priority).status == 0
    assert ran("task", "cancel", "t0").status == 0
    assert [task["id"] for task in ran("task", "list", "--json").json] == ["t1", "t0"]
    assert [task["id"] for task in ran("task", "list", "--status", "cancelled", "--json").json] == ["t0"]
    assert ran("task", "list", "--owner", "bob", "--json").json == []
    assert len(ran("task", "list", "--limit", "1", "--json").json) == 1
    lines = ran("task", "list").lines()
    assert lines[0].split()[:3] == ["ID", "STATUS", "PRIORITY"] and lines[1].split()[:3] == ["t1", "queued", "urgent"]


def test_cancel(ran: Mesh) -> None:
    assert ran("task", "add", "Echo", "--to", "ada", "--id", "t").status == 0
    assert ran("task", "cancel", "t").status == 0
    assert ran("task", "show", "t", "--json").json["status"] == "cancelled"
    assert "already ended" in refused(ran("task", "cancel", "t"), 1)
    assert list((ran.root / "system/human/inbox").glob("*t-end*")), "the person who gave it is told"


def test_a_task_whose_outcome_is_unknown_is_decided(ran: Mesh) -> None:
    assert ran("task", "add", "Echo", "--to", "ada", "--id", "t", "--external").status == 0
    [task] = ran.json("agents/ada/inbox.json")["tasks"]
    (ran.root / "agents/ada/inbox.json").write_text('{"schemaVersion": 1, "tasks": []}', encoding="utf-8")
    ended = {**task, "schemaVersion": 1, "status": "outcome_unknown", "attempts": 1, "error": "cut short"}
    (ran.root / "tasks/failed/t.json").write_text(json.dumps(ended), encoding="utf-8")
    assert "--as" in refused(ran("task", "resolve", "t"))
    done = ran("task", "resolve", "t", "--as", "completed", "--note", "the mail was sent")
    assert done.status == 0 and "completed" in done.out
    found = ran("task", "show", "t", "--json").json
    assert found["status"] == "completed" and "the mail was sent" in found["history"][-1]["reason"]
    assert not (ran.root / "tasks/failed/t.json").exists()
    assert "unknown outcome" in refused(ran("task", "resolve", "t", "--as", "retry"), 1)


WRONG: list[tuple[list[str], int, str]] = [
    (["add", "Echo"], 2, "--to"),
    (["add", "Echo", "--to", "ada", "--any"], 2, "--any"),
    (["add", "--to", "ada"], 2, "TITLE"),
    (["add", "Echo", "--to", "zoe"], 2, "'zoe'"),
    (["add", "", "--to", "ada"], 2, "title"),
    (["add", "x" * 201, "--to", "ada"], 2, "title"),
    (["add", "Echo", "--to", "ada", "--input", "{"], 2, "not JSON"),
    (["add", "Echo", "--to", "ada", "--input", "[1]"], 2, "JSON object"),
    (["add", "Echo", "--to", "ada", "--priority", "asap"], 2, "asap"),
    (["add", "Echo", "--to", "ada", "--id", "a b"], 2, "id"),
    (["add", "Echo", "--to", "ada", "--id", ".a"], 2, "dot"),
    (["add", "Echo", "--to", "ada", "--blocked-by", "nothing"], 2, "nothing"),
    (["add", "Fly", "--to", "ada"], 1, "Echo, Scan"),
    (["show", "nothing"], 2, "'nothing'"),
    (["show", "../../etc/passwd"], 2, "no task"),
    (["cancel", "nothing"], 2, "'nothing'"),
    (["list", "--status", "done"], 2, "'done'"),
    (["list", "--limit", "0"], 2, "--limit"),
]


@pytest.mark.parametrize(("arguments", "status", "reason"), WRONG)
def test_what_is_refused(ran: Mesh, arguments: list[str], status: int, reason: str) -> None:
    assert reason in refused(ran("task", *arguments), status)
    assert ran("task", "list", "--json").json == []


class Cut:
    """An agent that dies between taking a request in and answering it."""

    def __init__(self, port: int) -> None:
        self.bodies: list[Any] = []
        self._server = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            with connection:
                text = b""
                while b"\r\n\r\n" not in text and (part := connection.recv(65536)):
                    text += part
                if not text:
                    return
                head, _, body = text.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                while len(body) < length:
                    body += connection.recv(65536)
                self.bodies.append(json.loads(body))

    def close(self) -> None:
        socket.create_connection(self._server.getsockname()).close()
        self._thread.join(10)
        self._server.close()


def test_an_answer_that_is_cut_off_makes_no_second_task(ran: Mesh) -> None:
    """The agent may have taken the task in before it died: what is put into its files must be the same task."""
    cut = Cut(ran.json("agents/registry.json")["agents"]["ada"]["port"])
    try:
        done = ran("task", "add", "Echo", "--to", "ada")
    finally:
        cut.close()
    assert len(cut.bodies) == 1
    filed = ran.root / "agents/ada/inbox.json"
    waiting = [task["id"] for task in json.loads(filed.read_text(encoding="utf-8"))["tasks"]] if filed.exists() else []
    if done.status == 0:
        assert waiting == [cut.bodies[0].get("id")] and done.out.strip() == waiting[0]
    else:
        assert waiting == []
        refused(done, 1)
