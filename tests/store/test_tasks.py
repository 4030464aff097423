from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.errors import Conflict, Fenced, QueueFull, StoreUnavailable, TaskEnded, UnknownTask
from mesh.models import Task, TaskResult, TaskStatus, Verdict
from mesh.store import Store
from mesh.store.setup import initialise
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.world import (
    COMPLETED,
    FAILED,
    REQUEUED,
    ROOT,
    accept,
    claim,
    claim_of,
    new_task,
    outsider,
    places,
    run,
    settle,
    status,
)


def references(store: Store, agent: str) -> list[dict[str, object]]:
    return json.loads(store.files.read(store.layout.outbox(agent)) or b'{"tasks": []}')["tasks"]


# -- accepting


def test_accepted_into_the_owner_s_queue_or_the_global_one(store: Store) -> None:
    accept(store, "T1")
    accept(store, "T2", "any")
    assert places(store, "T1") == [store.layout.inbox("coder")]
    assert places(store, "T2") == [store.layout.queue]
    task = store.tasks.find("T1")
    assert (task.status, task.attempts, task.history[0]["reason"]) == ("queued", 0, "accepted")


@pytest.mark.parametrize("state", ["queued", "working", "completed"])
def test_same_id_and_body_again_is_one_task(store: Store, state: str) -> None:
    accept(store, "T1")
    if state != "queued":
        claim(store)
    if state == "completed":
        settle(store, "T1", COMPLETED)
    known, fresh = accept(store, "T1")
    assert (known.status, fresh) == (state, False)
    assert len(places(store, "T1")) == 1


def test_same_id_with_another_body_is_a_conflict(store: Store) -> None:
    accept(store, "T1")
    with pytest.raises(Conflict) as caught:
        accept(store, "T1", digest="another")
    assert caught.value.facts["taskId"] == "T1"
    claim(store)
    settle(store, "T1", COMPLETED)
    with pytest.raises(Conflict):
        accept(store, "T1", digest="another")


def test_queue_has_a_cap_of_its_own(store: Store) -> None:
    for number in range(3):
        store.tasks.accept(new_task(f"T{number}"), 3)
    with pytest.raises(QueueFull) as caught:
        store.tasks.accept(new_task("T3"), 3)
    assert caught.value.facts["owner"] == "coder"
    _, again = store.tasks.accept(new_task("T2"), 3)
    assert again is False, "a known task is answered even while the queue is full"
    store.tasks.accept(new_task("T3", "any"), 3)
    claim(store)
    store.tasks.accept(new_task("T4"), 3)


def test_task_that_needs_approval_waits_for_it(store: Store) -> None:
    accept(store, "T1", approval=True)
    assert status(store, "T1") == "awaiting_approval"
    assert claim(store) is None


# -- claiming and progress


def test_order_is_priority_then_time_then_id(store: Store) -> None:
    accept(store, "b")
    accept(store, "a")
    accept(store, "early", createdAt="2020-01-01T00:00:00.000Z")
    for priority in ("low", "high", "urgent"):
        accept(store, priority, priority=priority)
    served = []
    while task := claim(store):
        served.append(task.id)
    assert served == ["urgent", "high", "early", "a", "b", "low"]


def test_claim_offers_only_what_is_ready(store: Store) -> None:
    accept(store, "mine")
    accept(store, "ours", "any")
    accept(store, "theirs", "sales")
    accept(store, "waits", blockedBy=["mine"])
    accept(store, "later", notBeforeTick=50)
    offered = []

    def pick(own: list[Task], shared: list[Task]) -> None:
        offered.append(([task.id for task in own], [task.id for task in shared]))

    assert store.tasks.claim(claim_of("coder", 1), pick, 49) is None
    assert store.tasks.claim(claim_of("coder", 1), pick, 50) is None
    assert offered == [(["mine"], ["ours"]), (["later", "mine"], ["ours"])]


def test_claimed_task_names_its_claim_and_has_one_owner(store: Store, time: FakeClock) -> None:
    accept(store, "T1", "any")
    time.advance(10)
    task = claim(store, "sales", 4)
    assert task is not None
    assert (task.owner, task.status, task.attempts) == ("sales", "working", 1)
    assert task.claim is not None
    assert (task.claim.agent, task.claim.incarnation) == ("sales", 4)
    assert task.started_at == "2026-02-16T20:45:10.000Z"
    assert places(store, "T1") == [store.layout.active]
    assert claim(store) is None


def test_progress_is_seen_and_shows_a_request_to_cancel(store: Store) -> None:
    accept(store, "T1")
    claim(store)
    store.tasks.progress(claim_of("coder", 1), "T1", 0.4, "2026-02-16T21:00:00.000Z")
    task = store.tasks.find("T1")
    assert (task.progress, task.estimated_completion) == (0.4, "2026-02-16T21:00:00.000Z")
    store.tasks.cancel("T1", "human", "not needed")
    assert store.tasks.progress(claim_of("coder", 1), "T1", 0.5, None).cancel_requested == "human"


