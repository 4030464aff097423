"""What the mesh tells by mail about tasks, in the name of the agent that does them."""

from __future__ import annotations

from typing import Any

from mesh.models.base import derived_id
from mesh.models.mail import Message
from mesh.models.tasks import Task

#: Who speaks where the mesh itself tells something in an agent's name.
MESH = "mesh"


def task_end(task: Task) -> Message:
    """`task_complete` or `task_failed` for who gave the task. The id names this very end."""
    completed = task.status == "completed"
    outcome: dict[str, Any] = {"error": task.error}
    if completed:
        outcome = {"result": task.result.dump() if task.result else None}
    payload = {"taskId": task.id, "title": task.title, "status": task.status, **outcome}
    type_ = "task_complete" if completed else "task_failed"
    return _told(
        task, derived_id(task.id, suffix=f"-end-{task.revision}"), type_, task.finished_at or task.updated_at, payload
    )


def task_update(task: Task, progress: float, at: str, step: str) -> Message:
    """`task_update` for who gave the task. `step` tells this update from the others."""
    payload = {"taskId": task.id, "title": task.title, "progress": progress, "status": task.status}
    return _told(task, derived_id(task.id, suffix=f"-at-{step}"), "task_update", at, payload)


def _told(task: Task, id_: str, type_: str, at: str, payload: dict[str, Any]) -> Message:
    fields = {
        "id": id_,
        # What ended in the global queue was nobody's: who gave it is told in their own name.
        "from": task.from_ if task.owner == "any" else task.owner,
        "to": task.from_,
        "timestamp": at,
        "type": type_,
        "priority": task.priority,
        "threadId": task.message,
        "via": MESH,
        "payload": payload,
    }
    return Message.model_validate(fields)
