"""Work that is stopped on the way: by a pause, by the end of its agent, and work that won't stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from typing import Any

import pytest

from mesh import Report
from mesh.errors import StoreUnavailable
from mesh.service import worker
from mesh.service.skill_context import SkillContext
from tests.service.stage import SEDATE, Gate, Mesh, until


@pytest.mark.parametrize("who", ["ada", "*"])
async def test_a_pause_stops_the_work_within_two_seconds(mesh: Mesh, who: str) -> None:
    """At the pace that agents have outside of tests, too."""
    mesh.limit(**SEDATE)
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Hold")
        await until(lambda: gate.begun)
        began_s = time.monotonic()
        mesh.store.switches.pause(who, "human", "the fair is on")
        await until(lambda: gate.stopped, 2.0)
        assert time.monotonic() - began_s < 2.0
        task = await ada.ended(task_id, "queued")
        assert task["attempts"] == 0, "what we stop ourselves doesn't count"
        assert "the fair is on" in task["history"][-1]["reason"]
        await until(lambda: ada.service.core.state.status == "blocked")
        assert ada.service.core.state.reason == "paused: the fair is on"
        waiting = await ada.give("Echo")
        ada.service.wake("human", "")
        await until(lambda: mesh.events("woken"))
        assert (ada.task(waiting)["status"], gate.begun) == ("queued", 1)

        mesh.store.switches.resume(who)
        await until(lambda: gate.begun == 2, 2.0)
        gate.opened.set()
        assert (await ada.ended(task_id))["attempts"] == 1
        await ada.ended(waiting)


async def test_a_pause_that_can_not_be_read_at_first_is_obeyed_all_the_same(mesh: Mesh, monkeypatch: Any) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        await ada.give("Hold")
        await until(lambda: gate.begun)
        disk, failed = ada.service.core.store.disk, []
        read = disk.read

        def once_failing(path: str) -> bytes:
            if path.endswith("/system/paused") and not failed:
                failed.append(path)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return read(path)

        monkeypatch.setattr(disk, "read", once_failing)
        mesh.store.switches.pause("ada", "human")
        await until(lambda: failed)
        await until(lambda: gate.stopped, 2.0)


async def test_a_pause_during_the_last_attempt_takes_none_away(mesh: Mesh) -> None:
    mesh.limit(taskAttemptsMax=1)
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Hold")
        for round_ in (1, 2):
            await until(lambda wanted=round_: gate.begun == wanted)
            mesh.store.switches.pause("ada", "human")
            await until(lambda wanted=round_: gate.stopped == wanted)
            mesh.store.switches.resume("ada")
        gate.opened.set()
        await ada.ended(task_id)


async def test_stopping_an_agent_gives_its_work_back(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Hold")
        await until(lambda: gate.begun)
    assert (gate.stopped, mesh.task(task_id)["status"], mesh.task(task_id)["attempts"]) == (1, "queued", 0)
    assert (mesh.json("agents/ada/state.json")["status"], mesh.json("agents/ada/state.json")["reason"]) == (
        "idle",
        "stopped",
    )
    gate.opened.set()
    async with mesh.running("ada") as ada:
        assert (await ada.ended(task_id))["attempts"] == 1


async def test_work_that_will_not_stop_runs_beside_nothing_else(mesh: Mesh, monkeypatch: Any) -> None:
    """A skill that catches its cancellation is still at work: nothing else may begin beside it."""
    mesh.limit(stopGraceS=0.5)
    let_go, beside = asyncio.Event(), []
    stubborn_runs = False

    async def stubborn(context: SkillContext) -> Report:
        nonlocal stubborn_runs
        stubborn_runs = True
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        stubborn_runs = False
        return Report("in my own time")

    async def other(context: SkillContext) -> Report:
        beside.append(stubborn_runs)
        return Report("other")

    mesh.skill("ada", "Stubborn", stubborn)
    mesh.skill("ada", "Other", other)
    async with mesh.running("ada") as ada, ada.client() as client:
        task_id = await ada.give("Stubborn")
        await until(lambda: stubborn_runs)
        assert (await client.delete(f"/task/{task_id}")).status_code == 200
        following = await ada.give("Other")
        with contextlib.suppress(AssertionError):  # it must not begin, so this time passes
            await until(lambda: beside, 1.5)
        let_go.set()
        await ada.ended(following)
    assert beside == [False]


async def test_a_cancellation_right_after_the_claim_stops_the_work(mesh: Mesh, monkeypatch: Any) -> None:
    """It comes while the agent still writes down that it begins: it must not be taken for old news."""
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        core = ada.service.core
        save = core.save

        async def cancelled_meanwhile() -> None:
            if core.state.current_task is not None and not gate.begun:
                mesh.store.tasks.cancel(core.state.current_task.id, "human", "called off")
            await save()

        monkeypatch.setattr(core, "save", cancelled_meanwhile)
        task_id = await ada.give("Hold")
        await ada.ended(task_id, "cancelled", 2.0)


async def test_a_cancellation_while_progress_is_saved_stops_the_work(mesh: Mesh, monkeypatch: Any) -> None:
    monkeypatch.setattr(worker, "_LOOK_S", 0.01)
    monkeypatch.setattr(worker, "_SAVE_PROGRESS_S", 0.01)
    halfway = asyncio.Event()

    async def climb(context: SkillContext) -> Report:
        context.progress(0.5)
        halfway.set()
        await asyncio.Event().wait()
        return Report("never")

    mesh.skill("ada", "Climb", climb)
    async with mesh.running("ada") as ada:
        tasks = ada.service.core.store.tasks
        progress = tasks.progress

        def cancelled_meanwhile(claim: Any, task_id: str, *rest: Any) -> Any:
            mesh.store.tasks.cancel(task_id, "human", "called off")
            return progress(claim, task_id, *rest)

        monkeypatch.setattr(tasks, "progress", cancelled_meanwhile)
        task_id = await ada.give("Climb")
        await until(halfway.is_set)
        await ada.ended(task_id, "cancelled", 2.0)


async def test_a_cancellation_that_can_not_be_read_at_first_stops_the_work_all_the_same(
    mesh: Mesh, monkeypatch: Any
) -> None:
    gate, failed = Gate(), []
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Hold")
        await until(lambda: gate.begun)
        find = ada.service.core.store.tasks.find

        def once_failing(wanted: str) -> Any:
            found = find(wanted)
            if found.cancel_requested and not failed:
                failed.append(wanted)
                raise StoreUnavailable("the disk is slow")
            return found

        monkeypatch.setattr(ada.service.core.store.tasks, "find", once_failing)
        mesh.store.tasks.cancel(task_id, "human", "called off")
        await until(lambda: failed)
        await until(lambda: gate.stopped, 2.0)
