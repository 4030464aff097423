"""What waits in an inbox, in the order in which it is served, without reading every file again.

Entries are kept by name: a file with a name of ours never changes, and its first bytes tell all that sorting needs,
because our encoder writes the payload last. Files that people put there by hand are looked at each time.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mesh import clock
from mesh.models import Message, Priority
from mesh.store.files import Files
from mesh.store.mail.names import is_mail
from mesh.store.mail.reading import BadMail, read_message

_HEAD_BYTES = 512
_TIME_LENGTH = len("2026-02-16T20:45:00.000Z")
#: The beginning of a file that our encoder wrote.
_HEAD = re.compile(
    r'\{\s*"schemaVersion": \d+,\s*"id": "([^"\\]+)",\s*"from": "([^"\\]+)",\s*"to": "[^"\\]+",'
    r'\s*"timestamp": "([^"\\]+)",\s*"type": "([^"\\]+)",\s*"priority": "(urgent|high|normal|low)",'
)
_RANKS = {priority.value: priority.rank for priority in Priority}


class Listed(NamedTuple):
    """One waiting file. They sort as they are served: urgent first, then by time, then by id."""

    rank: int
    timestamp: str
    id: str
    name: str
    type: str
    sender: str


class Unreadable(NamedTuple):
    """A file that is no message, or not yet: somebody may be writing it."""

    name: str
    reason: str


class InboxIndex:
    """The index of one inbox. `refresh` brings it up to date."""

    def __init__(self, files: Files, folder: str, bytes_max: Callable[[], int]) -> None:
        self._files = files
        self._disk = files.disk
        self._folder = folder
        self._bytes_max = bytes_max
        self._listed: dict[str, Listed] = {}
        #: Files of ours: they don't change, and aren't looked at again.
        self._steady: set[str] = set()
        self._seen: dict[str, object] = {}
        self.unreadable: dict[str, Unreadable] = {}

    def refresh(self) -> list[Listed]:
        """Look at the folder again; returns what came since the last look, in no order."""
        names = set(self._files.names(self._folder))
        for name in (self._listed.keys() | self.unreadable.keys()) - names:
            self._drop(name)
        fresh = []
        for name in filter(is_mail, names - self._steady):
            before = self._listed.get(name)
            now = self._head(name)
            if now is not None:
                self._steady.add(name)
                self._listed[name] = now
            else:
                now = self._look(name)
            if now is not None and now != before:
                fresh.append(now)
        return fresh

    def first(self, limit: int | None, fits: Callable[[Listed], bool] = lambda listed: True) -> list[Listed]:
        """The next to be served that fit."""
        fitting = (listed for listed in self._listed.values() if fits(listed))
        return sorted(fitting) if limit is None else heapq.nsmallest(limit, fitting)

    def by_id(self, id_: str) -> Iterator[Listed]:
        """The waiting files with this id: more than one if somebody put a copy there."""
        return (listed for listed in list(self._listed.values()) if listed.id == id_)

    def get(self, name: str) -> Listed | None:
        return self._listed.get(name)

    def correct(self, name: str, message: Message) -> None:
        """Put right what is listed of a file, if the whole of it tells otherwise than its beginning did."""
        if name in self._listed:
            self._listed[name] = _of(name, message)

    def set_aside(self, name: str, reason: str) -> None:
        """A file whose beginning looked like mail turned out to be none."""
        if name in self._listed:
            self._drop(name)
            self.unreadable[name] = Unreadable(name, reason)

    def __len__(self) -> int:
        return len(self._listed)

    def _look(self, name: str) -> Listed | None:
        path = f"{self._folder}/{name}"
        try:
            entry = self._disk.look(path)
            if self._seen.get(name) == entry:
                return self._listed.get(name)
            message = read_message(self._disk, path, self._bytes_max())
        except FileNotFoundError:
            self._drop(name)
            return None
        except (BadMail, OSError) as error:
            self._drop(name)
            reason = error.reason if isinstance(error, BadMail) else f"can't be read: {error.strerror}"
            self.unreadable[name] = Unreadable(name, reason)
            return None
        self._seen[name] = entry
        self.unreadable.pop(name, None)
        listed = self._listed[name] = _of(name, message)
        return listed

    def _head(self, name: str) -> Listed | None:
        """The file by its beginning, if that is as our encoder writes it and says what the name says."""
        if not name[0].isdigit() or name in self.unreadable:
            return None
        try:
            head = self._disk.read_start(f"{self._folder}/{name}", _HEAD_BYTES)
            # What is looked for is ASCII; the end may be half of a character.
            found = _HEAD.match(head.decode("latin-1"))
            if found is None:
                return None
            id_, sender, time, type_, priority = found.groups()
            time = _sortable(time)
        except (OSError, ValueError, OverflowError):
            return None
        if name != f"{time.replace(':', '')}-{id_}-{type_}.json":
            return None
        return Listed(_RANKS[priority], time, id_, name, type_, sender)

    def _drop(self, name: str) -> None:
        self._listed.pop(name, None)
        self._steady.discard(name)
        self._seen.pop(name, None)
        self.unreadable.pop(name, None)


def _of(name: str, message: Message) -> Listed:
    rank, time, id_ = message.order()
    return Listed(rank, _sortable(time), id_, name, message.type, message.from_)


def _sortable(time: str) -> str:
    """People may write times in other zones, and without fractions."""
    ours = len(time) == _TIME_LENGTH and time[10] == "T" and time[-1] == "Z"
    return time if ours else clock.iso(clock.parse(time))
