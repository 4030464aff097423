"""Which task an agent takes next, and what becomes of a task after an attempt.

A task gets a few attempts; then it has failed, and a blocker says what stands in the way. Input that is wrong can't
get better by trying again. An attempt that may have acted on the outside world is never repeated by itself: its
outcome is unknown, and a person decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from mesh.limits import Limits
from mesh.models import Task, TaskResult, TaskStatus, Verdict
from mesh.models.running import RunRecord


class Ending(StrEnum):
    """How an attempt came to its end."""

    DONE = "done"
    FAILED = "failed"
    #: The input is wrong; the same attempt again would fail the same way.
    WRONG_INPUT = "wrong_input"
    TIMED_OUT = "timed_out"
    #: We stopped it ourselves: paused, shut down, restarted.
    INTERRUPTED = "interrupted"
    #: The agent's process died while it ran.
    CRASHED = "crashed"
    #: What does the work could not begin: no program, no place, paused at the last moment.
    NOT_BEGUN = "not_begun"
    #: What does the work has said on the way that it can't work now: logged out, or at its usage limit.
    UNFIT = "unfit"


@dataclass(frozen=True)
class Attempt:
    """What is known of an attempt that is over."""

    ending: Ending
    detail: str = ""
    result: TaskResult | None = None


def decide(task: Task, attempt: Attempt, tick: int, limits: Limits) -> Verdict:
    """What becomes of the task."""
    if task.cancel_requested:
        reason = f"cancelled by {task.cancel_requested}"
        return Verdict(TaskStatus.CANCELLED, reason, error=reason)
    if attempt.ending is Ending.DONE:
        return Verdict(TaskStatus.COMPLETED, "done", result=attempt.result)
    if attempt.ending is Ending.NOT_BEGUN:
        return Verdict(TaskStatus.QUEUED, attempt.detail, counts=False)
    if attempt.ending is Ending.WRONG_INPUT:
        return Verdict(TaskStatus.FAILED, "its input is wrong", error=attempt.detail, blocker=True)
    if task.effects == "external":
        error = f"{attempt.detail}; it may already have acted on the outside world, so a person decides"
        return Verdict(TaskStatus.OUTCOME_UNKNOWN, "cut short with external effects", error=error)
    if attempt.ending in (Ending.INTERRUPTED, Ending.UNFIT):
        return Verdict(TaskStatus.QUEUED, attempt.detail, counts=False)
    if task.attempts >= limits.task_attempts_max:
        error = f"{attempt.detail} (attempt {task.attempts} of {limits.task_attempts_max})"
        return Verdict(TaskStatus.FAILED, "no attempt left", error=error, blocker=True)
    # What an agent's first crash cut short goes on at once; a task that may itself be the cause is held back.
    at_once = attempt.ending is Ending.CRASHED and task.attempts <= 1
    delay_ticks = 0 if at_once else limits.task_retry_delay_ticks * 2 ** (task.attempts - 1)
    return Verdict(TaskStatus.QUEUED, attempt.detail, error=attempt.detail, not_before_tick=tick + delay_ticks)


def after_restart(task: Task, run: RunRecord | None, agent: str, *, lost: bool) -> Attempt | None:
    """How an attempt stands that an earlier daemon began: over, or None where its process goes on without that
    daemon, or has ended with a result that nobody has taken yet. `lost`: it is gone and nobody saw how it ended."""
    if run is None or run.attempt != task.attempts:
        return Attempt(Ending.CRASHED, f"{agent}'s process ended while it ran")
    if run.stopped is not None:
        return Attempt(Ending.INTERRUPTED, run.stopped)
    if lost:
        return Attempt(Ending.CRASHED, f"{run.cli}'s process ended with its host")
    return None


def next_task(
    own: Iterable[Task], shared: Iterable[Task], responsibilities: Iterable[str], can_run: Callable[[Task], bool]
) -> Task | None:
    """The first of the agent's own tasks, else the first of the global queue that it is responsible for. Both
    come sorted; what the agent can't run is left for others."""
    skilled = set(responsibilities)
    own_fitting = (task for task in own if can_run(task))
    shared_fitting = (task for task in shared if skilled.issuperset(task.needs) and can_run(task))
    return next(own_fitting, None) or next(shared_fitting, None)
