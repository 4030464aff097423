"""The audit of the task flow: facts, findings computed from them, and the page that shows both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agents import _taskflow
from agents._markdown import bullets, clip, count, report, table
from agents._spans import say, since
from mesh.models import Registry, Task, TaskStatus

if TYPE_CHECKING:
    from mesh.service.skill_context import SkillContext

#: A week of a busy mesh: eight agents with a task every quarter of an hour end 5,376.
_ENDED_READ_MAX = 6000
_SHOWN_MAX = 20
_LONG_WAIT = timedelta(days=1)


@dataclass(frozen=True)
class Audit:
    now: datetime
    registry: Registry
    waiting: list[Task]
    working: list[Task]
    stuck: list[Task]
    blocked: list[Task]
    approvals: list[Task]
    #: Tasks whose outcome is unknown: a person must decide.
    unknown: list[Task]
    #: What ended within seven days, newest first.
    week: list[Task]
    day: list[Task]
    #: The status of each task that something is blocked by, as far as known.
    statuses: dict[str, str]
    #: Whether more ended within the week than was read.
    more_ended: bool


def collect(context: SkillContext) -> Audit:
    """Read what there is to know, once."""
    now, registry, tasks = context.now, context.registry, context.open_tasks()
    ended = context.ended_tasks(_ENDED_READ_MAX)
    week = _taskflow.ended_within(ended, now, _taskflow.WEEK)
    return Audit(
        now=now,
        registry=registry,
        waiting=_taskflow.with_status(tasks, TaskStatus.QUEUED),
        working=_taskflow.with_status(tasks, TaskStatus.WORKING),
        stuck=_taskflow.stuck(tasks, registry, now),
        blocked=_taskflow.with_status(tasks, TaskStatus.BLOCKED),
        approvals=_taskflow.with_status(tasks, TaskStatus.AWAITING_APPROVAL),
        unknown=_taskflow.with_status(ended, TaskStatus.OUTCOME_UNKNOWN),
        week=week,
        day=_taskflow.ended_within(week, now, _taskflow.DAY),
        statuses={task.id: str(task.status) for task in [*ended, *tasks]},
        more_ended=len(week) == _ENDED_READ_MAX,
    )


def findings(audit: Audit) -> list[str]:
    """Where work doesn't flow, with the numbers that show it. Empty if it does."""
    found = []
    for task in audit.stuck:
        limit = audit.registry.limits_for(task.owner).task_stuck_min
        span = say(since(task.started_at, audit.now))
        found.append(f"{task.id}, {task.title}, is stuck: {task.owner} is at it for {span}; limit {limit:g} min.")
    old = [task for task in audit.waiting if (since(task.created_at, audit.now) or timedelta(0)) > _LONG_WAIT]
    if old:
        found.append(f"{count(len(old), 'task')} waited for over a day: {_ids(old)}.")
    for agent, queue in _by_owner(audit.waiting).items():
        done = _taskflow.throughput(task for task in audit.day if task.owner == agent).completed
        if len(queue) > max(done, 1):
            found.append(f"{agent} falls behind: {len(queue)} wait for it, and it completed {done} in 24 h.")
    for entry in _taskflow.failures_by_title(audit.week):
        if entry.failed > 1 and entry.rate > 0.5:
            found.append(f"{entry.title} fails {entry.failed} times out of {entry.ended}; last: {entry.last_error}")
    if audit.unknown:
        found.append(f"{count(len(audit.unknown), 'outcome')} unknown, for a person to decide: {_ids(audit.unknown)}.")
    if audit.approvals:
        found.append(f"{count(len(audit.approvals), 'task')} awaiting approval: {_ids(audit.approvals)}.")
    return found


