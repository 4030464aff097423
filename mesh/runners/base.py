"""What does an agent's work: one small protocol, interchangeable parts behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from mesh.models import Task

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


class Runner(Protocol[Context]):
    """Runs tasks. Cancelling the coroutine stops the work and leaves no process behind."""

    def can_run(self, task: Task) -> bool:
        """Whether this runner knows how to do the task."""
        ...

    async def run(self, task: Task, context: Context) -> Report:
        """Do the work. Raises SkillInputError where the input is wrong; anything else is a failed attempt."""
        ...

    @property
    def reads_mail(self) -> bool:
        """Whether anybody reads text that is shown."""
        ...

    async def show(self, text: str) -> None:
        """Show the text of messages to whoever does the work; returns once they really have it."""
        ...
