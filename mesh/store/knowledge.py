"""What the mesh knows: blockers, and notices to the human."""

from __future__ import annotations

import re

from pydantic import ValidationError

from mesh import clock
from mesh.models import HUMAN, SCHEMA_VERSION, Blocker, Task
from mesh.store.documents import BLOCKERS, Document, Documents, encode
from mesh.store.files import Files
from mesh.store.layout import Layout

#: Resolved blockers that stay in the file, for people who look back.
_RESOLVED_KEPT = 200


class Knowledge:
    def __init__(self, files: Files, documents: Documents, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._documents = documents
        self._layout = layout
        self._time = time

    def blockers(self, *, unresolved: bool = True) -> list[Blocker]:
        """What stands in somebody's way, oldest first."""
        document = self._documents.read(self._layout.blockers, BLOCKERS) or BLOCKERS.empty()
        found = [blocker for entry in document["blockers"] if (blocker := _blocker(entry))]
        return [blocker for blocker in found if not (unresolved and blocker.resolved_at)]

    def add_blocker(self, task: Task) -> None:
        """Record what a failed task needs. One blocker for all failures of the same work of the same agent."""
        self.report(
            Blocker(
                id=blocker_id(task.owner, task.title),
                agent=task.owner,
                topic=task.title,
                description=task.error or "the task failed",
                needs=task.needs,
                severity="high" if task.priority.rank <= 1 else "medium",
                since=clock.iso(self._time.wall()),
                task_id=task.id,
            )
        )

    def report(self, blocker: Blocker) -> None:
        """Record a blocker; one with its id that is unresolved is brought up to date and counted."""

        def edit(document: Document) -> None:
            entries = document["blockers"]
            same = [entry for entry in entries if entry.get("id") == blocker.id]
            known = next((entry for entry in same if not entry.get("resolvedAt")), None)
            fresh = blocker.dump()
            if known is not None:
                again = known.get("taskId") != fresh["taskId"] or fresh["taskId"] is None
                fresh |= {"since": known.get("since"), "count": known.get("count", 1) + again}
            old = [entry for entry in entries if entry.get("resolvedAt") and entry not in same]
            dropped = old[:-_RESOLVED_KEPT]
            document["blockers"] = [e for e in entries if e not in same and e not in dropped] + [fresh]

        self._documents.update(self._layout.blockers, BLOCKERS, edit)

    def resolve_blockers(self, agent: str, topic: str) -> None:
        """The same work of the same agent succeeded: what stood in its way is gone."""
        if not any(blocker.agent == agent and blocker.topic == topic for blocker in self.blockers()):
            return
        now = clock.iso(self._time.wall())

        def edit(document: Document) -> None:
            for entry in document["blockers"]:
                if (entry.get("agent"), entry.get("topic")) == (agent, topic) and not entry.get("resolvedAt"):
                    entry["resolvedAt"] = now

        self._documents.update(self._layout.blockers, BLOCKERS, edit)

    def notice(self, task: Task) -> None:
        """Tell the human that a task of theirs has ended: a message file, one an end."""
        completed = task.status == "completed"
        end = task.finished_at or task.updated_at
        type_ = "task_complete" if completed else "task_failed"
        outcome = {"result": task.result.dump() if task.result else None} if completed else {"error": task.error}
        message = {
            "schemaVersion": SCHEMA_VERSION,
            "id": f"{task.id}-end"[:128],
            "from": task.owner,
            "to": HUMAN,
            "timestamp": end,
            "type": type_,
            "priority": task.priority,
            "payload": {"taskId": task.id, "title": task.title, "status": task.status, **outcome},
            "requiresAck": False,
        }
        name = f"{end.replace(':', '')}-{message['id']}-{type_}.json"
        self._files.create(f"{self._layout.human_inbox}/{name}", encode(message))


def _blocker(entry: object) -> Blocker | None:
    """The entry as a blocker, or None where a hand edit broke it: it must not hide the others."""
    try:
        return Blocker.model_validate(entry)
    except ValidationError:
        return None


def blocker_id(agent: str, topic: str) -> str:
    """The id of what stands in the way of one sort of work of one agent."""
    slug = re.sub(r"[^a-z0-9]+", "-", topic.lower()).strip("-")
    return f"blocker-{agent}-{slug}"[:128]
