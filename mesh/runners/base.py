"""What does an agent's work: one small protocol, interchangeable parts behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from mesh.models import Message, Task
from mesh.models.running import Occupancy, RunnerHealth, Usage

Context = TypeVar("Context", contravariant=True)


@dataclass(frozen=True)
class Report:
    """What the work came to: Markdown for people, the files it wrote, and the facts that it rests on.

    `remember` is kept for the next run (`context.recall`), once the task has really ended.
    """

    text: str
    files: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    remember: dict[str, Any] = field(default_factory=dict)
    #: What it used, where a model was asked.
    usage: Usage | None = None
    #: Where the work lies, if it was done in a git worktree.
    branch: str | None = None
    commits: list[str] = field(default_factory=list)


class Stop(StrEnum):
    """Why the work is being stopped: the task's coroutine is cancelled with one of these as its message."""

    #: The daemon ends or is replaced: work in a process of its own goes on, and is watched again by the next one.
    DETACH = "detach"
    #: Paused, or shut down: the work ends, what it has is kept, and the next attempt goes on from there.
    INTERRUPT = "interrupt"
    #: Cancelled, or out of time: the work ends.
    KILL = "kill"


class Runner(Protocol[Context]):
    """Runs tasks. Cancelling the coroutine stops the work and leaves no process behind, unless with `Stop.DETACH`."""

    @property
    def outlives(self) -> bool:
        """Whether its work lives in a process of its own, which outlives the daemon."""
        ...

    def can_run(self, task: Task) -> bool:
        """Whether this runner knows how to do the task."""
        ...

    async def run(self, task: Task, context: Context) -> Report:
        """Do the work, or go on watching what an earlier daemon started for the same attempt. Raises SkillInputError
        where the input is wrong, RunnerUnfit where the runner can't work now; anything else is a failed attempt."""
        ...

    @property
    def reads_mail(self) -> bool:
        """Whether anybody reads text that is shown."""
        ...

    async def show(self, text: str, messages: Sequence[Message] = ()) -> None:
        """Show messages to whoever does the work: their text as one turn, or only where to read them. Returns once
        that has really been seen. Raises DeliveryUncertain if it can't be told whether it was."""
        ...

    async def summarise(self, text: str) -> str | None:
        """A summary of the text in the runner's own words, or None if it has none."""
        ...

    async def occupancy(self) -> Occupancy | None:
        """How full the context is, as of the last call; None if there is none, or nobody can tell."""
        ...

    async def health(self) -> RunnerHealth:
        """Whether it could work now. Never calls a model."""
        ...
