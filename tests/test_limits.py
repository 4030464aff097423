"""Limits: each has a unit and a reason, can be overridden, and none may contradict another."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from mesh.limits import DEFAULT, Limits

UNITS = {
    "_s": "s",
    "_min": "min",
    "_ticks": "ticks",
    "_mb": "MB",
    "_days": "days",
    "_ratio": "ratio",
    "_tokens": "tokens",
    "_bytes_max": "bytes",
}
FIELDS = sorted(Limits.model_fields)


@pytest.mark.parametrize("name", FIELDS)
def test_each_says_its_unit_and_why(name: str) -> None:
    field = Limits.model_fields[name]
    extra = field.json_schema_extra
    assert isinstance(extra, dict) and re.fullmatch(r"[A-Za-z/]+", str(extra["unit"]))
    assert field.description and len(field.description) > 10, "a reason in words"
    ending = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), None)
    if ending is not None:
        assert extra["unit"] == ending, "the name and the unit say the same"


@pytest.mark.parametrize("name", FIELDS)
def test_each_can_be_overridden_by_its_camel_case_name(name: str) -> None:
    key, value = to_camel(name), getattr(DEFAULT, name)
    near = {None: 3}.get(value, value)
    changed = DEFAULT.with_overrides({key: near})
    assert getattr(changed, name) == near
    with pytest.raises(ValidationError):
        DEFAULT.with_overrides({key: -1})
    with pytest.raises(ValidationError):
        DEFAULT.with_overrides({key: "lots"})
    with pytest.raises(ValidationError):
        DEFAULT.with_overrides({key: float("nan")})


def test_overriding_changes_nothing_else() -> None:
    changed = DEFAULT.with_overrides({"pingTimeoutS": 2.5})
    assert changed.ping_timeout_s == 2.5 and DEFAULT.ping_timeout_s == 5.0
    assert {**changed.model_dump(), "ping_timeout_s": 5.0} == DEFAULT.model_dump()
    assert DEFAULT.with_overrides({}) is DEFAULT


def test_limits_in_force_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        DEFAULT.ping_timeout_s = 1.0  # type: ignore[misc]


CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"contextWarnRatio": 0.9}, "contextWarnRatio < contextCompressRatio < contextCriticalRatio"),
    ({"contextCompressRatio": 0.96}, "contextWarnRatio < contextCompressRatio < contextCriticalRatio"),
    ({"contextCriticalRatio": 0.85}, "contextWarnRatio < contextCompressRatio < contextCriticalRatio"),
    ({"staleAfterS": 60}, "staleAfterS (60) must be below offlineAfterS (60)"),
    ({"offlineAfterS": 9}, "staleAfterS (10) must be below offlineAfterS (9)"),
    ({"beatIntervalS": 6}, "at least twice beatIntervalS (6)"),
    ({"resultBytesMax": 20_000, "messageBytesMax": 1_000}, "resultBytesMax must not exceed ten times"),
]


@pytest.mark.parametrize(("overrides", "reason"), CONTRADICTIONS)
def test_contradictions_are_refused(overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        DEFAULT.with_overrides(overrides)


def test_an_unknown_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="pingTimeoutMs"):
        DEFAULT.with_overrides({"pingTimeoutMs": 5})


def test_rows_tell_the_default_and_the_value_in_force() -> None:
    rows = {row["name"]: row for row in DEFAULT.with_overrides({"messagesPerMinute": 7}).rows()}
    assert set(rows) == {to_camel(name) for name in FIELDS}
    assert rows["messagesPerMinute"] == {
        "name": "messagesPerMinute",
        "unit": "count/min",
        "default": 10,
        "value": 7,
        "reason": "the mailbox document's rate, per sender and recipient; null lifts it",
    }
    assert all(row["value"] == row["default"] for name, row in rows.items() if name != "messagesPerMinute")


def test_the_documents_figures_are_the_defaults() -> None:
    figures = {row["name"]: row["default"] for row in DEFAULT.rows()}
    protocol = {"pingEveryTicks": 15, "pingTimeoutS": 5.0, "pingRetries": 3, "lockWaitS": 5.0, "taskAttemptsMax": 3}
    protocol |= {"contextLimitTokens": 180_000, "contextWarnRatio": 0.70, "contextCompressRatio": 0.85}
    protocol |= {"contextCriticalRatio": 0.95, "activityMaxMin": 120, "taskStuckMin": 180, "idleSyncMin": 30}
    contract = {"messagesPerMinute": 10, "inboxWaitingMax": 100, "messageBytesMax": 1_000_000, "maxRunning": None}
    issue = {"diskFreeMinMb": 500, "restartsMax": 3, "restartsWindowS": 60}
    expected = protocol | contract | issue
    assert {name: figures[name] for name in expected} == expected


def test_only_the_documented_spelling_counts() -> None:
    """An override under another spelling would be taken in, and then not be in force."""
    with pytest.raises(ValidationError, match="ping_timeout_s"):
        DEFAULT.with_overrides({"ping_timeout_s": 2.5})