# -- ending


def test_completed(store: Store, time: FakeClock) -> None:
    accept(store, "T1", "coder", **{"from": "sales"})
    claim(store)
    time.advance(5)
    settle(store, "T1", Verdict(TaskStatus.COMPLETED, "done", result=TaskResult(text="all well")))
    task = store.tasks.find("T1")
    assert (task.status, task.progress, task.claim) == ("completed", 1.0, None)
    assert task.result is not None
    assert task.result.text == "all well"
    assert places(store, "T1") == [f"{ROOT}/tasks/completed/T1.json"]
    assert json.loads(store.files.read(store.layout.ended("T1")[0]) or b"")["schemaVersion"] == 1
    assert "schemaVersion" not in task.dump()
    reference = {"id": "T1", "status": "completed", "finishedAt": "2026-02-16T20:45:05.000Z"}
    assert references(store, "coder") == [reference]
    assert references(store, "sales") == [{**reference, "to": "coder"}]


def test_references_say_queued_until_it_has_ended(store: Store) -> None:
    accept(store, "T1", "coder", **{"from": "sales"})
    assert references(store, "sales") == [{"id": "T1", "status": "queued", "finishedAt": None, "to": "coder"}]
    accept(store, "T2", "coder", **{"from": "coder"})
    assert references(store, "coder") == [], "its own work is not delegated"


def test_giver_that_was_removed_is_told_nothing(store: Store) -> None:
    accept(store, "T1", "coder", **{"from": "gone"})
    run(store, "T1")
    assert status(store, "T1") == "completed"
    assert not store.files.exists(store.layout.agent("gone"))


@pytest.mark.parametrize("verdict", [COMPLETED, FAILED])
def test_human_gets_one_notice(store: Store, verdict: Verdict) -> None:
    accept(store, "T1")
    run(store, "T1", verdict)
    store.tasks.repair()
    (name,) = store.files.names(store.layout.mail("human").inbox)
    notice = json.loads(store.files.read(f"{store.layout.mail('human').inbox}/{name}") or b"")
    assert (notice["from"], notice["to"]) == ("coder", "human")
    assert notice["type"] == ("task_complete" if verdict is COMPLETED else "task_failed")
    assert notice["payload"]["taskId"] == "T1"
    assert name.endswith(f"-{notice['id']}-{notice['type']}.json")


def test_failure_records_a_blocker_and_success_removes_it(store: Store) -> None:
    accept(store, "T1", title="Deploy", needs=["security"], priority="high")
    run(store, "T1", FAILED)
    (blocker,) = store.knowledge.blockers()
    assert (blocker.id, blocker.topic, blocker.needs) == ("blocker-coder-deploy", "Deploy", ["security"])
    assert (blocker.severity, blocker.description) == ("high", "it broke")
    accept(store, "T2", title="Deploy")
    run(store, "T2")
    assert store.knowledge.blockers() == []
    assert len(store.knowledge.blockers(unresolved=False)) == 1


def test_requeued_waits_for_its_tick(store: Store) -> None:
    accept(store, "T1", "any")
    claim(store)
    settle(store, "T1", REQUEUED)
    task = store.tasks.find("T1")
    assert (task.status, task.attempts, task.claim) == ("queued", 1, None)
    assert places(store, "T1") == [store.layout.inbox("coder")], "it stays with whom it was tried by"
    assert claim(store, tick=6) is None
    again = claim(store, tick=7)
    assert again is not None
    assert again.attempts == 2


def test_attempt_that_we_cut_short_does_not_count(store: Store) -> None:
    accept(store, "T1")
    claim(store)
    settle(store, "T1", Verdict(TaskStatus.QUEUED, "stopped on purpose", counts=False))
    assert store.tasks.find("T1").attempts == 0


def test_decision_is_taken_on_the_task_as_it_stands(store: Store) -> None:
    accept(store, "T1")
    claim(store)
    store.tasks.cancel("T1", "sales", "not needed")
    seen = []

    def decide(task: Task) -> Verdict:
        seen.append(task.cancel_requested)
        return Verdict(TaskStatus.CANCELLED, "asked to", error="asked to")

    assert store.tasks.settle(claim_of("coder", 1), "T1", decide).status == "cancelled"
    assert seen == ["sales"]


def test_settling_twice_is_fenced(store: Store) -> None:
    accept(store, "T1")
    run(store, "T1")
    with pytest.raises(Fenced):
        settle(store, "T1", COMPLETED)


def test_cancel(store: Store) -> None:
    accept(store, "T1")
    assert store.tasks.cancel("T1", "human", "not needed").status == "cancelled"
    assert places(store, "T1") == [store.layout.ended("T1")[1]]
    with pytest.raises(TaskEnded):
        store.tasks.cancel("T1", "human", "again")
    with pytest.raises(UnknownTask):
        store.tasks.cancel("none", "human", "")


