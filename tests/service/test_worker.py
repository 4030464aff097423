"""The worker: every way in which an attempt can end, and what becomes of the task."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest

from mesh import Report
from mesh.errors import SkillInputError
from mesh.service import worker
from mesh.service.skill_context import SkillContext
from tests.service.stage import Gate, Mesh, until


class Failing:
    """A skill that fails so many times, then succeeds."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.calls = 0

    async def __call__(self, context: SkillContext) -> Report:
        self.calls += 1
        if self.calls <= self.times:
            raise RuntimeError(f"boom {self.calls}")
        return Report("at last", remember={"calls": self.calls})


def blockers(mesh: Mesh, unresolved: bool = True) -> list[Any]:
    return mesh.store.knowledge.blockers(unresolved=unresolved)


async def test_three_failures_and_it_has_failed(mesh: Mesh) -> None:
    failing = Failing(99)
    mesh.skill("ada", "Fail", failing)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Fail", priority="high", needs=["a-tool"])
        task = await ada.ended(task_id, "failed")
        assert (task["attempts"], failing.calls) == (3, 3)
        await until(lambda: blockers(mesh))
        assert "RuntimeError: boom 3" in task["error"] and "attempt 3 of 3" in task["error"]
        assert [entry["status"] for entry in task["history"]] == [
            "queued",
            *["working", "queued"] * 2,
            "working",
            "failed",
        ]
        found = blockers(mesh)
        assert [(b.agent, b.topic, b.task_id, b.severity, b.needs) for b in found] == [
            ("ada", "Fail", task_id, "high", ["a-tool"])
        ]
        await until(lambda: ada.service.core.state.metrics.errors24h == 3)
        assert ada.service.core.state.metrics.error_rate == 1.0
        await ada.ended(await ada.give("Echo"))


async def test_a_success_after_failures(mesh: Mesh) -> None:
    failing = Failing(2)
    mesh.skill("ada", "Fail", failing)
    async with mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Fail"))
        assert (task["attempts"], task["error"], task["result"]["text"]) == (3, None, "at last")
        assert blockers(mesh) == []


async def test_a_success_resolves_the_blocker_of_the_same_work(mesh: Mesh) -> None:
    failing = Failing(3)
    mesh.skill("ada", "Fail", failing)
    async with mesh.running("ada") as ada:
        await ada.ended(await ada.give("Fail"), "failed")
        await until(lambda: len(blockers(mesh)) == 1)
        await ada.ended(await ada.give("Fail"))
        await until(lambda: not blockers(mesh))
        assert len(blockers(mesh, unresolved=False)) == 1


async def test_a_retry_waits_for_its_tick(mesh: Mesh) -> None:
    mesh.limit(taskRetryDelayTicks=2)
    failing = Failing(1)
    mesh.skill("ada", "Fail", failing)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Fail")
        await ada.ended(task_id, "queued")
        await ada.ended(await ada.give("Echo"))  # it is passed over meanwhile
        assert failing.calls == 1
        tick = ada.service.core.clock.tick
        assert ada.task(task_id)["notBeforeTick"] == tick + 2
        ada.service.core.clock.tick = tick + 2  # as if two ticks had come
        ada.service.core.wake_worker()
        await ada.ended(task_id)


async def test_wrong_input_fails_at_once(mesh: Mesh) -> None:
    calls = 0

    async def picky(context: SkillContext) -> Report:
        nonlocal calls
        calls += 1
        raise SkillInputError("knowledge/ada/leads.csv line 3: due is 'soon', not a date.", file="leads.csv", line=3)

    mesh.skill("ada", "Picky", picky)
    async with mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Picky"), "failed")
    assert (calls, task["attempts"]) == (1, 1)
    assert task["error"] == "knowledge/ada/leads.csv line 3: due is 'soon', not a date."
    assert [blocker.topic for blocker in blockers(mesh)] == ["Picky"]


async def test_a_skill_that_hangs_is_stopped(mesh: Mesh) -> None:
    mesh.limit(taskRunMaxS=1, taskAttemptsMax=1)
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Hold"), "failed")
        assert "longer than 1 s" in task["error"] and gate.stopped == 1
        await ada.ended(await ada.give("Echo"))


