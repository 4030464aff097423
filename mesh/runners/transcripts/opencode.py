"""OpenCode: `opencode.db`, tables `message` and `part`, a JSON document a row.

Occupancy is `tokens.total` of the newest assistant message that has one, or the sum of its parts in versions that tell
no total. A message that is itself the summary of a compaction was asked with the old context: what it answered is
what the next call begins with. The window isn't stored.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace

from mesh.models.running import Usage
from mesh.runners.transcripts.sqlite import VALUE_CHARS_MAX, DatabaseTranscript, json_value
from mesh.runners.transcripts.state import Call, Entry, State, count, mapping, model_name, moment, text

RULE = "total tokens of the newest answer"
_NEWEST = (
    "SELECT id, time_created, CASE WHEN length(data) <= ? THEN data END FROM message"
    " WHERE session_id = ? ORDER BY time_created DESC, id DESC LIMIT ?"
)
_PARTS = "SELECT CASE WHEN length(data) <= ? THEN data END FROM part WHERE message_id = ? ORDER BY id DESC LIMIT ?"
#: A turn of so many messages without one finished answer doesn't happen.
_MESSAGES, _MESSAGE_PARTS = 100, 64
_GOES_ON = ("tool-calls", "unknown")
_RUNNING = ("pending", "running")


class OpenCodeTranscript(DatabaseTranscript):
    cli = "opencode"

    def _state(self, database: sqlite3.Connection) -> State | None:
        state, newest = State(), None
        for id_, created, data in database.execute(_NEWEST, (VALUE_CHARS_MAX, self._session, _MESSAGES)):
            message = json_value(data)
            newest = newest or (id_, moment(created), message)
            state = _counted(state, message, moment(created))
            if state.tokens is not None:
                break
        if newest is None:
            return None
        id_, at, message = newest
        return _standing(state, message, at, lambda: _open_calls(database, id_))


def _open_calls(database: sqlite3.Connection, message: str) -> list[Call]:
    """The tools of a message that haven't answered, the one that was called first in front."""
    found = []
    for row in database.execute(_PARTS, (VALUE_CHARS_MAX, message, _MESSAGE_PARTS)):
        part = json_value(row[0])
        told = mapping(part.get("state"))
        if part.get("type") == "tool" and told.get("status") in _RUNNING:
            since = moment(mapping(told.get("time")).get("start"))
            found.append(Call(text(part.get("callID")), text(part.get("tool")), since))
    return found[::-1]


def _counted(state: State, data: Entry, created: str | None) -> State:
    if data.get("role") != "assistant":
        return state
    tokens = mapping(data.get("tokens"))
    cache = mapping(tokens.get("cache"))
    sent, read, written = count(tokens.get("input")), count(cache.get("read")), count(cache.get("write"))
    answered = count(tokens.get("output")) + count(tokens.get("reasoning"))
    total = count(tokens.get("total")) or sent + read + written + answered
    if not total:
        return state
    at = moment(mapping(data.get("time")).get("completed")) or created
    model = model_name(data.get("providerID"), data.get("modelID"))
    used = Usage(
        input_tokens=sent, cache_read_tokens=read, cache_write_tokens=written, output_tokens=answered, model=model
    )
    state = replace(state, model=model, usage=used)
    if data.get("summary") is True:
        return state.saw(max(answered, 1), "what the summary of a compaction holds", at, estimated=True)
    return state.saw(total, RULE, at)


def _standing(state: State, data: Entry, created: str | None, open_calls: Callable[[], list[Call]]) -> State:
    """Where the turn stands, by the newest message."""
    if data.get("role") != "assistant":
        return state.begins(created)
    completed = moment(mapping(data.get("time")).get("completed"))
    finish = text(data.get("finish"))
    if data.get("error") or (finish and finish not in _GOES_ON):
        return state.ends(completed or created)
    state = state.works(completed or created)
    for call in open_calls():
        state = state.calls_tool(call.id, call.name, call.since or created)
    return state
