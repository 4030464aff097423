"""T3: damaged files (I2). A reader gets the last good version or an empty one, never an exception or half a file;
the damaged bytes are in quarantine with a reason and an alert; no other file is touched."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mesh.errors import LockTimeout, MeshError, NewerSchema
from mesh.store import Store
from mesh.store.files import last_copy
from tests.fakes import MemoryDisk
from tests.faults.documents import FILED, LAYOUT, Filed, filled, with_version
from tests.faults.scenarios import move_port, registry
from tests.faults.world import accept, claim, made_disk, outsider, places, quarantined, reasons

FLIPS_EACH = 400
FULL = filled()

each_kind = pytest.mark.parametrize("filed", FILED.values(), ids=FILED.keys())


def damages(good: bytes) -> dict[str, bytes]:
    """Ways in which a document can be surely damaged."""
    document = json.loads(good)
    key = next(name for name in document if name != "schemaVersion" and isinstance(document[name], list | dict | str))
    cuts = range(1, len(good) - 2, max(1, len(good) // 40))
    wrong = {"list": [], "text": "x", "number": 1, "null": None, "true": True, "empty object": {}}
    versions = {f"version {value!r}": {**document, "schemaVersion": value} for value in ("1", 1.5, None, True, -1, [])}
    shapes = {f"{key} is {value!r}": {**document, key: value} for value in (None, 3, True)}
    return {
        **{f"cut at {cut}": good[:cut] for cut in cuts},
        **{name: json.dumps(value).encode() for name, value in {**wrong, **versions, **shapes}.items()},
        "emptied": b"",
        "blank": b" \n",
        "zeros": bytes(len(good)),
        "not UTF-8": good.replace(b'"schemaVersion"', b'"\xff\xfe": 1, "schemaVersion"'),
        "UTF-16": good.decode().encode("utf-16"),
        "nested lists": b"[" * 100_000,
        "nested objects": b'{"a":' * 100_000,
        "nested inside": good.replace(b"{", b'{"deep": ' + b"[" * 50_000 + b"]" * 50_000 + b",", 1),
        "twice": good + good,
    }


def others(disk: MemoryDisk, path: str) -> dict[str, bytes]:
    """All files but the damaged one and what is said about it."""
    said = ("/system/quarantine/", "/system/human/", "/system/locks/", "/system/events.log")
    return {
        name: data
        for name, data in disk.tree().items()
        if name not in (path, last_copy(path)) and not any(part in name for part in said)
    }


def expected_instead(filed: Filed) -> Any:
    """What readers get where the version before took the place."""
    disk = FULL.clone()
    last = last_copy(filed.path)
    store = outsider(disk, disk.time)
    if disk.signature(last) is None:
        disk.unlink(filed.path)
        return filed.read(store)
    disk.put(filed.path, disk.read(last))
    return filed.read(store)


@each_kind
def test_damaged_document(filed: Filed) -> None:
    good = FULL.read(filed.path)
    untouched = others(FULL, filed.path)
    instead = expected_instead(filed)
    if filed is FILED["clock"]:
        instead.tick += 1  # the version before is a tick behind, and none may come twice
    for name, data in damages(good).items():
        disk = FULL.clone()
        disk.put(filed.path, data)
        store = outsider(disk, disk.time)
        assert filed.read(store) == instead, name
        (kept,) = quarantined(store)
        assert disk.read(f"{LAYOUT.quarantine}/{kept}") == data, name
        assert reasons(store)[0], name
        (alert,) = store.alerts.open()
        assert (alert.type, alert.severity) == ("damaged_file", "high")
        assert LAYOUT.relative(filed.path) in alert.title
        assert others(disk, filed.path) == untouched, name
        filed.rewrite(store)  # the store goes on, with no second alert
        assert len(quarantined(store)) == len(store.alerts.open()) == 1, name


@each_kind
def test_damaged_with_no_version_before(filed: Filed) -> None:
    disk = FULL.clone()
    disk.put(filed.path, b"\x00")
    disk.put(last_copy(filed.path), b"\x00")
    store = outsider(disk, disk.time)
    filed.read(store)
    assert disk.signature(filed.path) is None, "it is never saved back as an empty one"
    assert "no version before" in reasons(store)[0]
    filed.rewrite(store)
    assert filed.read(store)


@each_kind
def test_flipped_bits(filed: Filed) -> None:
    """Either the file is still a document of its kind, or it is in quarantine; readers get an answer."""
    chance = random.Random(f"flips in {filed.path}")
    good = FULL.read(filed.path)
    untouched = others(FULL, filed.path)
    damaged = newer = 0
    for _ in range(FLIPS_EACH):
        flipped = bytearray(good)
        flipped[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
        disk = FULL.clone()
        disk.put(filed.path, bytes(flipped))
        store = outsider(disk, disk.time)
        try:
            filed.read(store)
        except NewerSchema:
            newer += 1
            assert disk.read(filed.path) == flipped
            continue
        if quarantined(store):
            damaged += 1
            assert disk.read(f"{LAYOUT.quarantine}/{quarantined(store)[0]}") == flipped
            assert store.alerts.open()
        assert others(disk, filed.path) | migrated(disk) == untouched | migrated(disk)
    assert damaged > FLIPS_EACH / 20, "some flips must break a document"
    assert newer < FLIPS_EACH / 10


def migrated(disk: MemoryDisk) -> dict[str, bytes]:
    """Copies of what a flip has made look like an older version."""
    return {name: data for name, data in disk.tree().items() if name.startswith(f"{LAYOUT.snapshots}/")}


@pytest.mark.parametrize("bad", [{"id": "B1"}, "text", None, 7, [], {"title": "no id", "owner": "any"}])
@pytest.mark.parametrize("path", [LAYOUT.queue, LAYOUT.inbox("coder")])
def test_one_bad_entry_goes_alone(path: str, bad: Any) -> None:
    disk = FULL.clone()
    store = outsider(disk, disk.time)
    before = {task.id for task in store.tasks.open()}
    document = json.loads(disk.read(path))
    disk.put(path, json.dumps({**document, "tasks": [bad, *document["tasks"]]}).encode())
    assert {task.id for task in store.tasks.open()} == before, "looking leaves it out"
    accept(store, "new")
    assert {task.id for task in store.tasks.open()} == before | {"new"}
    (kept,) = quarantined(store)
    assert json.loads(disk.read(f"{LAYOUT.quarantine}/{kept}")) == bad
    assert reasons(store)[0].startswith("not a task: ")
    assert bad not in json.loads(disk.read(path))["tasks"]
    assert len(store.alerts.open()) == 1


@each_kind
@pytest.mark.parametrize("version", [2, 99])
def test_newer_version_is_refused_untouched(filed: Filed, version: int) -> None:
    disk = FULL.clone()
    newer = with_version(disk.read(filed.path), version).replace(b'"id"', b'"identifier"')
    disk.put(filed.path, newer)
    store = outsider(disk, disk.time)
    for call in (filed.read, filed.rewrite):
        try:
            call(store)
        except NewerSchema as error:
            assert error.facts["file"] == filed.path
        else:
            going_on = (FILED["ended task"], filed.rewrite), (FILED["inbox"], filed.read)
            assert (filed, call) in going_on, "only another task's end, and the other queues, may go on"
    assert disk.read(filed.path) == newer
    assert not quarantined(store)
    assert not store.alerts.open()


def test_newer_registry_is_refused_untouched() -> None:
    disk = made_disk()
    store = outsider(disk, disk.time)
    registry(False, store)
    newer = with_version(disk.read(LAYOUT.registry), 2)
    disk.put(LAYOUT.registry, newer)
    with pytest.raises(NewerSchema):
        move_port(store)
    with pytest.raises(NewerSchema):
        assert store.registry.current
    assert disk.read(LAYOUT.registry) == newer


@each_kind
def test_unknown_keys_survive_a_rewrite(filed: Filed) -> None:
    disk = FULL.clone()
    document = json.loads(disk.read(filed.path))
    for task in document.get("tasks", []):
        task["x-note"] = "kept"
    disk.put(filed.path, json.dumps({**document, "x-note": "kept"}).encode())
    store = outsider(disk, disk.time)
    filed.rewrite(store)
    rewritten = json.loads(disk.read(filed.path))
    assert rewritten["x-note"] == "kept"
    old = {task["id"] for task in document.get("tasks", [])}
    assert all(task["x-note"] == "kept" for task in rewritten.get("tasks", []) if task["id"] in old)


def test_unknown_keys_of_a_task_move_with_it() -> None:
    disk = made_disk()
    store = outsider(disk, disk.time)
    accept(store, "T1", "any", **{"x-note": "kept"})
    claim(store)
    assert places(store, "T1") == [LAYOUT.active]
    assert store.tasks.find("T1").dump()["x-note"] == "kept"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"agents": 3}', b"{}"])
def test_unreadable_pause_pauses_everybody(data: bytes) -> None:
    disk = made_disk()
    store = outsider(disk, disk.time)
    disk.put(LAYOUT.paused, data)
    assert store.switches.is_paused("coder")
    assert store.switches.resume("*") == ["*"]
    assert not store.switches.is_paused("coder")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"id": 1}'])
def test_damaged_side_files_stop_nobody(data: bytes) -> None:
    """Files that only explain: each is read as absent, and written anew."""
    disk = FULL.clone()
    store = outsider(disk, disk.time)
    _, number = Store.become(store.layout.root, "coder", disk=disk, time=disk.time)
    store.alerts.raise_alert("stale", "sales", "Sales is stale", "")
    for path in (
        LAYOUT.beat("coder"),
        f"{LAYOUT.run('coder')}/{number}/process.json",
        f"{LAYOUT.locks}/supervisor.lock",
        f"{LAYOUT.locks}/tasks.lock",
        f"{LAYOUT.human}/stale-sales.json",
    ):
        disk.put(path, data)
    disk.put(LAYOUT.events, data + b'\n{"event": "after"}\n')
    assert store.beat("coder") is None
    assert store.process("coder") is None
    assert not isinstance(store.switches.supervisor(), list)
    assert store.alerts.open() == []
    assert store.alerts.raise_alert("stale", "sales", "Sales is stale", "")
    assert store.journal.read_events()[-1] == {"event": "after"}
    accept(store, "T1")
    assert Store.become(store.layout.root, "coder", disk=disk, time=disk.time)[1] > number


@pytest.mark.parametrize("path", [LAYOUT.queue, LAYOUT.active, LAYOUT.ended("A1")[0]])
def test_reader_mends_no_task_file_behind_a_writer_s_back(path: str) -> None:
    """Whoever changes tasks holds the one lock of all their files; a reader that put the version before in place
    without it could undo an acceptance."""
    disk = FULL.clone()
    store = outsider(disk, disk.time)
    disk.put(path, b"{")
    with store.locks.hold("tasks"), pytest.raises(LockTimeout):
        store.tasks.open()
        store.tasks.ended(9)
    assert disk.read(path) == b"{"
    assert not quarantined(store)
    store.tasks.open()
    store.tasks.ended(9)
    assert len(quarantined(store)) == 1


def test_tick_goes_on_from_what_is_known_when_the_clock_is_lost() -> None:
    disk = FULL.clone()
    store = outsider(disk, disk.time)
    tick = store.ticks.read().tick
    for path in (LAYOUT.clock, last_copy(LAYOUT.clock)):
        disk.unlink(path)
    assert store.ticks.pass_gate("coder", 60.0).clock.tick == tick + 1


def test_bad_file_in_the_list_of_ended_tasks_hides_no_other() -> None:
    disk = FULL.clone()
    store = outsider(disk, disk.time)
    disk.put(f"{LAYOUT.failed}/X1.json", b"{")
    assert {task.id for task in store.tasks.ended(9)} == {"A1", "A2"}
    with pytest.raises(MeshError):
        store.tasks.find("X1")
    assert len(quarantined(store)) == 1


def test_document_that_an_editor_is_writing_is_not_taken_for_damaged() -> None:
    """It is read half-written; a moment later it is whole. Nothing is set aside, and the edit counts."""
    disk = FULL.clone()
    store = outsider(disk, disk.time)
    path = LAYOUT.blockers
    whole = disk.read(path).replace(b"it broke", b"edited")
    disk.put(path, whole[: len(whole) // 2])
    sleep = disk.time.sleep

    def the_editor_goes_on(seconds: float) -> None:
        sleep(seconds)
        disk.put(path, whole)

    disk.time.sleep = the_editor_goes_on  # type: ignore[method-assign]
    assert store.knowledge.blockers(unresolved=False)
    assert disk.read(path) == whole
    assert not quarantined(store) and not store.alerts.open()