def test_cancel_of_a_task_whose_end_was_written_leaves_the_end(store: Store, disk: MemoryDisk) -> None:
    """Between a crash and the repair the open copy is still there: asking twice must not make it the newer one."""
    accept(store, "T1")
    claim(store)
    active = disk.read(store.layout.active)
    settle(store, "T1", COMPLETED)
    disk.put(store.layout.active, active)  # as if the crash had come before the open copy went
    for _ in range(3):
        with pytest.raises(TaskEnded):
            store.tasks.cancel("T1", "human", "too late")
    store.tasks.repair()
    assert status(store, "T1") == "completed"
    assert places(store, "T1") == [store.layout.ended("T1")[0]]


def test_copy_left_by_a_crash_is_not_claimed_again(store: Store, disk: MemoryDisk) -> None:
    accept(store, "T1")
    inbox = disk.read(store.layout.inbox("coder"))
    claim(store)
    disk.put(store.layout.inbox("coder"), inbox)
    assert claim(store) is None
    assert places(store, "T1") == [store.layout.active]
    settle(store, "T1", COMPLETED)
    disk.put(store.layout.inbox("coder"), inbox)
    assert claim(store) is None
    assert status(store, "T1") == "completed"


# -- looking


def test_find_and_lists(store: Store, time: FakeClock) -> None:
    for id_ in ("T1", "T2", "T3"):
        accept(store, id_)
    run(store, "T1")
    time.advance(60)
    run(store, "T2", FAILED)
    assert [task.id for task in store.tasks.open()] == ["T3"]
    assert [task.id for task in store.tasks.ended(10)] == ["T2", "T1"]
    assert [task.id for task in store.tasks.ended(1)] == ["T2"]
    assert [task.id for task in store.tasks.ended(10, store.layout.completed)] == ["T1"]
    with pytest.raises(UnknownTask) as caught:
        store.tasks.find("none")
    assert caught.value.facts["taskId"] == "none"


def test_looking_changes_nothing(store: Store, disk: MemoryDisk) -> None:
    accept(store, "T1")
    accept(store, "T2", "any")
    run(store, "T2")
    before = {path: data for path, data in disk.tree().items() if "/locks/" not in path}
    store.tasks.find("T1")
    store.tasks.find("T2")
    store.tasks.open()
    store.tasks.ended(10)
    assert {path: data for path, data in disk.tree().items() if "/locks/" not in path} == before


def test_history_is_bounded(store: Store) -> None:
    accept(store, "T1")
    for _ in range(40):
        claim(store)
        settle(store, "T1", REQUEUED)
    task = store.tasks.find("T1")
    assert len(task.history) == 50
    assert task.attempts == 40


def test_outsiders_and_agents_see_the_same(store: Store, disk: MemoryDisk) -> None:
    accept(store, "T1")
    agent, _ = Store.become(ROOT, "coder", disk=disk, time=disk.time)
    assert agent.tasks.find("T1") == outsider(disk, disk.time).tasks.find("T1") == store.tasks.find("T1")


@pytest.mark.parametrize("status", ["completed", "failed", "queued"])
def test_task_that_a_hand_edit_put_where_it_cannot_be_stops_nobody(store: Store, disk: MemoryDisk, status: str) -> None:
    accept(store, "T1")
    accept(store, "T2")
    claimed = claim(store)
    document = json.loads(disk.read(store.layout.active))
    document["tasks"][0]["status"] = status
    disk.put(store.layout.active, json.dumps(document).encode())
    assert store.tasks.recover("coder", 99, lambda task: FAILED) == []
    assert claimed.id not in [task.id for task in store.tasks.open()]
    kept = [name for name in store.files.names(store.layout.quarantine) if not name.endswith(".reason.json")]
    assert len(kept) == 1
    assert claimed.id.encode() in disk.read(f"{store.layout.quarantine}/{kept[0]}")


def test_one_failure_again_and_again_is_one_blocker_with_a_count(store: Store) -> None:
    for number in range(5):
        accept(store, f"T{number}", title="Deploy")
        run(store, f"T{number}", FAILED)
    (blocker,) = store.knowledge.blockers()
    assert (blocker.count, blocker.task_id) == (5, "T4")


def test_queue_that_one_agent_cannot_read_stops_nobody_else(tmp_path: Path) -> None:
    """A folder in its place: the trouble is that file's alone."""
    store = Store(str(tmp_path / "root"))
    initialise(store)
    Path(store.layout.inbox("sales")).mkdir()
    accept(store, "T1", owner="coder")
    assert [task.id for task in store.tasks.open()] == ["T1"]
    with pytest.raises(StoreUnavailable):
        accept(store, "T2", owner="sales")
    with pytest.raises(StoreUnavailable):
        store.tasks.give_back("sales")
