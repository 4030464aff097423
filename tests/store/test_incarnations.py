from __future__ import annotations

import os
from dataclasses import replace

import pytest

from mesh.store import Store
from mesh.store.incarnations import current, process_started
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.scenarios import state_of
from tests.faults.world import ROOT


def become(disk: MemoryDisk, agent: str = "coder") -> tuple[Store, int]:
    return Store.become(ROOT, agent, disk=disk, time=disk.time)


def test_numbers_only_grow_and_each_agent_has_its_own(disk: MemoryDisk) -> None:
    assert [become(disk)[1] for _ in range(3)] == [1, 2, 3]
    assert become(disk, "sales")[1] == 1
    assert disk.names(f"{ROOT}/agents/coder/run") == ["3"], "what is retired is deleted"


def test_number_survives_the_loss_of_its_folder(disk: MemoryDisk) -> None:
    store, _ = become(disk)
    store.write_state(state_of("a").model_copy(update={"incarnation": 8}))
    assert become(disk)[1] == 9


def test_left_over_of_a_retired_one_is_in_nobody_s_way(disk: MemoryDisk) -> None:
    become(disk)
    disk.make_folder(f"{ROOT}/agents/coder/run/.retired-0")
    disk.make_folder(f"{ROOT}/agents/coder/run/.retired-0/not-empty")
    assert become(disk)[1] == 2


def test_process_is_recorded_and_alive(disk: MemoryDisk, store: Store) -> None:
    assert store.process("coder") is None
    become(disk)
    process = store.process("coder")
    assert process is not None
    assert (process.agent, process.incarnation, process.pid) == ("coder", 1, os.getpid())


def test_reused_pid_or_another_boot_is_not_the_process(disk: MemoryDisk, store: Store, time: FakeClock) -> None:
    become(disk)
    process = current(disk, store.layout, "coder")
    assert process is not None
    assert process.alive(time.boot_id())
    assert not process.alive("another boot")
    assert not replace(process, started=process.started - 5).alive(time.boot_id())
    time.reboot()
    assert store.process("coder") is None


@pytest.mark.parametrize("pid", [0, 2**22 + 1])
def test_no_process_has_not_started(pid: int) -> None:
    assert process_started(pid) is None
