"""The open tasks of the mesh as they lie in files: the global queue, each agent's queue, what is worked on.

A body lies in exactly one file. A move writes the destination durably, then removes the source (I5), and raises
the task's `revision`: after a crash in between, the copy with the highest revision is the task, and loading the
board drops the others.
"""

from __future__ import annotations

from pydantic import ValidationError

from mesh.errors import NewerSchema, StoreUnavailable
from mesh.models import ENDED, IN_FAILED, SCHEMA_VERSION, Task, TaskStatus
from mesh.store.codec import encode
from mesh.store.documents import ENDED_TASK, TASKS, Document, Documents, Kind, first_problem
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.quarantine import Quarantine

#: The one lock of all files of tasks, the ended ones included.
LOCK = "tasks"
_WAITING = frozenset({TaskStatus.QUEUED, TaskStatus.BLOCKED, TaskStatus.AWAITING_APPROVAL})


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
        self._refused: dict[str, StoreUnavailable] = {}
        self.tasks: dict[str, Task] = {}
        self.place: dict[str, str] = {}
        self._load()

    def at(self, path: str) -> list[Task]:
        """The tasks in one file, first to be served first."""
        return sorted((task for id_, task in self.tasks.items() if self.place[id_] == path), key=Task.order)

    def need(self, path: str) -> None:
        """Raise why the file can't be used, if it can't: StoreUnavailable, or of it NewerSchema."""
        if path in self._refused:
            raise self._refused[path]

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
        path, other = (failed, completed) if task.status in IN_FAILED else (completed, failed)
        self._files.replace(path, encode({**task.dump(), "schemaVersion": SCHEMA_VERSION}))
        self._files.remove(other)  # from before it was resolved

    def drop(self, *task_ids: str) -> None:
        """Remove tasks from their open files."""
        for task_id in task_ids:
            del self.tasks[task_id]
        for path in dict.fromkeys(self.place.pop(task_id) for task_id in task_ids):
            self._write(path)

    def ended(self, task_id: str) -> Task | None:
        """The task as it lies in `completed/` or `failed/`."""
        for path in self._layout.ended(task_id):
            document = self._read(path, ENDED_TASK)
            if document is not None:
                del document["schemaVersion"]
                return Task.model_validate(document)
        return None

    def remove_ended(self, task_id: str) -> None:
        """Delete the ended copy of a task that went on."""
        for path in self._layout.ended(task_id):
            self._files.remove(path)

    def settle(self, task_id: str) -> None:
        """Make durable where the task lies: a process that was killed before its flush may have put it there."""
        for path in (self.place.get(task_id), *self._layout.ended(task_id)):
            if path is not None and self._files.exists(path):
                self._files.settle(path)

    def drop_resolved(self) -> None:
        """A resolved task goes from `failed/` to `completed/`; finish moves that a crash cut short."""
        completed, failed = self._layout.completed, self._layout.failed
        for name in sorted(set(self._files.names(completed)) & set(self._files.names(failed))):
            self._files.settle(f"{completed}/{name}")
            self._files.remove(f"{failed}/{name}")

    def stale_copies(self) -> list[tuple[Task, Task]]:
        """Tasks with an open and an ended copy, (open, ended): a move was cut short by a crash."""
        pairs = []
        for folder in (self._layout.completed, self._layout.failed):
            names = {name.removesuffix(".json") for name in self._files.names(folder)}
            for task_id in sorted(names & self.tasks.keys()):
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
            try:
                document = self._read(path, TASKS)
            except StoreUnavailable as error:
                if path in (layout.queue, layout.active) or not _is_its_own(error):
                    raise
                self._refused[path] = error  # one agent's queue must not stop the others' work
                continue
            if document is not None:
                self._docs[path] = document
                self._take(path, document)

    def _read(self, path: str, kind: Kind) -> Document | None:
        if self._held:
            return self._documents.read_held(path, kind)
        return self._documents.read(path, kind, lock=LOCK)

    def _take(self, path: str, document: Document) -> None:
        losers: set[str] = set()
        twice = set()
        bad = []
        for entry in document["tasks"]:
            try:
                task = Task.model_validate(entry)
                self._check_place(task, path)
            except ValidationError as error:
                bad.append((entry, first_problem(error)))
                continue
            except ValueError as error:
                bad.append((entry, str(error)))
                continue
            known = self.tasks.get(task.id)
            if known is not None:
                twice.add(task.id)
                older = known.revision >= task.revision
                losers.add(path if older else self.place[task.id])
                if older:
                    continue
            self.tasks[task.id] = task
            self.place[task.id] = path
        if not self._held:
            return
        for entry, reason in bad:
            # One entry that a hand edit broke must not take the others with it.
            self._quarantine.keep_data(path, encode(entry), f"not a task: {reason}")
        for task_id in sorted(twice):
            self.settle(task_id)
        for loser in sorted(losers | ({path} if bad else set())):
            self._write(loser)

    def _check_place(self, task: Task, path: str) -> None:
        """Raise ValueError for a task that can't lie there: only a hand edit puts it so."""
        if path == self._layout.active:
            fits = task.status is TaskStatus.WORKING and task.claim is not None
        else:
            fits = task.status in _WAITING
        if not fits:
            raise ValueError(f"{task.id} can't be {task.status} in {self._layout.relative(path)}")

    def _write(self, path: str) -> None:
        self.need(path)
        document = self._docs.setdefault(path, TASKS.empty())
        document["tasks"] = [task.dump() for task in self.at(path)]
        self._documents.write(path, document)


def _is_its_own(error: StoreUnavailable) -> bool:
    """Whether the trouble is this one file's: its version, what it is, whose it is. A disk that fails is not."""
    return isinstance(error, NewerSchema) or isinstance(error.__cause__, PermissionError | IsADirectoryError)


def waits(status: TaskStatus | None) -> bool:
    """Whether a task with this status still keeps others waiting. One that is gone does not."""
    return status is not None and status not in ENDED
