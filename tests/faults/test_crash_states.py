"""T1: every state that a crash may leave is sound (I1, I2, I5, I6).

Each call of the store runs on a disk in memory that keeps its state after every step. A crash is tried at each of
them, with all unflushed effects kept, all lost, each single one lost or kept alone, and each unflushed content torn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mesh.store import Store
from tests.fakes import MemoryDisk
from tests.faults.disks import RecordingDisk, after_power_cut, fingerprint
from tests.faults.mail_scenarios import MAIL_SCENARIOS
from tests.faults.mail_world import mail_places
from tests.faults.scenarios import SCENARIOS, Facts, Scenario, successor
from tests.faults.world import ROOT, accept, made_disk, outsider, places, quarantined

ALL = [*SCENARIOS, *MAIL_SCENARIOS]
State = tuple[str, bool, MemoryDisk]


def states_of(scenario: Scenario) -> tuple[list[tuple[object, ...]], Iterator[State]]:
    """The steps of the call, and each state after a crash: (name, whether the call had returned, disk)."""
    base = scenario.prepared()
    disk = RecordingDisk(base)
    scenario.call(scenario.store(disk, base.time))

    def states() -> Iterator[State]:
        for number, state in enumerate(disk.states):
            returned = number == len(disk.states) - 1
            for name, crashed in after_power_cut(state):
                yield f"after step {number}, {name}", returned, crashed

    return disk.steps, states()


def facts_before_and_after(scenario: Scenario) -> tuple[Facts, Facts]:
    before = scenario.prepared()
    after = before.clone()
    scenario.call(scenario.store(after, after.time))
    seen = scenario.observe(successor(scenario, after))
    return (seen if scenario.made_up_for else scenario.observe(successor(scenario, before))), seen


def check_raw(scenario: Scenario, before: Facts, disk: MemoryDisk) -> None:
    """What anybody may see at this instant, before anything is recovered."""
    for path, data in disk.tree().items():
        looked_at = path.endswith(".json") and path.startswith(ROOT) and "/run/" not in path
        # What isn't flushed may be torn: a claim counts as none then.
        looked_at = looked_at and "/claims/" not in path
        if looked_at and disk.resolve(path) == path and not scenario.damaged:
            json.loads(data)
    store = outsider(disk, disk.time)
    for task in scenario.tasks:
        if before.get(task, "there") is not None:
            assert places(store, task), f"{task} is in no place"
    for id_ in scenario.mail:
        if before.get(id_):
            assert mail_places(store, id_), f"{id_} is in no place"


def check(scenario: Scenario, before: Facts, after: Facts, returned: bool, disk: MemoryDisk) -> None:
    check_raw(scenario, before, disk)
    store = successor(scenario, disk)
    seen = scenario.observe(store)
    assert seen.keys() <= before.keys() | after.keys()
    for name, value in seen.items():
        allowed = [after.get(name)] if returned and not scenario.lossy else [before.get(name), after.get(name)]
        assert value in allowed, name
    for task in scenario.tasks:
        assert len(places(store, task)) == (seen.get(task, "there") is not None), f"{task} is not in one place"
    kept = quarantined(store)
    assert len(kept) >= scenario.damaged if scenario.damaged else not kept, kept
    check_usable(store)


def check_usable(store: Store) -> None:
    """The next one can work: write, tick, and lock out whoever was there before."""
    before = store.ticks.read().tick
    store.time.advance(60)
    passed = store.ticks.pass_gate("devops", 60.0)
    assert (passed.carries, passed.clock.tick) == (True, before + 1)
    store.remember("sales", {"works": True})
    assert store.memory("sales")["works"] is True


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_crash_states(scenario: Scenario, record_property: pytest.RecordProperty) -> None:
    before, after = facts_before_and_after(scenario)
    assert scenario.made_up_for or before != after, "the call must change what is observed"
    steps, states = states_of(scenario)
    count, different = 0, set()
    for name, returned, disk in states:
        count += 1
        key = (returned, fingerprint(disk))
        if key in different:
            continue
        different.add(key)
        try:
            check(scenario, before, after, returned, disk)
        except Exception as error:
            error.add_note(f"{scenario.name}, {name} of {[step[:3:2] for step in steps]}")
            raise
    record_property("states", count)
    record_property("different", len(different))
    assert count >= scenario.states_min


#: Calls whose next start has something to finish.
FINISHED_LATER = [scenario for scenario in ALL if scenario.tasks or scenario.mail]


@pytest.mark.parametrize("scenario", FINISHED_LATER, ids=lambda scenario: scenario.name)
def test_power_cut_while_recovering_from_a_kill(scenario: Scenario) -> None:
    """A kill leaves what was not flushed visible. Who goes on from there must not remove the one durable copy
    because of a copy that is only visible: a power cut during the recovery takes that one."""
    before, after = facts_before_and_after(scenario)
    base = scenario.prepared()
    first = RecordingDisk(base)
    scenario.call(scenario.store(first, base.time))
    count, different = 0, set()
    for number, state in enumerate(first.states[:-1]):
        second = RecordingDisk(state.kill())
        successor(scenario, second)
        for step, recovering in enumerate(second.states):
            count += 1
            crashed = recovering.crash(lambda effect: "lost")
            key = fingerprint(crashed)
            if key in different:
                continue
            different.add(key)
            try:
                check(scenario, before, after, False, crashed)
            except Exception as error:
                error.add_note(f"{scenario.name}, killed after step {number}, power cut {step} steps later")
                raise
    assert count >= min(20, len(first.states))


def test_accepted_again_after_a_kill_is_durable() -> None:
    """The acceptance of a known id promises as much as the first one, though it writes nothing."""
    base = made_disk()
    recording = RecordingDisk(base)
    accept(outsider(recording, base.time), "T1")
    known = 0
    for state in recording.states:
        disk = state.kill()
        _, fresh = accept(outsider(disk, disk.time), "T1")
        known += not fresh
        lost = disk.crash(lambda effect: "lost")
        assert outsider(lost, lost.time).tasks.find("T1").status == "queued"
    assert known >= 2, "some states must show the task before its folder was flushed"
