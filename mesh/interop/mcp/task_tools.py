"""Tasks: create_task, next_task, update_task, complete_task, fail_task, handoff_task.

The daemon's worker holds the claim of the task that a session works on; the session tells it how that goes. Looking
needs only the files; telling needs the agent's daemon, and says so where it is down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field
from uuid_utils import uuid7

from mesh.errors import Conflict, MeshError, PeerUnavailable, UnknownTask
from mesh.interop.mcp.calls import AgentName, Priority, Seated, TaskId, Topic, Words, tool
from mesh.interop.mcp.desk import Seat
from mesh.interop.mcp.shapes import Asked, NextTask, TaskGiven, TaskTold, TaskView
from mesh.models import Task, TaskStatus, derived_id, is_id
from mesh.service.writer import in_writer

_ANY = "any"
_LOOK_S = 0.5
_WAIT_MAX_S = 50.0  # most clients give up on a call after 60 s

Lines = Annotated[list[Annotated[str, Field(max_length=1_000)]], Field(max_length=50)]


class TaskTools:
    def __init__(self, seated: Seated) -> None:
        self._seated = seated

    def tools(self) -> list[Callable[..., Any]]:
        return [
            self.create_task,
            self.next_task,
            self.update_task,
            self.complete_task,
            self.fail_task,
            self.handoff_task,
        ]

    @tool
    async def create_task(
        self,
        ctx: Context,
        title: Topic,
        description: Words = "",
        to: Annotated[
            str, Field(description="Who is to do it: an agent's id, or any for an idle agent that fits", max_length=32)
        ] = _ANY,
        priority: Priority = "normal",
        type: Annotated[str, Field(description="A word for its kind", pattern=r"^[a-z][a-z0-9_-]{0,63}$")] = "task",
        needs: Annotated[list[str], Field(description="Responsibilities that it takes", max_length=50)] = [],  # noqa: B006
        skill: Annotated[str | None, Field(description="The skill that does it, if one does")] = None,
        input: Annotated[dict[str, Any], Field(description="Facts for whoever does it")] = {},  # noqa: B006
        blocked_by: Annotated[list[str], Field(description="Ids of tasks that must end first", max_length=100)] = [],  # noqa: B006
        estimated_minutes: Annotated[float | None, Field(gt=0, le=100_000)] = None,
        approval: Annotated[bool, Field(description="Whether the human must approve it first")] = False,
        task_id: Annotated[str | None, Field(description="An id of your own: asking again is then one task")] = None,
    ) -> TaskGiven:
        """Give a task to yourself, to another agent, or to whoever is idle and fits. Who may give whom tasks is the
        mesh's policy."""
        seat = await self._seated(ctx)
        task: dict[str, Any] = {
            "id": task_id or f"task-{uuid7()}",
            "title": title,
            "description": description,
            "priority": priority,
            "type": type,
            "needs": needs,
            "skill": skill,
            "input": input,
            "blockedBy": blocked_by,
            "estimatedMinutes": estimated_minutes,
            "approval": approval,
        }
        task = {key: value for key, value in task.items() if value is not None}
        if to == _ANY:
            return await _give_to_any(seat, task)
        seat.registry.entry(to)
        return await _give(seat, to, task)

    @tool
    async def next_task(
        self,
        ctx: Context,
        wait_s: Annotated[
            float, Field(ge=0, le=_WAIT_MAX_S, description="Wait up to so many seconds for one, if there is none yet")
        ] = 0,
    ) -> NextTask:
        """The task that is in your hands. Say update_task on the way, and complete_task or fail_task at its end: the
        next one comes only then. Looking changes nothing."""
        seat = await self._seated(ctx)
        time = seat.store.time
        deadline_s = time.monotonic() + wait_s
        found = await in_writer(_in_hand, seat)
        if found.task is None and found.waiting and seat.is_up():
            with suppress(MeshError):  # it takes the next one by itself too, a moment later
                await seat.daemons.ask(
                    seat.agent, seat.agent, "POST", "/wake", {"from": seat.agent, "reason": "next_task"}
                )
        while found.task is None and (left_s := deadline_s - time.monotonic()) > 0:
            await asyncio.sleep(min(_LOOK_S, left_s))
            found = await in_writer(_in_hand, seat)
        return found

    @tool
    async def update_task(
        self,
        ctx: Context,
        task_id: TaskId,
        progress: Annotated[float, Field(ge=0, le=1, description="How much of it is done, 0 to 1")],
        note: Annotated[str, Field(description="What was done, or is being done", max_length=2_000)] = "",
    ) -> TaskTold:
        """Tell how far the task in your hands has come; who gave it hears of it. A task that nobody hears of for long
        counts as stuck."""
        seat = await self._seated(ctx)
        await _tell(seat, task_id, "progress", {"progress": progress, "note": note})
        return TaskTold(task_id=task_id, told="progress", status="working")

    @tool
    async def complete_task(
        self,
        ctx: Context,
        task_id: TaskId,
        text: Annotated[
            Words, Field(description="What came out, in Markdown: it goes to who gave the task", min_length=1)
        ],
        files: Annotated[Lines, Field(description="Files that hold the result")] = [],  # noqa: B006
        evidence: Annotated[Lines, Field(description="What shows that it is done: commits, test runs, addresses")] = [],  # noqa: B006
    ) -> TaskTold:
        """Say that the task in your hands is done, and what came out."""
        seat = await self._seated(ctx)
        await _tell(seat, task_id, "complete", {"text": text, "files": files, "evidence": evidence})
        return TaskTold(task_id=task_id, told="completed", status=await in_writer(_status, seat, task_id))

    @tool
    async def fail_task(
        self,
        ctx: Context,
        task_id: TaskId,
        error: Annotated[
            str, Field(description="What went wrong, and what it would take", min_length=1, max_length=10_000)
        ],
    ) -> TaskTold:
        """Say that this attempt at the task in your hands has failed. It may be tried again, or go to a person."""
        seat = await self._seated(ctx)
        await _tell(seat, task_id, "fail", {"error": error})
        return TaskTold(task_id=task_id, told="failed", status=await in_writer(_status, seat, task_id))

    @tool
    async def handoff_task(
        self,
        ctx: Context,
        to: AgentName,
        summary: Annotated[Words, Field(description="What was done, what is left, and what to know", min_length=1)],
        task_id: Annotated[
            str | None, Field(description="A task of yours that waits; left out, a new task follows from the summary")
        ] = None,
        title: Annotated[str | None, Field(description="The title of a new task", max_length=200)] = None,
        files: Annotated[Lines, Field(description="Files that matter")] = [],  # noqa: B006
        relevant_decisions: Lines = [],  # noqa: B006
        key_facts: Lines = [],  # noqa: B006
        do_not_repeat: Annotated[Lines, Field(description="What was tried and failed")] = [],  # noqa: B006
    ) -> Asked:
        """Hand work over to another agent, with what you know of it."""
        seat = await self._seated(ctx)
        seat.registry.entry(to)
        if task_id is not None:
            await in_writer(_can_hand_over, seat, task_id)
        context = {
            "task": task_id or title,
            "relevantDecisions": relevant_decisions,
            "keyFacts": key_facts,
            "doNotRepeat": do_not_repeat,
        }
        payload = {"summary": summary, "files": files, "context": context}
        id_ = await seat.box.send(to, type="context_handoff", payload=payload, priority="high", requires_ack=True)
        note = "" if seat.is_up(to) else f"{to} is down; it takes over when it is up again."
        return Asked(message_id=id_, to=to, task_id=task_id or derived_id(id_, prefix="task-"), note=note)


