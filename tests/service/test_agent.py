"""The one loop of an agent: edits, ticks, crashes, and the end of an incarnation that was replaced."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mesh.service import carrier
from mesh.service.agent import AgentService
from mesh.service.core import Core
from tests.service.stage import SEDATE, Gate, Mesh, Served, assert_problem, hang, until

# -- edits


async def test_an_edit_of_the_registry_counts_within_two_seconds(mesh: Mesh) -> None:
    """At the pace that agents have outside of tests."""
    mesh.limit(**SEDATE)
    async with mesh.running("ada") as ada, ada.client() as client:
        assert (await client.get("/status")).json()["buddy"] == "bob"
        began_s = time.monotonic()

        def pair_anew(document: dict[str, Any]) -> None:
            pairs = {"ada": "cyd", "cyd": "ada", "bob": "dee", "dee": "bob"}
            for agent, buddy in pairs.items():
                document["agents"][agent]["buddy"] = buddy

        mesh.edit(pair_anew)
        await until(lambda: ada.service.core.registry.entry("ada").buddy == "cyd", 2.0)
        assert time.monotonic() - began_s < 2.0
        found = (await client.get("/status")).json()
        assert (found["buddy"], found["watchedBy"]) == ("cyd", "cyd")
    assert mesh.events("registry_in_force", "ada")


async def test_an_edit_in_place_counts_too(mesh: Mesh) -> None:
    """Some editors write into the file instead of replacing it."""
    async with mesh.running("ada") as ada:
        document = json.loads(mesh.registry_file.read_text(encoding="utf-8"))
        document["agents"]["ada"]["name"] = "Countess"
        mesh.registry_file.write_text(json.dumps(document), encoding="utf-8")
        await until(lambda: ada.service.core.registry.entry("ada").name == "Countess", 2.0)


BROKEN: list[tuple[str, str]] = [
    ("{", "not valid JSON"),
    ("", "not valid JSON"),
    ('{"agents": {}}', "at least two agents"),
    ("unwatched", "nobody watches 'bob'"),
    ("newer", "schemaVersion 9"),
]


@pytest.mark.parametrize(("text", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
async def test_a_broken_edit_changes_nothing_and_shows(mesh: Mesh, text: str, reason: str) -> None:
    async with mesh.running("ada") as ada, ada.client() as client:
        document = json.loads(mesh.registry_file.read_text(encoding="utf-8"))
        good = json.dumps(document)
        if text == "unwatched":
            document["agents"]["ada"]["buddy"] = "dee"
            text = json.dumps(document)
        elif text == "newer":
            text = json.dumps({**document, "schemaVersion": 9})
        mesh.write(text)
        await until(lambda: ada.service.core.store.registry.error)
        found = (await client.get("/status")).json()
        assert (found["buddy"], found["registry"]["ok"]) == ("bob", False)
        assert reason in found["registry"]["error"]["detail"]
        assert str(mesh.registry_file) in found["registry"]["error"]["detail"]
        health = await client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        await ada.ended(await ada.give("Echo"))
        await until(lambda: mesh.events("registry_refused", "ada"))
        assert mesh.registry_file.read_text(encoding="utf-8") == text, "the edit is left for its author to mend"

        mesh.write(good)
        await until(lambda: not ada.service.core.store.registry.error)
        found = (await client.get("/status")).json()
        assert found["registry"] == {"ok": True, "error": None}
        assert (await client.get("/health")).json()["status"] == "healthy"
    assert len(mesh.events("registry_refused", "ada")) == 1, "told once, not once a second"


async def test_a_registry_that_vanishes_changes_nothing(ada: Served) -> None:
    text = ada.mesh.registry_file.read_text(encoding="utf-8")
    ada.mesh.registry_file.unlink()
    await until(lambda: ada.service.core.store.registry.error)
    await ada.ended(await ada.give("Echo"))
    ada.mesh.write(text)
    await until(lambda: not ada.service.core.store.registry.error)


async def test_a_start_with_a_broken_registry_uses_the_last_good_one(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        pass
    mesh.write("{")
    async with mesh.running("ada") as ada, ada.client() as client:
        assert (await client.get("/status")).json()["registry"]["ok"] is False
        await ada.ended(await ada.give("Echo"))


async def test_limits_in_force_change_with_an_edit(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada, ada.client() as client:
        body = {"title": "Echo", "description": "x" * 5000}
        assert (await client.post("/task", json=body)).status_code == 202
        mesh.edit(lambda d: d["agents"]["ada"].update(limits={"messageBytesMax": 3000, "resultBytesMax": 3000}))
        await until(lambda: ada.service.core.limits.message_bytes_max == 3000)
        assert_problem(await client.post("/task", json=body), 413, "too-large")


async def test_an_agent_that_was_removed_ends_itself(mesh: Mesh) -> None:
    reasons: list[str] = []
    async with mesh.running("ada", on_fatal=reasons.append) as ada:

        def remove(document: dict[str, Any]) -> None:
            del document["agents"]["ada"]
            document["agents"]["dee"]["buddy"] = "bob"

        mesh.edit(remove)
        await until(lambda: reasons)
        assert "removed from the registry" in reasons[0]
        async with ada.client() as client:
            assert (await client.get("/health")).status_code in (200, 503)


# -- ticks


class Carried:
    """Records who carried which tick."""

    def __init__(self, monkeypatch: Any) -> None:
        self.ticks: list[tuple[int, str]] = []
        carry = carrier.carry

        async def note(core: Core) -> None:
            self.ticks.append((core.clock.tick, core.agent))
            await carry(core)

        monkeypatch.setattr(carrier, "carry", note)

    def last(self) -> int:
        return max((tick for tick, _ in self.ticks), default=0)

    def assert_each_once(self) -> None:
        counts = Counter(tick for tick, _ in self.ticks)
        assert set(counts.values()) == {1}, "no tick is carried twice"
        assert sorted(counts) == list(range(min(counts), max(counts) + 1)), "and none is left out"


async def test_each_tick_is_carried_by_one(mesh: Mesh, monkeypatch: Any) -> None:
    carried = Carried(monkeypatch)
    async with mesh.all_running("ada", "bob", "cyd", tick_seconds=0.1) as served:
        await until(lambda: carried.last() >= 12)
        await until(lambda: len({one.service.core.clock.tick for one in served}) == 1)
        assert all(one.service.core.state.last_tick for one in served)
    carried.assert_each_once()
    clock = mesh.json("system/clock.json")
    assert clock["tick"] >= 12 and clock["carrier"] in mesh.roles


async def test_a_stopped_carrier_is_replaced(mesh: Mesh, monkeypatch: Any) -> None:
    carried = Carried(monkeypatch)
    async with AsyncExitStack() as rest, AsyncExitStack() as first:
        await first.enter_async_context(mesh.running("ada", tick_seconds=0.1))
        await until(lambda: carried.last() >= 3)
        assert {agent for _, agent in carried.ticks} == {"ada"}
        await rest.enter_async_context(mesh.running("bob", tick_seconds=0.1))
        await rest.enter_async_context(mesh.running("cyd", tick_seconds=0.1))
        await first.aclose()
        stopped_at = carried.last()
        await until(lambda: carried.last() >= stopped_at + 5)
    carried.assert_each_once()
    assert {agent for tick, agent in carried.ticks if tick > stopped_at} <= {"bob", "cyd"}


async def test_ticks_go_on_where_they_were(mesh: Mesh, monkeypatch: Any) -> None:
    carried = Carried(monkeypatch)
    for _ in range(3):
        before = carried.last()
        async with mesh.running("ada", tick_seconds=0.05):
            await until(lambda before=before: carried.last() >= before + 3)
    carried.assert_each_once()


async def test_a_tick_refreshes_health_and_clock(mesh: Mesh) -> None:
    async with mesh.all_running("ada", "bob", tick_seconds=0.1):
        await until(lambda: (mesh.root / "system/clock.json").exists() and mesh.json("system/clock.json")["tick"] >= 5)
        await until(lambda: mesh.json("system/clock.json")["activeAgents"] == ["ada", "bob"])
        health, clock = mesh.json("agents/health.json"), mesh.json("system/clock.json")
    assert {agent: entry["status"] for agent, entry in health["agents"].items()} == {
        "ada": "idle",
        "bob": "idle",
        "cyd": "offline",
        "dee": "offline",
    }
    assert health["agents"]["ada"]["healthy"] is True and health["agents"]["cyd"]["concern"] == "offline"
    assert health["systemHealth"] == "unhealthy", "half of the mesh is down"
    assert {alert["agent"] for alert in health["alerts"]} == {"cyd", "dee"}
    keys = {"tick", "timestamp", "phase", "nextSync", "activeAgents", "scheduledEvents"}
    assert clock.keys() >= keys and clock["nextSync"].endswith("Z")
    assert {event["event"] for event in clock["scheduledEvents"]} == {f"{agent}_hourly_sync" for agent in mesh.roles}


async def test_health_goes_by_each_agents_own_limits(mesh: Mesh) -> None:
    """bob may beat as seldom as he likes: the carrier judges him by his limits, not by its own."""
    mesh.limit(staleAfterS=2, offlineAfterS=3)
    mesh.edit(lambda d: d["agents"]["bob"].update(limits={"staleAfterS": 100, "offlineAfterS": 200}))
    async with mesh.all_running("ada", "bob") as (ada, bob):
        core = ada.service.core
        beat = core.store.beat("bob")
        assert beat is not None
        old = beat.__class__(beat.sequence, beat.incarnation, beat.stamp_s - 50, beat.progress, beat.boot)
        core.store.beat = lambda agent: old  # type: ignore[method-assign]
        carrier.refresh(core)
        found = mesh.json("agents/health.json")["agents"]["bob"]
        assert (found["status"], found["healthy"]) == ("idle", True)
        assert bob.service.core.fatal is None


async def test_a_slow_pass_is_one_tick_late_not_several(mesh: Mesh) -> None:
    """What was missed is counted, and not made up for."""
    async with mesh.running("ada", tick_seconds=0.1) as ada:
        await until(lambda: ada.service.core.clock.tick >= 2)
        hang(0.55)  # the whole loop stands still
        await until(lambda: ada.service.core.clock.missed >= 4)
        clock = mesh.json("system/clock.json")
    assert clock["tick"] + clock["missed"] <= clock["slot"] + 1


# -- crashes and successors


async def _abandon(service: AgentService) -> None:
    """What `kill -9` leaves: nothing of it runs on, and nothing was said."""
    service.scheduler.stop()
    for task in list(service._running):
        task.cancel()
    await asyncio.gather(*service._running, return_exceptions=True)


async def test_a_task_survives_the_death_of_its_agent(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with AsyncExitStack() as stack:
        ada = await stack.enter_async_context(mesh.running("ada"))
        task_id = await ada.give("Hold")
        waiting = await ada.give("Echo")
        await until(lambda: gate.begun)
        await _abandon(ada.service)
        assert ada.task(task_id)["status"] == "working"
        gate.opened.set()
        async with mesh.running("ada") as again:
            assert again.service.core.incarnation == 2
            task = await again.ended(task_id)
            assert (task["attempts"], gate.begun) == (2, 2)
            await again.ended(waiting)
            await until(lambda: mesh.events("task_recovered"))
    assert mesh.events("task_recovered")[0]["taskId"] == task_id


async def test_a_cut_short_attempt_with_external_effects_waits_for_a_person(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with AsyncExitStack() as stack:
        ada = await stack.enter_async_context(mesh.running("ada"))
        task_id = await ada.give("Hold", effects="external")
        await until(lambda: gate.begun)
        await _abandon(ada.service)
        async with mesh.running("ada") as again:
            await again.ended(task_id, "outcome_unknown")
            assert [alert.type for alert in mesh.store.alerts.open()] == ["outcome_unknown"]
            await again.ended(await again.give("Echo"))
    assert gate.begun == 1


async def test_a_task_that_kills_its_agent_every_time_fails(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with AsyncExitStack() as stack:
        ada = await stack.enter_async_context(mesh.running("ada"))
        task_id = await ada.give("Hold")
        for attempt in (1, 2, 3):
            await until(lambda wanted=attempt: gate.begun == wanted)
            await _abandon(ada.service)
            ada = await stack.enter_async_context(mesh.running("ada"))
        task = await ada.ended(task_id, "failed")
        assert (task["attempts"], gate.begun) == (3, 3)
        await until(lambda: mesh.store.knowledge.blockers())


async def test_an_old_incarnation_changes_nothing_and_ends_itself(mesh: Mesh) -> None:
    """It was stopped, replaced, and goes on: it can't settle, take work or write state, and it knows it must end."""
    reasons: list[str] = []
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada", on_fatal=reasons.append) as old:
        task_id = await old.give("Hold")
        await until(lambda: gate.begun)
        async with mesh.running("ada") as new:
            await until(lambda: gate.begun == 2)  # the successor has taken the task up
            late = await old.ended(task_id, "working")
            assert late["attempts"] == 2
            gate.opened.set()
            task = await new.ended(task_id)
            assert (task["attempts"], gate.ended) == (2, 2), "both came to an end, one of them counted"
            await until(lambda: reasons)
            assert "newer incarnation" in reasons[0]
            async with old.client(None) as client:
                assert (await client.get("/health")).status_code == 503
            state = mesh.json("agents/ada/state.json")
            assert state["incarnation"] == 2
            old.service.core.state.reason = "I am still here"
            await old.service.core.save()
            assert mesh.json("agents/ada/state.json")["reason"] != "I am still here"
            beat = mesh.store.beat("ada")
            assert beat is not None and beat.incarnation == 2
            followed = await new.give("Echo")
            assert [entry["status"] for entry in (await new.ended(followed))["history"]].count("working") == 1


