"""Whatever a CLI prints: nothing raises, nothing half-written counts as a result, noise changes nothing."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mesh.runners.profile import Ended, Outcome
from mesh.runners.profiles import NAMES, profile
from tests.runners.profiles.recordings import recorded, recording

NOW = datetime(2026, 2, 16, 20, 0, tzinfo=UTC)
ALL = pytest.mark.parametrize("name", NAMES)
JSON_LINES = [name for name in NAMES if name not in ("generic", "aider", "openclaw")]

#: The keys and values that the profiles look at, so that random objects come close to real ones.
KEYS = st.sampled_from(
    "type subtype event result error message session_id sessionID thread_id id part item content role usage tokens "
    "cache text reason status stats models payloads meta agentMeta is_error errors rate_limit_info resetsAt stopReason "
    "errorMessage api_error_status modelUsage model_usage_since_last_result costUSD properties data statusCode "
    "metadata inference provider model toolCall value input output name arguments delta willRetry".split()
)
KINDS = st.sampled_from(
    "result assistant user error turn.completed turn.failed thread.started item.completed message message_end "
    "agent_end agent_start session step_start step_finish text tool_use tool_result init complete success rejected "
    "message_send toolRequest toolResponse agent_message stop tool-calls rate_limit_event".split()
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), KINDS)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
EVENTS = st.builds(
    lambda kind, rest: {**rest, "type": kind, "event": kind}, KINDS, st.dictionaries(KEYS, VALUES, max_size=6)
)
LINES = st.one_of(EVENTS.map(json.dumps), st.text(max_size=60), st.just('{"type":"res'), st.just("\x1b[31m{}\x1b[0m"))
OUTPUTS = st.one_of(
    st.text(max_size=300),
    st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "replace")),
    st.binary(max_size=300).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    st.lists(LINES, max_size=8).map("\n".join),
)
DEEP = "[" * 100_000 + '{"type":' * 50_000


def sane(outcome: Outcome) -> None:
    """What every outcome must be: fit to be written down as it is."""
    for text in (outcome.text, outcome.session or "", outcome.problem.detail if outcome.problem else ""):
        text.encode("utf-8")
    for used in (outcome.usage, outcome.session_usage):
        if used is not None:
            json.dumps(used.dump(), allow_nan=False).encode("utf-8")
    if outcome.problem is not None:
        assert outcome.problem.detail
        assert len(outcome.problem.detail) < 1_500
        assert "\n" not in outcome.problem.detail


@ALL
@given(
    status=st.one_of(st.none(), st.integers(-64, 255)),
    stdout=OUTPUTS,
    stderr=OUTPUTS,
    scratch=OUTPUTS,
    resumed=st.booleans(),
)
@example(status=0, stdout=DEEP, stderr=DEEP, scratch=DEEP, resumed=False)
@example(
    status=0, stdout='{"type":"result","result":"\\ud800","is_error":false}', stderr="\ud800", scratch="", resumed=True
)
@example(
    status=0,
    stdout='{"type":"result","usage":{"input_tokens":1e999,"output_tokens":-5}}',
    stderr="",
    scratch="",
    resumed=True,
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_nothing_raises(name: str, status: int | None, stdout: str, stderr: str, scratch: str, resumed: bool) -> None:
    found = profile(name)
    ended = Ended(status, stdout, stderr, scratch, session="s", resumed=resumed, now=NOW)
    sane(found.outcome(ended))
    told = found.progress(stdout.split("\n"))
    assert told.steps >= 0
    told.doing.encode("utf-8")
    if found.waiting is not None:
        found.waiting(ended)


@pytest.mark.parametrize(("cli", "case"), [(cli, case) for cli, case in recorded() if cli in JSON_LINES])
@given(
    noise=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["", "npm warn {x", "{", "[1]", "null", "\x1b[2K"])))
)
@settings(max_examples=15, deadline=None)
def test_noise_between_the_lines_changes_nothing(cli: str, case: str, noise: list[tuple[int, str]]) -> None:
    ended = recording(cli, case)
    clean = profile(cli).outcome(ended)
    lines = ended.stdout.split("\n")
    for at, line in noise:
        lines.insert(min(at, len(lines)), line)
    noisy = profile(cli).outcome(dataclasses.replace(ended, stdout="\n".join(lines)))
    if clean.problem is None or ended.stderr.strip():
        assert noisy == clean
    else:  # the end of what came is quoted
        assert noisy.problem is not None
        assert noisy.problem.kind == clean.problem.kind


@pytest.mark.parametrize("cli", [name for name in NAMES if name not in ("generic", "aider")])
@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=40, deadline=None)
def test_half_of_the_output_is_no_result(cli: str, share: float) -> None:
    """Cut anywhere before the end of its last line, the same output tells of no success."""
    ended = recording(cli, "talk" if cli == "openclaw" else "tool")
    whole = ended.stdout.rstrip()
    # Pi says twice that it is done: with `agent_end` and `agent_settled`.
    last = whole.rindex('{"type":"agent_end"') + 20 if cli == "pi" else len(whole)
    cut = dataclasses.replace(ended, stdout=whole[: int(share * last)])
    found = profile(cli).outcome(cut)
    assert found.problem is not None
    assert found.problem.kind == "broken"


@pytest.mark.parametrize("cli", JSON_LINES)
def test_two_events_on_one_line_and_one_behind_a_prompt(cli: str) -> None:
    ended = recording(cli, "talk")
    clean = profile(cli).outcome(ended)
    glued = dataclasses.replace(ended, stdout="\x1b[?25h> " + ended.stdout.replace("\n", ""))
    assert profile(cli).outcome(glued) == clean


def test_an_id_that_could_be_an_option_or_a_path_is_none() -> None:
    for bad in ("--dangerously-skip-permissions", "../../etc/passwd", "a b", "x" * 200, 7):
        stdout = json.dumps({"type": "thread.started", "thread_id": bad}) + '\n{"type":"turn.completed"}'
        assert profile("codex").outcome(Ended(0, stdout, "")).session is None


def test_a_line_separator_within_json_is_no_end_of_a_line() -> None:
    stdout = json.dumps({"type": "result", "subtype": "success", "result": "a\u2028b\x85c"}, ensure_ascii=False)
    assert profile("claude").outcome(Ended(0, stdout, "")).text == "a\u2028b\x85c"


def test_large_outputs_are_read_in_time() -> None:
    line = json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": "{" * 2_000}]}})
    stdout = "\n".join([line] * 2_000 + ["{" * 100_000] * 20 + ['{"type":"result","subtype":"success","result":"ok"}'])
    assert profile("claude").outcome(Ended(0, stdout, "")).text == "ok"
