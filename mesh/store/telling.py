"""Telling how tasks ended: references in `outbox.json`, a message to who gave it, blockers.

The end is told before the open copy of a task goes, so a crash can only tell it twice, and that changes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from mesh.errors import Conflict, StoreUnavailable
from mesh.models import HUMAN, Task, TaskStatus, task_end
from mesh.store.documents import REFERENCES, Document, Documents
from mesh.store.files import Files
from mesh.store.knowledge import Knowledge
from mesh.store.layout import Layout
from mesh.store.mailbox import Again, MailStore

_REFERENCES_MAX = 500


class Telling:
    def __init__(
        self, files: Files, documents: Documents, layout: Layout, knowledge: Knowledge, mail: MailStore
    ) -> None:
        self._files = files
        self._documents = documents
        self._layout = layout
        self._knowledge = knowledge
        self._mail = mail

    def end(self, task: Task, *, blocker: bool = False) -> None:
        """Tell its owner's and its giver's files, its giver by mail, and the blockers, that a task has ended."""
        if task.owner != "any":
            self._refer(task.owner, task)
        if task.from_ not in (HUMAN, task.owner):
            self._refer(task.from_, task)
        self._tell_giver(task)
        if blocker:
            self._knowledge.add_blocker(task)
        elif task.status is TaskStatus.COMPLETED:
            self._knowledge.resolve_blockers(task.owner, task.title)

    def _tell_giver(self, task: Task) -> None:
        """One message an end, however often it is told."""
        if task.from_ == task.owner or not self._files.exists(self._layout.mail(task.from_).base):
            return
        with suppress(Conflict):  # told before, in other words
            self._mail.tell(task_end(task), Again.BY_ID)

    def delegated(self, task: Task) -> None:
        """Note with the giver what it has delegated. The task is in already: it must not fail by this, and its
        end is told in any case."""
        if task.from_ in (HUMAN, task.owner):
            return
        try:
            self._refer(task.from_, task)
        except StoreUnavailable:
            return

    def _refer(self, agent: str, task: Task) -> None:
        reference: dict[str, Any] = {"id": task.id, "status": task.status, "finishedAt": task.finished_at}
        if agent != task.owner:
            reference["to"] = task.owner

        def edit(document: Document) -> None:
            others = [other for other in document["tasks"] if other.get("id") != task.id]
            document["tasks"] = [*others, reference][-_REFERENCES_MAX:]

        if self._files.exists(self._layout.agent(agent)):  # an agent that was removed is told nothing
            self._documents.update(self._layout.outbox(agent), REFERENCES, edit)