# -- giving


async def _give(seat: Seat, to: str, task: dict[str, Any]) -> TaskGiven:
    """Ask the owner's daemon; where that is down, by mail. The id makes both the same task."""
    try:
        answer = await seat.daemons.ask(seat.agent, to, "POST", "/task", task)
        return TaskGiven(task_id=answer["taskId"], owner=to, accepted="now")
    except PeerUnavailable:
        id_ = await seat.box.send(
            to,
            type="task_request",
            payload={"task": task},
            id=derived_id(task["id"], prefix="give-"),
            requires_ack=True,
        )
        return TaskGiven(task_id=task["id"], owner=to, accepted="by mail", message_id=id_)


async def _give_to_any(seat: Seat, task: dict[str, Any]) -> TaskGiven:
    """The global queue is open to all; any daemon takes in for it. Raises PeerUnavailable if none is up."""
    others = [agent for agent in seat.registry.agents if agent != seat.agent and seat.is_up(agent)]
    for agent in (seat.agent, *others):
        with suppress(PeerUnavailable):
            answer = await seat.daemons.ask(seat.agent, agent, "POST", "/task", {**task, "owner": _ANY})
            return TaskGiven(task_id=answer["taskId"], owner=_ANY, accepted="now")
    raise PeerUnavailable(
        "No agent's daemon is up to take a task for the mesh. Name an agent in 'to': then it waits in that one's mail.",
        reason="refused",
    )


