from __future__ import annotations

import json

import pytest

from mesh.limits import DEFAULT, Limits
from mesh.store import Store
from mesh.store.codec import encode
from tests.fakes import MemoryDisk
from tests.faults.world import AGENTS, COMPLETED, ROOT, UNKNOWN, accept, claim, claim_of

LAYOUT = Store(ROOT).layout
LIMITS = DEFAULT.with_overrides({"eventsBytesMax": 10_000, "historyBytesMax": 10_000, "logBytesMax": 10_000})


def run(store: Store, limits: Limits = LIMITS) -> dict[str, int]:
    return store.retention.run(limits, list(AGENTS))


@pytest.mark.parametrize(
    ("path", "days", "counted"),
    [
        (f"{LAYOUT.completed}/T1.json", 30, "tasks/completed"),
        (f"{LAYOUT.failed}/T1.json", 30, "tasks/failed"),
        (f"{LAYOUT.syncs}/2026-02-16T20-coder.json", 30, "system/syncs"),
        (f"{LAYOUT.quarantine}/bad.json", 90, "system/quarantine"),
        (f"{LAYOUT.quarantine}/bad.json.reason.json", 90, "system/quarantine"),
        (f"{LAYOUT.snapshots}/state.json.v0", 90, "system/snapshots"),
        (f"{LAYOUT.scratch}/left-over.json.77-abcd.1", 1, "system/scratch"),
    ],
)
def test_deleted_once_older_than_its_days(store: Store, disk: MemoryDisk, path: str, days: float, counted: str) -> None:
    disk.put(path, b"{}")
    disk.age(path, days - 0.01)
    assert run(store) == {}
    disk.age(path, days + 0.01)
    assert run(store) == {counted: 1}
    assert disk.signature(path) is None


def test_days_come_from_the_limits(store: Store, disk: MemoryDisk) -> None:
    path = f"{LAYOUT.syncs}/report.json"
    disk.put(path, b"{}")
    disk.age(path, 3)
    assert run(store, DEFAULT.with_overrides({"syncRetentionDays": 2})) == {"system/syncs": 1}


@pytest.mark.parametrize(("status", "goes"), [("resolved", True), ("open", False), ("acked", False)])
def test_only_resolved_alerts_go(store: Store, disk: MemoryDisk, status: str, goes: bool) -> None:
    path = f"{LAYOUT.human}/stale-sales.json"
    store.alerts.raise_alert("stale", "sales", "Sales is stale", "")
    disk.put(path, encode({**json.loads(disk.read(path)), "status": status}))
    disk.age(path, 91)
    run(store)
    assert (disk.signature(path) is None) is goes


def test_unknown_outcome_waits_for_a_person_however_long(store: Store, disk: MemoryDisk) -> None:
    for id_, verdict in (("T1", UNKNOWN), ("T2", COMPLETED)):
        accept(store, id_)
        claim(store)
        store.tasks.settle(claim_of("coder", 1), id_, lambda task, verdict=verdict: verdict)
    for id_, place in (("T1", 1), ("T2", 0)):
        disk.age(LAYOUT.ended(id_)[place], 4000)
    assert run(store) == {"tasks/completed": 1}
    assert store.tasks.find("T1").status == "outcome_unknown"


def test_what_is_in_force_never_goes(store: Store, disk: MemoryDisk) -> None:
    accept(store, "T1")
    store.remember("coder", {"a": 1})
    store.switches.pause("*", "human")
    store.switches.stop("sales", "human")
    store.ticks.pass_gate("coder", 60.0)
    store.alerts.raise_alert("stale", "sales", "Sales is stale", "")
    before = disk.tree()
    for path in before:
        if not path.endswith("/"):
            disk.age(path, 4000)
    run(store)
    assert {path for path in before if "/locks/" not in path} <= set(disk.tree())


def test_logs_are_rotated_and_the_output_is_cut_in_place(store: Store, disk: MemoryDisk) -> None:
    disk.put(LAYOUT.events, b"e" * 10_001)
    disk.put(LAYOUT.history("coder"), b"h" * 10_001)
    disk.put(LAYOUT.history("sales"), b"h" * 10_000)
    disk.put(LAYOUT.log, b"old" + b"l" * 10_000)
    output = disk.signature(LAYOUT.log)
    assert output is not None
    assert run(store) == {"rotated": 3}
    assert disk.read(f"{LAYOUT.events}.1") == b"e" * 10_001
    assert disk.read(f"{LAYOUT.log}.1") == b"l" * 10_000
    cut = disk.signature(LAYOUT.log)
    assert cut is not None
    assert (cut.inode, cut.size) == (output.inode, 0), "processes hold it open"
    assert run(store) == {}
