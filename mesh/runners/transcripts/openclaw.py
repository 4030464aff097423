"""OpenClaw: `openclaw-agent.sqlite`, table `transcript_events`, whose entries are Pi's and go through Pi's fold.

Read on from the last `seq`; a new generation of the transcript (it was rewritten) is read anew. The window stands in
the session's entry. Old entries that OpenClaw has compressed are passed over: only the newest matter.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace

from mesh.runners.transcripts import pi
from mesh.runners.transcripts.sqlite import VALUE_CHARS_MAX, DatabaseTranscript, columns, json_value, rows
from mesh.runners.transcripts.state import State, count

_TABLE = "transcript_events"
_SINCE = (
    f"SELECT seq, CASE WHEN length(event_json) <= ? THEN event_json END FROM {_TABLE}"
    " WHERE session_id = ? AND seq > ? ORDER BY seq"
)
#: How many of the newest events a first look takes, step by step.
_LOOK_BACK_EVENTS = (256, 2_048, 16_384)


class OpenClawTranscript(DatabaseTranscript):
    cli = "openclaw"

    def __init__(self, path: str, session: str, windows: Mapping[str, int]) -> None:
        super().__init__(path, session, windows)
        self._start_anew("")

    def _start_anew(self, generation: str, seq: int = -1) -> None:
        self._generation = generation
        self._seq = seq
        self._known = State()

    def _state(self, database: sqlite3.Connection) -> State | None:
        database.execute("BEGIN")  # one moment's view: a rewrite must not come between two queries
        session = self._id(database)
        last = rows(database, f"SELECT max(seq) FROM {_TABLE} WHERE session_id = ?", session)[0][0]
        if not isinstance(last, int):
            return None
        generation = f"{session} {self._rewritten(database, session)}"
        if generation == self._generation and self._seq <= last <= self._seq + _LOOK_BACK_EVENTS[-1]:
            self._take(database, session)
        else:
            for span in _LOOK_BACK_EVENTS:
                self._start_anew(generation, max(last - span, -1))
                self._take(database, session)
                if self._known.settled or span > last:
                    break
        return replace(self._known, window=self._window(database, session))

    def _take(self, database: sqlite3.Connection, session: str) -> None:
        for seq, event in database.execute(_SINCE, (VALUE_CHARS_MAX, session, self._seq)):
            entry = json_value(event)
            if entry:
                self._known = pi.fold(self._known, entry)
            self._seq = seq

    def _id(self, database: sqlite3.Connection) -> str:
        """The session's id; it may have been named by the key that stands for its present id."""
        if "current_session_id" in columns(database, "session_nodes"):
            query = "SELECT current_session_id FROM session_nodes WHERE session_key = ?"
            found = rows(database, query, self._session)
            if found and isinstance(found[0][0], str):
                return found[0][0]
        return self._session

    def _rewritten(self, database: sqlite3.Connection, session: str) -> str:
        table = "transcript_rewrite_watermarks"
        if "generation" not in columns(database, table):
            return ""
        found = rows(database, f"SELECT generation FROM {table} WHERE session_id = ?", session)
        return str(found[0][0]) if found else ""

    def _window(self, database: sqlite3.Connection, session: str) -> int | None:
        if "entry_json" not in columns(database, "session_nodes"):
            return None
        query = (
            "SELECT json_extract(entry_json, '$.contextTokens') FROM session_nodes"
            " WHERE current_session_id = ? AND json_valid(entry_json) LIMIT 1"
        )
        found = rows(database, query, session)
        return count(found[0][0]) or None if found else None
