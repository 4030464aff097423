"""What is made of what real CLIs printed. The table says it for every recording; the live tests record nothing new but
fail when a CLI prints otherwise."""

from __future__ import annotations

import dataclasses

import pytest

from mesh.runners.profile import Ended
from mesh.runners.profiles import profile
from tests.runners.profiles.recordings import recorded, recording

ANSWERS = [
    # CLI, case, the text begins with, tokens in and out of this call, steps
    ("aider", "talk", "STUB turn=4 ", 707, 19, 1),
    ("aider", "talk-2", "STUB turn=5 ", 746, 19, 1),
    ("claude", "talk", "STUB turn=2 last=hello there", 13211, 7, 1),
    ("claude", "talk-2", "STUB turn=3 last=again", 13241, 5, 1),
    ("claude", "tool", "tool said: hi", 26487, 23, 2),
    ("codex", "talk", "STUB turn=2 last=hello there", 10104, 7, 1),
    ("codex", "talk-2", "STUB turn=3 last=again", 10180, 5, 1),
    ("codex", "tool", "tool said: Chunk ID: ", 20317, 48, 2),
    ("gemini", "talk", "STUB turn=2 last=hello there", 12088, 7, 1),
    ("gemini", "talk-2", "STUB turn=3 last=again", 12115, 5, 1),
    ("gemini", "tool", "tool said: <untrusted_context>", 24301, 41, 2),
    ("goose", "nokey", "STUB turn=1 ", 4497, 19, 1),  # it asks without a key, and the stub doesn't mind
    ("goose", "talk", "STUB turn=1 ", 4499, 19, 1),
    ("goose", "talk-2", "STUB turn=2 ", 4573, 19, 1),
    ("goose", "tool", "tool said: hi", 9067, 23, 2),
    ("openclaw", "talk", "STUB turn=2 ", 13763, 19, 0),
    ("openclaw", "talk-2", "STUB turn=3 ", 13806, 19, 0),
    ("opencode", "nokey", "STUB turn=1 last=hello", 7676, 5, 1),
    ("opencode", "talk", "STUB turn=1 last=hello there", 7678, 7, 1),
    ("opencode", "talk-2", "STUB turn=2 last=again", 7702, 5, 1),
    ("opencode", "tool", "tool said: hi", 15447, 23, 2),
    ("pi", "talk", "STUB turn=1 last=hello there", 1360, 7, 1),
    ("pi", "talk-2", "STUB turn=2 last=again", 1390, 5, 1),
    ("pi", "tool", "tool said: hi", 2789, 23, 3),
]

PROBLEMS = [
    # CLI, case, exit status, kind, until, words of the detail
    ("aider", "killed", -15, "failed", None, "signal 15"),
    ("aider", "limit", -15, "limited", "", "try again in 3h 5m"),
    ("aider", "nokey", 0, "logged_out", None, "api_key client option must be set"),
    ("aider", "refused", 0, "logged_out", None, "Incorrect API key"),
    ("aider", "server", 0, "failed", None, "This model is not available"),
    ("claude", "killed", 143, "failed", None, "signal 15"),
    ("claude", "limit", 1, "limited", "2026-12-01T00:10:00.000Z", "usage limit reached"),
    ("claude", "missing", 1, "failed", None, "No conversation found with session ID"),
    ("claude", "nokey", 1, "logged_out", None, "Please run /login"),
    ("claude", "rate", 1, "limited", "", "try again in 20s"),
    ("claude", "refused", 1, "logged_out", None, "401 Incorrect API key"),
    ("claude", "server", 1, "failed", None, "400 This model is not available"),
    ("codex", "killed", -15, "failed", None, "signal 15"),
    ("codex", "limit", 1, "limited", "2026-12-01T00:10:00.000Z", "try again at Dec 1st, 2026 12:10 AM"),
    ("codex", "missing", 1, "failed", None, "no rollout found for thread id"),
    ("codex", "nokey", 1, "logged_out", None, "Missing environment variable"),
    ("codex", "rate", 1, "limited", None, "429 Too Many Requests"),
    ("codex", "refused", 1, "logged_out", None, "401 Unauthorized"),
    ("codex", "server", 1, "failed", None, "This model is not available"),
    ("gemini", "killed", 0, "broken", None, "without a `result` line"),
    ("gemini", "limit", 173, "limited", None, "exhausted your daily quota"),
    ("gemini", "missing", 42, "failed", None, "No previous sessions found"),
    ("gemini", "nokey", 41, "logged_out", None, "must specify the GEMINI_API_KEY"),
    ("gemini", "refused", 145, "logged_out", None, "Incorrect API key"),
    ("gemini", "server", 144, "failed", None, "[API Error: This model is not available"),
    ("goose", "killed", -15, "failed", None, "signal 15"),
    ("goose", "limit", 0, "limited", "", "try again in 3h 5m"),
    ("goose", "missing", 1, "failed", None, "No session found with name"),
    ("goose", "rate", 0, "limited", "", "try again in 20s"),
    ("goose", "refused", 1, "logged_out", None, "401 Unauthorized"),
    ("goose", "server", 0, "failed", None, "This model is not available"),
    ("openclaw", "limit", 1, "limited", "2026-12-01T00:59:00.000Z", "Usage limit reached"),
    ("openclaw", "refused", 1, "logged_out", None, "HTTP 401"),
    ("opencode", "killed", -15, "failed", None, "signal 15"),
    ("opencode", "limit", -15, "limited", "", "AI_APICallError: Usage limit reached"),
    ("opencode", "missing", 1, "failed", None, "Session not found"),
    ("opencode", "refused", 1, "logged_out", None, "Incorrect API key"),
    ("opencode", "server", 1, "failed", None, "This model is not available"),
    ("pi", "killed", 143, "failed", None, "signal 15"),
    ("pi", "limit", 0, "limited", "", "429: Usage limit reached, please try again in 3h 5m"),
    ("pi", "missing", 1, "failed", None, "No session found matching"),
    ("pi", "nokey", 1, "logged_out", None, "No API key found"),
    ("pi", "rate", 0, "limited", "", "try again in 20s"),
    ("pi", "refused", 0, "logged_out", None, "401: Incorrect API key"),
    ("pi", "server", 0, "failed", None, "This model is not available"),
]


