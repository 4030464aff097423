"""What the words of an error mean, and what silence does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mesh.runners.profile import Ended
from mesh.runners.profiles import profile
from mesh.runners.profiles.verdict import kind_of, problem, silent

NOW = datetime(2026, 2, 16, 20, 0, tzinfo=UTC)

KINDS = [
    ("logged_out", "Failed to authenticate. API Error: 401 Incorrect API key provided"),
    ("logged_out", "Not logged in · Please run /login"),
    ("logged_out", "OAuth token has expired · Please run /login"),
    ("logged_out", "Invalid API key · Fix external API key"),
    ("logged_out", "unexpected status 401 Unauthorized: …"),
    ("logged_out", "Missing environment variable: `OPENAI_API_KEY`."),
    ("logged_out", "Your access token could not be refreshed. Please log out and sign in again."),
    ("logged_out", "No API key found for the selected model."),
    ("logged_out", "API key not valid. Please pass a valid API key."),
    ("logged_out", "When using Gemini API, you must specify the GEMINI_API_KEY environment variable."),
    ("logged_out", "Please set an Auth method in your settings.json"),
    ("logged_out", "litellm.AuthenticationError: AuthenticationError: OpenAIException"),
    ("limited", "Claude AI usage limit reached|1771275600"),
    ("limited", "You've hit your limit · resets 9pm"),
    ("limited", "You’ve hit your usage limit. Upgrade to Pro or try again in 3 days."),
    ("limited", "5-hour limit reached ∙ resets 3pm"),
    ("limited", "exceeded retry limit, last status: 429 Too Many Requests"),
    ("limited", "Quota exceeded. Check your plan and billing details."),
    ("limited", "Your credit balance is too low to access the Anthropic API."),
    ("limited", '429: {"message":"…"}'),
    ("limited", "RESOURCE_EXHAUSTED"),
    ("failed", "API Error: 529 Overloaded"),
    ("failed", "Prompt is too long: the context limit was reached"),
    ("failed", "This model's maximum context length is 128000 tokens: rate limit"),
    ("failed", "Reached max turns (429)"),
    ("failed", "connect ECONNREFUSED 127.0.0.1:4291"),
    ("failed", "took 429 ms"),
    ("failed", ""),
]


@pytest.mark.parametrize(("kind", "text"), KINDS)
def test_words(kind: str, text: str) -> None:
    assert kind_of(text) == kind


def ended(status: int | None = 0, stdout: str = "", stderr: str = "") -> Ended:
    return Ended(status, stdout, stderr, now=NOW)


def test_a_status_of_http_decides_before_words_do() -> None:
    assert kind_of("Something about quota", 401) == "logged_out"
    assert kind_of("Something", 429) == "limited"


def test_a_limit_says_when_it_ends() -> None:
    assert problem("usage limit reached, resets in 3h 5m", ended()).until == "2026-02-16T23:05:00.000Z"
    assert problem("usage limit reached", ended()).until is None
    assert problem("usage limit reached", ended(), until=1771275600).until == "2026-02-16T21:00:00.000Z"
    assert problem("the server is down, try again in 3h", ended()).until is None  # no limit of ours


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "kind", "says"),
    [
        (0, "", "", "broken", "nothing at all"),
        (0, "hm\n\nwhat?", "", "broken", "hm | what?"),
        (None, "hm", "", "broken", "hm"),
        (1, "", "Error: the disk is full", "failed", "status 1: Error: the disk is full"),
        (-15, "", "", "failed", "signal 15"),
        (137, "", "", "failed", "signal 9"),
        (1, "", "Please run /login", "logged_out", "/login"),
        (1, "", "usage limit reached, resets 9pm", "limited", "9pm"),
    ],
)
def test_silence(status: int | None, stdout: str, stderr: str, kind: str, says: str) -> None:
    found = silent(ended(status, stdout, stderr), "a result")
    assert found.kind == kind
    assert says in found.detail


def test_no_secret_gets_into_a_detail() -> None:
    key = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"
    said = f"401 for {key}, Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.abc.def and AIzaSyA1234567890abcdefghijk"
    detail = problem(said, ended()).detail
    assert key not in detail
    assert "eyJ" not in detail
    assert "AIzaSy" not in detail
    assert detail.count("[secret]") == 3


def test_details_are_one_bounded_line() -> None:
    detail = problem("\x1b[31mbad\x1b[0m\n" + "x" * 10_000 + "\nthe end", ended()).detail
    assert len(detail) <= 600
    assert detail.startswith("bad x")
    assert detail.endswith("the end")
    assert "\n" not in detail


WAITS = [
    (
        "aider",
        "stdout",
        "litellm.RateLimitError: {}\nThe API provider has rate limited you.\nRetrying in 8.0 seconds...\n",
    ),
    ("opencode", "stderr", 'level=ERROR message="stream error" error.error="AI_APICallError: Rate limit: {}"\n'),
    (
        "gemini",
        "stderr",
        "Attempt 1 failed with status 429. Retrying with backoff... _ApiError: {}\n    at throwError\n",
    ),
]


@pytest.mark.parametrize(("cli", "stream", "line"), WAITS)
def test_a_call_that_only_waits(cli: str, stream: str, line: str) -> None:
    waiting = profile(cli).waiting
    assert waiting is not None

    def told(text: str) -> str | None:
        found = waiting(ended(None, **{stream: text}))
        return found.until if found else "goes on"

    assert told(line.format("try again in 3h")) == "2026-02-16T23:00:00.000Z"
    assert told(line.format("try again in 20s")) == "goes on"  # it may wait so long by itself
    assert told(line.format("rate limit, try later")) == "goes on"  # the first attempts are its own business
    assert told(line.format("rate limit, try later") * 5) is None
    assert told("all is well\n") == "goes on"


def test_the_others_give_up_by_themselves() -> None:
    assert [name for name in ("claude", "codex", "pi", "goose", "openclaw", "generic") if profile(name).waiting] == []
