"""T3: each n-th call to the disk fails, n = 1, 2, … until a call comes through.

The store answers with a MeshError or succeeds; what it returned from is durable; nothing is ever half done.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from mesh.errors import DiskFull, DurabilityLost, MeshError, StoreUnavailable
from mesh.limits import DEFAULT
from mesh.models import AgentState
from mesh.store import Store, beats
from mesh.store.files import Files
from tests.fakes import MemoryDisk
from tests.faults.disks import FaultyDisk, fingerprint
from tests.faults.scenarios import Facts, Scenario, state_of
from tests.faults.test_crash_states import ALL, check, check_usable, facts_before_and_after
from tests.faults.world import ROOT, made_disk, outsider

CODES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR}


@dataclass
class Outcome:
    """One run of a call with one fault in it."""

    disk: MemoryDisk
    faulty: FaultyDisk
    store: Store
    error: Exception | None

    def name(self) -> str:
        return f"call {self.faulty.fail_at} failed: {self.faulty.failed}; raised {self.error!r}"


def outcomes(scenario: Scenario, code: int, *, lasting: bool = False) -> Iterator[Outcome]:
    """The call with its first call to the disk failing, then the second, until there is none left to fail."""
    base = scenario.prepared()
    for number in range(1, 10_000):
        disk = base.clone()
        faulty = FaultyDisk(disk, number, code, lasting=lasting)
        store = scenario.store(faulty, disk.time)
        error = None
        try:
            scenario.call(store)
        except MeshError as raised:
            error = raised
        if faulty.failed is None:
            assert error is None
            return
        yield Outcome(disk, faulty, store, error)
    raise AssertionError("the call never ends")


@pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_each_call_fails_once(scenario: Scenario, code: int) -> None:
    before, after = facts_before_and_after(scenario)
    count = 0
    for outcome in outcomes(scenario, code):
        count += 1
        try:
            check_outcome(scenario, before, after, outcome)
        except Exception as error:
            error.add_note(f"{scenario.name}: {outcome.name()}")
            raise
    assert count >= 2


#: What was checked of a scenario: most faults lead to the same few states.
CHECKED: dict[str, set[tuple[bool, int]]] = defaultdict(set)


def check_once(scenario: Scenario, before: Facts, after: Facts, done: bool, disk: MemoryDisk) -> None:
    key = (done, fingerprint(disk))
    if key not in CHECKED[scenario.name]:
        check(scenario, before, after, done, disk)
        CHECKED[scenario.name].add(key)


def check_outcome(scenario: Scenario, before: Facts, after: Facts, outcome: Outcome) -> None:
    done = outcome.error is None
    if outcome.faulty.failed and outcome.faulty.failed[0] == "flush_folder" and outcome.store.files.lost:
        with pytest.raises(DurabilityLost):
            outcome.store.files.replace(f"{ROOT}/system/more", b"")
    check_once(scenario, before, after, done, outcome.disk.crash(lambda effect: "lost"))
    check_once(scenario, before, after, done, outcome.disk.kill())


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_disk_fails_for_good(scenario: Scenario) -> None:
    """From the n-th call on everything fails; then the disk is back, and another process goes on."""
    before, after = facts_before_and_after(scenario)
    for outcome in outcomes(scenario, errno.EIO, lasting=True):
        try:
            check_once(scenario, before, after, outcome.error is None, outcome.disk.crash(lambda effect: "lost"))
        except Exception as error:
            error.add_note(f"{scenario.name}: {outcome.name()}")
            raise


# -- single promises


def failing(name: str, code: int, call: int = 1) -> tuple[MemoryDisk, FaultyDisk, Files]:
    """Files on a disk whose `call`-th call of this name fails."""
    disk = made_disk()
    disk.put(f"{ROOT}/system/a", b"old")
    probe = FaultyDisk(disk.clone(), 0, code)
    Files(probe, f"{ROOT}/system/scratch").replace(f"{ROOT}/system/a", b"old", keep_last=True)
    numbers = [number for number, step in enumerate(probe.calls, 1) if step[0] == name]
    faulty = FaultyDisk(disk, numbers[call - 1], code)
    return disk, faulty, Files(faulty, f"{ROOT}/system/scratch")


def test_failed_folder_flush_ends_all_writing() -> None:
    disk, faulty, files = failing("flush_folder", errno.EIO)
    with pytest.raises(DurabilityLost) as caught:
        files.replace(f"{ROOT}/system/a", b"new", keep_last=True)
    assert caught.value.facts["file"] == f"{ROOT}/system/a"
    assert files.lost is not None
    calls = len(faulty.calls)
    for write in (
        lambda: files.replace(f"{ROOT}/system/a", b"more"),
        lambda: files.create(f"{ROOT}/system/b", b"more"),
        lambda: files.move(f"{ROOT}/system/a", f"{ROOT}/tasks/a"),
        lambda: files.rename(f"{ROOT}/system/a", f"{ROOT}/system/b"),
        lambda: files.remove(f"{ROOT}/system/a"),
        lambda: files.make_folders(f"{ROOT}/system/folder"),
        lambda: files.settle(f"{ROOT}/system/a"),
    ):
        with pytest.raises(DurabilityLost):
            write()
    assert len(faulty.calls) == calls, "a process that lost durability touches the disk no more"
    assert files.read(f"{ROOT}/system/a") == b"new", "reading goes on"
    fresh = Files(disk, f"{ROOT}/system/scratch")
    fresh.replace(f"{ROOT}/system/a", b"later")
    assert disk.crash(lambda effect: "lost").read(f"{ROOT}/system/a") == b"later"


def test_failed_file_flush_is_not_repeated_and_changes_nothing() -> None:
    disk, faulty, files = failing("flush", errno.EIO)
    with pytest.raises(StoreUnavailable) as caught:
        files.replace(f"{ROOT}/system/a", b"new")
    assert not isinstance(caught.value, DurabilityLost)
    flushes = [step for step in faulty.calls if step[0] == "flush"]
    assert len(flushes) == 1, "the kernel may report success the second time, with the data gone"
    assert disk.read(f"{ROOT}/system/a") == b"old"
    assert disk.names(f"{ROOT}/system/scratch") == [], "the temporary is dropped"
    files.replace(f"{ROOT}/system/a", b"new")
    flushed = [step[1] for step in faulty.calls if step[0] == "flush"]
    assert len(flushed) == len(set(flushed)) == 2, "another try is another file"


@pytest.mark.parametrize("step", ["create", "write", "flush", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_said_and_forgotten(step: str, code: int) -> None:
    disk, _, files = failing(step, code)
    with pytest.raises(DiskFull) as caught:
        files.replace(f"{ROOT}/system/a", b"new", keep_last=True)
    assert caught.value.status == 507
    assert files.full
    assert disk.read(f"{ROOT}/system/a") == b"old"
    files.replace(f"{ROOT}/system/a", b"new")
    assert not files.full, "the next write that gets through clears it"
    assert disk.read(f"{ROOT}/system/a") == b"new"


def test_full_disk_stops_no_reader_and_no_beat() -> None:
    disk = made_disk()
    store = outsider(disk, disk.time)
    store.write_state(state_of("a"))
    first = beats.Beat(1, 1, 1.0, 0, beats.boot_mark(disk.time))
    writer = beats.BeatWriter(store.files, store.layout.beat("coder"), first)
    full = outsider(FullDisk(disk), disk.time)
    with pytest.raises(DiskFull):
        full.write_state(state_of("b"))
    assert isinstance(full.state("coder"), AgentState)
    assert full.tasks.open() == []
    full.journal.event("coder", "anything")
    assert full.journal.dropped == 1
    writer.write(2.0, 5)
    beat = full.beat("coder")
    assert beat is not None
    assert (beat.sequence, beat.progress) == (2, 5)


class FullDisk(FaultyDisk):
    """Nothing new fits."""

    def __init__(self, inner: MemoryDisk) -> None:
        super().__init__(inner, 0, errno.ENOSPC)

    def call(self, name: str, *args: object) -> object:
        if name in ("write", "append", "create", "make_folder", "link", "label_lock"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().call(name, *args)


def test_lock_is_free_after_any_fault() -> None:
    """Whatever fails while a lock is held, the next one gets it."""
    for scenario in ALL:
        for outcome in outcomes(scenario, errno.EIO):
            assert not outcome.disk._locked, f"{scenario.name}: {outcome.name()}"


def test_retention_raises_only_mesh_errors_and_ends_later() -> None:
    limits = DEFAULT.with_overrides({"eventsBytesMax": 10_000, "logBytesMax": 10_000})
    for number in range(1, 200):
        disk = made_disk()
        layout = outsider(disk, disk.time).layout
        disk.put(layout.events, b"{}\n" * 10_000)
        disk.put(layout.log, b"x" * 20_000)
        disk.put(f"{layout.syncs}/old.json", b"{}")
        disk.age(f"{layout.syncs}/old.json", days=400)
        faulty = FaultyDisk(disk, number, errno.EIO)
        with suppress(MeshError):
            outsider(faulty, disk.time).retention.run(limits, ["coder"])
        if faulty.failed is None:
            break
        outsider(disk, disk.time).retention.run(limits, ["coder"])
        assert disk.names(layout.syncs) == []
        assert len(disk.read(layout.log)) <= 10_000
        assert not disk.signature(layout.events)
        assert disk.read(f"{layout.events}.1") == b"{}\n" * 10_000
    assert number > 20


def test_check_of_usability_can_fail() -> None:
    disk = made_disk()
    check_usable(outsider(disk, disk.time))
    broken = FaultyDisk(disk, 1, errno.EIO, lasting=True)
    with pytest.raises(MeshError):
        check_usable(outsider(broken, disk.time))
