"""Gemini: `tmp/<project>/chats/session-*.jsonl`, one message a line; a line with the same id replaces the one before.

Occupancy is `tokens.total` of the last `gemini` message. `$set` lines with `messages` rewrite the history: where they
still hold that message, it is the same conversation going on, else it was cut. The CLI notes a tool call only once it
has ended, so that an answer with text and a call looks like the end of a turn while the tool runs.
"""

from __future__ import annotations

from mesh.models.running import Usage
from mesh.runners.transcripts.state import Entry, State, count, full_name, listed, mapping, moment, text

RULE = "total tokens of the last answer"
_RUNNING = ("scheduled", "validating", "executing", "awaiting_approval")


def fold(state: State, entry: Entry) -> State:
    """The state after one more line. `State.mark` is the state as of the last answer, to go back to."""
    at = moment(entry.get("timestamp"))
    kind = entry.get("type")
    if kind == "gemini":
        return _answer(state, entry, at)
    if kind == "user":
        return _user(state, entry, at)
    if "$set" in entry:
        return _rewritten(state, mapping(entry["$set"]))
    if "$rewindTo" in entry:
        return state.forgot("taken back since the last call").but(mark=None)
    if kind == "error":
        return state.ends(at)
    return state


def _answer(state: State, entry: Entry, at: str | None) -> State:
    model = full_name(entry.get("model")) or state.model
    state = state.but(model=model, answer=text(entry.get("id")) or None, calls=())
    state = _counted(state, mapping(entry.get("tokens")), at)
    calls = list(listed(entry.get("toolCalls")))
    for call in calls:
        if call.get("status") in _RUNNING:
            since = moment(call.get("timestamp")) or at
            state = state.calls_tool(text(call.get("id")), text(call.get("name")), since)
    if calls or not entry.get("content"):
        return state.works(at)
    return state.ends(at)


def _counted(state: State, tokens: Entry, at: str | None) -> State:
    sent, cached = count(tokens.get("input")), count(tokens.get("cached"))
    answered = count(tokens.get("output")) + count(tokens.get("thoughts"))
    total = count(tokens.get("total")) or sent + answered + count(tokens.get("tool"))
    if not total:
        return state
    used = Usage(
        input_tokens=max(sent - cached, 0), cache_read_tokens=cached, output_tokens=answered, model=state.model
    )
    state = state.saw(total, RULE, at).but(usage=used)
    return state.but(mark=(state.answer, total, at))


def _user(state: State, entry: Entry, at: str | None) -> State:
    content = entry.get("content")
    if any("functionResponse" in part for part in listed(content)):
        return state.works(at)
    return state.begins(at)


def _rewritten(state: State, changed: Entry) -> State:
    if not isinstance(changed.get("messages"), list) or state.mark is None:
        return state
    answer, total, at = state.mark
    if any(message.get("id") == answer for message in listed(changed["messages"])):
        return state.saw(total, RULE, at)
    return state.forgot("the history was rewritten since the last call")
