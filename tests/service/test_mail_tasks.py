"""Messages that are about work: asked for, refused, helped with, handed over."""

from __future__ import annotations

from typing import Any

import pytest

from mesh import Report
from mesh.service.skill_context import SkillContext
from tests.service.mail_stage import QUICK, arrived, filed, ids, names, processed, send
from tests.service.stage import Gate, Mesh, until
from tests.service.test_mail_effects import crash_before_ack


@pytest.fixture(autouse=True)
def quick(mesh: Mesh) -> None:
    mesh.limit(**QUICK)


async def _ask(mesh: Mesh, title: str, sender: str = "dee", to: str = "ada", **fields: Any) -> str:
    return await send(mesh, sender, to, "task_request", payload={"task": {"title": title}}, **fields)


async def _fail(context: SkillContext) -> Report:
    raise RuntimeError("boom")


def _told(mesh: Mesh, agent: str) -> list[str]:
    return [m["type"] for place in ("inbox", "processed") for m in filed(mesh, agent, place)]


# -- task_request


async def test_the_giver_is_told_from_start_to_end(mesh: Mesh) -> None:
    gate = Gate()

    async def halfway(context: SkillContext) -> Report:
        context.progress(0.5)
        return await gate(context)

    mesh.skill("ada", "Halfway", halfway)
    async with mesh.running("ada"):
        id_ = await _ask(mesh, "Halfway", requires_ack=True)
        update = await arrived(mesh, "dee", "task_update")
        assert update["payload"]["progress"] == 0 and update["payload"]["status"] == "working"
        await until(lambda: names(mesh, "ada", "claims"))
        assert ids(mesh, "ada") == [id_], "its end is the ack"
        await until(lambda: any(m["payload"].get("progress") == 0.5 for m in filed(mesh, "dee")), 10)
        gate.opened.set()
        end = await arrived(mesh, "dee", "task_complete")
        task_id = update["payload"]["taskId"]
        assert end["payload"]["taskId"] == task_id and end["payload"]["result"]["text"] == "let go"
        assert (end["from"], end["via"], end["threadId"]) == ("ada", "mesh", id_)
        message = await processed(mesh, "ada", id_)
        ack = await arrived(mesh, "dee", "ack")
        assert ack["replyTo"] == id_ and message["ackedAt"] >= mesh.task(task_id)["finishedAt"]
        assert mesh.task(task_id)["message"] == id_
    assert sorted(_told(mesh, "dee")) == ["ack", "task_complete", "task_update", "task_update"]


async def test_the_giver_is_told_of_a_failure(mesh: Mesh) -> None:
    mesh.skill("ada", "Fail", _fail)
    async with mesh.running("ada"):
        id_ = await _ask(mesh, "Fail", requires_ack=True)
        end = await arrived(mesh, "dee", "task_failed")
        assert "boom" in end["payload"]["error"]
        await processed(mesh, "ada", id_)
    assert _told(mesh, "dee").count("task_failed") == 1


