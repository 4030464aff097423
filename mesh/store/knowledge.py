"""What the mesh knows: blockers, decisions, and insights that agents shared."""

from __future__ import annotations

import re
from contextlib import suppress

from pydantic import ValidationError

from mesh import clock
from mesh.models import Blocker, Decision, Insight, Task
from mesh.store.documents import BLOCKERS, DECISIONS, INSIGHTS, Document, Documents
from mesh.store.layout import Layout

#: Resolved blockers that stay in the file, for people who look back.
_RESOLVED_KEPT = 200
#: Insights that stay in the file; the oldest go first.
_INSIGHTS_KEPT = 1000
#: The same of decisions.
_DECISIONS_KEPT = 1000


class Knowledge:
    def __init__(self, documents: Documents, layout: Layout, time: clock.Clock) -> None:
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
                again = again and (blocker.reported_by is None or known.get("reportedBy") != blocker.reported_by)
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

    def resolve_blocker(self, blocker_id: str) -> bool:
        """End this blocker; True if it was open."""
        if not any(blocker.id == blocker_id for blocker in self.blockers()):
            return False
        now = clock.iso(self._time.wall())

        def edit(document: Document) -> None:
            for entry in document["blockers"]:
                if entry.get("id") == blocker_id and not entry.get("resolvedAt"):
                    entry["resolvedAt"] = now

        self._documents.update(self._layout.blockers, BLOCKERS, edit)
        return True

    def insights(self) -> list[Insight]:
        """What agents shared, oldest first; entries that a hand edit broke are left out."""
        document = self._documents.read(self._layout.insights, INSIGHTS) or INSIGHTS.empty()
        found = []
        for entry in document["insights"]:
            with suppress(ValidationError):
                found.append(Insight.model_validate(entry))
        return found

    def add_insight(self, insight: Insight) -> None:
        """Record what an agent shared; the same id again changes nothing."""

        def edit(document: Document) -> None:
            entries = document["insights"]
            if not any(isinstance(entry, dict) and entry.get("id") == insight.id for entry in entries):
                document["insights"] = [*entries, insight.dump()][-_INSIGHTS_KEPT:]

        self._documents.update(self._layout.insights, INSIGHTS, edit)

    def decisions(self) -> list[Decision]:
        """What agents decided, oldest first; entries that a hand edit broke are left out."""
        document = self._documents.read(self._layout.decisions, DECISIONS) or DECISIONS.empty()
        found = []
        for entry in document["decisions"]:
            with suppress(ValidationError):
                found.append(Decision.model_validate(entry))
        return found

    def add_decision(self, decision: Decision) -> None:
        """Record a decision; the same id again changes nothing."""

        def edit(document: Document) -> None:
            entries = document["decisions"]
            if not any(isinstance(entry, dict) and entry.get("id") == decision.id for entry in entries):
                document["decisions"] = [*entries, decision.dump()][-_DECISIONS_KEPT:]

        self._documents.update(self._layout.decisions, DECISIONS, edit)


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
