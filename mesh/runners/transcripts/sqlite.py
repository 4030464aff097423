"""Opens a CLI's SQLite database for a look: read-only, without locking the CLI out and without leaving a file.

A database in WAL mode whose `-wal` is gone has no writer: it is opened as immutable, because even a read-only
connection would make `-wal` and `-shm` files of ours in the CLI's home. Otherwise a read-only connection waits a
moment for a busy database and gives up.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote

from mesh.runners.transcripts.reading import Reading
from mesh.runners.transcripts.state import Entry, State, parse

_BUSY_WAIT_S = 0.1
#: A larger value isn't fetched: it is a picture or a log, no answer of a model.
VALUE_CHARS_MAX = 4_000_000
_HEADER_BYTES = 20
_WAL = b"\2"

Row = tuple[Any, ...]


class DatabaseProblem(Exception):
    """Why the database tells nothing now: missing, busy, damaged, or of another shape than we know."""


@contextlib.contextmanager
def opened(path: str) -> Iterator[sqlite3.Connection]:
    """A connection for one look. Raises DatabaseProblem, also for what the block's queries raise."""
    try:
        connection = sqlite3.connect(_uri(path), uri=True, timeout=_BUSY_WAIT_S, isolation_level=None)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise DatabaseProblem(f"{path} can't be read: {error}") from None
    try:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        yield connection
    except (sqlite3.Error, ValueError, OverflowError) as error:
        raise DatabaseProblem(f"{path} can't be read: {error}") from None
    finally:
        connection.close()


def _uri(path: str) -> str:
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    unwritten = header[18:20] == _WAL + _WAL and not os.path.exists(f"{path}-wal")
    return f"file:{quote(os.path.abspath(path))}?mode=ro" + ("&immutable=1" if unwritten else "")


def columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """The names of a table's columns; none if there is no such table."""
    return frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))


def rows(connection: sqlite3.Connection, query: str, *values: object) -> list[Row]:
    return connection.execute(query, values).fetchall()


def json_value(value: object) -> Entry:
    """A JSON object from a column; an empty one for all else."""
    return (parse(value) if isinstance(value, str) else None) or {}


class DatabaseTranscript(ABC):
    """One session within a CLI's database."""

    cli: ClassVar[str]

    def __init__(self, path: str, session: str, windows: Mapping[str, int]) -> None:
        self.path = path
        self._session = session
        self._windows = windows
        self._last = Reading()

    def read(self) -> Reading:
        """What the session's rows say now; with a `problem` beside what they said before, if they can't be asked."""
        try:
            with opened(self.path) as database:
                state = self._state(database)
        except DatabaseProblem as error:
            return replace(self._last, problem=str(error))
        missing = None if state else f"{self.path} has no session {self._session}"
        self._last = replace((state or State()).reading(self.cli, self._windows), problem=missing)
        return self._last

    @abstractmethod
    def _state(self, database: sqlite3.Connection) -> State | None:
        """The state of the session, or None if the database doesn't know it. What sqlite3 raises may pass."""
