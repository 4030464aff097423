from __future__ import annotations

import pytest

from mesh.store import Store, beats
from mesh.store.beats import Beat, BeatWriter
from tests.fakes import FakeClock, MemoryDisk


def first(time: FakeClock, incarnation: int = 1) -> Beat:
    return Beat(1, incarnation, time.boottime(), 0, beats.boot_mark(time))


@pytest.fixture
def path(store: Store) -> str:
    return store.layout.beat("coder")


def test_beats_are_written_over_in_place(store: Store, disk: MemoryDisk, time: FakeClock, path: str) -> None:
    writer = BeatWriter(store.files, path, first(time, 4))
    inode = disk.signature(path).inode
    for turn in range(1, 4):
        time.advance(1)
        writer.write(time.boottime(), 10 * turn)
    assert store.beat("coder") == Beat(4, 4, time.boottime(), 30, beats.boot_mark(time))
    assert disk.signature(path).inode == inode
    writer.close()


def test_age_comes_from_the_beat_s_own_stamp(store: Store, time: FakeClock, path: str) -> None:
    BeatWriter(store.files, path, first(time))
    beat = store.beat("coder")
    assert beat is not None
    assert beat.age_s(time) == 0
    time.advance(2.5)
    for jump_s in (42 * 60, -3600):
        time.jump(jump_s)
        assert beat.age_s(time) == 2.5, "a jump of the wall clock ages nobody (I10)"
    time.suspend(100)
    assert beat.age_s(time) == 102.5
    time.reboot()
    assert beat.age_s(time) is None, "unknown, which isn't death"


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"x" * 10, b"x" * 40, b"x" * 400])
def test_damaged_beat_is_unknown(store: Store, disk: MemoryDisk, path: str, data: bytes) -> None:
    disk.put(path, data)
    assert store.beat("coder") is None


def test_every_flipped_bit_is_noticed(store: Store, disk: MemoryDisk, time: FakeClock, path: str) -> None:
    BeatWriter(store.files, path, first(time))
    good = disk.read(path)
    for bit in range(8 * len(good)):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.put(path, bytes(flipped))
        assert store.beat("coder") is None, bit


def test_missing_beat_is_unknown(store: Store) -> None:
    assert store.beat("coder") is None


def test_old_writer_is_seen_by_nobody_once_replaced(store: Store, time: FakeClock, path: str) -> None:
    old = BeatWriter(store.files, path, first(time, 1))
    new = BeatWriter(store.files, path, first(time, 2))
    old.write(99.0, 99)
    assert store.beat("coder") == first(time, 2)
    new.write(100.0, 1)
    old.write(101.0, 100)
    beat = store.beat("coder")
    assert beat is not None
    assert (beat.incarnation, beat.progress) == (2, 1)


def test_next_incarnation_is_higher_than_any_beat(store: Store, disk: MemoryDisk, time: FakeClock, path: str) -> None:
    BeatWriter(store.files, path, first(time, 41))
    assert Store.become(store.layout.root, "coder", disk=disk, time=time)[1] == 42
