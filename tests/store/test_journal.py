from __future__ import annotations

import errno

import pytest

from mesh.store import Store
from tests.fakes import MemoryDisk
from tests.faults.disks import FaultyDisk
from tests.faults.world import ROOT, outsider

EVENTS = f"{ROOT}/system/events.log"


def numbers(store: Store, limit: int = 1000) -> list[int]:
    return [entry["n"] for entry in store.journal.read_events(limit)]


def test_event_says_when_who_what_and_why(store: Store) -> None:
    store.journal.tick = lambda: 7
    store.journal.event("coder", "task_claimed", "first in its queue", taskId="T1")
    assert store.journal.read_events() == [
        {
            "at": "2026-02-16T20:45:00.000Z",
            "tick": 7,
            "agentId": "coder",
            "event": "task_claimed",
            "reason": "first in its queue",
            "taskId": "T1",
        }
    ]


def test_any_text_is_one_line(store: Store, disk: MemoryDisk) -> None:
    store.journal.event("coder", "said", "two\nlines\r\n\u2028 \ud800 ü")
    assert disk.read(EVENTS).count(b"\n") == 1
    (entry,) = store.journal.read_events()
    assert entry["reason"].startswith("two\nlines\r\n\u2028 ")


def test_damaged_lines_are_left_out(store: Store, disk: MemoryDisk) -> None:
    disk.append(EVENTS, b'{"n": 1}\n{"n": \n[2]\nnull\n\xff\n' + b"[" * 100_000 + b'\n\n{"n": 3}\n{"n": 4')
    assert numbers(store) == [1, 3]


def test_last_events_first_part_included(store: Store, disk: MemoryDisk) -> None:
    disk.put(f"{EVENTS}.1", b'{"n": 1}\n{"n": 2}\n')
    disk.put(EVENTS, b'{"n": 3}\n{"n": 4}\n')
    assert numbers(store) == [1, 2, 3, 4]
    assert numbers(store, 3) == [2, 3, 4]
    assert numbers(store, 1) == [4]


def test_following_reads_each_event_once(store: Store, disk: MemoryDisk) -> None:
    assert store.journal.read_events_from(0) == ([], 0)
    disk.append(EVENTS, b'{"n": 1}\n{"n":')
    events, offset = store.journal.read_events_from(0)
    assert events == [{"n": 1}]
    disk.append(EVENTS, b' 2}\n{"n": 3}\n')
    events, offset = store.journal.read_events_from(offset)
    assert events == [{"n": 2}, {"n": 3}]
    assert store.journal.read_events_from(offset) == ([], offset)
    disk.put(EVENTS, b'{"n": 4}\n')
    assert store.journal.read_events_from(offset)[0] == [{"n": 4}], "it starts again after a rotation"


def test_rotation_keeps_so_many_parts_and_loses_no_line_before(store: Store, disk: MemoryDisk) -> None:
    for part in range(6):
        disk.append(EVENTS, f'{{"n": {part}}}\n'.encode() * 100)
        assert store.journal.rotate(EVENTS, bytes_max=500, kept=3)
        assert not store.journal.rotate(EVENTS, bytes_max=500, kept=3)
    parts = [disk.read(f"{EVENTS}.{number}")[:8] for number in (1, 2, 3)]
    assert parts == [b'{"n": 5}', b'{"n": 4}', b'{"n": 3}']
    assert disk.signature(f"{EVENTS}.4") is None
    assert disk.signature(EVENTS) is None


def test_small_log_is_not_rotated(store: Store, disk: MemoryDisk) -> None:
    disk.put(EVENTS, b"x" * 500)
    assert not store.journal.rotate(EVENTS, bytes_max=500, kept=3)
    assert disk.read(EVENTS) == b"x" * 500


def test_event_of_a_process_that_rotated_in_between_goes_into_the_new_file(store: Store, disk: MemoryDisk) -> None:
    other = outsider(disk, disk.time)
    store.journal.event("coder", "one")
    store.journal.rotate(EVENTS, bytes_max=1, kept=2)
    other.journal.event("coder", "two")
    assert [entry["event"] for entry in store.journal.read_events()] == ["one", "two"]


def test_history_of_an_agent(store: Store) -> None:
    store.journal.history("coder", taskId="T1", status="completed")
    store.journal.rotate(store.layout.history("coder"), bytes_max=1, kept=2)
    store.journal.history("coder", taskId="T2", status="failed")
    assert [entry["taskId"] for entry in store.journal.read_history("coder")] == ["T1", "T2"]
    assert store.journal.read_history("sales") == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_journal_that_cannot_be_written_stops_no_work(disk: MemoryDisk, code: int) -> None:
    store = outsider(FaultyDisk(disk, 1, code, lasting=True), disk.time)
    store.journal.event("coder", "one")
    store.journal.history("coder", taskId="T1")
    assert store.journal.dropped == 2
