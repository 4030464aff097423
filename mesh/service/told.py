"""What a session that is no child of ours says of the task in hand: how far it is, that it is done, or why not.

A CLI that runs headless ends with its report. An interactive session goes on, so it has to say so itself, over MCP,
HTTP or the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mesh.errors import Conflict
from mesh.models import Task
from mesh.runners.base import Report


class TaskFailedThere(Exception):
    """The session said that it failed, in its own words."""


class Told:
    """The one task in hand, as its agent's daemon knows it."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._progress: Callable[[float], None] = lambda share: None
        self._end: asyncio.Future[Report] | None = None

    def begin(self, task: Task, report_progress: Callable[[float], None]) -> None:
        """The task is in hand from now on."""
        self._task, self._progress, self._end = task, report_progress, None

    def note_progress(self, share: float) -> None:
        """The runner itself knows how far it is."""
        self._progress(share)

    def over(self) -> None:
        self._task, self._end = None, None

    async def told(self, task: Task) -> Report:
        """Wait until the session says that the task is done. Raises TaskFailedThere if it says that it failed."""
        assert self._task is not None and self._task.id == task.id
        self._end = asyncio.get_running_loop().create_future()
        try:
            return await self._end
        finally:
            self._end = None

    # -- what the session says

    def progress(self, task_id: str, share: float) -> None:
        """How far it is, from 0 to 1. Raises Conflict if the task is not in hand."""
        self._in_hand(task_id)
        self._progress(min(max(share, 0.0), 1.0))

    def complete(self, task_id: str, report: Report) -> None:
        """It is done. Raises Conflict if nobody waits for that."""
        self._awaited(task_id).set_result(report)

    def fail(self, task_id: str, error: str) -> None:
        """It can't be done. Raises Conflict if nobody waits for that."""
        self._awaited(task_id).set_exception(TaskFailedThere(error))

    def _in_hand(self, task_id: str) -> None:
        if self._task is None or self._task.id != task_id:
            now = f"it works on {self._task.id!r}" if self._task is not None else "it works on nothing"
            raise Conflict(f"{task_id!r} is not the task in hand here: {now}.", taskId=task_id)

    def _awaited(self, task_id: str) -> asyncio.Future[Report]:
        self._in_hand(task_id)
        if self._end is None:
            raise Conflict(
                f"{task_id!r} is done by a program or skill that ends with its own report; end your turn with it.",
                taskId=task_id,
            )
        if self._end.done():
            raise Conflict(f"The end of {task_id!r} was told already.", taskId=task_id)
        return self._end
