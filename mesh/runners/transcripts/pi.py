"""Pi: `agent/sessions/--cwd--/*_ID.jsonl`, version 3, as older OpenClaw wrote it too; newer OpenClaw keeps the same
entries in SQLite.

Pi's own rule: `totalTokens` of the last assistant message that was neither aborted nor failed, or the sum of its input,
output, cache reads and writes where that is missing; then an estimate of what came after it, at 3.5 characters a token
and 4,800 characters an image. `input` alone is what was not in the cache, often a handful. After a compaction Pi
knows nothing until the next call, and neither do we.
"""

from __future__ import annotations

from mesh.models.running import Usage
from mesh.runners.transcripts.state import Entry, State, chars_of, count, listed, mapping, model_name, moment, text

RULE = "total tokens of the last answer that was neither aborted nor failed"
_IMAGE_CHARS = 4_800
_FAILED = ("aborted", "error")


def fold(state: State, entry: Entry) -> State:
    """The state after one more entry."""
    kind, at = entry.get("type"), moment(entry.get("timestamp"))
    if kind == "message":
        return _message(state, mapping(entry.get("message")), at)
    if kind == "custom_message":
        return _later(state, entry.get("content"))
    if kind == "model_change":
        return state.but(model=model_name(entry.get("provider"), entry.get("modelId")) or state.model)
    if kind == "compaction":
        return state.forgot("compacted since the last call")
    if kind == "branch_summary":
        return _later(state, entry.get("summary"))
    return state


def _message(state: State, message: Entry, at: str | None) -> State:
    at = at or moment(message.get("timestamp"))
    role = message.get("role")
    if role == "assistant":
        return _assistant(state, message, at)
    state = _later(state, message.get("content"))
    if role == "toolResult":
        return state.answered(text(message.get("toolCallId")), at)
    if role != "user":
        return state
    # While a tool runs, a user's message steers; it isn't the beginning of another turn.
    return state.works(at) if state.calls else state.begins(at)


def _assistant(state: State, message: Entry, at: str | None) -> State:
    ended = message.get("stopReason")
    state = state.but(calls=())
    usage = mapping(message.get("usage"))
    if ended in _FAILED:
        return _later(state, message.get("content")).ends(at)
    model = model_name(message.get("provider"), message.get("model")) or state.model
    state = _counted(state.but(model=model), usage, at)
    for part in listed(message.get("content")):
        if part.get("type") == "toolCall":
            state = state.calls_tool(text(part.get("id")), text(part.get("name")), at)
    return state.works(at) if ended == "toolUse" or state.calls else state.ends(at)


def _counted(state: State, usage: Entry, at: str | None) -> State:
    parts = [count(usage.get(key)) for key in ("input", "output", "cacheRead", "cacheWrite")]
    total = count(usage.get("totalTokens")) or sum(parts)
    if not total:
        return state
    cost = mapping(usage.get("cost")).get("total")
    sent, answered, cache_read, cache_write = parts
    used = Usage(
        input_tokens=sent,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=answered,
        cost_usd=float(cost) if isinstance(cost, int | float) and 0 < cost < 10**6 else None,
        model=state.model,
    )
    return state.saw(total, RULE, at).but(usage=used)


def _later(state: State, content: object) -> State:
    """Text that came after the last call: it is part of the next one."""
    if state.tokens is None:
        return state
    return state.but(later_chars=state.later_chars + chars_of(content, _IMAGE_CHARS))
