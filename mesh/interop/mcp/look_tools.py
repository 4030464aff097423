"""Who and what: whoami, list_agents, my_context. From the files alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mcp.server.mcpserver import Context

from mesh.errors import MeshError
from mesh.interop.mcp.calls import Seated, tool
from mesh.interop.mcp.desk import Seat
from mesh.interop.mcp.knowledge_tools import view
from mesh.interop.mcp.shapes import (
    TEXT_MAX,
    AgentLine,
    AgentList,
    DecisionView,
    InsightView,
    MyContext,
    TaskView,
    WhoAmI,
    shortened,
)
from mesh.models import AgentState, Task, TaskStatus
from mesh.service import overview
from mesh.service.writer import in_writer

_NEWEST = 10
_ENTRY_MAX = 2_000


class LookTools:
    def __init__(self, seated: Seated) -> None:
        self._seated = seated

    def tools(self) -> list[Callable[..., Any]]:
        return [self.whoami, self.list_agents, self.my_context]

    @tool
    async def whoami(self, ctx: Context) -> WhoAmI:
        """Which agent you are here, what is expected of you, and how you stand."""
        return await in_writer(_who, await self._seated(ctx))

    @tool
    async def list_agents(self, ctx: Context) -> AgentList:
        """All agents of the mesh: what they are responsible for, and how they are right now."""
        return await in_writer(_agents, await self._seated(ctx))

    @tool
    async def my_context(self, ctx: Context) -> MyContext:
        """What you should know before you go on: your summary of earlier sessions, the task in your hands with its
        handoff, open blockers, the mesh's newest decisions and insights, and how full your context is."""
        return await in_writer(_context, await self._seated(ctx))


def _who(seat: Seat) -> WhoAmI:
    row = next(row for row in overview.rows(seat.store) if row.agent == seat.agent)
    entry = seat.entry
    return WhoAmI(
        agent_id=seat.agent,
        name=entry.name,
        responsibilities=list(entry.responsibilities),
        buddy=entry.buddy,
        watched_by=seat.registry.watcher_of(seat.agent),
        orchestrator=seat.registry.orchestrator,
        policy=seat.registry.policy,
        can_delegate=list(entry.can_delegate),
        status=row.status,
        daemon_up=seat.is_up(),
        current_task=row.task or None,
        mail_waiting=row.mail,
        tasks_waiting=row.queue,
    )


def _agents(seat: Seat) -> AgentList:
    lines = [
        AgentLine(
            agent_id=row.agent,
            name=seat.registry.agents[row.agent].name,
            responsibilities=list(seat.registry.agents[row.agent].responsibilities),
            status=row.status,
            healthy=row.healthy,
            current_task=row.task or None,
            tasks_waiting=row.queue,
            mail_waiting=row.mail,
            note=row.note,
        )
        for row in overview.rows(seat.store)
        if row.agent in seat.registry.agents
    ]
    return AgentList(you=seat.agent, agents=lines)


def _context(seat: Seat) -> MyContext:
    store, knowledge = seat.store, seat.store.knowledge
    state = _state(seat)
    task = _working(seat)
    summary = store.files.read(store.layout.summary(seat.agent))
    handoff = task.input.get("handoff") if task else None
    used = state.context_tokens / state.context_limit if state and state.context_limit else None
    return MyContext(
        agent_id=seat.agent,
        context_tokens=state.context_tokens if state else 0,
        context_limit=state.context_limit if state else None,
        used=None if used is None else round(used, 3),
        session_id=state.session_id if state else None,
        summary=shortened(summary.decode(errors="replace"), TEXT_MAX) if summary else None,
        current_task=TaskView.of(task) if task else None,
        handoff=handoff if isinstance(handoff, dict) else None,
        blockers=[view(blocker) for blocker in knowledge.blockers() if blocker.agent == seat.agent],
        decisions=[
            DecisionView(
                id=entry.id, at=entry.at, agent=entry.agent, decision=_text(entry.decision), why=_text(entry.why)
            )
            for entry in knowledge.decisions()[-_NEWEST:]
        ],
        insights=[
            InsightView(id=entry.id, at=entry.at, agent=entry.agent, topic=entry.topic, data=_text(entry.data))
            for entry in knowledge.insights()[-_NEWEST:]
        ],
    )


def _text(value: Any) -> str:
    """What another agent filed, as text of a bounded length."""
    return shortened(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _ENTRY_MAX)


def _state(seat: Seat) -> AgentState | None:
    with suppress(MeshError, ValueError):
        return seat.store.state(seat.agent)
    return None


def _working(seat: Seat) -> Task | None:
    mine = (task for task in seat.store.tasks.open() if task.owner == seat.agent)
    return next((task for task in mine if task.status is TaskStatus.WORKING), None)
