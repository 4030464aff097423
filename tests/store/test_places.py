"""Places belong to processes: real ones here, as only the kernel can say whether a process lives."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from mesh.clock import SYSTEM
from mesh.models.running import Place
from mesh.policy.places import why_wait
from mesh.store import Store
from mesh.store.incarnations import process_started
from mesh.store.setup import initialise


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Store:
    store = Store(str(tmp_path / "root"))
    initialise(store)
    return store


def a_place(run: str, pid: int | None = None, writes: str | None = None) -> Place:
    pid = pid or os.getpid()
    return Place(
        run=run, agent=run, writes=writes, pid=pid, started=process_started(pid) or 0, boot_id=SYSTEM.boot_id()
    )


def take(store: Store, ask: Place, places: int = 1) -> str | None:
    return store.places.take(ask, lambda ask, taken, earlier: why_wait(ask, taken, earlier, places))


def test_who_waits_gets_its_place_in_turn(store: Store) -> None:
    assert take(store, a_place("first")) is None
    assert take(store, a_place("second")) is not None
    assert take(store, a_place("third")) is not None
    assert [place.run for place in store.places.waiting()] == ["second", "third"]
    store.places.leave("first")
    assert take(store, a_place("third")) is not None, "the second has waited longer"
    assert take(store, a_place("second")) is None
    assert [place.run for place in store.places.taken()] == ["second"]
    assert [place.run for place in store.places.waiting()] == ["third"]


def test_a_place_goes_with_its_process(store: Store) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert take(store, a_place("run")) is None
        store.places.hold("run", child.pid, process_started(child.pid) or 0)
        assert take(store, a_place("other")) is not None
    finally:
        child.kill()
        child.wait()
    assert store.places.taken() == []
    assert take(store, a_place("other")) is None


def test_a_zombie_holds_no_place(store: Store) -> None:
    child = subprocess.Popen(["true"])
    try:
        child_place = a_place("run", child.pid)
        assert take(store, child_place) is None
        while process_started(child.pid) is not None:  # it has ended, and nobody has waited for it yet
            SYSTEM.sleep(0.01)
        assert store.places.taken() == []
    finally:
        child.wait()


def test_the_same_pid_of_another_start_or_boot_is_another_process(store: Store) -> None:
    other = a_place("run").model_copy(update={"started": 1.0})
    take(store, other)
    take(store, a_place("b").model_copy(update={"boot_id": "before"}), places=9)
    assert store.places.taken() == []


def test_entries_that_a_hand_broke_hold_nothing(store: Store) -> None:
    take(store, a_place("good"))
    path = store.layout.places
    text = pathlib.Path(path).read_text().replace('"taken": [', '"taken": [{"run": 5}, "x",')
    pathlib.Path(path).write_text(text)
    assert [place.run for place in store.places.taken()] == ["good"]
    assert take(store, a_place("second"), places=2) is None
