"""What a message of each known type does, exactly once: a message that is handled again after a crash finds what it
did before, by ids that follow from its own.

What an agent writes is data: it becomes a task, an entry, an alert or text, and is never run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mesh import clock
from mesh.errors import Conflict, MeshError, NotAdmitted, QueueFull, StoreUnavailable, UnknownTask
from mesh.models import (
    ERROR,
    HUMAN,
    MESH,
    Blocker,
    Insight,
    Message,
    Task,
    TaskRequest,
    derived_id,
    is_id,
    payload_of,
)
from mesh.models.mail import (
    BlockerReport,
    BlockerResolved,
    ContextHandoff,
    Escalation,
    HelpRequest,
    InfoShare,
    Shutdown,
    TaskRequestPayload,
    alert_key,
)
from mesh.policy.message_body import body
from mesh.service import task_desk
from mesh.service.auth import Caller
from mesh.service.core import Core
from mesh.service.postman import Handled, Handling
from mesh.store.knowledge import blocker_id
from mesh.store.mailbox import Again

DONE, KEPT, LATER = Handling(Handled.DONE), Handling(Handled.KEPT), Handling(Handled.LATER)
REFUSED = Handling(Handled.DONE, refused=True)
_TITLE_MAX = 200
#: These are read as text where somebody reads; their effect, if any, comes first.
_TASK_TITLES = {"fix_ci_failure": "Fix CI failure", "fix_review_comments": "Fix review comments"}

Effect = Callable[[Message, Any], Awaitable[Handling]]


class Effects:
    """The handler of an agent's mail. `on_shutdown` ends the agent's process once its work is saved."""

    def __init__(
        self, core: Core, can_run: Callable[[Task], bool], on_shutdown: Callable[[str], None] = lambda reason: None
    ) -> None:
        self._core = core
        self._can_run = can_run
        self.on_shutdown = on_shutdown
        self._effects: dict[str, Effect] = {
            "fix_ci_failure": self._fix,
            "fix_review_comments": self._fix,
            "status_request": self._tell_status,
            "shutdown": self._shut_down,
            "ack": self._nothing,
            "task_request": self._take_task,
            "task_update": self._nothing,
            "task_complete": self._nothing,
            "task_failed": self._nothing,
            "help_request": self._ask_for_help,
            "info_share": self._share,
            "blocker_report": self._report_blocker,
            "blocker_resolved": self._resolve_blocker,
            "escalation": self._escalate,
            "context_handoff": self._take_over,
        }

    def has_effect(self, message: Message) -> bool:
        """Whether the mesh itself does something with it; anything else is text for whoever reads."""
        return message.type in self._effects

    async def __call__(self, message: Message) -> Handling:
        """Carry out what the message asks for. Raises MeshError where it must be tried again."""
        effect = self._effects.get(message.type)
        return KEPT if effect is None else await effect(message, payload_of(message))

    # -- tasks

    async def _take_task(self, message: Message, payload: TaskRequestPayload) -> Handling:
        asked = payload.task
        return await self._take_in(
            message, asked.model_copy(update={"id": asked.id or derived_id(message.id, prefix="task-")})
        )

    async def _fix(self, message: Message, payload: Any) -> Handling:
        return await self._take_in(
            message,
            TaskRequest.model_validate(
                {
                    "id": derived_id(message.id, prefix="task-"),
                    "title": _TASK_TITLES[message.type],
                    "type": message.type,
                    "description": body(message)[:100_000],
                    "priority": message.priority,
                    "input": message.payload,
                }
            ),
        )

    async def _take_in(self, message: Message, asked: TaskRequest) -> Handling:
        caller = Caller(message.from_, via=message.via)
        try:
            task = await task_desk.take_in(self._core, self._can_run, asked, message.from_, caller, message.id)
        except (QueueFull, StoreUnavailable, NotAdmitted):
            return LATER
        except MeshError as error:
            await self._answer(message, "task_failed", {"taskId": asked.id, "error": error.detail})
            return REFUSED
        return Handling(Handled.KEPT, task.id) if message.requires_ack else DONE

    async def _ask_for_help(self, message: Message, payload: HelpRequest) -> Handling:
        """A help task in the global queue: claimed by who can, never assigned."""
        core = self._core
        topics = {skill for entry in core.registry.agents.values() for skill in entry.responsibilities}
        now = clock.iso(core.time.wall())
        task = Task.model_validate(
            {
                "id": derived_id(message.id, prefix="help-"),
                "type": "help",
                "title": f"Help: {payload.topic}"[:_TITLE_MAX],
                "description": payload.context,
                "skill": payload.topic,
                "needs": [payload.topic] if payload.topic in topics else [],
                "priority": message.priority,
                "owner": "any",
                "from": message.from_,
                "createdAt": now,
                "updatedAt": now,
                "digest": message.id,
                "message": message.id,
            }
        )
        try:
            _, fresh = await core.io(core.store.tasks.accept, task, core.limits.tasks_waiting_max)
        except QueueFull:
            return LATER
        if fresh:
            core.event("help_asked", payload.topic, taskId=task.id, **{"from": message.from_})
        return Handling(Handled.KEPT, task.id) if message.requires_ack else DONE

    async def _take_over(self, message: Message, payload: ContextHandoff) -> Handling:
        """Hand a waiting task of the sender over, or begin a new one from what it tells."""
        core, context = self._core, payload.context
        named = context.task.get("id") if isinstance(context.task, dict) else context.task
        handoff = {"from": message.from_, **message.payload}
        if isinstance(named, str) and is_id(named) and await self._is_task(named):
            try:
                task = await core.io(core.store.tasks.hand_over, named, message.from_, core.agent, handoff)
            except (Conflict, UnknownTask) as error:
                if await self._was_taken_over(named, message):
                    return DONE
                await self._answer(message, ERROR, {"text": f"The handoff failed: {error.detail}"})
                return DONE
            core.event("task_taken_over", f"from {message.from_}", taskId=task.id)
            core.wake_worker()
            return Handling(Handled.KEPT, task.id) if message.requires_ack else DONE
        title = named if isinstance(named, str) else payload.summary
        fields = {
            "id": derived_id(message.id, prefix="task-"),
            "title": " ".join(title.split())[:_TITLE_MAX],
            "type": "handoff",
            "description": payload.summary[:100_000],
            "priority": message.priority,
            "input": {"handoff": handoff},
        }
        return await self._take_in(message, TaskRequest.model_validate(fields))

    async def _was_taken_over(self, task_id: str, message: Message) -> bool:
        """Whether this very message brought the task here, before a crash, and it has ended since."""
        try:
            task = await self._core.io(self._core.store.tasks.find, task_id)
        except UnknownTask:
            return False
        handed: Any = task.input.get("handoff")
        return task.owner == self._core.agent and handed == {"from": message.from_, **message.payload}

    async def _is_task(self, task_id: str) -> bool:
        try:
            await self._core.io(self._core.store.tasks.find, task_id)
        except UnknownTask:
            return False
        return True

    # -- knowledge

    async def _share(self, message: Message, payload: InfoShare) -> Handling:
        core = self._core
        insight = Insight(
            id=message.id,
            at=message.timestamp,
            agent=message.from_,
            topic=payload.topic,
            data=payload.data,
            tags=payload.tags,
        )
        await core.io(core.store.knowledge.add_insight, insight)
        return DONE

    async def _report_blocker(self, message: Message, payload: BlockerReport) -> Handling:
        reported = payload.blocker
        blocker = Blocker(
            id=reported.id or blocker_id(message.from_, reported.topic),
            agent=message.from_,
            topic=reported.topic,
            description=reported.description,
            needs=reported.needs,
            severity=reported.severity,
            since=message.timestamp,
            task_id=reported.task_id,
            reported_by=message.id,
        )
        await self._core.io(self._core.store.knowledge.report, blocker)
        return DONE

    async def _resolve_blocker(self, message: Message, payload: BlockerResolved) -> Handling:
        await self._core.io(self._core.store.knowledge.resolve_blocker, payload.blocker_id)
        return DONE

    async def _escalate(self, message: Message, payload: Escalation) -> Handling:
        core = self._core

        def alert() -> None:
            core.store.alerts.raise_alert(
                "escalation",
                message.from_,
                f"{message.from_} escalates: {' '.join(payload.issue.split())[:150]}",
                payload.issue,
                about=alert_key(message.id),
                severity=payload.severity,
                tried=[f"told {core.agent}"],
                next_=f"mesh mail show {message.id}",
                once=True,
            )

        await core.io(alert)
        return DONE

    # -- the agent itself

    async def _tell_status(self, message: Message, payload: Any) -> Handling:
        await self._answer(message, "status_response", self.status())
        return DONE

    def status(self) -> dict[str, Any]:
        """The answer to a `status_request`: from state, without a model."""
        core, state = self._core, self._core.state
        task = state.current_task
        doing = f"works on {task.title!r} ({task.progress:.0%})" if task else "is idle"
        concerns = core.concerns()
        return {
            "text": f"{core.agent} {doing}; {core.queue_length} tasks wait. {'; '.join(concerns)}".strip(),
            "agentId": core.agent,
            "status": state.status,
            "reason": state.reason,
            "currentTask": task.dump() if task else None,
            "taskQueueLength": core.queue_length,
            "lastCompletedTask": state.last_completed_task,
            "contextTokens": state.context_tokens,
            "concerns": concerns,
        }

    async def _shut_down(self, message: Message, payload: Shutdown) -> Handling:
        """Stop, and stay stopped for whoever might start it, until `mesh start`."""
        core = self._core
        who = "operator" if message.from_ == HUMAN else message.from_
        reason = payload.reason or "asked to by message"
        await core.io(core.store.switches.stop, core.agent, who, reason)
        core.event("shut_down", reason, by=who, messageId=message.id)
        self.on_shutdown(reason)
        return DONE

    async def _nothing(self, message: Message, payload: Any) -> Handling:
        return DONE

    async def _answer(self, message: Message, type_: str, payload: dict[str, Any]) -> None:
        """Reply, once: the id follows from the message's."""
        core = self._core
        reply = Message.model_validate(
            {
                "id": derived_id(message.id, prefix="re-"),
                "from": core.agent,
                "to": message.from_,
                "timestamp": clock.iso(core.time.wall()),
                "type": type_,
                "priority": message.priority,
                "replyTo": message.id,
                "threadId": message.thread,
                "via": MESH,
                "payload": payload,
            }
        )
        try:
            await core.io(core.store.mail.tell, reply, Again.BY_ID)
        except Conflict:
            return  # it was answered before, when things stood otherwise
