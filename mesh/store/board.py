"""The open tasks of the mesh as they lie in files: the global queue, each agent's queue, what is worked on.

A body lies in exactly one file. A move writes the destination durably, then removes the source (I5), and raises
the task's `revision`: after a crash in between, the copy with the highest revision is the task, and loading the
board drops the others.
"""

from __future__ import annotations

import json

from pydantic import ValidationError

from mesh.errors import Unreadable
from mesh.models import ENDED, IN_FAILED, Task, TaskStatus
from mesh.store.documents import TASKS, Document, Documents, encode
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.quarantine import Quarantine


class Board:
    """A loaded board. Make it under the lock `tasks` if anything is to be moved."""

    def __init__(
        self, files: Files, documents: Documents, layout: Layout, quarantine: Quarantine, *, held: bool
    ) -> None:
        self._files = files
        self._documents = documents
        self._layout = layout
        self._quarantine = quarantine
        self._held = held
        self._docs: dict[str, Document] = {}
        self.tasks: dict[str, Task] = {}
        self.place: dict[str, str] = {}
        self._load()

    def at(self, path: str) -> list[Task]:
        """The tasks in one file, first to be served first."""
        return sorted((task for id_, task in self.tasks.items() if self.place[id_] == path), key=Task.order)

    def put(self, task: Task, path: str) -> None:
        """Put a task into an open file: a new one, a changed one, or one that moves here."""
        source = self.place.get(task.id)
        task.revision += 1
        self.tasks[task.id] = task
        self.place[task.id] = path
        self._write(path)
        if source is not None and source != path:
            self._write(source)

    def end(self, task: Task) -> None:
        """Write an ended task into its folder. It stays in its open file until `drop`."""
        task.revision += 1
        completed, failed = self._layout.ended(task.id)
        self._files.replace(failed if task.status in IN_FAILED else completed, encode(task.dump()))

    def drop(self, task_id: str) -> None:
        """Remove a task from its open file."""
        del self.tasks[task_id]
        self._write(self.place.pop(task_id))

    def ended(self, task_id: str) -> Task | None:
        """The task as it lies in `completed/` or `failed/`."""
        for path in self._layout.ended(task_id):
            data = self._files.read(path)
            if data is None:
                continue
            try:
                return Task.model_validate(json.loads(data))
            except (ValueError, ValidationError) as error:
                if not self._held:
                    raise Unreadable(f"{path} is damaged: {_short(error)}", file=path, taskId=task_id) from None
                self._quarantine.keep(path, _short(error))
                self._files.remove(path)
        return None

    def remove_ended(self, task_id: str) -> None:
        """Delete the ended copy of a task that went on."""
        for path in self._layout.ended(task_id):
            self._files.remove(path)

    def stale_copies(self) -> list[tuple[Task, Task]]:
        """Tasks with an open and an ended copy, (open, ended): a move was cut short by a crash."""
        pairs = []
        for folder in (self._layout.completed, self._layout.failed):
            names = {name.removesuffix(".json") for name in self._files.names(folder)}
            for task_id in names & self.tasks.keys():
                ended = self.ended(task_id)
                if ended is not None:
                    pairs.append((self.tasks[task_id], ended))
        return pairs

    def status_of(self, task_id: str) -> TaskStatus | None:
        """The task's status, open or ended, or None where there is no such task."""
        task = self.tasks.get(task_id) or self.ended(task_id)
        return task.status if task else None

    def blocks(self, task_id: str) -> list[str]:
        """Which open tasks wait for this one."""
        return sorted(task.id for task in self.tasks.values() if task_id in task.blocked_by)

    def _load(self) -> None:
        layout = self._layout
        agents = [name for name in self._files.names(layout.agents) if "." not in name]
        for path in (layout.queue, *map(layout.inbox, agents), layout.active):
            read = self._documents.read_held if self._held else self._documents.read
            document = read(path, TASKS)
            if document is not None:
                self._docs[path] = document
                self._take(path, document)

    def _take(self, path: str, document: Document) -> None:
        losers: set[str] = set()
        bad = []
        for entry in document["tasks"]:
            try:
                task = Task.model_validate(entry)
            except ValidationError as error:
                bad.append((entry, _short(error)))
                continue
            known = self.tasks.get(task.id)
            if known is not None and known.revision >= task.revision:
                losers.add(path)
                continue
            if known is not None:
                losers.add(self.place[task.id])
            self.tasks[task.id] = task
            self.place[task.id] = path
        if not self._held:
            return
        for entry, reason in bad:
            # One entry that a hand edit broke must not take the others with it.
            self._quarantine.keep_data(path, encode(entry), f"not a task: {reason}")
        for loser in losers | ({path} if bad else set()):
            self._write(loser)

    def _write(self, path: str) -> None:
        document = self._docs.setdefault(path, TASKS.empty())
        document["tasks"] = [task.dump() for task in self.at(path)]
        self._documents.write(path, document)


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def waits(status: TaskStatus | None) -> bool:
    """Whether a task with this status still keeps others waiting. One that is gone does not."""
    return status is not None and status not in ENDED
