"""What the mesh knows: report_blocker, resolve_blocker, log_decision, share_insight, ask_for_help. Straight into the
files that agents share, so that it works with every daemon down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field
from uuid_utils import uuid7

from mesh import clock
from mesh.errors import BadUse, Invalid
from mesh.interop.mcp.calls import Seated, Severity, Topic, Words, tool
from mesh.interop.mcp.desk import Seat
from mesh.interop.mcp.shapes import Asked, BlockerView, Logged, Resolved
from mesh.models import Blocker, Decision, Insight, derived_id, is_id, payload_problems
from mesh.models.base import plain_json
from mesh.service.writer import in_writer
from mesh.store.knowledge import blocker_id as id_of_blocker

_One = str | int | float | bool | dict[str, Any]
#: Any JSON but lists right within lists; some models' APIs refuse a schema that says nothing.
Data = Annotated[_One | list[_One], Field(description="What you found out: text, or JSON")]
Tags = Annotated[list[Topic], Field(max_length=20, description="Words to find it by")]


class KnowledgeTools:
    def __init__(self, seated: Seated) -> None:
        self._seated = seated

    def tools(self) -> list[Callable[..., Any]]:
        return [self.report_blocker, self.resolve_blocker, self.log_decision, self.share_insight, self.ask_for_help]

    @tool
    async def report_blocker(
        self,
        ctx: Context,
        topic: Topic,
        description: Words = "",
        needs: Annotated[list[Topic], Field(description="Whom or what it takes", max_length=20)] = [],  # noqa: B006
        severity: Severity = "medium",
        task_id: Annotated[str | None, Field(description="The task that it blocks", max_length=128)] = None,
    ) -> BlockerView:
        """Say what stands in your way. The same topic again brings your blocker up to date."""
        seat = await self._seated(ctx)
        reported = {"topic": topic, "description": description, "needs": needs, "severity": severity, "taskId": task_id}
        _check("blocker_report", {"blocker": reported})
        blocker = Blocker.model_validate(
            {
                **reported,
                "id": id_of_blocker(seat.agent, topic),
                "agent": seat.agent,
                "since": _now(seat),
                "reportedBy": f"mcp-{uuid7()}",
            }
        )
        await in_writer(seat.store.knowledge.report, blocker)
        _event(seat, "blocker_reported", topic, blockerId=blocker.id)
        return view(blocker)

    @tool
    async def resolve_blocker(
        self, ctx: Context, blocker_id: Annotated[str, Field(description="Its id", min_length=1, max_length=128)]
    ) -> Resolved:
        """Say that a blocker is gone, yours or another's."""
        seat = await self._seated(ctx)
        if not await in_writer(seat.store.knowledge.resolve_blocker, blocker_id):
            known = ", ".join(blocker.id for blocker in await in_writer(seat.store.knowledge.blockers)) or "none"
            raise BadUse(f"There is no open blocker {blocker_id!r}; open are: {known}.")
        _event(seat, "blocker_resolved", f"by {seat.agent}", blockerId=blocker_id)
        return Resolved(blocker_id=blocker_id)

    @tool
    async def log_decision(
        self,
        ctx: Context,
        decision: Annotated[str, Field(description="What was decided", min_length=1, max_length=2_000)],
        why: Annotated[str, Field(description="The reasons", max_length=10_000)] = "",
        task_id: Annotated[str | None, Field(description="The task that it belongs to", max_length=128)] = None,
        tags: Tags = [],  # noqa: B006
    ) -> Logged:
        """Record a decision for everybody who comes after you."""
        seat = await self._seated(ctx)
        if task_id is not None and not is_id(task_id):
            raise Invalid(f"{task_id!r} is no task's id.", errors=[{"field": "task_id", "reason": "is no id"}])
        entry = Decision(
            id=f"decision-{uuid7()}",
            at=_now(seat),
            agent=seat.agent,
            decision=decision,
            why=why,
            task_id=task_id,
            tags=tags,
        )
        await in_writer(seat.store.knowledge.add_decision, entry)
        _event(seat, "decision_logged", decision[:200], decisionId=entry.id)
        return Logged(id=entry.id, at=entry.at)

    @tool
    async def share_insight(
        self,
        ctx: Context,
        topic: Topic,
        data: Data,
        tags: Tags = [],  # noqa: B006
    ) -> Logged:
        """Share what you found out with all agents, now and later."""
        seat = await self._seated(ctx)
        _check("info_share", {"topic": topic, "data": data, "tags": tags})
        size = len(repr(data))
        limit = seat.registry.limits_for(seat.agent).message_bytes_max
        if size > limit:
            raise Invalid(f"The data is larger than {limit} bytes.", errors=[{"field": "data", "reason": "too large"}])
        entry = Insight(id=f"insight-{uuid7()}", at=_now(seat), agent=seat.agent, topic=topic, data=data, tags=tags)
        await in_writer(seat.store.knowledge.add_insight, entry)
        _event(seat, "insight_shared", topic, insightId=entry.id)
        return Logged(id=entry.id, at=entry.at)

    @tool
    async def ask_for_help(
        self,
        ctx: Context,
        topic: Annotated[Topic, Field(description="A responsibility, a skill, or what it is about in a line")],
        context: Annotated[Words, Field(description="What you have tried, and what you need")] = "",
    ) -> Asked:
        """Ask for help. It becomes a task that an agent who can takes by itself; the answer comes to your inbox."""
        seat = await self._seated(ctx)
        id_ = await seat.box.send(seat.agent, type="help_request", payload={"topic": topic, "context": context})
        note = "" if seat.is_up() else f"{seat.agent}'s daemon is down; it passes this on when it is up again."
        return Asked(message_id=id_, to="any", task_id=derived_id(id_, prefix="help-"), note=note)


def view(blocker: Blocker) -> BlockerView:
    return BlockerView.model_validate(blocker.model_dump(include=set(BlockerView.model_fields)))


def _check(type_: str, payload: dict[str, Any]) -> None:
    """Raise Invalid for what a message of this type couldn't carry either."""
    problems = payload_problems(type_, payload)
    try:
        plain_json(payload)
    except ValueError as error:
        problems.append({"field": "payload", "reason": str(error)})
    if problems:
        detail = "; ".join(f"{item['field'].rpartition('.')[2]}: {item['reason']}" for item in problems)
        raise Invalid(f"{detail}.", errors=problems)


def _now(seat: Seat) -> str:
    return clock.iso(seat.store.time.wall())


def _event(seat: Seat, event: str, reason: str, **ids: Any) -> None:
    seat.store.journal.event(seat.agent, event, reason, **ids)
