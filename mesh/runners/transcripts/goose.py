"""goose: `sessions.db`, tables `sessions`, `messages` and, in newer versions, `usage_ledger`.

Occupancy is `sessions.total_tokens`, which is the last call's; `accumulated_total_tokens` is a sum and never asked.
The window is told only where the model's settings name a `context_limit`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mesh.models.running import Usage
from mesh.runners.transcripts.sqlite import VALUE_CHARS_MAX, DatabaseTranscript, columns, json_value, rows
from mesh.runners.transcripts.state import Entry, State, count, listed, mapping, model_name, moment, text

RULE = "total tokens of the last call (`sessions.total_tokens`)"
_WANTED = ("total_tokens", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_WANTED_BESIDE = ("provider_name", "model_config_json", "updated_at")
_MESSAGES = (
    "SELECT role, CASE WHEN length(content_json) <= ? THEN content_json END, created_timestamp FROM messages"
    " WHERE id IN (SELECT id FROM messages WHERE session_id = ? ORDER BY id DESC LIMIT 64) ORDER BY id"
)
_TURN_CONTEXT = "<turn-context>"


class GooseTranscript(DatabaseTranscript):
    cli = "goose"

    def _state(self, database: sqlite3.Connection) -> State | None:
        row = self._row(database)
        if row is None:
            return None
        settings = json_value(row.get("model_config_json"))
        model = model_name(row.get("provider_name"), settings.get("model_name"))
        state = State(model=model, window=count(settings.get("context_limit")) or None)
        at = self._called_at(database, row)
        state = state.saw(count(row.get("total_tokens")), RULE, at)
        if state.tokens is not None:
            state = replace(state, usage=_usage(row, model))
        if "content_json" in columns(database, "messages"):
            for role, content, created in database.execute(_MESSAGES, (VALUE_CHARS_MAX, row["id"])):
                state = _said(state, role, _parts(content), moment(created))
        return state

    def _row(self, database: sqlite3.Connection) -> dict[str, Any] | None:
        """The session's row, by its id, or by the name that `-n` gave it (of several, the newest)."""
        there = columns(database, "sessions")
        if "id" not in there:
            return None
        names = [name for name in ("id", *_WANTED, *_WANTED_BESIDE) if name in there]
        by_name = " OR name = ?2" if "name" in there else " OR id = ?2"
        newest = "updated_at DESC, rowid DESC" if "updated_at" in there else "rowid DESC"
        query = (
            f"SELECT {', '.join(names)} FROM sessions WHERE id = ?1{by_name} ORDER BY id = ?1 DESC, {newest} LIMIT 1"
        )
        found = rows(database, query, self._session, self._session)
        return dict(zip(names, found[0], strict=True)) if found else None

    def _called_at(self, database: sqlite3.Connection, row: Mapping[str, Any]) -> str | None:
        if "created_timestamp" in columns(database, "usage_ledger"):
            query = "SELECT max(created_timestamp) FROM usage_ledger WHERE session_id = ?"
            found = rows(database, query, row["id"])
            if found and (at := moment(found[0][0])) is not None:
                return at
        return moment(row.get("updated_at"))


def _usage(row: Mapping[str, Any], model: str | None) -> Usage:
    told = {key: None if row.get(key) is None else count(row[key]) for key in _WANTED}
    sent, read, written = told["input_tokens"], told["cache_read_tokens"], told["cache_write_tokens"]
    return Usage(
        # goose counts what came from the cache and went into it as input too.
        input_tokens=None if sent is None else max(sent - (read or 0) - (written or 0), 0),
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=told["output_tokens"],
        model=model,
    )


def _parts(content: object) -> list[Entry]:
    try:
        found = json.loads(content) if isinstance(content, str) else None
    except (ValueError, RecursionError):
        return []
    return list(listed(found))


def _said(state: State, role: object, parts: list[Entry], at: str | None) -> State:
    if role == "assistant":
        calls = [part for part in parts if part.get("type") == "toolRequest"]
        for part in calls:
            name = mapping(mapping(part.get("toolCall")).get("value")).get("name")
            state = state.calls_tool(text(part.get("id")), text(name), at)
        return state if calls else state.ends(at)
    answers = [part for part in parts if part.get("type") == "toolResponse"]
    for part in answers:
        state = state.answered(text(part.get("id")), at)
    words = next((part["text"] for part in parts if isinstance(part.get("text"), str)), "")
    if answers or not words or words.startswith(_TURN_CONTEXT):
        return state
    return state.begins(at)
