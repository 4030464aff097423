"""Whatever lies in a file, reading never raises; and into however many looks it is cut, they come to the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.runners.transcripts import claude, codex, gemini, open_transcript, pi
from mesh.runners.transcripts.state import State, parse
from tests.runners.transcripts.stage import SESSIONS, lines, read

FOLDS = {"codex": codex.fold, "claude": claude.fold, "pi": pi.fold, "gemini": gemini.fold}
#: Words that the folds look for, so that invented lines reach into them.
WORDS = st.sampled_from(
    "type message payload info usage role content id name stopReason stop_reason timestamp tokens total toolCalls "
    "last_token_usage total_tokens input_tokens totalTokens model provider assistant user system toolResult tool_use "
    "tool_result event_msg response_item token_count task_started task_complete function_call compacted compaction "
    "$set messages gemini isSidechain isMeta isCompactSummary subtype compact_boundary compactMetadata postTokens "
    "iterations toolCall call_id tool_use_id text status executing custom_message branch_summary summary cost".split()
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=6
)
FAST = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.mark.parametrize("cli", FOLDS)
@given(entries=st.lists(st.dictionaries(WORDS, VALUES, min_size=1, max_size=4), max_size=3))
@FAST
def test_no_shape_of_a_line_raises(cli: str, entries: list[dict[str, Any]]) -> None:
    state = State()
    for entry in entries:
        state = FOLDS[cli](state, entry)
        reading = state.reading(cli, {})
        if reading.occupancy is not None:
            assert reading.occupancy.tokens > 0
            json.dumps(reading.occupancy.dump(), ensure_ascii=False).encode()


@pytest.mark.parametrize("cli", FOLDS)
@given(data=st.data())
@FAST
def test_real_lines_with_anything_put_into_them_never_raise(cli: str, data: st.DataObject) -> None:
    state = State()
    for line in data.draw(st.lists(st.sampled_from(lines(cli)), max_size=8)):
        entry = dict(parse(line) or {})
        inner: Any = entry
        for _ in range(data.draw(st.integers(0, 4))):  # some way down, then one value is another
            key = data.draw(st.sampled_from(sorted(inner)))
            if not isinstance(inner[key], dict) or not inner[key]:
                inner[key] = data.draw(VALUES)
                break
            inner = inner[key]
        state = FOLDS[cli](state, entry)
    state.reading(cli, {})


@pytest.mark.parametrize("cli", FOLDS)
@given(data=st.binary(max_size=400), whole=st.integers(0, 30))
@FAST
def test_no_bytes_raise(cli: str, data: bytes, whole: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    real = "".join(lines(cli)[:whole]).encode()
    path.write_bytes(real + data + real[: len(data)] + data)
    read(cli, path)


@pytest.mark.parametrize("cli", FOLDS)
@given(cuts=st.lists(st.integers(0, 40_000), max_size=12), junk=st.binary(max_size=60))
@FAST
def test_any_split_into_looks_comes_to_the_same(cli: str, cuts: list[int], junk: bytes, tmp_path: Path) -> None:
    content = "".join(lines(cli)[:-1]).encode() + junk + b"\n" + lines(cli)[-1].encode()
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    once = read(cli, path)
    path.write_bytes(b"")
    transcript = open_transcript(cli, str(path), SESSIONS[cli])
    assert transcript is not None
    begin = 0
    for end in [*sorted(min(cut, len(content)) for cut in cuts), len(content)]:
        with path.open("ab") as file:
            file.write(content[begin:end])
        begin = end
        several = transcript.read()
    assert several == once


@pytest.mark.parametrize("cli", FOLDS)
def test_a_look_at_each_byte_comes_to_the_same_as_one_at_each_line(cli: str, tmp_path: Path) -> None:
    """The half-written last line never counts early, and never twice."""
    path, content = tmp_path / "t.jsonl", "".join(lines(cli)[-6:]).encode()
    path.touch()
    transcript = open_transcript(cli, str(path), "")
    assert transcript is not None
    state, line = State(), b""
    for place in range(len(content)):
        with path.open("ab") as file:
            file.write(content[place : place + 1])
        line += content[place : place + 1]
        whole = parse(line) if line.endswith(b"}") else None
        seen = FOLDS[cli](state, whole) if whole else state
        if line.endswith(b"\n"):
            entry = parse(line)
            assert entry is not None
            state, line = FOLDS[cli](state, entry), b""
            seen = state
        reading = transcript.read()
        assert (reading.turn, reading.usage, reading.model) == (seen.turn(), seen.usage, seen.model)
