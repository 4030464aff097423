"""Claude Code: `projects/<folder>/UUID.jsonl`, lines of many types.

Occupancy is input + cache creation + cache read + output of the last `assistant` line of the main conversation: lines
of sub-agents (`isSidechain`) have contexts of their own. One answer may stand on several lines with one `message.id`;
the last of them counts. Lines that the CLI made up itself (`<synthetic>`) saw no model. A `compact_boundary` tells
how much was kept, without the system prompt: an estimate until the next call. The window is not told.
"""

from __future__ import annotations

from typing import Any

from mesh.models.running import Usage
from mesh.runners.transcripts.reading import estimate_tokens
from mesh.runners.transcripts.state import Entry, State, chars_of, count, full_name, listed, mapping, moment, text

RULE = "input, cache and output of the last answer in the main conversation"
_ENDS = ("end_turn", "stop_sequence", "max_tokens", "refusal", "model_context_window_exceeded")
#: What the CLI writes as the user's words although nobody is asked anything.
_NO_PROMPT = ("<local-command-", "<command-name>", "<bash-", "Caveat: ")
_INTERRUPTED = "[Request interrupted by user"
#: The value of `State.mark` while the summary of a compaction is awaited, whose size was not told.
_AWAITS_SUMMARY = "summary"


def fold(state: State, entry: Entry) -> State:
    """The state after one more line."""
    if entry.get("isSidechain"):
        return state
    kind, at = entry.get("type"), moment(entry.get("timestamp"))
    if kind == "assistant":
        return _assistant(state, entry, at)
    if kind == "user":
        return _user(state, entry, at)
    if kind == "system":
        return _system(state, entry, at)
    return state


def _assistant(state: State, entry: Entry, at: str | None) -> State:
    message = mapping(entry.get("message"))
    model = text(message.get("model"))
    if entry.get("isApiErrorMessage") or model == "<synthetic>":
        return state.ends(at)
    answer = text(message.get("id")) or None
    if answer is None or answer != state.answer:
        # What was called before this answer has been told to the model: its result stood on a line that was skipped.
        state = state.but(answer=answer, calls=())
    state = _counted(state.but(model=full_name(model) or state.model), mapping(message.get("usage")), at)
    for part in listed(message.get("content")):
        if part.get("type") == "tool_use":
            state = state.calls_tool(text(part.get("id")), text(part.get("name")), at)
    return state.ends(at) if message.get("stop_reason") in _ENDS else state.works(at)


def _counted(state: State, usage: Entry, at: str | None) -> State:
    steps = [step for step in listed(usage.get("iterations")) if step.get("type", "message") == "message"]
    last = steps[-1] if steps and _total(steps[-1]) else usage
    if not _total(last):
        return state
    counted = Usage(
        input_tokens=count(last.get("input_tokens")),
        cache_read_tokens=count(last.get("cache_read_input_tokens")),
        cache_write_tokens=count(last.get("cache_creation_input_tokens")),
        output_tokens=count(last.get("output_tokens")),
        model=state.model,
    )
    return state.saw(_total(last), RULE, at).but(usage=counted, mark=None)


def _total(usage: Entry) -> int:
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return sum(count(usage.get(key)) for key in keys)


def _user(state: State, entry: Entry, at: str | None) -> State:
    content = mapping(entry.get("message")).get("content")
    if entry.get("isCompactSummary"):
        if state.mark != _AWAITS_SUMMARY:
            return state
        size = estimate_tokens(chars_of(content))
        return state.saw(size, "estimate of the summary after a compaction", at, estimated=True).but(mark=None)
    results = [part for part in listed(content) if part.get("type") == "tool_result"]
    for part in results:
        state = state.answered(text(part.get("tool_use_id")), at)
    said = _words(content)
    if said.startswith(_INTERRUPTED):
        return state.ends(at)
    if not said or said.startswith(_NO_PROMPT):
        return state
    return state.works(at) if results or entry.get("isMeta") else state.begins(at)


def _words(content: Any) -> str:
    """How the text of a user's line begins."""
    if isinstance(content, str):
        return text(content.lstrip()[:100])
    parts = (part.get("text") for part in listed(content) if part.get("type") == "text")
    return next((text(part.lstrip()[:100]) for part in parts if isinstance(part, str)), "")


def _system(state: State, entry: Entry, at: str | None) -> State:
    kind = entry.get("subtype")
    if kind == "compact_boundary":
        kept = count(mapping(entry.get("compactMetadata")).get("postTokens"))
        state = state.forgot("compacted since the last call").but(mark=None if kept else _AWAITS_SUMMARY)
        return state.saw(kept, "Claude Code's own estimate after its compaction", at, estimated=True)
    if kind == "microcompact_boundary" and state.tokens is not None:
        saved = count(mapping(entry.get("microcompactMetadata")).get("tokensSaved"))
        return state.saw(max(state.tokens - saved, 1), RULE + ", less what was cut since", at, estimated=True)
    return state.ends(at) if kind == "turn_duration" else state
