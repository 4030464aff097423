"""The journal: `system/events.log`, one JSON line an event, and each agent's `history.jsonl`.

Every decision that was carried out is an event with its reason. Lines are added in one piece and not flushed:
the journal explains, the documents are the truth. Logs are rotated by size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mesh import clock
from mesh.errors import StoreUnavailable
from mesh.store.codec import decode, encode_line
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.locks import Locks


class Journal:
    """Adds events and reads them back. A journal that can't be written never stops the work: `dropped` counts."""

    def __init__(self, files: Files, locks: Locks, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._locks = locks
        self._layout = layout
        self._time = time
        self.tick: Callable[[], int] = lambda: 0
        self.dropped = 0

    def event(self, agent: str, event: str, reason: str = "", **ids: Any) -> None:
        """Record what was done and why. `ids` are the task, agent, file … it is about."""
        self.events([(agent, event, reason, ids)])

    def events(self, entries: Iterable[tuple[str, str, str, dict[str, Any]]]) -> None:
        """Record several, (agent, event, reason, ids) each, in one piece."""
        at, tick = clock.iso(self._time.wall()), self.tick()
        lines = [
            {"at": at, "tick": tick, "agentId": agent, "event": event, "reason": reason, **ids}
            for agent, event, reason, ids in entries
        ]
        self._append(self._layout.events, *lines)

    def history(self, agent: str, **entry: Any) -> None:
        """Record the end of an attempt in the agent's own history."""
        self._append(self._layout.history(agent), {"at": clock.iso(self._time.wall()), **entry})

    def read_history(self, agent: str) -> list[dict[str, Any]]:
        """The agent's history, oldest first, the last rotated part included; damaged lines are left out."""
        path = self._layout.history(agent)
        return _lines(self._files.read(f"{path}.1")) + _lines(self._files.read(path))

    def read_events(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last events, oldest first, the last rotated part included."""
        lines = _lines(self._files.read(self._layout.events))
        if len(lines) < limit:
            lines = _lines(self._files.read(f"{self._layout.events}.1")) + lines
        return lines[-limit:]

    def read_events_from(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """Events after a byte offset of the present file, and the new offset; starts again after a rotation."""
        data = self._files.read(self._layout.events) or b""
        if offset > len(data):
            offset = 0
        whole = data[offset:].rpartition(b"\n")[0]
        return _lines(whole), offset + len(whole) + (1 if whole else 0)

    def rotate(self, path: str, bytes_max: int, kept: int) -> bool:
        """Start a new file once this one is too large; the oldest part beyond `kept` is deleted."""
        with self._locks.hold(f"{self._layout.relative(path)}.rotate"):
            found = self._files.signature(path)
            if found is None or found.size <= bytes_max:
                return False
            self._files.remove(f"{path}.{kept}")
            for number in range(kept - 1, 0, -1):
                if self._files.exists(f"{path}.{number}"):
                    self._files.rename(f"{path}.{number}", f"{path}.{number + 1}")
            self._files.rename(path, f"{path}.1")
            return True

    def _append(self, path: str, *entries: dict[str, Any]) -> None:
        try:
            if entries:
                self._files.append(path, b"".join(map(encode_line, entries)))
        except StoreUnavailable:
            self.dropped += len(entries)


def _lines(data: bytes | None) -> list[dict[str, Any]]:
    entries = []
    for line in (data or b"").split(b"\n"):
        try:
            entry = decode(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries
