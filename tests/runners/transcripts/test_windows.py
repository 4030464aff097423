"""How large the window of a model is, by the registry and by the table."""

from __future__ import annotations

import pytest

from mesh.models.windows import find_window

#: Model, the registry's windows, tokens seen, window or None, who says so.
WINDOWS = [
    ("anthropic/claude-opus-4-5", {}, 0, 200_000, "the table"),
    ("claude-opus-4-5-20251101", {}, 0, 200_000, "the table"),
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", {}, 0, 200_000, "the table"),
    ("anthropic/claude-sonnet-4.5", {}, 250_000, 1_000_000, "sold with two: the one it fits into"),
    ("claude-3-5-sonnet-20241022", {}, 0, 200_000, "the table"),
    ("claude-opus-4-1-20250805", {}, 0, 200_000, "the table"),
    ("claude-opus-4-6", {}, 199_999, 200_000, "the CLI's own default"),
    ("claude-opus-4-6[1m]", {}, 0, 1_000_000, "its name"),
    ("claude-opus-4-7", {}, 0, 1_000_000, "the table"),
    ("claude-opus-5-5", {}, 0, 1_000_000, "the table"),
    ("claude-haiku-4-5", {}, 0, 200_000, "the table"),
    ("openai/gpt-5", {}, 0, 272_000, "what Codex may send"),
    ("gpt-5.1-codex-max", {}, 300_000, 400_000, "all that the model holds"),
    ("gpt-4.1-mini", {}, 0, 1_047_576, "the table"),
    ("gpt-4o-2024-08-06", {}, 0, 128_000, "the table"),
    ("openai/o4-mini", {}, 0, 200_000, "the table"),
    ("google/gemini-2.5-pro", {}, 0, 1_048_576, "the table"),
    ("groq/openai/gpt-oss-120b", {}, 0, 131_072, "the table"),
    ("openrouter/moonshotai/kimi-k2.6", {}, 0, 262_144, "the table"),
    ("claude-haiku-4-5", {}, 201_000, None, "it holds more than the table says: the table is wrong"),
    ("stub/stub-model", {}, 0, None, "nobody knows it"),
    ("foo3-large", {}, 0, None, "o3 is no part of another word"),
    (None, {}, 0, None, "no model"),
    ("anthropic/claude-opus-4-5", {"anthropic/claude-opus-4-5": 90_000}, 0, 90_000, "the registry beats the table"),
    ("claude-opus-4-5", {"anthropic/claude-opus-4-5": 90_000}, 0, 90_000, "the CLI names no provider"),
    ("anthropic/claude-opus-4-5", {"claude-opus-4-5": 90_000}, 0, 90_000, "the registry names none"),
    ("vertex/claude-opus-4-5", {"anthropic/claude-opus-4-5": 90_000}, 0, 200_000, "another provider's"),
    ("m", {"a/m": 1_000, "b/m": 2_000}, 0, None, "two that differ"),
    ("m", {"a/m": 1_000, "b/m": 1_000}, 0, 1_000, "two that agree"),
    ("a/m", {"a/m": 1_000}, 5_000, 1_000, "the registry is believed even so"),
]


@pytest.mark.parametrize(("model", "windows", "tokens", "expected", "why"), WINDOWS)
def test_windows(model: str | None, windows: dict[str, int], tokens: int, expected: int | None, why: str) -> None:
    found = find_window(model, windows, tokens)
    assert (found.tokens if found else None) == expected, why
    if found is not None:
        assert ("registry" in found.source) == (expected in windows.values())