async def test_a_cancelled_error_of_its_own_is_a_failure(mesh: Mesh) -> None:
    """A skill that lets a cancellation of its own out must not end the worker."""

    async def confused(context: SkillContext) -> Report:
        raise asyncio.CancelledError

    mesh.limit(taskAttemptsMax=1)
    mesh.skill("ada", "Confused", confused)
    async with mesh.running("ada") as ada:
        await ada.ended(await ada.give("Confused"), "failed")
        await ada.ended(await ada.give("Echo"))


CARELESS: list[tuple[str, Any]] = [
    ("nothing", None),
    ("text alone", "a report"),
    ("no text", Report(None)),  # type: ignore[arg-type]
    ("half a character", Report("\ud800")),
    ("evidence that is no text", Report("x", evidence=[{"a": 1}])),  # type: ignore[list-item]
    ("files that are no list", Report("x", files=None)),  # type: ignore[arg-type]
    ("a memory that is no JSON", Report("x", remember={"at": object()})),
    ("half a character remembered", Report("x", remember={"at": "\ud800"})),
]


@pytest.mark.parametrize("answer", [row[1] for row in CARELESS], ids=[row[0] for row in CARELESS])
async def test_a_careless_skill_ends_its_attempt_not_its_agent(mesh: Mesh, answer: Any) -> None:
    async def careless(context: SkillContext) -> Any:
        return answer

    mesh.limit(taskAttemptsMax=1)
    mesh.skill("ada", "Careless", careless)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Careless")
        await until(lambda: ada.service.core.fatal or ada.task(task_id)["status"] in ("failed", "completed"))
        following = await ada.give("Echo")
        await until(lambda: ada.service.core.fatal or ada.task(following)["status"] == "completed")
        assert ada.service.core.fatal is None


async def test_an_attempt_with_external_effects_is_never_repeated_by_itself(mesh: Mesh) -> None:
    gate, failing = Gate(), Failing(99)
    mesh.skill("ada", "Hold", gate)
    mesh.skill("ada", "Fail", failing)
    async with mesh.running("ada") as ada:
        cut_short = await ada.give("Hold", effects="external")
        await until(lambda: gate.begun)
        mesh.store.switches.pause("ada", "human")
        await ada.ended(cut_short, "outcome_unknown")
        mesh.store.switches.resume("ada")
        failed = await ada.give("Fail", effects="external")
        await ada.ended(failed, "outcome_unknown")
        await until(lambda: len(mesh.store.alerts.open()) == 2)
        await ada.ended(await ada.give("Echo"))
        assert (gate.begun, failing.calls) == (1, 1)
    for alert, task_id in zip(mesh.store.alerts.open(), (cut_short, failed), strict=True):
        assert (alert.type, alert.agent_id, alert.severity) == ("outcome_unknown", "ada", "high")
        assert task_id in alert.next and "resolve" in alert.next


async def test_a_result_that_is_too_long_is_cut(mesh: Mesh) -> None:
    async def talk(context: SkillContext) -> Report:
        return Report("ä" * 5_000)

    mesh.limit(resultBytesMax=1_001)
    mesh.skill("ada", "Talk", talk)
    async with mesh.running("ada") as ada:
        text = (await ada.ended(await ada.give("Talk")))["result"]["text"]
    kept, note = text[:500], text[500:]
    assert kept == "ä" * 500, "cut between two characters"
    assert "cut" in note and len(note) < 200


