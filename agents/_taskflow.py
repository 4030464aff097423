"""The flow of tasks as plain facts: what waits, what is stuck, what ended, what failed. Pure: `now` comes in."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from agents._spans import between, since
from mesh.models import Registry, Task, TaskStatus

DAY = timedelta(days=1)
WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Throughput:
    """What one agent got done within a span of time."""

    completed: int
    failed: int
    #: Median minutes from start to end of what was completed; None if nothing was.
    typical_min: float | None

    @property
    def ended(self) -> int:
        return self.completed + self.failed

    @property
    def error_rate(self) -> float:
        """The share of failures among what ended; 0 if nothing did."""
        return self.failed / self.ended if self.ended else 0.0


@dataclass(frozen=True)
class TitleFailures:
    """How often tasks with one title fail."""

    title: str
    ended: int
    failed: int
    #: The error of the latest failure.
    last_error: str

    @property
    def rate(self) -> float:
        return self.failed / self.ended


def with_status(tasks: Iterable[Task], status: TaskStatus) -> list[Task]:
    """The tasks with this status, oldest first."""
    return sorted((task for task in tasks if task.status is status), key=lambda task: (task.created_at, task.id))


def stuck(tasks: Iterable[Task], registry: Registry, now: datetime) -> list[Task]:
    """What is worked on for longer than its agent's limit `taskStuckMin`, longest first."""
    found = []
    for task in with_status(tasks, TaskStatus.WORKING):
        limit = timedelta(minutes=registry.limits_for(task.owner).task_stuck_min)
        span = since(task.started_at, now)
        if span is not None and span > limit:
            found.append((span, task))
    return [task for _, task in sorted(found, key=lambda pair: pair[0], reverse=True)]


def ended_within(ended: Iterable[Task], now: datetime, span: timedelta) -> list[Task]:
    """What ended within the span before now, in the order given."""
    ages = ((since(task.finished_at, now), task) for task in ended)
    return [task for age, task in ages if age is not None and age <= span]


def throughput(ended: Iterable[Task]) -> Throughput:
    """Count ended tasks. Cancelled ones are neither a success nor a failure."""
    tasks = list(ended)
    completed = [task for task in tasks if task.status is TaskStatus.COMPLETED]
    failed = sum(task.status is TaskStatus.FAILED for task in tasks)
    spans = [span for task in completed if (span := between(task.started_at, task.finished_at)) is not None]
    typical = statistics.median(span.total_seconds() / 60 for span in spans) if spans else None
    return Throughput(len(completed), failed, typical)


def first_start(task: Task) -> str | None:
    """When somebody first began the task: `startedAt` is of the latest attempt only."""
    begun = (entry.get("at") for entry in task.history if entry.get("status") == TaskStatus.WORKING)
    return next((at for at in begun if isinstance(at, str)), task.started_at)


def longest_waits(tasks: Iterable[Task], count_max: int) -> list[tuple[Task, timedelta]]:
    """Which started tasks waited longest between creation and first start, longest first."""
    waits = [(task, span) for task in tasks if (span := between(task.created_at, first_start(task))) is not None]
    return sorted(waits, key=lambda pair: (-pair[1].total_seconds(), pair[0].id))[:count_max]


def failures_by_title(ended: Sequence[Task]) -> list[TitleFailures]:
    """The titles that failed at all, worst first. `ended` must be newest first."""
    groups: defaultdict[str, list[Task]] = defaultdict(list)
    for task in ended:
        if task.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
            groups[task.title].append(task)
    found = []
    for title, tasks in groups.items():
        failed = [task for task in tasks if task.status is TaskStatus.FAILED]
        if failed:
            found.append(TitleFailures(title, len(tasks), len(failed), failed[0].error or "no reason recorded"))
    return sorted(found, key=lambda entry: (-entry.rate, -entry.failed, entry.title))
