"""Reading the journal from a position on, across rotations.

A position is a part of the log and a byte in it. Rotation gives a part another name but leaves its content, so a part
is known by the checksum of its first line. Whoever goes on from the position that it was told misses nothing and sees
nothing twice; if the part has been deleted meanwhile, it is told so.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mesh.errors import Invalid, StoreUnavailable
from mesh.store.codec import decode
from mesh.store.files import Files

POSITION = re.compile(r"([0-9a-f]{8}):([0-9]{1,15})")
_HEAD_BYTES = 512
#: A rotation while the parts are being read makes it start again.
_TRIES = 20


@dataclass(frozen=True)
class Logged:
    """An event, and the position after it."""

    event: dict[str, Any]
    position: str


@dataclass(frozen=True)
class Reading:
    events: list[Logged]
    #: From where to go on; None while there is no log.
    end: str | None
    #: The part that was to be gone on from has been deleted: `events` begin with the oldest that is kept.
    gap: bool = False


class _Rotated(Exception):
    """The parts changed their names while they were being read."""


class EventLog:
    """The log at `path` and its rotated parts beside it."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def read(self, after: str | None = None) -> Reading:
        """The events after a position, oldest first; without one, all that is kept. Raises Invalid if it is no
        position."""
        asked = None if after is None else _parsed(after)
        return self._steadily(lambda: self._read(asked))

    def last(self, limit: int, fits: Callable[[dict[str, Any]], bool]) -> Reading:
        """The last so many events that fit, oldest first."""
        return self._steadily(lambda: self._last(limit, fits))

    def changed(self, before: object) -> tuple[bool, object]:
        """Whether something was added or rotated since; and what to ask with the next time."""
        now = self._files.signature(self._path)
        return now != before, now

    # -- inside

    def _steadily(self, read: Callable[[], Reading]) -> Reading:
        for _ in range(_TRIES):
            try:
                return read()
            except _Rotated:
                continue
        raise StoreUnavailable(f"{self._path} is being rotated all the time.", file=self._path)

    def _read(self, asked: tuple[str, int] | None) -> Reading:
        parts = self._parts()
        start, byte, gap = 0, 0, False
        if asked is not None:
            known = [part for part, _ in parts]
            gap = asked[0] not in known
            start, byte = (0, 0) if gap else (known.index(asked[0]), asked[1])
        events: list[Logged] = []
        end = None
        for part, path in parts[start:]:
            found, end = _events(part, self._data(part, path), byte)
            events += found
            byte = 0
        return Reading(events, end, gap)

    def _last(self, limit: int, fits: Callable[[dict[str, Any]], bool]) -> Reading:
        events: list[Logged] = []
        end = None
        for part, path in reversed(self._parts()):
            found, after = _events(part, self._data(part, path), 0)
            end = end or after
            events = [logged for logged in found if fits(logged.event)] + events
            if len(events) >= limit:
                break
        return Reading(events[-limit:] if limit else [], end)

    def _parts(self) -> list[tuple[str, str]]:
        """Each part's mark and path, oldest first. Looked at twice: a rotation meanwhile must hide none."""
        before, now = None, list(self._look())
        while now != before:
            before, now = now, list(self._look())
        return now

    def _look(self) -> Iterator[tuple[str, str]]:
        folder, _, base = self._path.rpartition("/")
        numbered = [name for name in self._files.names(folder) if re.fullmatch(rf"{re.escape(base)}\.\d+", name)]
        for name in [*sorted(numbered, key=lambda name: -int(name.rpartition(".")[2])), base]:
            try:
                head = self._files.disk.read_start(f"{folder}/{name}", _HEAD_BYTES)
            except OSError:
                continue
            mark = _mark(head)
            if mark is not None:
                yield mark, f"{folder}/{name}"

    def _data(self, part: str, path: str) -> bytes:
        data = self._files.read(path) or b""
        if _mark(data[:_HEAD_BYTES]) != part:
            raise _Rotated
        return data


def _parsed(position: str) -> tuple[str, int]:
    found = POSITION.fullmatch(position)
    if found is None:
        raise Invalid(f"{position!r} is no offset in the log.")
    return found[1], int(found[2])


def _mark(head: bytes) -> str | None:
    """What a part is known by; None while its first line isn't whole."""
    line, newline, _ = head.partition(b"\n")
    return f"{zlib.crc32(line):08x}" if newline or len(head) >= _HEAD_BYTES else None


def _events(part: str, data: bytes, byte: int) -> tuple[list[Logged], str]:
    """The events from that byte on, and the position after the last whole line."""
    if byte > len(data) or (byte and data[byte - 1 : byte] != b"\n"):
        raise Invalid(f"{part}:{byte} is no offset in the log: no line ends there.")
    events: list[Logged] = []
    whole = data.rfind(b"\n") + 1
    for line in data[byte : whole - 1].split(b"\n") if whole > byte else ():
        byte += len(line) + 1
        try:
            event = decode(line)
        except ValueError:
            continue  # damaged
        if isinstance(event, dict):
            events.append(Logged(event, f"{part}:{byte}"))
    return events, f"{part}:{byte}"
