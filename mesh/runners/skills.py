"""The runner that needs no model: a task is done by the skill that it names, else by the one of its title."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from mesh.models import Message, Task
from mesh.runners.base import Report

Context = TypeVar("Context")


class SkillsRunner(Generic[Context]):
    def __init__(
        self,
        skills: Mapping[str, Callable[[Context], Awaitable[Report]]],
        reader: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._skills = {title.strip().casefold(): skill for title, skill in skills.items()}
        self._reader = reader

    def can_run(self, task: Task) -> bool:
        return _key(task) in self._skills

    async def run(self, task: Task, context: Context) -> Report:
        return await self._skills[_key(task)](context)

    @property
    def reads_mail(self) -> bool:
        return self._reader is not None

    async def show(self, text: str, messages: Sequence[Message] = ()) -> None:
        assert self._reader is not None
        await self._reader(text)


def _key(task: Task) -> str:
    return (task.skill or task.title).strip().casefold()
