"""The audit of the task flow, over tasks that went through the real store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents import _taskflow, ops
from mesh import Report
from mesh.models import Claim, Task, TaskResult, TaskStatus, Verdict
from mesh.store import Store
from tests.agents.stage import ContextMaker, TaskMaker, section
from tests.fakes import FakeClock

TITLE = "Process Audit"
DONE = Verdict(TaskStatus.COMPLETED, "done", result=TaskResult(text="ok"))
FAILED = Verdict(TaskStatus.FAILED, "failed", error="no | host")


async def audit(make_context: ContextMaker) -> Report:
    return await ops.agent.skills[TITLE](make_context("ops", title=TITLE))


def start(store: Store, task: Task) -> Claim:
    """Accept the task if it is new, and let its owner claim it."""
    store.tasks.accept(task, 100)
    claim = Claim(agent=task.owner, incarnation=1, since=task.created_at)
    assert store.tasks.claim(claim, lambda own, shared: next(t for t in own if t.id == task.id), 0)
    return claim


def test_the_role_does_what_its_template_is_called() -> None:
    assert list(ops.agent.skills) == [TITLE]
    assert ops.agent.id == "ops" and "process" in ops.agent.persona


async def test_an_idle_mesh_flows(make_context: ContextMaker) -> None:
    report = await audit(make_context)
    assert report.text.startswith("Process audit of 2026-02-17 09:00: 0 waiting, 0 worked on, 0 stuck,")
    assert section(report.text, "Findings") == "Work flows: nothing is stuck, late or failing."
    assert report.evidence == ["tasks/completed, tasks/failed: 0 tasks ended within 7 d"]


async def test_stuck_is_longer_than_the_agents_own_limit(
    store: Store, time: FakeClock, make_context: ContextMaker, make_task: TaskMaker
) -> None:
    start(store, make_task("coder", "Slow", id="slow"))
    start(store, make_task("ops", "Patient", id="patient"))
    store.registry.edit(lambda document: document["agents"]["ops"].update(limits={"taskStuckMin": 600}))
    time.advance(timedelta(minutes=181).total_seconds())
    report = await audit(make_context)
    assert "- slow, Slow, is stuck: coder is at it for 3 h 1 min; limit 180 min." in section(report.text, "Findings")
    assert "patient" not in section(report.text, "Findings")
    assert "| slow | Slow | coder | 3 h 1 min | 0% | yes |" in section(report.text, "Working")
    assert "| patient | Patient | ops | 3 h 1 min | 0% | no |" in section(report.text, "Working")
    assert "task slow: working" in report.evidence


async def test_waiting_blocked_approvals_and_unknown_outcomes(
    store: Store, time: FakeClock, make_context: ContextMaker, make_task: TaskMaker
) -> None:
    claim = start(store, make_task("sales", "Send", id="send"))
    store.tasks.settle(claim, "send", lambda _: Verdict(TaskStatus.OUTCOME_UNKNOWN, "cut short", error="cut short"))
    store.tasks.accept(make_task("coder", "Wait", id="wait"), 100)
    store.tasks.accept(make_task("coder", "Then", id="then", blocked_by=["wait"]), 100)
    store.tasks.accept(make_task("comms", "Post", id="post", approval=True), 100)
    time.advance(timedelta(hours=25).total_seconds())
    report = await audit(make_context)
    found = section(report.text, "Findings")
    assert "1 task waited for over a day: wait." in found
    assert "1 outcome unknown, for a person to decide: send." in found
    assert "1 task awaiting approval: post." in found
    assert "| wait | Wait | coder | normal | 1 d 1 h |" in section(report.text, "Waiting")
    assert "| then | Then | coder | 1 d 1 h | wait (queued) |" in section(report.text, "Blocked")
    assert "| post | Post | comms | human | 1 d 1 h |" in section(report.text, "Awaiting approval")
    assert "| send | Send | sales | cut short |" in section(report.text, "Outcome unknown")
    assert {"task wait: queued", "task then: blocked", "task post: awaiting_approval"} <= set(report.evidence)


async def test_throughput_waits_and_failures(
    store: Store, time: FakeClock, make_context: ContextMaker, make_task: TaskMaker
) -> None:
    early = make_task("intel", "Scan", id="early")
    store.tasks.accept(early, 100)
    time.advance(timedelta(hours=5).total_seconds())
    claim = start(store, early)
    time.advance(timedelta(minutes=10).total_seconds())
    store.tasks.settle(claim, "early", lambda _: DONE)
    time.advance(timedelta(days=2).total_seconds())
    for number in range(2):
        claim = start(store, make_task("intel", "Fetch", id=f"fetch-{number}"))
        store.tasks.settle(claim, f"fetch-{number}", lambda _: FAILED)
    report = await audit(make_context)
    assert "| intel | 0 | 2 | 1 | 2 | 10 min |" in section(report.text, "Throughput")
    assert section(report.text, "Longest waits of the last 7 d").splitlines()[2] == "| early | Scan | intel | 5 h |"
    failures = section(report.text, "Failures of the last 7 d by title")
    assert r"| Fetch | 2 | 2 | 100% | no \| host |" in failures and "Scan" not in failures
    assert "Fetch fails 2 times out of 2" in section(report.text, "Findings")
    assert "in 24 h 0 completed, 2 failed (100%)." in report.text
    assert "task fetch-1: failed" in report.evidence
    time.advance(timedelta(days=7, seconds=1).total_seconds())
    assert "| intel | 0 | 0 | 0 | 0 | – |" in section((await audit(make_context)).text, "Throughput")


async def test_a_queue_longer_than_a_day_of_work_is_a_finding(
    store: Store, make_context: ContextMaker, make_task: TaskMaker
) -> None:
    store.tasks.accept(make_task("coder", "One"), 100)
    assert "falls behind" not in (await audit(make_context)).text
    store.tasks.accept(make_task("coder", "Two"), 100)
    assert "- coder falls behind: 2 wait for it, and it completed 0 in 24 h." in (await audit(make_context)).text


async def test_a_retried_task_waited_until_its_first_start(
    store: Store, time: FakeClock, make_context: ContextMaker, make_task: TaskMaker
) -> None:
    task = make_task("intel", "Again", id="again")
    store.tasks.accept(task, 100)
    time.advance(timedelta(minutes=7).total_seconds())
    claim = start(store, task)
    time.advance(timedelta(hours=4).total_seconds())
    store.tasks.settle(claim, "again", lambda _: Verdict(TaskStatus.QUEUED, "try again"))
    start(store, task)
    assert "| again | Again | intel | 7 min |" in (await audit(make_context)).text


# -- pure computation


def ended(status: str, minutes: int = 0, title: str = "T") -> Task:
    return Task.model_validate(
        {
            "id": "x",
            "title": title,
            "owner": "ops",
            "from": "human",
            "status": status,
            "createdAt": "2026-02-17T08:00:00Z",
            "updatedAt": "2026-02-17T08:00:00Z",
            "startedAt": "2026-02-17T08:00:00Z",
            "finishedAt": f"2026-02-17T08:{minutes:02}:00Z",
            "error": f"error {minutes}",
        }
    )


@pytest.mark.parametrize(
    ("tasks", "completed", "failed", "typical_min", "error_rate"),
    [
        ([], 0, 0, None, 0.0),
        ([ended("completed", 4), ended("completed", 10), ended("completed", 30)], 3, 0, 10, 0.0),
        ([ended("failed", 50), ended("completed", 2)], 1, 1, 2, 0.5),
        ([ended("cancelled", 5), ended("outcome_unknown", 5)], 0, 0, None, 0.0),
    ],
)
def test_throughput(
    tasks: list[Task], completed: int, failed: int, typical_min: float | None, error_rate: float
) -> None:
    found = _taskflow.throughput(tasks)
    assert (found.completed, found.failed, found.typical_min) == (completed, failed, typical_min)
    assert found.error_rate == error_rate


def test_failures_by_title_names_the_latest_error_and_ignores_what_was_cancelled() -> None:
    newest_first = [
        ended("failed", 9, "A"),
        ended("failed", 8, "A"),
        ended("completed", 7, "A"),
        ended("cancelled", 6, "A"),
        ended("failed", 5, "B"),
        ended("completed", 4, "C"),
    ]
    found = [(e.title, e.failed, e.ended, e.last_error) for e in _taskflow.failures_by_title(newest_first)]
    assert found == [("B", 1, 1, "error 5"), ("A", 2, 3, "error 9")]
