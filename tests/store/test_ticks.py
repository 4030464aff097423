"""I6: the tick never goes back or repeats, whatever happens to the clocks of the host."""

from __future__ import annotations

from contextlib import suppress

import pytest

from mesh.errors import LockTimeout
from mesh.models import ClockFile
from mesh.store import Store
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.disks import Interrupted
from tests.faults.world import AGENTS, outsider

MINUTE_S = 60.0


def carried(store: Store, agent: str = "coder", tick_seconds: float = MINUTE_S) -> int | None:
    """The tick that the agent carries by passing the gate now, or None."""
    passed = store.ticks.pass_gate(agent, tick_seconds)
    return passed.clock.tick if passed.carries else None


def test_before_the_first_tick_all_is_zero(store: Store, disk: MemoryDisk) -> None:
    assert store.ticks.read() == ClockFile()
    assert disk.signature(store.layout.clock) is None


def test_whoever_comes_first_carries(disk: MemoryDisk, time: FakeClock) -> None:
    agents = {agent: outsider(disk, time) for agent in AGENTS}
    carriers = []
    for turn in range(6):
        order = [*AGENTS[turn % 3 :], *AGENTS[: turn % 3]]
        ticks = [carried(agents[agent], agent) for agent in order]
        assert ticks == [turn + 1, None, None]
        carriers.append(agents["coder"].ticks.read().carrier)
        time.advance(MINUTE_S)
    assert carriers == ["coder", "devops", "sales"] * 2


def test_one_carries_however_two_passes_interleave(disk: MemoryDisk, time: FakeClock) -> None:
    for step in range(1, 100):
        copy = disk.clone()
        others: list[int | None] = []

        def pass_too(copy: MemoryDisk = copy, others: list[int | None] = others) -> None:
            with suppress(LockTimeout):
                others.append(carried(outsider(copy, copy.time), "devops"))

        interrupted = Interrupted(copy, step, pass_too)
        first = carried(outsider(interrupted, copy.time))
        if interrupted.count < step:
            break
        assert [first, *others].count(1) == 1, f"before step {step}"
        assert set([first, *others]) <= {1, None}
    assert step > 5


def test_slots_begin_with_the_minutes_of_the_wall_clock(store: Store, time: FakeClock) -> None:
    time.advance(17)
    assert carried(store) == 1
    time.advance(42.9)
    assert carried(store) is None
    time.advance(0.2)
    assert carried(store) == 2
    assert store.ticks.read().until_next_slot_s(time.boottime()) == pytest.approx(59.9)


@pytest.mark.parametrize("jump_s", [42 * 60, -3600, 7, -7, 10 * 365 * 86_400])
def test_wall_clock_jump_neither_repeats_nor_stops_ticks(store: Store, time: FakeClock, jump_s: float) -> None:
    assert carried(store) == 1
    time.jump(jump_s)
    assert carried(store) is None
    for tick in (2, 3, 4):
        time.advance(MINUTE_S)
        assert carried(store) == tick
        assert carried(store) is None
    assert store.ticks.read().missed == 0


def test_reboot_counts_slots_anew_and_ticks_on(store: Store, time: FakeClock) -> None:
    for tick in (1, 2, 3):
        assert carried(store) == tick
        time.advance(MINUTE_S)
    time.reboot(down_s=600)
    assert carried(store) == 4
    assert carried(store) is None
    clock = store.ticks.read()
    assert (clock.slot, clock.boot_id, clock.missed) == (0, "boot-2", 0)
    time.advance(MINUTE_S)
    assert carried(store) == 5


def test_another_tick_length_counts_anew_and_ticks_on(store: Store, time: FakeClock) -> None:
    assert carried(store) == 1
    assert carried(store, tick_seconds=0.5) == 2
    assert carried(store, tick_seconds=0.5) is None
    time.advance(0.5)
    assert carried(store, tick_seconds=0.5) == 3
    assert carried(store) == 4


def test_fast_ticks_are_mesh_minutes(store: Store, time: FakeClock) -> None:
    carried(store, tick_seconds=0.5)
    for _ in range(90):
        time.advance(0.5)
        carried(store, tick_seconds=0.5)
    clock = store.ticks.read()
    assert clock.mesh_time(time.wall()).isoformat() == "2026-02-16T22:15:00+00:00"
    assert clock.mesh_minutes(45) == 90


@pytest.mark.parametrize("asleep", [False, True])
def test_missed_slots_are_counted_not_made_up_for(store: Store, time: FakeClock, asleep: bool) -> None:
    assert carried(store) == 1
    (time.suspend if asleep else time.advance)(10 * MINUTE_S)
    assert carried(store) == 2
    clock = store.ticks.read()
    assert (clock.slot, clock.missed) == (10, 9)
    assert carried(store) is None


def test_record_adds_what_the_carrier_worked_out(store: Store) -> None:
    now = store.ticks.pass_gate("coder", MINUTE_S).clock
    store.ticks.record(now.model_copy(update={"phase": "sync", "active_agents": ["coder"]}))
    assert store.ticks.read().phase == "sync"


def test_late_record_of_an_earlier_tick_changes_nothing(store: Store, time: FakeClock) -> None:
    old = store.ticks.pass_gate("coder", MINUTE_S).clock
    time.advance(MINUTE_S)
    assert carried(store, "sales") == 2
    store.ticks.record(old.model_copy(update={"phase": "sync"}))
    clock = store.ticks.read()
    assert (clock.tick, clock.phase, clock.carrier) == (2, "work", "sales")


def test_deleted_clock_does_not_begin_again(store: Store, disk: MemoryDisk, time: FakeClock) -> None:
    """With no process left that remembers: the version before tells how far the ticks were."""
    for _ in range(5):
        carried(store)
        time.advance(MINUTE_S)
    last = store.ticks.read().tick
    disk.unlink(store.layout.clock)
    assert carried(outsider(disk, time)) == last + 1
