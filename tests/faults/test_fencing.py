"""T6 (I8): an incarnation that was stopped, replaced and let go on changes nothing any more, and is told so."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from mesh.errors import Fenced
from mesh.store import Store, beats
from mesh.store.beats import Beat, BeatWriter
from tests.fakes import MemoryDisk
from tests.faults.disks import Interrupted
from tests.faults.mail_world import settled_mail
from tests.faults.processes import real_root, running
from tests.faults.scenarios import Scenario, state_of
from tests.faults.test_crash_states import ALL
from tests.faults.world import (
    AGENTS,
    COMPLETED,
    REQUEUED,
    ROOT,
    accept,
    agent_store,
    claim,
    claim_of,
    made_disk,
    outsider,
)

ROUNDS = 5

OLD = """
import sys
from mesh.errors import Fenced
from mesh.models import Claim
from mesh.store import Store
from mesh.store.beats import Beat, BeatWriter, boot_mark
from tests.faults.scenarios import state_of
from tests.faults.world import claim_of

store, number = Store.become(sys.argv[1], "coder")
claim = claim_of("coder", number)
first = Beat(1, number, store.time.boottime(), 0, boot_mark(store.time))
writer = BeatWriter(store.files, store.layout.beat("coder"), first)
task = store.tasks.claim(claim, lambda own, shared: own[0], 100)
fenced = dict.fromkeys(("state", "task", "beat"), 0)
print("ready", flush=True)
turn = 0
while min(fenced["state"], fenced["task"]) < 20:
    turn += 1
    writer.write(store.time.boottime(), turn)
    try:
        store.write_state(state_of(f"old {turn}").model_copy(update={"incarnation": number}))
    except Fenced:
        fenced["state"] += 1
    try:
        store.tasks.progress(claim, task.id, 0.25, "from the old one")
    except Fenced:
        fenced["task"] += 1
print("fenced", flush=True)
"""


def test_stopped_replaced_resumed(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    accept(Store(root), "T1")
    for turn in range(ROUNDS):
        with running(OLD, root) as old:
            time.sleep(0.05 + 0.013 * turn)  # somewhere in the middle of its writes
            old.stop()
            store, number = Store.become(root, "coder")
            store.write_state(state_of("new"))
            writer = BeatWriter(store.files, store.layout.beat("coder"), first_beat(store, number))
            task = store.tasks.find("T1")
            assert task.claim is not None
            assert task.claim.incarnation == number - 1
            before = content(store)
            old.send(signal.SIGCONT)
            old.expect("fenced")
            assert content(store) == before, "the old incarnation wrote"
            assert store.beat("coder") == first_beat(store, number)
            writer.close()
        store.tasks.recover("coder", number, lambda task: REQUEUED)
        assert store.tasks.find("T1").status == "queued"


def first_beat(store: Store, number: int) -> Beat:
    return Beat(1, number, 1.0, 7, beats.boot_mark(store.time))


def content(store: Store) -> dict[str, Any]:
    """What an agent's incarnation may write."""
    layout = store.layout
    paths = [layout.state("coder"), layout.beat("coder"), layout.outbox("coder"), layout.memory("coder")]
    paths += [layout.active, layout.queue, *map(layout.inbox, AGENTS), *layout.ended("T1"), layout.clock]
    return {**{path: store.files.read(path) for path in paths}, "mail": settled_mail(store)}


# -- the same, exhaustively: the successor comes before each single step of a call


#: A release takes back the old one's own claim and no other. A revival is a person's; it is done under the lock of
#: the claims, and nobody sees half of it.
UNFENCED = ("mail: release", "mail: revive")
BY_AGENTS = [
    scenario
    for scenario in ALL
    if scenario.agent and not scenario.name.startswith("resolve") and scenario.name not in UNFENCED
]


@pytest.mark.parametrize("scenario", BY_AGENTS, ids=lambda scenario: scenario.name)
def test_successor_comes_before_any_step(scenario: Scenario) -> None:
    base = scenario.prepared()
    fenced = 0
    for step in range(1, 10_000):
        disk = base.clone()
        seen: dict[str, Any] = {}

        def take_over(disk: MemoryDisk = disk, seen: dict[str, Any] = seen) -> None:
            store, _ = Store.become(ROOT, scenario.agent, disk=disk, time=disk.time)
            seen.update(content(store))

        interrupted = Interrupted(disk, step, take_over)
        old = scenario.store(interrupted, disk.time)
        try:
            scenario.call(old)
        except Fenced:
            fenced += 1
        if interrupted.count < step:
            break
        assert content(outsider(disk, disk.time)) == seen, f"written after step {step}"
        with pytest.raises(Fenced):
            old.write_state(state_of("later"))
    assert fenced >= (0 if scenario.made_up_for else 4)


def test_successor_comes_while_the_first_beat_is_written() -> None:
    """The old one must not open, and then write over, its successor's file."""
    outcomes = []
    for step in range(1, 100):
        disk = made_disk()
        _, number = Store.become(ROOT, "coder", disk=disk, time=disk.time)

        def take_over(disk: MemoryDisk = disk) -> None:
            store, number = Store.become(ROOT, "coder", disk=disk, time=disk.time)
            BeatWriter(store.files, store.layout.beat("coder"), first_beat(store, number))

        interrupted = Interrupted(disk, step, take_over)
        old = agent_store(interrupted, disk.time, "coder", number)
        try:
            writer = BeatWriter(old.files, old.layout.beat("coder"), first_beat(old, number))
            if interrupted.count < step:
                break
            writer.write(99.0, 99)
            outcomes.append("writes unseen")
        except Fenced:
            outcomes.append("fenced")
        assert old.beat("coder") == first_beat(old, number + 1), f"taken over before step {step}"
    assert outcomes.count("fenced") >= 5


def test_claim_of_an_earlier_incarnation_settles_nothing() -> None:
    """Also when the fence of the folder is not met: the claim itself names the incarnation."""
    disk = made_disk()
    store = outsider(disk, disk.time)
    accept(store, "T1")
    assert claim(store, number=1)
    store.tasks.recover("coder", 2, lambda task: REQUEUED)
    assert claim(store, number=2)
    for number in (1, 3):
        with pytest.raises(Fenced) as caught:
            store.tasks.settle(claim_of("coder", number), "T1", lambda task: COMPLETED)
        assert caught.value.facts["taskId"] == "T1"
        with pytest.raises(Fenced):
            store.tasks.progress(claim_of("coder", number), "T1", 0.5, None)
    assert store.tasks.settle(claim_of("coder", 2), "T1", lambda task: COMPLETED).status == "completed"
