from __future__ import annotations

import json

import pytest

from mesh.store import Store
from mesh.store.switches import ALL, SUPERVISOR
from tests.fakes import MemoryDisk


def test_pause_one_and_all(store: Store) -> None:
    store.switches.pause("coder", "human", "too loud")
    assert store.switches.is_paused("coder")
    assert not store.switches.is_paused("sales")
    store.switches.pause(ALL, "human")
    assert store.switches.is_paused("sales")
    assert store.switches.paused()["coder"] == {
        "at": "2026-02-16T20:45:00.000Z",
        "by": "human",
        "reason": "too loud",
    }


def test_resume_of_one_leaves_the_others(store: Store, disk: MemoryDisk) -> None:
    for agent in ("coder", "sales"):
        store.switches.pause(agent, "human")
    assert store.switches.resume("coder") == ["coder"]
    assert store.switches.resume("coder") == []
    assert list(store.switches.paused()) == ["sales"]
    assert store.switches.resume(ALL) == ["sales"]
    assert disk.signature(store.layout.paused) is None


def test_resume_of_one_does_not_end_the_pause_of_all(store: Store) -> None:
    store.switches.pause(ALL, "human")
    assert store.switches.resume("coder") == []
    assert store.switches.is_paused("coder")


def test_touched_file_pauses_everybody(store: Store, disk: MemoryDisk) -> None:
    disk.put(store.layout.paused, b"")
    assert store.switches.is_paused("coder")
    assert store.switches.paused()[ALL]["by"] == "human"
    store.switches.pause("coder", "sales")
    assert store.switches.is_paused("devops"), "a stop must never be lost"
    assert sorted(store.switches.resume(ALL)) == [ALL, "coder"]
    assert not store.switches.is_paused("devops")


def test_stop_stands_until_unstop(store: Store) -> None:
    store.switches.stop("new-agent", "human", "broken")
    assert store.switches.is_stopped("new-agent")
    assert store.switches.unstop("new-agent") is True
    assert store.switches.unstop("new-agent") is False
    assert not store.switches.is_stopped("new-agent")


def test_requests_are_seen_once(store: Store) -> None:
    store.switches.request("restart", "coder")
    store.switches.request("restart", "coder")
    store.switches.request("start", "sales")
    assert store.switches.requests() == [("restart", "coder"), ("start", "sales")]
    assert store.switches.requests() == []


RECORD = {"pid": 7, "started": 1.5}


@pytest.mark.parametrize(
    ("data", "note"),
    [(json.dumps(RECORD).encode(), RECORD), (b'{"pid": 7}', None), (b"[]", None), (b"{", None), (None, None)],
)
def test_supervisor_as_recorded(store: Store, disk: MemoryDisk, data: bytes | None, note: object) -> None:
    if data is not None:
        disk.put(store.locks.path(SUPERVISOR), data)
    assert store.switches.supervisor() == note


@pytest.mark.parametrize(
    "data",
    [b'{"agents": {"*": true}}', b'{"agents": {"*": null}}', b'{"agents": {"*": "holiday"}}', b'{"agents": {"*": {}}}'],
)
def test_pause_written_by_hand_without_a_note_holds(store: Store, disk: MemoryDisk, data: bytes) -> None:
    disk.put(store.layout.paused, data)
    assert store.switches.is_paused("coder")
    assert store.switches.paused()[ALL] == {"at": None, "by": "human", "reason": ""}
    assert store.switches.resume(ALL) == [ALL]
