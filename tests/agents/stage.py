"""What the roles' tests share beside fixtures: the types of makers, and reading a report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol

from mesh.models import Task
from mesh.service.skill_context import SkillContext

#: A Tuesday morning: where time stands until a test moves it.
MORNING = datetime(2026, 2, 17, 9, 0, tzinfo=UTC)


class ContextMaker(Protocol):
    """The fixture `make_context`."""

    def __call__(
        self,
        agent: str,
        *,
        settings: dict[str, Any] | None = None,
        task_input: dict[str, Any] | None = None,
        title: str = "…",
        entry: dict[str, Any] | None = None,
        progress: list[float] | None = None,
    ) -> SkillContext: ...


class TaskMaker(Protocol):
    """The fixture `make_task`."""

    def __call__(self, owner: str, title: str, **fields: Any) -> Task: ...


def section(text: str, title: str) -> str:
    """The body of one section of a report."""
    return text.split(f"## {title}\n\n")[1].split("\n\n## ")[0]
