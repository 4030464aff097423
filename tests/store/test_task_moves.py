"""Tasks that wait for others, and those that a person, a start or a removal moves on."""

from __future__ import annotations

import json

import pytest

from mesh.errors import Conflict, Invalid
from mesh.models import TaskStatus, Verdict
from mesh.store import Store
from tests.fakes import MemoryDisk
from tests.faults.world import (
    COMPLETED,
    FAILED,
    REQUEUED,
    UNKNOWN,
    accept,
    claim,
    claim_of,
    new_task,
    places,
    run,
    settle,
    status,
)

# -- waiting for others


def test_blocked_until_all_it_waits_for_have_completed(store: Store) -> None:
    accept(store, "T1")
    accept(store, "T2")
    accept(store, "T3", "any", blockedBy=["T1", "T2"])
    assert status(store, "T3") == "blocked"
    assert store.tasks.find("T1").blocks == ["T3"]
    run(store, "T1")
    assert status(store, "T3") == "blocked"
    run(store, "T2")
    assert status(store, "T3") == "queued"
    assert places(store, "T3") == [store.layout.queue]


def test_waiting_for_what_has_completed_already_is_not_waiting(store: Store) -> None:
    accept(store, "T1")
    run(store, "T1")
    accept(store, "T2", blockedBy=["T1"])
    assert status(store, "T2") == "queued"


def test_unknown_id_in_blocked_by_is_named(store: Store) -> None:
    accept(store, "T1")
    with pytest.raises(Invalid) as caught:
        accept(store, "T2", blockedBy=["T1", "none"])
    assert caught.value.facts["errors"] == [{"field": "blockedBy.1", "reason": "there is no task 'none'"}]
    assert places(store, "T2") == []


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_failure_goes_down_the_whole_chain(store: Store, how: str) -> None:
    accept(store, "T1")
    accept(store, "T2", blockedBy=["T1"])
    accept(store, "T3", "sales", blockedBy=["T2"])
    accept(store, "T4", blockedBy=["T3"], priority="urgent")
    accept(store, "free")
    if how == "failed":
        run(store, "T1", FAILED)
    else:
        store.tasks.cancel("T1", "human", "not needed")
    for id_, waited_for in (("T2", "T1"), ("T3", "T2"), ("T4", "T3")):
        task = store.tasks.find(id_)
        assert task.status == "failed"
        assert task.error is not None
        assert f"waited for {waited_for!r}" in task.error
        assert places(store, id_) == [store.layout.ended(id_)[1]]
    assert status(store, "free") == "queued"


def test_unknown_outcome_keeps_others_waiting(store: Store) -> None:
    accept(store, "T1", effects="external")
    accept(store, "T2", blockedBy=["T1"])
    run(store, "T1", UNKNOWN)
    assert status(store, "T2") == "blocked"
    store.tasks.resolve("T1", COMPLETED, "human")
    assert status(store, "T2") == "queued"


def test_waiting_for_what_has_failed_fails_at_once(store: Store) -> None:
    accept(store, "T1")
    run(store, "T1", FAILED)
    task, fresh = accept(store, "T2", blockedBy=["T1"])
    assert (task.status, fresh) == ("failed", True)
    assert len(places(store, "T2")) == 1


def test_very_many_that_wait_for_one(store: Store) -> None:
    """More than the interpreter allows calls within calls, in the worst order."""
    count = 600
    accept(store, "T0")
    before = json.loads(store.files.read(store.layout.inbox("coder")) or b"")
    tasks = [new_task(f"W{number}", blockedBy=["T0"], status="blocked").dump() for number in range(count)]
    chain = [
        new_task(f"X{number}", blockedBy=[f"X{number - 1}" if number else "T0"], status="blocked").dump()
        for number in range(50)
    ]
    document = {**before, "tasks": [*before["tasks"], *tasks, *reversed(chain)]}
    store.files.replace(store.layout.inbox("coder"), json.dumps(document).encode())
    store.tasks.cancel("T0", "human", "not needed")
    assert store.tasks.open() == []
    assert len(store.files.names(store.layout.failed)) == count + 51


# -- resolving, recovering, giving back


def test_resolve_is_only_for_unknown_outcomes(store: Store) -> None:
    accept(store, "T1", effects="external")
    with pytest.raises(Conflict):
        store.tasks.resolve("T1", COMPLETED, "human")
    run(store, "T1", UNKNOWN)
    assert places(store, "T1") == [store.layout.ended("T1")[1]]
    store.tasks.resolve("T1", Verdict(TaskStatus.QUEUED, "nothing had happened"), "human")
    task = store.tasks.find("T1")
    assert (task.status, task.attempts) == ("queued", 0)
    assert places(store, "T1") == [store.layout.inbox("coder")]
    assert task.history[-1] == {
        "at": "2026-02-16T20:45:00.000Z",
        "status": "queued",
        "by": "human",
        "reason": "nothing had happened",
    }


@pytest.mark.parametrize("verdict", [COMPLETED, FAILED, Verdict(TaskStatus.QUEUED, "again")])
def test_resolved_task_lies_in_one_place(store: Store, verdict: Verdict) -> None:
    accept(store, "T1", effects="external")
    run(store, "T1", UNKNOWN)
    store.tasks.resolve("T1", verdict, "human")
    assert len(places(store, "T1")) == 1
    assert status(store, "T1") == verdict.status


def test_end_that_was_told_but_not_finished_may_be_told_otherwise(store: Store, disk: MemoryDisk) -> None:
    """The worker of a task whose first end met a fault reports again, perhaps another end: one stands."""
    accept(store, "T1")
    claim(store)
    active = disk.read(store.layout.active)
    settle(store, "T1", COMPLETED)
    disk.put(store.layout.active, active)
    settle(store, "T1", FAILED)
    assert places(store, "T1") == [store.layout.ended("T1")[1]]


def test_recover_settles_only_what_earlier_incarnations_of_the_agent_left(store: Store) -> None:
    for id_ in ("old", "new", "other"):
        accept(store, id_, "sales" if id_ == "other" else "coder")
    pick = {"old": ("coder", 1), "new": ("coder", 2), "other": ("sales", 1)}
    for id_, (agent, number) in pick.items():
        store.tasks.claim(
            claim_of(agent, number), lambda own, shared, id_=id_: next(task for task in own if task.id == id_), 0
        )
    settled = store.tasks.recover("coder", 2, lambda task: REQUEUED)
    assert [(task.id, verdict) for task, verdict in settled] == [("old", REQUEUED)]
    assert {id_: status(store, id_) for id_ in pick} == {"old": "queued", "new": "working", "other": "working"}


def test_give_back_empties_the_queue_of_an_agent(store: Store) -> None:
    accept(store, "T1", "sales")
    accept(store, "T2", "sales", blockedBy=["T1"])
    accept(store, "T3", "coder")
    assert [task.id for task in store.tasks.give_back("sales")] == ["T1", "T2"]
    for id_ in ("T1", "T2"):
        assert places(store, id_) == [store.layout.queue]
        assert store.tasks.find(id_).owner == "any"
    assert places(store, "T3") == [store.layout.inbox("coder")]
    run(store, "T1")
    assert status(store, "T2") == "queued"
