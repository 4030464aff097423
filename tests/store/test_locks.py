from __future__ import annotations

import errno
import json

import pytest

from mesh.errors import LockTimeout, StoreUnavailable
from mesh.store.locks import Locks, read_label
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.disks import FaultyDisk
from tests.faults.world import ROOT

FOLDER = f"{ROOT}/system/locks"


def locks(disk: MemoryDisk, holder: str = "coder.3") -> Locks:
    return Locks(disk, FOLDER, holder, disk.time)


def test_label_says_who_since_when_and_until_when(disk: MemoryDisk) -> None:
    with locks(disk).hold("agents/coder/state.json"):
        label = read_label(disk, f"{FOLDER}/agents.coder.state.json.lock")
    assert label == {
        "holder": "coder.3-1771274700000",
        "acquired": "2026-02-16T20:45:00.000Z",
        "expires": "2026-02-16T20:45:05.000Z",
    }


def test_shorter_label_leaves_nothing_of_a_longer_one(disk: MemoryDisk) -> None:
    for holder in ("a-very-long-name-of-a-holder" * 3, "x"):
        with locks(disk, holder).hold("tasks"):
            pass
    assert json.loads(disk.read(f"{FOLDER}/tasks.lock"))["holder"].startswith("x-")


def test_waiting_ends_with_the_holder_named(disk: MemoryDisk, time: FakeClock) -> None:
    began = time.monotonic()
    with locks(disk, "sales.9").hold("tasks"), pytest.raises(LockTimeout) as caught, locks(disk).hold("tasks"):
        raise AssertionError("never held twice")
    assert caught.value.facts["holder"].startswith("sales.9-")
    assert "over 5 s" in caught.value.detail
    assert 5.0 <= time.monotonic() - began < 5.1


def test_lock_comes_free_while_one_waits(disk: MemoryDisk, time: FakeClock) -> None:
    handle = disk.try_lock(f"{FOLDER}/tasks.lock")
    assert handle is not None
    sleeps = []

    class Waiting(FakeClock):
        def sleep(self, seconds: float) -> None:
            sleeps.append(seconds)
            if len(sleeps) == 8:
                disk.unlock(handle)

    with Locks(disk, FOLDER, "coder", Waiting()).hold("tasks"):
        assert sleeps == [0.0005, 0.001, 0.002, 0.004, 0.008, 0.01, 0.01, 0.01]


def test_lock_is_free_after_an_exception(disk: MemoryDisk) -> None:
    with pytest.raises(ZeroDivisionError), locks(disk).hold("tasks"):
        raise ZeroDivisionError
    with locks(disk).hold("tasks"):
        pass


def test_label_that_cannot_be_written_stops_nobody(disk: MemoryDisk) -> None:
    with locks(FaultyDisk(disk, 2, errno.ENOSPC)).hold("tasks"):
        assert read_label(disk, f"{FOLDER}/tasks.lock") == {}


def test_unreadable_label_is_an_unknown_holder(disk: MemoryDisk) -> None:
    handle = disk.try_lock(f"{FOLDER}/tasks.lock")
    assert handle is not None
    disk.label_lock(handle, b"[1]")
    with pytest.raises(LockTimeout, match="an unknown process"), locks(disk).hold("tasks"):
        pass


def test_lock_that_cannot_be_tried_is_unavailable(disk: MemoryDisk) -> None:
    with pytest.raises(StoreUnavailable, match="Could not lock"), locks(FaultyDisk(disk, 1, errno.EIO)).hold("tasks"):
        pass


def test_who_waited_in_vain_does_not_wait_again_at_once(disk: MemoryDisk, time: FakeClock) -> None:
    """A row of calls behind a hung holder must not each wait its full time."""
    mine = locks(disk)
    with locks(disk, "sales.9").hold("tasks"):
        for expected_s in (5.0, 0.0, 0.0):
            began = time.monotonic()
            with pytest.raises(LockTimeout), mine.hold("tasks"):
                raise AssertionError("never held twice")
            assert expected_s <= time.monotonic() - began < expected_s + 0.1
        time.advance(6)
        began = time.monotonic()
        with pytest.raises(LockTimeout), mine.hold("tasks"):
            raise AssertionError("never held twice")
        assert time.monotonic() - began >= 5.0, "patience comes back"
    with mine.hold("tasks"):
        pass
