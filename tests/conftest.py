"""Fixtures of the store's tests: a fake clock, a disk in memory, and a root made on it."""

from __future__ import annotations

import pytest

from mesh.store import Store
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.world import ROOT, make_root


@pytest.fixture
def time() -> FakeClock:
    return FakeClock()


@pytest.fixture
def disk(time: FakeClock) -> MemoryDisk:
    disk = MemoryDisk(time)
    make_root(disk)
    return disk


@pytest.fixture
def store(disk: MemoryDisk) -> Store:
    """The command line's store on the disk in memory."""
    return Store(ROOT, disk=disk, time=disk.time)
