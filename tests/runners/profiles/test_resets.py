"""When a limit ends, in the many ways in which CLIs say it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.clock import iso
from mesh.runners.profiles.resets import FUTURE_DAYS_MAX, resets_at

#: A Monday, eight in the evening.
NOW = datetime(2026, 2, 16, 20, 0, tzinfo=UTC)

SAID = [
    # seconds since 1970
    ("Claude AI usage limit reached|1771275600", "2026-02-16T21:00"),
    ('{"type":"usage_limit_reached","resets_at":1771275600}', "2026-02-16T21:00"),
    ('"resetsAt": 1771275600123', "2026-02-16T21:00"),
    # moments
    ("Your limit resets at 2026-02-17T10:00:00Z.", "2026-02-17T10:00"),
    ("try again at 2026-02-17 10:00+01:00", "2026-02-17T09:00"),
    # times of day
    ("You've hit your limit · resets 9:20pm (UTC)", "2026-02-16T21:20"),
    ("Your limit will reset at 7pm (America/Chicago).", "2026-02-17T01:00"),
    ("resets 9pm (America/New_York)", "2026-02-17T02:00"),
    ("resets 6am (Europe/Berlin)", "2026-02-17T05:00"),
    ("resets 11pm PST", "2026-02-17T07:00"),
    ("resets 19:55 (UTC)", "2026-02-16T19:55"),  # just passed
    ("resets 19:45 (UTC)", "2026-02-17T19:45"),
    ("resets 12am", "2026-02-17T00:00"),
    ("resets 12pm", "2026-02-17T12:00"),
    ("or try again at 1:53 AM.", "2026-02-17T01:53"),
    # with a day
    ("You’ve hit your usage limit. … or try again at Feb 17th, 2026 1:53 AM.", "2026-02-17T01:53"),
    ("Weekly limit reached · resets Feb 18 at 9:20pm (UTC)", "2026-02-18T21:20"),
    ("resets Feb 18, 1am (Asia/Tokyo)", "2026-02-17T16:00"),
    ("resets Mar 1, 9am", "2026-03-01T09:00"),
    ("resets Mon 9am (UTC)", "2026-02-23T09:00"),
    ("resets Monday 11pm", "2026-02-16T23:00"),
    ("resets Wednesday at 9:00 AM (Europe/Berlin)", "2026-02-18T08:00"),
    # durations
    ("resets in 3h 5m", "2026-02-16T23:05"),
    ("Try again in 5 days 3 hours 2 minutes.", "2026-02-21T23:02"),
    ("Please try again in 20s.", "2026-02-16T20:00"),
    ("Please try again in 1h2m3.5s", "2026-02-16T21:02"),
    ("Your quota will reset after 12h34m56s.", "2026-02-17T08:34"),
    ('"retryDelay": "3600s"', "2026-02-16T21:00"),
    ("retry-after: 7200", "2026-02-16T22:00"),
    ("Please wait 45 minutes", "2026-02-16T20:45"),
    ("try again in about 2 hours and 5 minutes", "2026-02-16T22:05"),
    ("try again in 1 week", "2026-02-23T20:00"),
]

NOTHING = [
    "Please try again later.",
    "try again in a moment",
    "try again in 7 turns",
    "2026-02-16T19:00:00Z ERROR rate limit",  # a log line's own time
    "resets_at: 1500000000",  # long ago
    "resets at 2031-01-01T00:00:00Z",  # nobody is parked for years
    "resets 25:00",
    "resets 13pm",
    "resets Feb 31, 9am",
    "try again in 99999 weeks",
    "resets 9",
    "",
]


@pytest.mark.parametrize(("text", "expected"), SAID)
def test_it_is_read(text: str, expected: str) -> None:
    found = resets_at(text, NOW)
    assert found is not None
    assert iso(found)[:16] == expected


@pytest.mark.parametrize("text", NOTHING)
def test_what_says_no_time_gives_none(text: str) -> None:
    assert resets_at(text, NOW) is None


def test_a_time_without_zone_is_the_clis_own() -> None:
    here = NOW.astimezone(ZoneInfo("America/New_York"))  # three in the afternoon
    found = resets_at("resets 9pm", here)
    assert found is not None
    assert iso(found) == "2026-02-17T02:00:00.000Z"


def test_summer_time_begins_in_between() -> None:
    before = datetime(2026, 3, 28, 22, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    found = resets_at("resets 9am", before)
    assert found is not None
    assert iso(found) == "2026-03-29T07:00:00.000Z"


def test_in_december_january_is_next_years() -> None:
    found = resets_at("resets Jan 2, 9am", datetime(2026, 12, 30, tzinfo=UTC))
    assert found is not None
    assert iso(found) == "2027-01-02T09:00:00.000Z"


def test_without_a_clock_only_moments_are_read() -> None:
    assert resets_at("resets in 3h", None) is None
    assert resets_at("resets 9pm (UTC)", None) is None
    assert resets_at("limit reached|1771275600", None) is not None


WORDS = st.sampled_from(
    [
        "resets",
        "try again",
        " at ",
        " in ",
        "retry-after: ",
        "9",
        "pm",
        "Feb 30",
        "9:99",
        "(X/Y)",
        "|1",
        "7" * 12,
        "h ",
        "d",
    ]
)


@given(
    st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=12).map("".join)),
    st.datetimes(NOW.replace(year=2000, tzinfo=None), NOW.replace(year=2200, tzinfo=None)),
    st.integers(-14, 14),
)
def test_it_never_raises_and_never_parks_for_long(text: str, now: datetime, hours: int) -> None:
    aware = now.replace(tzinfo=timezone(timedelta(hours=hours)))
    found = resets_at(text, aware)
    if found is not None:
        assert timedelta(hours=-1) < found - aware <= timedelta(days=FUTURE_DAYS_MAX)
