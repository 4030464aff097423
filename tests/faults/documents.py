"""One document of each kind, as the store itself writes it, and how each is read and changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mesh.models import Blocker, HealthFile
from mesh.store import Store
from mesh.store.documents import (
    BLOCKERS,
    CLOCK,
    DECISIONS,
    ENDED_TASK,
    HEALTH,
    INSIGHTS,
    MEMORY,
    REFERENCES,
    STATE,
    TASKS,
    Kind,
)
from tests.fakes import MemoryDisk
from tests.faults.scenarios import add_insight, state_of
from tests.faults.world import COMPLETED, ROOT, accept, claim, claim_of, made_disk, outsider

LAYOUT = Store(ROOT).layout


@dataclass(frozen=True)
class Filed:
    """A document: where it lies, how it is looked at, and a call that reads it and writes it anew."""

    path: str
    kind: Kind
    read: Callable[[Store], Any]
    rewrite: Callable[[Store], object]


def decide(number: int, store: Store) -> None:
    """Decisions have no writer of their own yet: any agent may add one."""
    store.documents.update(
        LAYOUT.decisions, DECISIONS, lambda document: document["decisions"].append({"id": f"d{number}"})
    )


def report(id_: str, store: Store) -> None:
    at = "2026-02-16T20:45:00.000Z"
    store.knowledge.report(Blocker(id=id_, agent="coder", topic="tests", description="red", since=at))


def write_health(store: Store) -> None:
    agents = {"coder": {"status": "idle", "lastSeen": None, "healthy": True}}
    at = "2026-02-16T20:45:00.000Z"
    store.write_health(
        HealthFile.model_validate({"lastUpdate": at, "asOfTick": 1, "agents": agents, "systemHealth": "healthy"})
    )


def tick(store: Store) -> None:
    store.time.advance(60)
    assert store.ticks.pass_gate("coder", 60.0).carries


def end_one(store: Store) -> None:
    """Completes what is in work, so that the giver's and the owner's references are written."""
    claimed = claim(store)
    assert claimed is not None
    store.tasks.settle(claim_of("coder", 1), claimed.id, lambda task: COMPLETED)


def open_ids(store: Store) -> list[str]:
    return [task.id for task in store.tasks.open()]


def of_kind(path: str, kind: Kind) -> Callable[[Store], Any]:
    return lambda store: store.documents.read(path, kind)


FILED = {
    "queue": Filed(LAYOUT.queue, TASKS, open_ids, lambda store: accept(store, "more", "any")),
    "inbox": Filed(LAYOUT.inbox("coder"), TASKS, open_ids, lambda store: accept(store, "more")),
    "active": Filed(LAYOUT.active, TASKS, open_ids, claim),
    "ended task": Filed(
        LAYOUT.ended("A1")[0], ENDED_TASK, lambda store: [task.id for task in store.tasks.ended(9)], end_one
    ),
    "outbox": Filed(LAYOUT.outbox("coder"), REFERENCES, of_kind(LAYOUT.outbox("coder"), REFERENCES), end_one),
    "state": Filed(
        LAYOUT.state("coder"), STATE, lambda store: store.state("coder"), lambda store: store.write_state(state_of("c"))
    ),
    "health": Filed(LAYOUT.health, HEALTH, lambda store: store.health(), write_health),
    "clock": Filed(LAYOUT.clock, CLOCK, lambda store: store.ticks.read(), tick),
    "blockers": Filed(
        LAYOUT.blockers, BLOCKERS, lambda store: store.knowledge.blockers(), lambda store: report("b3", store)
    ),
    "decisions": Filed(
        LAYOUT.decisions, DECISIONS, of_kind(LAYOUT.decisions, DECISIONS), lambda store: decide(3, store)
    ),
    "insights": Filed(
        LAYOUT.insights, INSIGHTS, of_kind(LAYOUT.insights, INSIGHTS), lambda store: add_insight("three", store)
    ),
    "memory": Filed(
        LAYOUT.memory("coder"),
        MEMORY,
        lambda store: store.memory("coder"),
        lambda store: store.remember("coder", {"c": 3}),
    ),
}


def filled() -> MemoryDisk:
    """A root with each document written at least twice, so that each has a version before it."""
    disk = made_disk()
    store = outsider(disk, disk.time)
    for number in (1, 2):
        accept(store, f"A{number}")
        end_one(store)
        accept(store, f"B{number}", "any")
        accept(store, f"C{number}", **{"from": "sales"})
        tick(store)
        write_health(store)
        store.write_state(state_of(f"session {number}"))
        report(f"b{number}", store)
        decide(number, store)
        add_insight(f"insight {number}", store)
        store.remember("coder", {"ab"[number - 1]: number})
    accept(store, "D1")
    claim(store)
    claim(store)
    disk.sync()
    return disk


def with_version(data: bytes, version: object) -> bytes:
    return json.dumps({**json.loads(data), "schemaVersion": version}).encode()
