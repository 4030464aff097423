"""Codex: `sessions/Y/M/D/rollout-*-ID.jsonl`, lines of `{timestamp, type, payload}`.

Occupancy is `last_token_usage.total_tokens` of the last `token_count`; `total_token_usage` is a sum over the thread and
never asked. The window stands beside it: what Codex fills before it compacts, 95 % of the configured one. After a
compaction Codex writes its own estimate as a usage without input; until then nothing is known.
"""

from __future__ import annotations

from mesh.models.running import Usage
from mesh.runners.transcripts.state import Entry, State, count, full_name, mapping, moment, text

RULE = "total tokens of the last call (`token_count`)"
_ESTIMATE = "Codex's own estimate after its compaction"
_BEGINS = ("task_started", "turn_started")
_ENDS = ("task_complete", "turn_complete", "turn_aborted")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
#: The value of `State.mark` once a line has told where turns begin: older versions never say where they end.
_TELLS_TURNS = "turns"


def fold(state: State, entry: Entry) -> State:
    """The state after one more line."""
    payload, at = mapping(entry.get("payload")), moment(entry.get("timestamp"))
    kind = entry.get("type")
    if kind == "event_msg":
        return _event(state, payload, at)
    if kind == "response_item":
        return _item(state, payload, at)
    if kind == "turn_context":
        return state.but(model=full_name(payload.get("model")) or state.model)
    if kind == "compacted":
        return state.forgot("compacted since the last call")
    return state


def _event(state: State, payload: Entry, at: str | None) -> State:
    kind = payload.get("type")
    if kind == "token_count":
        return _counted(state, mapping(payload.get("info")), at)
    if kind in _BEGINS:
        window = count(payload.get("model_context_window")) or state.window
        return state.begins(at).but(window=window, mark=_TELLS_TURNS)
    if kind in _ENDS:
        return state.ends(at).but(mark=_TELLS_TURNS)
    if kind == "user_message":
        # In the middle of a turn it is steering; a version that tells no turns begins one with it.
        return state.works(at) if state.mark else state.begins(at)
    return state


def _counted(state: State, info: Entry, at: str | None) -> State:
    last = mapping(info.get("last_token_usage"))
    sent, answered = count(last.get("input_tokens")), count(last.get("output_tokens"))
    total = count(last.get("total_tokens")) or sent + answered
    state = state.but(window=count(info.get("model_context_window")) or state.window)
    if not sent:
        own = "input_tokens" in last
        return state.saw(total, _ESTIMATE if own else RULE, at, estimated=own)
    cached = min(count(last.get("cached_input_tokens")), sent)
    usage = Usage(
        input_tokens=sent - cached,
        cache_read_tokens=cached,
        cache_write_tokens=count(last.get("cache_write_input_tokens")),
        output_tokens=answered,
        model=state.model,
    )
    return state.saw(total, RULE, at).but(usage=usage)


def _item(state: State, payload: Entry, at: str | None) -> State:
    kind = payload.get("type")
    if kind in _CALLS:
        name = text(payload.get("name")) or ("shell" if kind == "local_shell_call" else "")
        return state.calls_tool(text(payload.get("call_id") or payload.get("id")), name, at)
    if kind in _OUTPUTS:
        return state.answered(text(payload.get("call_id")), at)
    if kind == "message" and payload.get("role") == "assistant" and not state.mark and not state.calls:
        # It may be the last word or not: a version that tells no turns doesn't say.
        return state.but(stands="unknown", since=at)
    return state