async def test_an_idle_old_incarnation_notices_at_a_tick(mesh: Mesh) -> None:
    reasons: list[str] = []
    async with mesh.running("ada", tick_seconds=0.2, on_fatal=reasons.append):
        async with mesh.running("ada", tick_seconds=0.2) as new:
            await until(lambda: reasons)
            assert new.service.core.fatal is None


async def test_the_beat_goes_on(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        first = mesh.store.beat("ada")
        assert first is not None
        await until(lambda: mesh.store.beat("ada").sequence >= first.sequence + 3)  # type: ignore[union-attr]
        last = mesh.store.beat("ada")
        assert last is not None and last.stamp_s > first.stamp_s and last.incarnation == first.incarnation


async def test_the_beat_stops_with_the_loop(mesh: Mesh) -> None:
    """It is written by the loop that does the work, so a loop that hangs can't look alive."""
    async with mesh.running("ada"):
        await until(lambda: mesh.store.beat("ada").sequence >= 2)  # type: ignore[union-attr]
        before = mesh.store.beat("ada")
        hang(0.5)
        after = mesh.store.beat("ada")
        assert before == after


async def test_a_bug_in_the_loop_ends_the_process(mesh: Mesh, monkeypatch: Any) -> None:
    """A fresh process takes over, rather than half of an agent living on."""
    reasons: list[str] = []
    async with mesh.running("ada", on_fatal=reasons.append) as ada:

        def broken() -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(ada.service.scheduler, "check", broken)
        await until(lambda: reasons)
        assert "ZeroDivisionError" in reasons[0] and ada.service.core.fatal


async def test_history_is_counted_over_restarts(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        for _ in range(3):
            await ada.ended(await ada.give("Echo"))
        await until(lambda: ada.service.core.state.metrics.tasks_completed24h == 3)
    async with mesh.running("ada") as ada, ada.client() as client:
        found = (await client.get("/status")).json()
    assert found["metrics"]["tasksCompleted24h"] == 3 and found["metrics"]["errorRate"] == 0
    assert found["incarnation"] == 2 and found["lastCompletedTask"]