def _by_owner(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    queues: dict[str, list[Task]] = {}
    for task in tasks:
        if task.owner != "any":
            queues.setdefault(task.owner, []).append(task)
    return queues


def _ids(tasks: list[Task]) -> str:
    shown = ", ".join(task.id for task in tasks[:_SHOWN_MAX])
    return shown if len(tasks) <= _SHOWN_MAX else f"{shown} and {len(tasks) - _SHOWN_MAX} more"


# -- the page


def render(audit: Audit) -> str:
    more = f"\n\nOnly the last {_ENDED_READ_MAX} ended tasks were counted." if audit.more_ended else ""
    return report(
        summary(audit),
        ("Findings", bullets(findings(audit), none="Work flows: nothing is stuck, late or failing.")),
        ("Waiting", _section(audit.waiting, ["Priority", "For"], lambda task: [task.priority, _age(audit, task)])),
        ("Working", _section(audit.working, ["For", "Progress", "Stuck"], lambda task: _working_cells(audit, task))),
        ("Blocked", _section(audit.blocked, ["For", "Waits for"], lambda task: _blocked_cells(audit, task))),
        ("Awaiting approval", _section(audit.approvals, ["From", "For"], lambda task: [task.from_, _age(audit, task)])),
        ("Outcome unknown", _section(audit.unknown, ["Reason"], lambda task: [task.error or "–"])),
        ("Throughput", _throughput(audit) + more),
        ("Longest waits of the last 7 d", _waits(audit)),
        ("Failures of the last 7 d by title", _failures(audit)),
    )


def summary(audit: Audit) -> str:
    """The whole in one line."""
    day = _taskflow.throughput(audit.day)
    oldest = f" (oldest for {_age(audit, audit.waiting[0])})" if audit.waiting else ""
    return (
        f"Process audit of {audit.now:%Y-%m-%d %H:%M}: {len(audit.waiting)} waiting{oldest}, {len(audit.working)} "
        f"worked on, {len(audit.stuck)} stuck, {len(audit.blocked)} blocked, {len(audit.approvals)} awaiting approval; "
        f"in 24 h {day.completed} completed, {day.failed} failed ({day.error_rate:.0%})."
    )


def _age(audit: Audit, task: Task) -> str:
    return say(since(task.created_at, audit.now))


def _section(tasks: list[Task], headers: list[str], cells: Callable[[Task], list[object]]) -> str:
    if not tasks:
        return "None."
    rows = [[task.id, task.title, task.owner, *cells(task)] for task in tasks[:_SHOWN_MAX]]
    more = len(tasks) - len(rows)
    return table(["Task", "Title", "Owner", *headers], rows) + (f"\n\nAnd {more} more." if more else "")


def _working_cells(audit: Audit, task: Task) -> list[object]:
    stuck = "yes" if task in audit.stuck else "no"
    return [say(since(task.started_at, audit.now)), f"{task.progress:.0%}", stuck]


def _blocked_cells(audit: Audit, task: Task) -> list[object]:
    waits = ", ".join(f"{other} ({audit.statuses.get(other, 'not found')})" for other in task.blocked_by)
    return [_age(audit, task), waits or ", ".join(task.needs) or "no reason recorded"]


def _throughput(audit: Audit) -> str:
    rows = []
    for agent in audit.registry.agents:
        day = _taskflow.throughput(task for task in audit.day if task.owner == agent)
        week = _taskflow.throughput(task for task in audit.week if task.owner == agent)
        typical = say(None if week.typical_min is None else timedelta(minutes=week.typical_min))
        rows.append([agent, day.completed, day.failed, week.completed, week.failed, typical])
    return table(["Agent", "Done 24 h", "Failed 24 h", "Done 7 d", "Failed 7 d", "Typical duration"], rows)


def _waits(audit: Audit) -> str:
    rows = [[task.id, task.title, task.owner, say(span)] for task, span in _slowest_to_start(audit)]
    return table(["Task", "Title", "Owner", "Waited"], rows) if rows else "Nothing started."


def _slowest_to_start(audit: Audit) -> list[tuple[Task, timedelta]]:
    return _taskflow.longest_waits([*audit.working, *audit.week], _SHOWN_MAX // 2)


def _failures(audit: Audit) -> str:
    rows = [
        [entry.title, entry.failed, entry.ended, f"{entry.rate:.0%}", clip(entry.last_error, 200)]
        for entry in _taskflow.failures_by_title(audit.week)
    ]
    return table(["Title", "Failed", "Of", "Rate", "Last error"], rows) if rows else "None."


def evidence(audit: Audit) -> list[str]:
    """The tasks that the page names; of what just went well, the number."""
    failed = [task for task in audit.week if task.status is TaskStatus.FAILED]
    tasks = [*audit.waiting, *audit.working, *audit.blocked, *audit.approvals, *audit.unknown, *failed]
    tasks += [task for task, _ in _slowest_to_start(audit)]
    named = dict.fromkeys(f"task {task.id}: {task.status}" for task in tasks)
    return [*named, f"tasks/completed, tasks/failed: {count(len(audit.week), 'task')} ended within 7 d"]
