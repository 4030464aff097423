"""Tasks and their lifecycle."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from mesh.models.base import Filed, FileId
from mesh.models.running import Usage


class Priority(StrEnum):
    URGENT = "urgent"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 for urgent to 3 for low: what sorts first is served first."""
        return list(Priority).index(self)


class TaskStatus(StrEnum):
    QUEUED = "queued"
    WORKING = "working"
    BLOCKED = "blocked"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    OUTCOME_UNKNOWN = "outcome_unknown"


_S = TaskStatus
#: The lifecycle of a task: from each status, where it may go. `outcome_unknown` waits for a person.
TASK_TRANSITIONS: dict[TaskStatus, frozenset[TaskStatus]] = {
    _S.QUEUED: frozenset({_S.WORKING, _S.BLOCKED, _S.FAILED, _S.CANCELLED}),
    _S.BLOCKED: frozenset({_S.QUEUED, _S.FAILED, _S.CANCELLED}),
    _S.AWAITING_APPROVAL: frozenset({_S.QUEUED, _S.BLOCKED, _S.CANCELLED}),
    _S.WORKING: frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED, _S.QUEUED, _S.OUTCOME_UNKNOWN}),
    _S.OUTCOME_UNKNOWN: frozenset({_S.QUEUED, _S.COMPLETED, _S.FAILED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
ENDED = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED})
#: Where a body lies in `tasks/failed/`: ended without success, or waiting there for a person.
IN_FAILED = frozenset({_S.FAILED, _S.CANCELLED, _S.OUTCOME_UNKNOWN})


class Claim(Filed):
    """Who works on a task: an incarnation of an agent, so that a successor knows what was cut short."""

    agent: str
    incarnation: int
    since: str


class TaskResult(Filed):
    text: str = ""
    format: str = "markdown"
    files: list[str] = []
    evidence: list[str] = []
    #: What it used, where a model was asked.
    usage: Usage | None = None
    #: Where the work lies, if it was done in a git worktree: its branch, and the commits on it, oldest first.
    branch: str | None = None
    commits: list[str] = []


class Task(Filed):
    """One piece of work. Its body lies in exactly one file; `revision` grows with every move, so that after a
    crash between two writes the furthest copy is known."""

    id: FileId
    type: str = "task"
    title: str
    description: str = ""
    status: TaskStatus = TaskStatus.QUEUED
    priority: Priority = Priority.NORMAL
    owner: str
    from_: str = Field(alias="from")
    via: str | None = None
    needs: list[str] = []
    skill: str | None = None
    input: dict[str, Any] = {}
    outputs: list[str] = []
    approval: bool = False
    effects: Literal["none", "external"] = "none"
    estimated_minutes: float | None = None
    created_at: str
    updated_at: str
    started_at: str | None = None
    finished_at: str | None = None
    estimated_completion: str | None = None
    progress: float = 0.0
    attempts: int = 0
    not_before_tick: int = 0
    blocked_by: list[str] = []
    blocks: list[str] = []
    result: TaskResult | None = None
    error: str | None = None
    history: list[dict[str, Any]] = []
    claim: Claim | None = None
    cancel_requested: str | None = None
    #: The id of the message that it was asked for by.
    message: str | None = None
    revision: int = 0
    digest: str = ""

    def order(self) -> tuple[int, str, str]:
        """Urgent first, then by time, then by id."""
        return (self.priority.rank, self.created_at, self.id)


@dataclass(frozen=True)
class Verdict:
    """What becomes of a task: policy decides it, the store carries it out."""

    status: TaskStatus
    #: Why, in words: goes into the task's history and the journal.
    reason: str
    error: str | None = None
    result: TaskResult | None = None
    #: For a task that is queued again: not before this tick.
    not_before_tick: int = 0
    #: False where the attempt was cut short by us and must not count (paused, stopped on purpose).
    counts: bool = True
    #: Whether a person or another agent has to clear something before this can succeed.
    blocker: bool = False
