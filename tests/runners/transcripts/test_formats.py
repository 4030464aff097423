"""Each format's fold over what the real CLI wrote, looked at after so many lines, and over lines that it may write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runners.transcripts.stage import CLAUDE, CODEX, GEMINI, PI, brief, lines, read_lines

AT = "2026-02-16T20:45:00.000Z"

#: After how many lines of the fixture, what stands there: tokens, turn, tool. Found by what was asked of each CLI:
#: "say hello" with a usage of 9000 + 120; a tool with 11000 + 60; and what the comments say.
REAL = [
    (CODEX, 1, (None, "unknown", None), "only the head"),
    (CODEX, 8, (None, "working", None), "asked, no call has answered"),
    (CODEX, 14, (9_120, "ended", None), "one call, one turn"),
    (CODEX, 20, (9_120, "tool", "exec_command"), "the tool has been called; its call is counted when it has answered"),
    (CODEX, 23, (9_120, "working", None), "the tool has answered"),
    (CODEX, 24, (11_060, "working", None), "the last call, not the sum of both, which is 20,180"),
    (CODEX, 29, (11_060, "ended", None), "31,240 is the thread's sum"),
    (CODEX, 36, (11_060, "tool", "exec_command"), "killed in the middle of a tool"),
    (CODEX, 46, (59_900, "ended", None), "nearly full"),
    (CODEX, 52, (6_185, "working", None), "the call that summarised"),
    (CODEX, 53, (None, "working", None), "compacted: nothing is known until Codex estimates"),
    (CODEX, 57, (6_107, "working", None), "Codex's estimate, a usage without input"),
    (CODEX, 65, (10_432, "ended", None), "the first call after it"),
    (CLAUDE, 2, (None, "unknown", None), "the prompt is only queued"),
    (CLAUDE, 3, (None, "working", None), "asked"),
    (CLAUDE, 5, (9_120, "ended", None), "answered"),
    (CLAUDE, 13, (11_060, "tool", "Bash"), "the tool has been called"),
    (CLAUDE, 14, (11_060, "working", None), "it has answered"),
    (CLAUDE, 15, (11_060, "ended", None), "and the model after it"),
    (CLAUDE, 22, (12_487, "tool", "Bash"), "killed in the middle of a tool"),
    (CLAUDE, 28, (12_487, "ended", None), "resumed: the CLI itself closes the call and answers, with a usage of 0"),
    (CLAUDE, 29, (2_650, "ended", None), "compacted by hand"),
    (CLAUDE, 36, (2_650, "ended", None), "what /compact prints is no prompt"),
    (CLAUDE, 41, (2_650, "working", None), "asked; the API refuses and is tried again"),
    (PI, 5, (None, "working", None), "asked"),
    (PI, 6, (9_120, "ended", None), "answered"),
    (PI, 8, (11_060, "tool", "bash"), "the tool has been called"),
    (PI, 10, (11_060, "ended", None), "answered"),
    (PI, 11, (11_064, "working", None), "and 14 characters of a prompt"),
    (PI, 12, (11_064, "ended", None), "refused by the API: its zeros count for nothing"),
    (PI, 14, (1_518, "tool", "bash"), "killed in the middle of a tool"),
    (GEMINI, 3, (None, "working", None), "asked"),
    (GEMINI, 5, (9_120, "ended", None), "answered"),
    (GEMINI, 8, (None, "ended", None), "resumed: first with an empty history"),
    (GEMINI, 10, (9_120, "ended", None), "then with the whole one"),
    (GEMINI, 13, (11_060, "working", None), "the tool that it calls isn't noted until it has answered"),
    (GEMINI, 15, (11_060, "working", None), "the same message again, with the call"),
    (GEMINI, 18, (11_060, "ended", None), "answered"),
    (GEMINI, 27, (12_335, "working", None), "killed in the middle of a tool"),
]


@pytest.mark.parametrize(("cli", "count", "expected", "why"), REAL, ids=[f"{row[0]}-{row[1]}" for row in REAL])
def test_real_transcripts(cli: str, count: int, expected: Any, why: str, tmp_path: Path) -> None:
    assert brief(read_lines(cli, tmp_path / "t.jsonl", lines(cli)[:count])) == expected, why


def _claude(tokens: int = 100, *parts: dict[str, Any], id: str = "m1", stop: str | None = None, **more: Any) -> Any:
    usage = {"input_tokens": 3, "cache_read_input_tokens": tokens - 10, "cache_creation_input_tokens": 5}
    message = {"id": id, "model": "claude-opus-4-5", "content": list(parts), "stop_reason": stop}
    return {
        "type": "assistant",
        "timestamp": AT,
        "message": {**message, "usage": {**usage, "output_tokens": 2}},
        **more,
    }


def _claude_user(content: Any, **more: Any) -> Any:
    return {"type": "user", "timestamp": AT, "message": {"role": "user", "content": content}, **more}


def _use(id: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def _result(id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": "x"}


_DONE = _claude(150_000, {"type": "text", "text": "done"}, stop="end_turn")
_MICRO = {"type": "system", "subtype": "microcompact_boundary", "microcompactMetadata": {"tokensSaved": 50_000}}
_STEPS = [{"type": "message", "input_tokens": tokens, "output_tokens": 10} for tokens in (90, 190)]
_ITERATED = {**_DONE, "message": {**_DONE["message"], "usage": {**_DONE["message"]["usage"], "iterations": _STEPS}}}
CLAUDE_LINES = [
    ([_DONE, _claude(7, isSidechain=True, stop="tool_use")], (150_000, "ended", None), "sub-agents don't count"),
    (
        [_claude(100, _use("a", "Task")), _claude(7, _use("s"), isSidechain=True)],
        (100, "tool", "Task"),
        "the sub-agent works, the main conversation waits for it",
    ),
    (
        [_claude(100), _claude(100, _use("a")), _claude(100, _use("b", "Read"), stop="tool_use")],
        (100, "tool", "Bash"),
        "one answer on three lines is one figure, and two open calls",
    ),
    (
        [_claude(100, _use("a")), _claude(100, _use("b", "Read")), _claude_user([_result("a")])],
        (100, "tool", "Read"),
        "parallel calls are answered one by one",
    ),
    (
        [_claude(100, _use("a")), _claude(120, id="m2")],
        (120, "working", None),
        "another answer: the result stood on a line that was passed over",
    ),
    ([_claude(100, {"type": "text", "text": "…"})], (100, "working", None), "no stop reason: it is still streaming"),
    ([_claude(100, stop="pause_turn")], (100, "working", None), "the model pauses, the CLI goes on"),
    (
        [_claude(100, _use("a")), _claude_user([{"type": "text", "text": "[Request interrupted by user]"}])],
        (100, "ended", None),
        "broken off by a person",
    ),
    ([_DONE, _claude_user("<local-command-stdout>ok</local-command-stdout>")], (150_000, "ended", None), "no prompt"),
    ([_DONE, _claude_user("Stop hook feedback: mail", isMeta=True)], (150_000, "working", None), "a hook goes on"),
    (
        [_claude(100, _use("a")), _claude_user("a hook's words", isMeta=True)],
        (100, "tool", "Bash"),
        "what a hook puts in ends no tool",
    ),
    (
        [_claude(100, _use("a")), _claude_user("and now")],
        (100, "working", None),
        "resumed after a kill: no tool answers",
    ),
    ([_DONE, _claude_user([{"type": "text", "text": "and now"}])], (150_000, "working", None), "asked again"),
    (
        [_DONE, {"type": "assistant", "timestamp": AT, "isApiErrorMessage": True, "message": {"usage": {}}}],
        (150_000, "ended", None),
        "an error of the API saw no context",
    ),
    (
        [_DONE, {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"preTokens": 155_000}}],
        (None, "ended", None),
        "compacted, and not told to what",
    ),
    (
        [
            _DONE,
            {"type": "system", "subtype": "compact_boundary"},
            _claude_user("s" * 3500, isCompactSummary=True),
        ],
        (1_000, "ended", None),
        "then the summary is estimated",
    ),
    (
        [_DONE, _MICRO],
        (100_000, "ended", None),
        "old tool results were cut",
    ),
    (
        [_ITERATED],
        (200, "ended", None),
        "several calls for one answer: the last of them",
    ),
]


@pytest.mark.parametrize(("entries", "expected", "why"), CLAUDE_LINES, ids=[row[2] for row in CLAUDE_LINES])
def test_claude(entries: list[Any], expected: Any, why: str, tmp_path: Path) -> None:
    assert brief(read_lines(CLAUDE, tmp_path / "t.jsonl", entries)) == expected


def _pi(role: str, content: Any = "", **message: Any) -> Any:
    return {"type": "message", "timestamp": AT, "message": {"role": role, "content": content, **message}}


def _usage(**usage: Any) -> Any:
    return _pi("assistant", [], provider="anthropic", model="claude-opus-4-5", usage=usage, stopReason="stop")


#: The figures of a session that an older OpenClaw wrote.
SEED = {"input": 10, "cacheRead": 5405, "cacheWrite": 6276, "output": 7595}
PI_LINES = [
    ([_usage(**SEED, totalTokens=19286)], (19_286, "ended", None), "the total"),
    ([_usage(**SEED)], (19_286, "ended", None), "no total: the sum; input alone would be 10"),
    (
        [_usage(**SEED), _pi("user", [{"type": "text", "text": "x" * 35}])],
        (19_296, "working", None),
        "later entries are estimated at 3.5 characters a token",
    ),
    (
        [_usage(**SEED), _pi("user", [{"type": "image", "data": "A" * 9000}])],
        (19_286 + 1_372, "working", None),
        "an image counts as 4,800 characters",
    ),
    (
        [_usage(**SEED), _pi("assistant", [], usage={"totalTokens": 5}, stopReason="aborted")],
        (19_286, "ended", None),
        "aborted: its usage is no context",
    ),
    (
        [_usage(**SEED), {"type": "custom_message", "content": "x" * 7}],
        (19_288, "ended", None),
        "text that an extension put in",
    ),
    (
        [_usage(**SEED), {"type": "custom", "data": {"content": "x" * 700}}],
        (19_286, "ended", None),
        "an extension's own notes are shown to nobody",
    ),
    (
        [_usage(**SEED), {"type": "compaction", "summary": "s", "tokensBefore": 19286}, _pi("user", "hi")],
        (None, "working", None),
        "after a compaction Pi knows nothing until the next call",
    ),
    (
        [
            _pi("assistant", [{"type": "toolCall", "id": "c", "name": "bash"}], usage={"totalTokens": 9}),
            _pi("user", "steer"),
        ],
        (11, "tool", "bash"),
        "a person steers while the tool runs",
    ),
]


@pytest.mark.parametrize(("entries", "expected", "why"), PI_LINES, ids=[row[2] for row in PI_LINES])
@pytest.mark.parametrize("cli", [PI, "openclaw"])
def test_pi(cli: str, entries: list[Any], expected: Any, why: str, tmp_path: Path) -> None:
    assert brief(read_lines(cli, tmp_path / "t.jsonl", entries)) == expected


def test_the_seed_has_no_newline_at_its_end(tmp_path: Path) -> None:
    head = '{"type":"session","version":3,"id":"s","cwd":"/"}\n'
    usage = '"usage":{"input":10,"output":7595,"cacheRead":5405,"cacheWrite":6276,"totalTokens":19286}'
    last = '{"type":"message","message":{"role":"assistant","content":[],"provider":"anthropic",'
    last += f'"model":"claude-sonnet-4-5",{usage},"stopReason":"stop"}}}}'
    reading = read_lines(PI, tmp_path / "t.jsonl", [head, last])
    assert reading.occupancy is not None
    assert (reading.occupancy.tokens, reading.occupancy.window) == (19_286, 200_000)
    assert reading.model == "anthropic/claude-sonnet-4-5"
    assert reading.usage is not None and reading.usage.cache_read_tokens == 5405


def _codex(kind: str, /, **payload: Any) -> Any:
    return {"timestamp": AT, "type": "event_msg", "payload": {"type": kind, **payload}}


def _item(kind: str, /, **payload: Any) -> Any:
    return {"timestamp": AT, "type": "response_item", "payload": {"type": kind, **payload}}


_COUNT = _codex("token_count", info={"last_token_usage": {"total_tokens": 10352}, "model_context_window": 60800})
_BEGUN, _OVER = _codex("task_started"), _codex("task_complete")
CODEX_LINES = [
    ([_COUNT], (10_352, "unknown", None), "a count that names its total alone"),
    ([_BEGUN, _COUNT, _codex("token_count", info=None)], (10_352, "working", None), "only limits were told"),
    ([_BEGUN, _COUNT, _codex("turn_aborted", reason="interrupted")], (10_352, "ended", None), "broken off"),
    (
        [_BEGUN, _item("custom_tool_call", name="apply_patch", call_id="c"), _COUNT],
        (10_352, "tool", "apply_patch"),
        "tools of another kind",
    ),
    (
        [_BEGUN, _COUNT, _item("function_call", name="exec_command", call_id="c"), _codex("user_message")],
        (10_352, "tool", "exec_command"),
        "a person steers while the tool runs",
    ),
    ([_BEGUN, _COUNT, _OVER, _item("function_call_output", call_id="c")], (10_352, "ended", None), "a late answer"),
    (
        [_codex("user_message"), _COUNT, _item("message", role="assistant")],
        (10_352, "unknown", None),
        "an older version that tells no turns: the last word, or not",
    ),
    (
        [_codex("user_message"), _item("function_call", name="shell", call_id="c"), _COUNT],
        (10_352, "tool", "shell"),
        "but an open call is one in every version",
    ),
]


@pytest.mark.parametrize(("entries", "expected", "why"), CODEX_LINES, ids=[row[2] for row in CODEX_LINES])
def test_codex(entries: list[Any], expected: Any, why: str, tmp_path: Path) -> None:
    assert brief(read_lines(CODEX, tmp_path / "t.jsonl", entries)) == expected


def test_codex_names_its_window_and_what_was_cached(tmp_path: Path) -> None:
    last = {"input_tokens": 9000, "cached_input_tokens": 8000, "output_tokens": 100, "total_tokens": 9100}
    count = _codex("token_count", info={"last_token_usage": last, "model_context_window": 258400})
    context = {"type": "turn_context", "payload": {"model": "gpt-5.2"}}
    reading = read_lines(CODEX, tmp_path / "t.jsonl", [context, count])
    assert reading.occupancy is not None and reading.usage is not None
    assert (reading.occupancy.window, reading.window_source) == (258_400, "the transcript")
    assert (reading.usage.input_tokens, reading.usage.cache_read_tokens) == (1000, 8000)
    assert reading.model == reading.usage.model == "openai/gpt-5.2"


def _gemini(**more: Any) -> Any:
    return {"id": "g1", "timestamp": AT, "type": "gemini", "content": "hi", "tokens": {"total": 50_000}, **more}


GEMINI_LINES = [
    ([_gemini(), _gemini(tokens={"total": 60_000})], (60_000, "ended", None), "the same message again: the last wins"),
    (
        [_gemini(toolCalls=[{"id": "c", "name": "edit", "status": "awaiting_approval"}])],
        (50_000, "tool", "edit"),
        "a tool that waits for a person",
    ),
    ([_gemini(), {"$set": {"messages": [{"id": "g1"}]}}], (50_000, "ended", None), "resumed"),
    ([_gemini(), {"$set": {"messages": [{"id": "new"}]}}], (None, "ended", None), "compressed"),
    ([_gemini(), {"$set": {"lastUpdated": AT}}], (50_000, "ended", None), "only its date"),
    ([_gemini(), {"$rewindTo": "u0"}], (None, "ended", None), "taken back"),
    (
        [_gemini(tokens={"input": 40_000, "output": 10, "thoughts": 5, "cached": 30_000})],
        (40_015, "ended", None),
        "no total: what is in the cache is part of the input",
    ),
]


@pytest.mark.parametrize(("entries", "expected", "why"), GEMINI_LINES, ids=[row[2] for row in GEMINI_LINES])
def test_gemini(entries: list[Any], expected: Any, why: str, tmp_path: Path) -> None:
    assert brief(read_lines(GEMINI, tmp_path / "t.jsonl", entries)) == expected


def test_an_estimate_says_so(tmp_path: Path) -> None:
    exact = read_lines(PI, tmp_path / "a.jsonl", [_usage(**SEED)]).occupancy
    later = read_lines(PI, tmp_path / "b.jsonl", [_usage(**SEED), _pi("user", "x" * 1200)]).occupancy
    assert exact is not None and (exact.estimated, exact.source) == (False, "pi transcript")
    assert later is not None and later.estimated and "estimate of 1,200 characters" in later.source
    assert later.at == AT
    compacted = read_lines(CLAUDE, tmp_path / "c.jsonl", lines(CLAUDE)[:29]).occupancy
    assert compacted is not None and compacted.estimated
    told = [read_lines(CODEX, tmp_path / "d.jsonl", lines(CODEX)[:count]) for count in (57, 65)]
    assert [reading.occupancy is not None and reading.occupancy.estimated for reading in told] == [True, False]
    assert "Codex's own estimate" in told[0].rule