async def test_a_task_that_nothing_runs_is_refused_to_its_giver(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        id_ = await _ask(mesh, "Fly")
        end = await arrived(mesh, "dee", "task_failed")
        assert end["replyTo"] == id_ and "Fly" in end["payload"]["error"]
        await processed(mesh, "ada", id_)
    assert mesh.store.tasks.open() == [] and _told(mesh, "dee") == ["task_failed"]


async def test_the_ack_at_the_end_comes_after_a_restart_too(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada"):
        id_ = await _ask(mesh, "Hold", requires_ack=True)
        await until(lambda: gate.begun)
    assert ids(mesh, "ada") == [id_]
    gate.opened.set()
    async with mesh.running("ada"):
        await processed(mesh, "ada", id_)
        assert gate.ended == 1 and len(mesh.store.tasks.ended(10)) == 1


async def test_a_full_queue_of_tasks_keeps_the_message_waiting(mesh: Mesh) -> None:
    mesh.limit(tasksWaitingMax=1)
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        await ada.give("Hold")
        await until(lambda: gate.begun)
        await ada.give("Hold")
        id_ = await _ask(mesh, "Echo")
        await until(lambda: ada.service.mail.postman.counts.sweeps > 3)
        assert ids(mesh, "ada") == [id_]
        await until(lambda: not names(mesh, "ada", "claims"))
        gate.opened.set()
        await processed(mesh, "ada", id_)
        await until(lambda: "task_complete" in _told(mesh, "dee"))


@pytest.mark.parametrize("type_", ["fix_ci_failure", "fix_review_comments"])
async def test_fixes_without_a_skill_are_refused(mesh: Mesh, type_: str) -> None:
    payloads = {
        "fix_ci_failure": {"pr": "1", "check": "c", "error": "e"},
        "fix_review_comments": {"pr": "1", "comments": [{"path": "a", "body": "b"}]},
    }
    async with mesh.running("ada"):
        id_ = await send(mesh, "dee", "ada", type_, payload=payloads[type_])
        failed = await arrived(mesh, "dee", "task_failed")
        assert failed["replyTo"] == id_
        await processed(mesh, "ada", id_)


async def test_a_fix_reads_as_the_document_writes_it(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Fix review comments", gate)
    comments = [{"path": "a.py", "line": 3, "body": "why?"}, {"path": "b.py", "body": "whole file"}]
    async with mesh.running("ada"):
        payload = {"pr": "https://x/2", "comments": comments}
        await send(mesh, "dee", "ada", "fix_review_comments", payload=payload, priority="urgent")
        (task,) = await until(lambda: gate.begun and mesh.store.tasks.open())
        assert "a.py:3 - why?" in task.description and task.priority == "urgent" and task.input == payload
        gate.opened.set()


# -- help_request


async def test_help_is_claimed_by_who_can_and_never_assigned(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("dee", "dee-things", gate)
    async with mesh.running("ada"):
        id_ = await send(mesh, "bob", "ada", "help_request", payload={"topic": "dee-things", "context": "stuck"})
        await processed(mesh, "ada", id_)
        (task,) = mesh.store.tasks.open()
        assert (task.owner, task.type, task.needs, task.from_) == ("any", "help", ["dee-things"], "bob")
        assert task.description == "stuck"
        async with mesh.running("dee"):
            await until(lambda: gate.begun)
            assert mesh.task(task.id)["owner"] == "dee"
            gate.opened.set()
            end = await arrived(mesh, "bob", "task_complete")
            assert end["from"] == "dee" and end["payload"]["taskId"] == task.id


# -- context_handoff


async def _waiting_task(mesh: Mesh, owner: str) -> tuple[Any, str, Gate]:
    """A task of the agent that waits behind another, in a service that runs."""
    gate = Gate()
    mesh.skill(owner, "Hold", gate)
    served = mesh.running(owner)
    agent = await served.__aenter__()
    await agent.give("Hold")
    await until(lambda: gate.begun)
    return served, await agent.give("Echo", input={"a": 1}), gate


async def test_a_waiting_task_is_handed_over(mesh: Mesh) -> None:
    served, task_id, gate = await _waiting_task(mesh, "dee")
    handoff = {
        "summary": "half done",
        "files": ["a.py"],
        "context": {"task": task_id, "keyFacts": ["k"], "relevantDecisions": [], "doNotRepeat": ["x"]},
    }
    try:
        id_ = await send(mesh, "dee", "ada", "context_handoff", payload=handoff, requires_ack=True)
        await crash_before_ack(mesh, "ada", 1)
        assert mesh.task(task_id)["owner"] == "ada"
        async with mesh.running("ada") as ada:
            task = await ada.ended(task_id)
            assert task["input"] == {"a": 1, "handoff": {"from": "dee", **handoff}}
            await processed(mesh, "ada", id_)
            await until(lambda: "ack" in _told(mesh, "dee"))
        assert "error" not in _told(mesh, "dee")
    finally:
        gate.opened.set()
        await served.__aexit__(None, None, None)
    assert gate.ended + gate.stopped == 1


async def test_a_handoff_whose_task_ended_before_its_ack(mesh: Mesh) -> None:
    served, task_id, gate = await _waiting_task(mesh, "dee")
    try:
        id_ = await send(mesh, "dee", "ada", "context_handoff", payload={"summary": "s", "context": {"task": task_id}})
        service = await crash_before_ack(mesh, "ada")
        mesh.store.tasks.cancel(task_id, "operator", "no longer wanted")
        assert service is not None
        async with mesh.running("ada"):
            await processed(mesh, "ada", id_)
        assert "error" not in _told(mesh, "dee"), "it was taken over: that is no failure"
    finally:
        gate.opened.set()
        await served.__aexit__(None, None, None)


async def test_what_cannot_be_handed_over(mesh: Mesh) -> None:
    served, task_id, gate = await _waiting_task(mesh, "dee")
    try:
        working = next(task.id for task in mesh.store.tasks.open() if task.id != task_id)
        async with mesh.running("ada"):
            for named in (working, {"id": working}):
                id_ = await send(
                    mesh, "dee", "ada", "context_handoff", payload={"summary": "s", "context": {"task": named}}
                )
                await processed(mesh, "ada", id_)
            # Of another agent's tasks one has nothing to hand over.
            id_ = await send(
                mesh, "cyd", "ada", "context_handoff", payload={"summary": "s", "context": {"task": task_id}}
            )
            await processed(mesh, "ada", id_)
        assert _told(mesh, "dee").count("error") == 2 and "error" in _told(mesh, "cyd")
        assert mesh.task(task_id)["owner"] == mesh.task(working)["owner"] == "dee"
    finally:
        gate.opened.set()
        await served.__aexit__(None, None, None)


async def test_a_handoff_of_words_begins_a_task(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        handoff = {"summary": "write it again", "context": {"task": "Echo"}}
        id_ = await send(mesh, "dee", "ada", "context_handoff", payload=handoff)
        await processed(mesh, "ada", id_)
        task = await ada.ended(f"task-{id_}")
        assert (task["title"], task["description"], task["from"]) == ("Echo", "write it again", "dee")
        assert task["input"]["handoff"]["from"] == "dee"
