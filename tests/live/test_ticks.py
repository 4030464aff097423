"""Ticks over real processes: whoever carries them is killed or stopped, and none is lost or doubled (I6)."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.live.harness import EIGHT, LiveMesh, exists, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

TICK_S = 0.2


def clock(mesh: LiveMesh) -> dict[str, Any]:
    return dict(json.loads((mesh.root / "system/clock.json").read_text()))


def test_another_carries_on_when_the_carrier_is_killed_or_stopped(mesh: LiveMesh) -> None:
    mesh.edit_registry(lambda registry: registry["limits"].update(restartsMax=20, restartBackoffS=0.01))
    mesh.up("--tick-seconds", str(TICK_S))
    seeded = random.Random(7)
    began, first = time.monotonic(), clock(mesh)
    seen = [(first["tick"], first["slot"])]
    stopped: list[int] = []
    carriers = set()
    for number in range(12):
        until_s = time.monotonic() + 0.4 + seeded.random() * 0.3
        while time.monotonic() < until_s:
            now = clock(mesh)
            seen.append((now["tick"], now["slot"]))
            carriers.add(now["carrier"])
            time.sleep(0.02)
        carrier = clock(mesh)["carrier"]
        pid = mesh.pid(carrier)
        if number % 3 == 2:
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
        elif exists(pid) and pid not in stopped:
            os.kill(pid, signal.SIGKILL)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    time.sleep(1.0)
    last = clock(mesh)
    seen.append((last["tick"], last["slot"]))
    assert seen == sorted(seen), "the tick never goes back"
    by_slot: dict[int, set[int]] = {}
    for tick, slot in seen:
        by_slot.setdefault(slot, set()).add(tick)
    assert all(len(ticks) == 1 for ticks in by_slot.values()), "one tick a slot"
    slots, ticks = last["slot"] - first["slot"], last["tick"] - first["tick"]
    assert ticks + (last["missed"] - first["missed"]) == slots, "every slot is a tick or counted as missed"
    assert abs(slots - (time.monotonic() - began) / TICK_S) <= 3, "the clock kept time"
    assert last["missed"] - first["missed"] <= 2, "no tick was lost to a dead carrier"
    assert len(carriers) >= 3, "nobody stays carrier"


def test_rounds_syncs_and_files_follow_the_ticks(mesh: LiveMesh) -> None:
    mesh.up("--tick-seconds", "0.1")
    syncs = mesh.root / "system/syncs"
    until(
        lambda: {path.name.rpartition("-")[2] for path in syncs.glob("*.json")} == {f"{a}.json" for a in EIGHT},
        25,
        "a sync of each",
    )
    report = json.loads(sorted(syncs.glob("*-coder.json"))[-1].read_text())
    assert set(report["self"]) == {"tasksCompleted", "currentTask", "blockers", "contextUsage", "idleMinutes"}
    assert set(report["environment"]) == {"globalQueueLength", "myInboxLength", "systemAlerts"}
    assert [len(report[check]) for check in ("selfCheck", "buddyCheck")] == [6, 4]
    assert report["buddy"]["agentId"] == "devops" and report["buddy"]["healthy"]
    minutes = {path.name.partition("T")[2][2:4] for path in syncs.glob("*-ops.json")}
    assert "35" in minutes, "ops syncs at its minute"
    events = mesh.events()
    for kind in ("buddy_pinged", "buddy_reviewed", "reviewed", "pinged"):
        assert any(event["event"] == kind for event in events), kind
    first = {a["event"] for a in clock(mesh)["scheduledEvents"]}
    assert first <= {f"{agent}_hourly_sync" for agent in EIGHT} and first
    health = json.loads((mesh.root / "agents/health.json").read_text())
    assert set(health["agents"]) == set(EIGHT) and health["systemHealth"] == "healthy"
    assert clock(mesh)["asOfTick"] - health["asOfTick"] <= 3

    pings = [event["tick"] for event in events if event["event"] == "buddy_pinged" and event["agentId"] == "coder"]
    gaps = [b - a for a, b in pairwise(pings)]
    assert gaps and all(gap <= 16 for gap in gaps), gaps