async def test_what_a_report_remembers_is_kept_on_completion_only(mesh: Mesh) -> None:
    recalled: list[Any] = []
    gate = asyncio.Event()

    async def learn(context: SkillContext) -> Report:
        recalled.append(context.recall("seen", "nothing"))
        if context.task.input.get("wait"):
            await gate.wait()
        return Report("learnt", remember={"seen": context.task.input["seen"]})

    mesh.skill("ada", "Learn", learn)
    async with mesh.running("ada") as ada, ada.client() as client:
        await ada.ended(await ada.give("Learn", input={"seen": 1}))
        dropped = await ada.give("Learn", input={"seen": 2, "wait": True})
        await until(lambda: len(recalled) == 2)
        # It reports what it saw, but was called off in the same moment: the end is `cancelled`.
        mesh.store.tasks.cancel(dropped, "human", "called off")
        gate.set()
        await ada.ended(dropped, "cancelled")
        await ada.ended(await ada.give("Learn", input={"seen": 3}))
        await until(lambda: mesh.store.memory("ada") == {"seen": 3})
        assert (await client.get(f"/task/{dropped}")).json()["result"] is None
    assert recalled == ["nothing", 1, 1]


async def test_progress_can_be_seen(mesh: Mesh, monkeypatch: Any) -> None:
    monkeypatch.setattr(worker, "_LOOK_S", 0.01)
    monkeypatch.setattr(worker, "_SAVE_PROGRESS_S", 0.01)
    steps: asyncio.Queue[float] = asyncio.Queue()

    async def climb(context: SkillContext) -> Report:
        while (share := await steps.get()) < 1:
            context.progress(share)
        return Report("up")

    mesh.skill("ada", "Climb", climb)
    async with mesh.running("ada") as ada, ada.client() as client:
        task_id = await ada.give("Climb")
        for share in (0.25, 0.5):
            steps.put_nowait(share)
            await until(lambda wanted=share: ada.task(task_id)["progress"] == wanted)
            assert (await client.get(f"/task/{task_id}")).json()["progress"] == share
            assert (await client.get("/status")).json()["currentTask"]["progress"] == share
            assert mesh.json("agents/ada/state.json")["currentTask"]["progress"] == share
        steps.put_nowait(-5)
        await until(lambda: ada.task(task_id)["progress"] == 0)
        steps.put_nowait(1)
        assert (await ada.ended(task_id))["progress"] == 1.0


async def test_one_task_at_a_time(mesh: Mesh) -> None:
    running, most = 0, 0

    async def count(context: SkillContext) -> Report:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return Report("one")

    mesh.skill("ada", "Count", count)
    async with mesh.running("ada") as ada:
        ids = [await ada.give("Count") for _ in range(10)]
        for _ in range(20):
            ada.service.wake("human", "")
        for task_id in ids:
            await ada.ended(task_id)
    assert most == 1
    assert all(ada.task(task_id)["attempts"] == 1 for task_id in ids)


async def test_several_agents_take_each_task_of_the_global_queue_once(mesh: Mesh) -> None:
    calls: list[tuple[str, str]] = []

    async def note(context: SkillContext) -> Report:
        calls.append((context.agent, context.task.id))
        await asyncio.sleep(0)
        return Report("noted")

    for agent in mesh.roles:
        mesh.skill(agent, "Note", note)
    async with mesh.all_running(*mesh.roles) as served:
        ids = [await served[0].give("Note", owner="any", needs=["chores"]) for _ in range(20)]
        for task_id in ids:
            await served[0].ended(task_id)
    assert sorted(task_id for _, task_id in calls) == sorted(ids)


async def test_a_disk_that_is_full_while_settling_loses_no_outcome(mesh: Mesh, monkeypatch: Any) -> None:
    monkeypatch.setattr(worker, "_SETTLE_AGAIN_S", 0.02)
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada, ada.client() as client:
        task_id = await ada.give("Hold")
        await until(lambda: gate.begun)
        disk, refused = ada.service.core.store.disk, []

        def refuse(path: str) -> int:
            refused.append(path)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as full:
            full.setattr(disk, "create", refuse)
            full.setattr(disk, "free_bytes", lambda path: 0)
            gate.opened.set()
            await until(lambda: sum("active" in path or task_id in path for path in refused) > 3)
            assert (await client.get("/health")).json()["status"] == "degraded"
            assert ada.task(task_id)["status"] == "working"
        task = await ada.ended(task_id)
        assert (task["result"]["text"], task["attempts"], gate.begun) == ("let go", 1, 1)
        await until(lambda: not ada.service.core.disk_low)
        assert (await client.get("/health")).json()["status"] == "healthy"
