"""Everything that is written has a retention: what is old is deleted, what grows is rotated.

Run by whichever agent carries the tick, once a mesh hour. Files are judged by their own modification time.
"""

from __future__ import annotations

import os

from mesh import clock
from mesh.errors import MeshError
from mesh.limits import Limits
from mesh.store.codec import decode
from mesh.store.files import Files
from mesh.store.journal import Journal
from mesh.store.layout import Layout

DAY_S = 86_400.0
_SCRATCH_KEPT_DAYS = 1.0


class Retention:
    def __init__(self, files: Files, journal: Journal, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._journal = journal
        self._layout = layout
        self._time = time

    def run(self, limits: Limits, agents: list[str]) -> dict[str, int]:
        """Delete and rotate; returns how many files of each sort. One that can't be deleted stays for the next
        run and doesn't stop the others."""
        layout = self._layout
        ages = {
            layout.completed: limits.task_retention_days,
            layout.failed: limits.task_retention_days,
            layout.syncs: limits.sync_retention_days,
            layout.quarantine: limits.quarantine_retention_days,
            layout.snapshots: limits.snapshot_retention_days,
            layout.scratch: _SCRATCH_KEPT_DAYS,
        }
        done = {layout.relative(folder): self._delete_old(folder, days) for folder, days in ages.items()}
        done["system/human"] = self._delete_resolved(limits.alert_retention_days)
        logs = [(layout.events, limits.events_bytes_max, limits.events_files_kept)]
        logs += [(layout.history(agent), limits.history_bytes_max, limits.history_files_kept) for agent in agents]
        done["rotated"] = sum(self._journal.rotate(path, bytes_max, kept) for path, bytes_max, kept in logs)
        done["rotated"] += self._shorten_log(limits.log_bytes_max)
        return {name: count for name, count in done.items() if count}

    def _delete_old(self, folder: str, days: float) -> int:
        oldest = self._time.wall().timestamp() - days * DAY_S
        deleted = 0
        for name in self._files.names(folder):
            path = f"{folder}/{name}"
            if self._is_older(path, oldest) and self._awaits_nobody(path):
                deleted += self._delete(path)
        return deleted

    def _delete_resolved(self, days: float) -> int:
        oldest = self._time.wall().timestamp() - days * DAY_S
        deleted = 0
        for name in self._files.names(self._layout.human):
            path = f"{self._layout.human}/{name}"
            if name.endswith(".json") and self._is_older(path, oldest) and self._member(path, "status") == "resolved":
                deleted += self._delete(path)
        return deleted

    def _awaits_nobody(self, path: str) -> bool:
        """A task whose outcome is unknown waits for a person, however long that takes."""
        in_failed = os.path.dirname(path) == self._layout.failed
        return not (in_failed and self._member(path, "status") == "outcome_unknown")

    def _member(self, path: str, key: str) -> object:
        try:
            document = decode(self._files.read(path) or b"null")
        except (ValueError, MeshError):
            return None
        return document.get(key) if isinstance(document, dict) else None

    def _is_older(self, path: str, oldest: float) -> bool:
        try:
            found = self._files.disk.signature(path)
        except OSError:
            return False
        return found is not None and found.mtime_ns / 1e9 < oldest

    def _delete(self, path: str) -> int:
        try:
            self._files.disk.unlink(path)  # not flushed: what a power cut brings back is deleted again
        except OSError:
            return 0
        return 1

    def _shorten_log(self, bytes_max: int) -> int:
        """The output of a detached mesh is held open by every process: copied, then cut in place."""
        found = self._files.signature(self._layout.log)
        if found is None or found.size <= bytes_max:
            return 0
        data = self._files.read(self._layout.log) or b""
        self._files.replace(f"{self._layout.log}.1", data[-bytes_max:])
        try:
            self._files.disk.truncate(self._layout.log)
        except OSError:
            return 0  # longer than meant until the next run
        return 1
