"""What the task routes ask for: taking in, finding, listing, cancelling."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from uuid_utils import uuid7

from mesh import clock
from mesh.errors import DiskFull, Forbidden, Invalid, NothingRunsIt, UnknownTask
from mesh.models import ENDED, IN_FAILED, Task, TaskRequest, TaskStatus, is_id
from mesh.policy.admission import may_cancel, why_not_give
from mesh.service.auth import Caller
from mesh.service.core import Core

_HIDDEN = ("digest", "revision")


async def take_in(
    core: Core,
    can_run: Callable[[Task], bool],
    body: TaskRequest,
    giver: str,
    caller: Caller,
    message: str | None = None,
) -> Task:
    """Accept a task, durably, or say why not. `message` is the id of the message that asks for it. Raises
    Forbidden, NothingRunsIt, Invalid, Conflict, QueueFull."""
    task = make_task(core.agent, core.time.wall(), body, giver, caller.via)
    task.message = message
    known = await core.io(_known, core, task)
    if known is not None:
        return known
    if not caller.is_operator and (reason := why_not_give(core.registry, giver, task.owner)):
        raise Forbidden(f"{reason}.", agentId=core.agent)
    if core.disk_low:
        raise DiskFull(
            f"Less than {core.limits.disk_free_min_mb} MB of disk are free: no new task is taken.", agentId=core.agent
        )
    if task.owner == "any":
        await core.io(_someone_runs_it, core, task)
    elif not can_run(task):
        raise _nothing(task, core.state.skills, core.agent)
    accepted, fresh = await core.io(core.store.tasks.accept, task, core.limits.tasks_waiting_max)
    if fresh:
        core.event("task_accepted", f"from {giver}", taskId=task.id, title=task.title, owner=task.owner)
    core.wake_worker()
    return accepted


def make_task(agent: str, now: datetime, body: TaskRequest, giver: str, via: str | None) -> Task:
    """The task that the request asks `agent` for. Raises Invalid for an owner that isn't this agent or `any`."""
    owner = body.owner or agent
    if owner not in (agent, "any"):
        raise Invalid(
            f"This is {agent}: 'owner' can only be {agent!r} or 'any'. Ask {owner!r} itself.",
            errors=[{"field": "owner", "reason": f"must be {agent!r} or 'any'"}],
        )
    task_id = body.id or f"task-{uuid7()}"
    if not is_id(task_id):
        raise Invalid("An id may not begin with a dot.", errors=[{"field": "id", "reason": "begins with a dot"}])
    asked = body.model_dump(mode="json", by_alias=True, exclude={"id", "from_", "owner"})
    digest = hashlib.sha256(json.dumps([asked, giver, owner], sort_keys=True).encode()).hexdigest()
    at = clock.iso(now)
    given = {"id": task_id, "owner": owner, "from": giver, "via": via, "createdAt": at, "updatedAt": at}
    return Task.model_validate({**asked, **given, "digest": digest})


def find(core: Core, task_id: str) -> Task:
    """The task, whichever agent has it. Raises UnknownTask."""
    if not is_id(task_id):
        raise UnknownTask(f"There is no task {task_id!r}.", taskId=task_id)
    return core.store.tasks.find(task_id)


def listed(core: Core, status: TaskStatus | None, owner: str | None, limit: int) -> list[Task]:
    """Tasks of the whole mesh that fit, at most `limit`. Raises UnknownAgent for an owner who never was one."""
    if owner not in (None, "any") and not core.store.files.exists(core.store.layout.agent(str(owner))):
        core.registry.entry(str(owner))

    def fits(task: Task) -> bool:
        return status in (None, task.status) and owner in (None, task.owner)

    found = [] if status in ENDED else [task for task in core.store.tasks.open() if fits(task)]
    if len(found) < limit and (status is None or status in ENDED or status in IN_FAILED):
        folder = None
        if status is not None:
            folder = core.store.layout.failed if status in IN_FAILED else core.store.layout.completed
        known = {task.id for task in found}
        found += [task for task in core.store.tasks.ended(limit, folder, fits) if task.id not in known]
    return found[:limit]


async def cancel(core: Core, task_id: str, caller: Caller) -> None:
    """Cancel, if the caller may. Raises UnknownTask, TaskEnded, Forbidden."""
    task = await core.io(find, core, task_id)
    if not may_cancel(core.registry, caller.name, task):
        who = f"{caller.name} may not cancel it"
        if caller.is_local:
            who = "Without a secret nothing is cancelled (send an agent's secret or the operator's header)"
        raise Forbidden(
            f"{who}: only its owner, its giver, {core.registry.orchestrator} and people may.", taskId=task_id
        )
    by = caller.via or caller.name
    await core.io(core.store.tasks.cancel, task_id, by, f"cancelled by {by}")
    core.event("task_cancelled", f"by {by}", taskId=task_id)


def view(task: Task) -> dict[str, Any]:
    """A task as it is answered."""
    return {key: value for key, value in task.dump().items() if key not in _HIDDEN}


def _known(core: Core, task: Task) -> Task | None:
    """The task of the same id and body, if it was accepted before: that answer never changes."""
    try:
        known = core.store.tasks.find(task.id)
    except UnknownTask:
        return None
    return known if known.digest == task.digest else None


def _someone_runs_it(core: Core, task: Task) -> None:
    """Raise NothingRunsIt unless an agent that meets the task's needs has the skill for it."""
    titles: set[str] = set()
    for agent in core.registry.agents:
        state = core.store.state(agent)
        entry = core.registry.entry(agent)
        if state is not None and set(entry.responsibilities).issuperset(task.needs):
            titles.update(state.skills)
    wanted = (task.skill or task.title).strip().casefold()
    if wanted not in {title.casefold() for title in titles}:
        raise _nothing(task, sorted(titles), "any agent that meets its needs")


def _nothing(task: Task, titles: list[str], who: str) -> NothingRunsIt:
    named = task.skill or task.title
    known = ", ".join(titles) or "none"
    return NothingRunsIt(f"No skill of {who} is called {named!r}; known are: {known}.", skills=titles)
