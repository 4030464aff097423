"""What is due on a tick: once, late if need be, never twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.policy import schedule

DAY = datetime(2026, 2, 17, tzinfo=UTC)
#: What the agents' sync minutes are in the example.
MINUTES = {"chief": 0, "coder": 5, "ops": 35}


def at(hour: int, minute: int, second: int = 0) -> datetime:
    return DAY + timedelta(hours=hour, minutes=minute, seconds=second)


@pytest.mark.parametrize(
    ("last", "tick", "every", "offset", "expected", "why"),
    [
        (14, 15, 15, 0, True, "the fifteenth tick is due"),
        (15, 16, 15, 0, False, "the one after is not"),
        (15, 29, 15, 0, False, "fourteen ticks later still not"),
        (15, 30, 15, 0, True, "fifteen later it is"),
        (13, 17, 15, 0, True, "missed ticks: done late"),
        (15, 75, 15, 0, True, "an hour missed: done, and this is one call, so once"),
        (15, 15, 15, 0, False, "the same tick again is no new one"),
        (15, 14, 15, 0, False, "a tick from before is none either"),
        (16, 17, 15, 2, True, "at the agent's own offset"),
        (14, 15, 15, 2, False, "and not at another's"),
        (0, 1, 1, 0, True, "every tick"),
        (0, 2, 15, 2, True, "the first due tick after the mesh began, at the offset"),
        (0, 1, 15, 2, False, "before its offset has come"),
    ],
)
def test_crossed(last: int, tick: int, every: int, offset: int, expected: bool, why: str) -> None:
    assert schedule.crossed(last, tick, every, offset) is expected, why


@given(st.integers(1, 60), st.integers(0, 59), st.integers(0, 500), st.lists(st.integers(1, 40), max_size=30))
def test_crossed_is_once_a_period_however_ticks_come(every: int, offset: int, start: int, steps: list[int]) -> None:
    """However unevenly ticks are seen, a period passes with at most one ring, and none passes without."""
    offset %= every
    tick, rings = start, 0
    for step in steps:
        rings += schedule.crossed(tick, tick + step, every, offset)
        tick += step
    due = sum((moment - offset) % every == 0 for moment in range(start + 1, tick + 1))
    assert rings <= due
    assert (rings > 0) == (due > 0)
    if all(step == 1 for step in steps):
        assert rings == due


HOUR = schedule.hour_of(at(10, 0))


@pytest.mark.parametrize(
    ("now", "minute", "last", "expected", "why"),
    [
        (at(10, 5), 5, HOUR - 1, True, "its minute of the hour has come"),
        (at(10, 4, 59), 5, HOUR - 1, False, "a second before"),
        (at(10, 40), 5, HOUR - 1, True, "the minute was missed: late, but done"),
        (at(10, 5), 5, HOUR, False, "this hour's is done"),
        (at(10, 59), 5, HOUR, False, "and stays done to the end of the hour"),
        (at(11, 0), 0, HOUR, True, "the next hour at :00"),
        (at(14, 6), 5, HOUR, True, "four hours missed: one sync"),
        (at(9, 6), 5, HOUR, False, "the clock was set back by an hour: this hour's report was written"),
        (at(8, 6), 5, HOUR, False, "or by two"),
        (at(6, 6), 5, HOUR, True, "set back further, counting starts anew"),
        (at(0, 0), 0, schedule.hour_of(at(0, 0)) - 1, True, "midnight is an hour as any"),
        (at(10, 0), 59, HOUR - 1, False, "the last minute of the hour is to come"),
        (at(10, 59), 59, HOUR - 1, True, "the last minute"),
    ],
)
def test_sync_due(now: datetime, minute: int, last: int, expected: bool, why: str) -> None:
    assert schedule.sync_due(now, minute, last) is expected, why


@pytest.mark.parametrize(
    ("start", "minute", "first", "why"),
    [
        (at(10, 5), 5, at(10, 5), "it is the minute"),
        (at(10, 6), 5, at(11, 5), "started after the minute: the next hour's, or a new mesh would sync all at once"),
        (at(10, 4), 5, at(10, 5), "the minute is to come"),
        (at(10, 0), 0, at(10, 0), "on the hour"),
    ],
)
def test_first_sync(start: datetime, minute: int, first: datetime, why: str) -> None:
    last = schedule.before_first_sync(start, minute)
    moments = (start + timedelta(minutes=ahead) for ahead in range(120))
    assert next(now for now in moments if schedule.sync_due(now, minute, last)) == first, why
    late = first + timedelta(minutes=3)  # the tick of the minute itself was missed
    assert schedule.sync_due(late, minute, last), why


def test_a_sync_that_is_done_is_not_due_again() -> None:
    """Minute for minute over two days: once an hour, in its minute, whatever the time zone of the host says."""
    last = schedule.before_first_sync(DAY, 20)
    done = []
    for minute in range(48 * 60):
        now = DAY + timedelta(minutes=minute)
        if schedule.sync_due(now, 20, last):
            last = schedule.hour_of(now)
            done.append(now)
    assert [moment.minute for moment in done] == [20] * 48
    assert len({schedule.hour_of(moment) for moment in done}) == 48


@pytest.mark.parametrize("day", [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])
def test_a_change_of_summer_time_neither_skips_nor_repeats_an_hour(day: datetime) -> None:
    zone = ZoneInfo("Europe/Berlin")
    hours = [schedule.hour_of((day + timedelta(hours=ahead)).astimezone(zone)) for ahead in range(6)]
    assert hours == list(range(hours[0], hours[0] + 6))


@pytest.mark.parametrize(
    ("now", "expected", "why"),
    [
        (at(10, 0), (at(10, 5), "coder"), "chief's minute has begun: coder's is next"),
        (at(9, 59, 59), (at(10, 0), "chief"), "a second before the hour"),
        (at(10, 5, 1), (at(10, 35), "ops"), "within coder's minute, ops is next"),
        (at(10, 36), (at(11, 0), "chief"), "after the last one, the next hour's first"),
        (at(23, 40), (at(24, 0), "chief"), "over midnight"),
    ],
)
def test_next_sync(now: datetime, expected: tuple[datetime, str], why: str) -> None:
    assert schedule.next_sync(now, MINUTES) == expected, why


@pytest.mark.parametrize(
    ("now", "expected", "why"),
    [
        (at(10, 1), "work", "an ordinary minute"),
        (at(10, 5), "sync", "coder syncs"),
        (at(10, 5, 59), "sync", "for the whole minute"),
        (at(3, 0), "maintenance", "from three o'clock, though chief syncs"),
        (at(3, 9, 59), "maintenance", "until ten past"),
        (at(3, 10), "work", "and no longer"),
        (at(2, 59), "work", "not before"),
        (at(15, 5), "sync", "in the afternoon it is no maintenance"),
    ],
)
def test_phase(now: datetime, expected: str, why: str) -> None:
    assert schedule.phase(now, MINUTES) == expected, why


def test_scheduled_events_name_the_ticks_of_the_coming_hour() -> None:
    assert schedule.scheduled_events(at(10, 1, 30), 1000, MINUTES) == [
        {"tick": 1004, "event": "coder_hourly_sync"},
        {"tick": 1034, "event": "ops_hourly_sync"},
        {"tick": 1059, "event": "chief_hourly_sync"},
    ]


@given(
    st.integers(0, 4_000_000_000),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 59)),
)
def test_every_agents_next_sync_lies_within_the_hour(second: int, minutes: dict[str, int]) -> None:
    now = datetime.fromtimestamp(second, UTC)
    events = schedule.scheduled_events(now, 500, minutes)
    assert len(events) == len(minutes)
    assert all(500 < event["tick"] <= 560 for event in events)
    if minutes:
        soonest, agent = schedule.next_sync(now, minutes)
        assert now < soonest <= now + timedelta(hours=1)
        assert soonest.minute == minutes[agent] and (soonest.second, soonest.microsecond) == (0, 0)