def test_the_tables_are_complete() -> None:
    assert sorted((cli, case) for cli, case, *_ in [*ANSWERS, *PROBLEMS]) == recorded()


@pytest.mark.parametrize(("cli", "case", "text", "sent", "written", "steps"), ANSWERS)
def test_an_answer(cli: str, case: str, text: str, sent: int, written: int, steps: int) -> None:
    ended = recording(cli, case)
    found = profile(cli).outcome(ended)
    assert found.problem is None
    assert found.text.startswith(text)
    assert found.session
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (sent, written)
    told = profile(cli).progress(ended.stdout.split("\n"))
    assert told.steps == steps
    assert told.session in (found.session, None)


@pytest.mark.parametrize(("cli", "case", "status", "kind", "until", "words"), PROBLEMS)
def test_a_problem(cli: str, case: str, status: int, kind: str, until: str | None, words: str) -> None:
    """`until` is "" where it is told as a duration, and so depends on the hour of the recording."""
    ended = recording(cli, case)
    assert ended.status == status
    found = profile(cli).outcome(ended)
    assert found.text == ""
    assert found.problem is not None
    assert found.problem.kind == kind
    assert words in found.problem.detail
    if until == "":
        assert found.problem.until is not None
    else:
        assert found.problem.until == until


@pytest.mark.parametrize(("cli", "case"), [("codex", "talk-2"), ("goose", "talk-2")])
def test_a_sum_over_the_session_is_no_usage_of_the_call(cli: str, case: str) -> None:
    ended = recording(cli, case)
    known = profile(cli).outcome(ended)
    unknown = profile(cli).outcome(dataclasses.replace(ended, before=None))
    assert ended.before is not None
    assert known.usage is not None
    assert known.session_usage is not None
    assert unknown.usage is None
    assert unknown.session_usage == known.session_usage
    assert known.session_usage.input_tokens == (known.usage.input_tokens or 0) + (ended.before.input_tokens or 0)


def test_costs() -> None:
    first, second = (profile("claude").outcome(recording("claude", case)) for case in ("talk", "talk-2"))
    assert first.usage is not None
    assert second.usage is not None
    # `total_cost_usd` of the second holds both.
    assert second.usage.cost_usd == pytest.approx(0.053064)
    assert '"total_cost_usd":0.106' in recording("claude", "talk-2").stdout
    assert second.usage.model == "anthropic/stub-model"


def test_a_subscriptions_limit_is_told_beside_the_result() -> None:
    limit = '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1796083800}}\n'
    result = (
        '{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"You\'ve hit your limit"}'
    )
    found = profile("claude").outcome(Ended(1, limit + result, ""))
    assert found.problem is not None
    assert (found.problem.kind, found.problem.until) == ("limited", "2026-12-01T00:10:00.000Z")


def test_a_permission_that_opencode_refuses_is_said() -> None:
    stdout = '{"type":"step_finish","part":{"reason":"tool-calls"}}'
    found = profile("opencode").outcome(
        Ended(0, stdout, "! permission requested: external_directory (/etc/*); auto-rejecting")
    )
    assert found.problem is not None
    assert "external_directory (/etc/*)" in found.problem.detail


def test_another_thread_than_asked_for_is_told() -> None:
    """Codex quietly begins a new one where the name isn't known; its sum is then this call's."""
    ended = dataclasses.replace(recording("codex", "talk"), session="nonsense", resumed=True)
    found = profile("codex").outcome(ended)
    assert found.session not in (None, "nonsense")
    assert found.usage is not None


@pytest.mark.parametrize(
    ("status", "stdout", "kind"), [(0, " done\n", None), (0, "", "broken"), (1, "x", "failed"), (None, "x", "failed")]
)
def test_any_other_program(status: int | None, stdout: str, kind: str | None) -> None:
    found = profile("generic").outcome(Ended(status, stdout, ""))
    assert (found.problem.kind if found.problem else None) == kind
    assert found.text == ("done" if kind is None else "")
