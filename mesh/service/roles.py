"""Roles: what an agent is and can do by itself. A role of one's own is a file `agents/<id>.py`.

from mesh import Agent, Report

agent = Agent("coder", persona="You build and test.")

@agent.skill("Code Review Queue")
async def review(context) -> Report: ...

app = agent.app
"""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

from mesh.errors import RoleBroken
from mesh.runners.base import Report as Report

if TYPE_CHECKING:
    from fastapi import FastAPI

    from mesh.service.skill_context import SkillContext


Skill = Callable[["SkillContext"], Awaitable[Report]]
Reader = Callable[[str], Awaitable[None]]


class Agent:
    """A role: an id, a persona, and skills by the titles of the tasks that they do.

    Skills are coroutines on the agent's event loop: heavy computing belongs in `asyncio.to_thread`, programs in
    `context.run`. Each must be harmless to run again: a task whose agent died runs anew.
    """

    def __init__(self, id: str, *, persona: str = "") -> None:
        self.id = id
        self.persona = persona
        self.skills: dict[str, Skill] = {}
        self.mail_reader: Reader | None = None

    def skill(self, title: str) -> Callable[[Skill], Skill]:
        """Register a coroutine `(context) -> Report` for tasks with this title."""

        def register(function: Skill) -> Skill:
            assert title not in self.skills, f"two skills of {self.id} are called {title!r}"
            self.skills[title] = function
            return function

        return register

    def reader(self, function: Reader) -> Reader:
        """Register a coroutine `(text) -> None` that reads mail: it is handed the text of messages, each in an
        envelope that says who wrote it, and has read them when it returns. Between tasks, never during one."""
        assert self.mail_reader is None, f"two functions read the mail of {self.id}"
        self.mail_reader = function
        return function

    @cached_property
    def app(self) -> FastAPI:
        """The agent's ASGI application; its lifespan is the agent's life. Root and speed come from the
        environment (`MESH_ROOT`, `MESH_TICK_SECONDS`)."""
        from mesh.service.api import standalone_app

        return standalone_app(self)


def load(agent: str, persona: str | None = None) -> Agent:
    """The role of an agent: its module in `agents/`, else one without skills that has `persona`.

    Raises RoleBroken for a module that can't be loaded: an agent must not start with half of its skills.
    """
    name = f"agents.{agent.replace('-', '_')}"
    if importlib.util.find_spec(name) is None:
        return Agent(agent, persona=persona or "")
    try:
        role = importlib.import_module(name).agent
    except Exception as error:  # whatever is wrong in somebody's module
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise RoleBroken(
            f"{agent}'s role can't be loaded: {type(error).__name__}: {error} ({where.filename}:{where.lineno}).",
            agentId=agent,
        ) from error
    if not isinstance(role, Agent):
        raise RoleBroken(f"{agent}'s role can't be loaded: {name}.agent is not a mesh.Agent.", agentId=agent)
    return role
