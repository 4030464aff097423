"""Tasks through the tools: giving, the one in hand, telling how it goes, handing over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mesh.errors import UnknownTask
from mesh.models import Claim, Task
from mesh.models.running import RunnerHealth
from mesh.runners.base import Report
from mesh.service.api import build_app
from mesh.service.told import Told
from tests.interop.mcp.stage import Session, Tools
from tests.service.mail_stage import arrived, filed, processed
from tests.service.sockets import free_ports, listening
from tests.service.stage import Mesh, until


def put(mesh: Mesh, owner: str, id_: str = "t-1", *, working: bool = False, **fields: Any) -> Task:
    """A task of this owner, in hand if it says so."""
    at = "2026-02-17T10:00:00.000Z"
    task = {"id": id_, "title": "Paint it", "owner": owner, "from": "cyd", "createdAt": at, "updatedAt": at, **fields}
    accepted, _ = mesh.store.tasks.accept(Task.model_validate(task), 100)
    if working:
        claimed = mesh.store.tasks.claim(Claim(agent=owner, incarnation=1, since=at), lambda own, shared: own[0], 0)
        assert claimed is not None and claimed.id == id_
        return claimed
    return accepted


@asynccontextmanager
async def daemon(mesh: Mesh, agent: str, status: int = 200, **problem: Any) -> AsyncIterator[list[tuple[str, Any]]]:
    """Stands where an agent's daemon does, and keeps what it was told. `test_the_daemon_has_these_routes` compares
    it with the real one."""
    told: list[tuple[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        assert headers["authorization"] == f"bearer {mesh.secret(agent)}".lower()
        told.append((head.split()[1], json.loads(body or b"null")))
        content = json.dumps(problem or {"ok": True}).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()

    free_ports(mesh)
    port = mesh.store.registry.check().entry(agent).port
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        yield told


# -- giving


async def test_a_task_for_another_stands_in_its_queue(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    async with listening(mesh, "bob"), tools.of("dee") as dee:
        given = await dee("create_task", title="Echo", to="bob", input={"n": 1}, priority="high", task_id="mine")
        assert given == {"taskId": "mine", "owner": "bob", "accepted": "now", "messageId": None}
        again = await dee("create_task", title="Echo", to="bob", input={"n": 1}, priority="high", task_id="mine")
        assert again["taskId"] == "mine"
        await until(lambda: mesh.task("mine")["status"] == "completed", 10)
        done = await arrived(mesh, "dee", "task_complete")
        assert done["payload"]["taskId"] == "mine"


async def test_policy_and_skills_decide_as_for_everybody(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    async with listening(mesh, "bob"), tools.of("ada") as ada, tools.of("cyd") as cyd:
        assert "No skill" in await ada.refused("create_task", title="Fly", to="bob")
        assert "No agent" in await ada.refused("create_task", title="Echo", to="eve")
        assert "title" in await ada.refused("create_task", title="", to="bob")
        assert (await cyd("create_task", title="Echo", to="bob"))["accepted"] == "now"
        async with tools.of("bob") as bob, listening(mesh, "ada"):
            assert "may not give" in await bob.refused("create_task", title="Echo", to="ada")


async def test_who_is_down_gets_the_task_by_mail_and_it_is_one_task(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    async with tools.of("ada") as ada:
        given = await ada("create_task", title="Echo", to="bob", input={"n": 2}, task_id="by-mail")
        assert (given["accepted"], given["taskId"]) == ("by mail", "by-mail")
        async with listening(mesh, "bob"):
            await until(lambda: _status(mesh, "by-mail") == "completed", 10)
            assert (await ada("create_task", title="Echo", to="bob", input={"n": 2}, task_id="by-mail"))[
                "accepted"
            ] == "now"
    assert len([task for task in mesh.store.tasks.ended(100) if task.id == "by-mail"]) == 1


async def test_a_task_for_anybody_needs_some_daemon(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    async with tools.of("ada") as ada:
        assert "No agent's daemon is up" in await ada.refused("create_task", title="Echo")
        async with listening(mesh, "cyd"):
            given = await ada("create_task", title="Echo")
            assert (given["owner"], given["accepted"]) == ("any", "now")


# -- the task in hand


async def test_next_task_shows_what_is_in_hand_and_changes_nothing(mesh: Mesh, bob: Session) -> None:
    mesh.edit(
        lambda document: document["agents"]["bob"].update(runner={"kind": "tmux", "cli": "claude", "target": "b"})
    )
    nothing = await bob("next_task")
    assert nothing["task"] is None and nothing["waiting"] == 0
    put(mesh, "bob", working=True, description="in blue", input={"colour": "blue"})
    put(mesh, "bob", "t-2")
    before = (mesh.root / "tasks" / "active.json").read_bytes()
    found = await bob("next_task")
    assert (found["task"]["id"], found["task"]["description"], found["task"]["input"]) == (
        "t-1",
        "in blue",
        {"colour": "blue"},
    )
    assert (found["task"]["status"], found["task"]["from"], found["waiting"], found["doneHere"]) == (
        "working",
        "cyd",
        1,
        True,
    )
    assert (mesh.root / "tasks" / "active.json").read_bytes() == before


async def test_what_the_agents_own_runner_does_is_not_this_sessions(mesh: Mesh, bob: Session) -> None:
    put(mesh, "bob", working=True)
    found = await bob("next_task")
    assert not found["doneHere"] and "own runner" in found["note"]


class Asking:
    """A runner that waits for what the session says, as the one for tmux does."""

    outlives, reads_mail = False, False

    def can_run(self, task: Task) -> bool:
        return True

    async def run(self, task: Task, told: Told) -> Report:
        return await told.told(task)

    async def occupancy(self) -> None:
        """Nobody can tell."""

    async def health(self) -> RunnerHealth:
        return RunnerHealth(state="ok")


async def test_a_session_does_the_task_that_the_agent_holds(mesh: Mesh, tools: Tools) -> None:
    """With a real daemon: claimed by its worker, told through the tools, recorded by the worker."""
    free_ports(mesh)
    async with listening(mesh, "bob") as server, tools.of("cyd") as cyd, tools.of("bob") as bob:
        server.service.runner.chosen = Asking()
        given = await cyd("create_task", title="Paint the shed", to="bob", description="in blue")
        found = await bob("next_task", wait_s=10)
        assert found["task"]["id"] == given["taskId"] and found["task"]["description"] == "in blue"
        await bob("update_task", task_id=given["taskId"], progress=0.5, note="one side")
        await until(lambda: server.service.core.state.current_task.progress == 0.5)
        await bob("complete_task", task_id=given["taskId"], text="It is blue.", files=["a.png"], evidence=["seen"])
        await until(lambda: _status(mesh, given["taskId"]) == "completed", 10)
        assert mesh.task(given["taskId"])["result"] == {
            **mesh.task(given["taskId"])["result"],
            "text": "It is blue.",
            "files": ["a.png"],
            "evidence": ["seen"],
        }
        second = await cyd("create_task", title="Paint it red", to="bob")
        await bob("next_task", wait_s=10)
        assert "not the task in hand" in await bob.refused("update_task", task_id=given["taskId"], progress=1)
        await bob("fail_task", task_id=second["taskId"], error="no red paint")
        await until(lambda: "no red paint" in json.dumps(mesh.task(second["taskId"])), 10)


async def test_next_task_waits_for_one(mesh: Mesh, bob: Session) -> None:
    async def later() -> None:
        await asyncio.sleep(0.3)
        put(mesh, "bob", working=True)

    coming = asyncio.ensure_future(later())
    found = await bob("next_task", wait_s=10)
    await coming
    assert found["task"]["id"] == "t-1"
    assert "wait_s" in await bob.refused("next_task", wait_s=3600)


async def test_tasks_of_an_agent_that_is_down_wait(mesh: Mesh, bob: Session) -> None:
    put(mesh, "bob")
    found = await bob("next_task")
    assert found["task"] is None and found["waiting"] == 1 and "daemon is down" in found["note"]


async def test_telling_goes_to_the_agents_own_daemon(mesh: Mesh, tools: Tools) -> None:
    put(mesh, "bob", working=True)
    async with daemon(mesh, "bob") as told, tools.of("bob") as bob:
        done = await bob("update_task", task_id="t-1", progress=0.5, note="half of it")
        assert (done["told"], done["status"]) == ("progress", "working")
        done = await bob("complete_task", task_id="t-1", text="It is **blue**.", files=["a.png"], evidence=["abc123"])
        assert done["told"] == "completed"
        assert (await bob("fail_task", task_id="t-1", error="no paint"))["told"] == "failed"
    assert told == [
        ("/task/t-1/progress", {"progress": 0.5, "note": "half of it"}),
        ("/task/t-1/complete", {"text": "It is **blue**.", "files": ["a.png"], "evidence": ["abc123"]}),
        ("/task/t-1/fail", {"error": "no paint"}),
    ]


async def test_what_the_daemon_refuses_is_told_in_its_words(mesh: Mesh, tools: Tools) -> None:
    put(mesh, "bob", working=True)
    async with daemon(mesh, "bob", 409, detail="It isn't the one in hand.", taskId="t-1"), tools.of("bob") as bob:
        assert "isn't the one in hand" in await bob.refused("complete_task", task_id="t-1", text="done")


async def test_telling_of_what_is_not_ones_own_or_isnt_there(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    put(mesh, "ada", working=True)
    put(mesh, "bob", "t-2")
    async with tools.of("bob") as bob:
        assert "is ada's task" in await bob.refused("complete_task", task_id="t-1", text="done")
        assert "no task 'nope'" in await bob.refused("fail_task", task_id="nope", error="x")
        assert "no task '../x'" in await bob.refused("update_task", task_id="../x", progress=0)
        assert "say it again when it is up" in await bob.refused("update_task", task_id="t-2", progress=0.1)
        assert "progress" in await bob.refused("update_task", task_id="t-2", progress=1.5)
        assert "text" in await bob.refused("complete_task", task_id="t-2", text="")


def test_the_daemon_has_these_routes(mesh: Mesh) -> None:
    """What the stand-in above takes, the real daemon takes too."""
    document = build_app("bob", lambda: mesh.service("bob")).openapi()
    bodies = {"progress": {"progress", "note"}, "complete": {"text", "files", "evidence"}, "fail": {"error"}}
    for what, fields in bodies.items():
        route = document["paths"][f"/task/{{task_id}}/{what}"]["post"]
        schema = route["requestBody"]["content"]["application/json"]["schema"]
        model = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        assert fields <= set(model["properties"])


# -- handing over


async def test_a_waiting_task_is_handed_over(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    put(mesh, "ada", blockedBy=[], title="Echo")
    async with tools.of("ada") as ada, listening(mesh, "bob"):
        asked = await ada("handoff_task", to="bob", task_id="t-1", summary="all of it", key_facts=["blue"], files=["a"])
        assert (asked["to"], asked["taskId"], asked["note"]) == ("bob", "t-1", "")
        await until(lambda: _status(mesh, "t-1") == "completed", 10)
        task = mesh.task("t-1")
        assert task["owner"] == "bob" and task["input"]["handoff"]["summary"] == "all of it"
        assert task["input"]["handoff"]["context"]["keyFacts"] == ["blue"]


async def test_without_a_task_a_new_one_follows(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    async with tools.of("ada") as ada:
        asked = await ada("handoff_task", to="bob", title="Echo", summary="take this", do_not_repeat=["red"])
        assert "bob is down" in asked["note"]
        async with listening(mesh, "bob"):
            await until(lambda: _status(mesh, asked["taskId"]) == "completed", 10)
    assert mesh.task(asked["taskId"])["input"]["handoff"]["context"]["doNotRepeat"] == ["red"]


async def test_what_cannot_be_handed_over_is_refused_before_anybody_is_told(mesh: Mesh, bob: Session) -> None:
    put(mesh, "bob", working=True)
    put(mesh, "ada", "t-2")
    assert "in your hands" in await bob.refused("handoff_task", to="cyd", task_id="t-1", summary="s")
    assert "is ada's task" in await bob.refused("handoff_task", to="cyd", task_id="t-2", summary="s")
    assert "no task" in await bob.refused("handoff_task", to="cyd", task_id="t-3", summary="s")
    assert "may not give" in await bob.refused("handoff_task", to="ada", summary="s")
    assert filed(mesh, "cyd") == [] and filed(mesh, "ada") == []


# -- help


async def test_help_becomes_a_task_for_whoever_can(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    async with tools.of("ada") as ada:
        asked = await ada("ask_for_help", topic="bob-things", context="I am stuck")
        assert "daemon is down" in asked["note"]
        async with listening(mesh, "ada"):
            await processed(mesh, "ada", asked["messageId"])
            task = mesh.task(asked["taskId"])
    assert (task["owner"], task["from"], task["needs"], task["type"]) == ("any", "ada", ["bob-things"], "help")
    assert task["description"] == "I am stuck"


def _status(mesh: Mesh, id_: str) -> str | None:
    try:
        return str(mesh.task(id_)["status"])
    except UnknownTask:
        return None