# -- the task in hand


def _in_hand(seat: Seat) -> NextTask:
    mine = [task for task in seat.store.tasks.open() if task.owner == seat.agent]
    working = [task for task in mine if task.status is TaskStatus.WORKING]
    waiting = sum(task.status is TaskStatus.QUEUED for task in mine)
    here = _works_here(seat, working[0] if working else None)
    if working:
        note = "" if here else "A skill or the agent's own runner does this one, not this session."
        return NextTask(task=TaskView.of(working[0]), done_here=here, waiting=waiting, note=note)
    note = "Nothing is to be done." if not waiting else "The next task is about to be taken; ask again in a moment."
    if waiting and not seat.is_up():
        note = f"{seat.agent}'s daemon is down: its tasks wait until it is up (mesh up)."
    elif waiting and (paused := seat.store.switches.paused()):
        note = f"The mesh is paused: {paused}."
    return NextTask(task=None, done_here=here, waiting=waiting, note=note)


def _works_here(seat: Seat, task: Task | None = None) -> bool:
    """Whether a session does the agent's tasks, or this one: its runner is one, and no skill does the task."""
    if seat.entry.runner.kind != "tmux":
        return False
    if task is None:
        return True
    state = seat.store.state(seat.agent)
    skills = {title.casefold() for title in state.skills} if state else set()
    return task.skill is None and task.title.strip().casefold() not in skills


async def _tell(seat: Seat, task_id: str, what: str, body: dict[str, Any]) -> None:
    """Tell the agent's daemon of the task in hand. Raises UnknownTask, Conflict, PeerUnavailable, Refused."""
    task = await in_writer(_find, seat, task_id)
    if task.owner != seat.agent:
        raise Conflict(f"{task_id!r} is {task.owner}'s task, not yours.", taskId=task_id, agentId=task.owner)
    try:
        await seat.daemons.ask(seat.agent, seat.agent, "POST", f"/task/{task_id}/{what}", body)
    except PeerUnavailable as error:
        raise PeerUnavailable(f"{error.detail} Nothing was told: say it again when it is up.", **error.facts) from None


def _find(seat: Seat, task_id: str) -> Task:
    if not is_id(task_id):
        raise UnknownTask(f"There is no task {task_id!r}.", taskId=task_id)
    return seat.store.tasks.find(task_id)


def _status(seat: Seat, task_id: str) -> str:
    return _find(seat, task_id).status.value


def _can_hand_over(seat: Seat, task_id: str) -> None:
    """Raise Conflict for what can't be handed over, before anybody is told to take it."""
    task = _find(seat, task_id)
    if task.owner != seat.agent:
        raise Conflict(f"{task_id!r} is {task.owner}'s task, not yours.", taskId=task_id, agentId=task.owner)
    if task.status is TaskStatus.WORKING:
        raise Conflict(
            f"{task_id!r} is in your hands. Hand the rest over as a new task (leave task_id out, give a title), then "
            "say complete_task or fail_task for this one.",
            taskId=task_id,
        )
    if task.status not in (TaskStatus.QUEUED, TaskStatus.BLOCKED, TaskStatus.AWAITING_APPROVAL):
        raise Conflict(f"{task_id!r} has ended: {task.status.value}.", taskId=task_id)
