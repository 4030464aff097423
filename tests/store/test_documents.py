from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from mesh.store import Store
from mesh.store.codec import decode, encode
from mesh.store.documents import INSIGHTS, MEMORY, Kind
from mesh.store.files import last_copy
from tests.fakes import MemoryDisk
from tests.faults.world import ROOT, quarantined, reasons

PATH = f"{ROOT}/knowledge/insights.json"


def test_missing_is_none_and_looking_makes_nothing(store: Store, disk: MemoryDisk) -> None:
    before = disk.tree()
    assert store.documents.read(PATH, INSIGHTS) is None
    assert disk.tree() == before


def test_first_update_starts_from_an_empty_document(store: Store, disk: MemoryDisk) -> None:
    written = store.documents.update(PATH, INSIGHTS, lambda document: document["insights"].append(1))
    assert written == {"schemaVersion": 1, "insights": [1]}
    assert disk.read(PATH) == b'{\n "schemaVersion": 1,\n "insights": [\n  1\n ]\n}\n'


def test_update_may_return_another_document(store: Store) -> None:
    store.documents.update(PATH, INSIGHTS, lambda document: {**document, "insights": ["other"]})
    assert store.documents.read(PATH, INSIGHTS) == {"schemaVersion": 1, "insights": ["other"]}


def test_edit_that_raises_changes_nothing_and_frees_the_lock(store: Store, disk: MemoryDisk) -> None:
    store.documents.update(PATH, INSIGHTS, lambda document: document["insights"].append(1))
    before = disk.read(PATH)

    def edit(document: dict[str, Any]) -> None:
        document["insights"].append(2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.documents.update(PATH, INSIGHTS, edit)
    assert disk.read(PATH) == before
    store.documents.update(PATH, INSIGHTS, lambda document: document["insights"].append(3))


def test_version_before_is_kept(store: Store, disk: MemoryDisk) -> None:
    for number in (1, 2, 3):
        store.documents.update(PATH, INSIGHTS, lambda document, n=number: document["insights"].append(n))
    assert json.loads(disk.read(last_copy(PATH)))["insights"] == [1, 2]


def test_mending_is_done_once(store: Store, disk: MemoryDisk) -> None:
    for number in (1, 2):
        store.documents.update(PATH, INSIGHTS, lambda document, n=number: document["insights"].append(n))
    disk.put(PATH, b"{")
    for _ in range(3):
        document = store.documents.read(PATH, INSIGHTS)
        assert document is not None
        assert document["insights"] == [1]
    assert len(quarantined(store)) == 1
    assert reasons(store)[0].endswith("the version before it took its place")
    (alert,) = store.alerts.open()
    assert alert.count == 1
    assert store.journal.read_events()[-1]["event"] == "quarantined"


def test_migrations_run_in_order_with_one_snapshot(store: Store, disk: MemoryDisk) -> None:
    kind = replace(
        MEMORY,
        version=3,
        migrations={
            0: lambda document: {**document, "memory": {"v": [1]}},
            1: lambda document: {**document, "memory": {"v": [*document["memory"]["v"], 2]}},
            2: lambda document: {**document, "memory": {"v": [*document["memory"]["v"], 3]}},
        },
    )
    path = store.layout.memory("coder")
    disk.put(path, b'{"memory": {}}')
    document = store.documents.read(path, kind)
    assert document == {"schemaVersion": 3, "memory": {"v": [1, 2, 3]}}
    assert store.documents.read(path, kind) == document
    assert store.files.names(store.layout.snapshots) == ["agents.coder.memory.json.v0"]


def test_older_version_with_no_way_up_is_damaged(store: Store, disk: MemoryDisk) -> None:
    kind = Kind("note", {"text": str}, version=2)
    disk.put(PATH, b'{"schemaVersion": 1, "text": "old"}')
    assert store.documents.read(PATH, kind) is None
    assert "can't be brought up to date" in reasons(store)[0]


@pytest.mark.parametrize("text", ["ü€", "\ud800 alone", "\u0000", "a" * 100_000])
def test_any_text_survives(text: str) -> None:
    assert decode(encode({"text": text})) == {"text": text}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff{}", "{}".encode("utf-16"), b"[" * 100_000])
def test_what_is_not_json_in_utf_8(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)
