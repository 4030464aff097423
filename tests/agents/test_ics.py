"""iCalendar files and their recurrences, over tables of cases."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from agents import _ics
from agents._recurrence import day_of, occurrences, parse_moment, parse_rule
from mesh.errors import SkillInputError
from tests.agents.inputs import vcalendar, vevent

TODAY = date(2026, 2, 17)


BERLIN = ZoneInfo("Europe/Berlin")


def days(start: str, rule: str, first: date, last: date) -> list[date]:
    moment = parse_moment(start, UTC)
    return [day_of(found) for found in occurrences(moment, parse_rule(rule, moment), first, last)]


@pytest.mark.parametrize(
    ("start", "rule", "expected"),
    [
        ("20260210", "FREQ=DAILY;COUNT=3", ["02-10", "02-11", "02-12"]),
        ("20260210", "FREQ=DAILY;INTERVAL=10;UNTIL=20260302", ["02-10", "02-20", "03-02"]),
        ("20260210", "FREQ=DAILY;INTERVAL=10;UNTIL=20260301", ["02-10", "02-20"]),
        ("20260203", "FREQ=WEEKLY;COUNT=2", ["02-03", "02-10"]),
        # Starts on a Tuesday: the Monday of its first week is past, and isn't counted.
        ("20260203", "FREQ=WEEKLY;BYDAY=MO,TU;COUNT=4", ["02-03", "02-09", "02-10", "02-16"]),
        # RFC 5545, 3.3.10: with INTERVAL=2, the day on which a week starts decides.
        ("20260203", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", ["02-03", "02-08", "02-17", "02-22"]),
        ("20260203", "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", ["02-03", "02-15", "02-17", "03-01"]),
        # Months without a 31st are left out, and not counted.
        ("20260131", "FREQ=MONTHLY;COUNT=4", ["01-31", "03-31", "05-31", "07-31"]),
        ("20260130", "FREQ=MONTHLY;COUNT=3", ["01-30", "03-30", "04-30"]),
        ("20260115", "FREQ=MONTHLY;INTERVAL=5;BYMONTHDAY=15;UNTIL=20261231", ["01-15", "06-15", "11-15"]),
        ("20261231", "FREQ=MONTHLY", ["12-31"]),
        ("20270101", "FREQ=DAILY", []),
        ("20260201", "FREQ=DAILY;UNTIL=20260131", []),
    ],
)
def test_recurrences_of_a_year(start: str, rule: str, expected: list[str]) -> None:
    found = days(start, rule, date(2026, 1, 1), date(2026, 12, 31))
    assert [f"{day:%m-%d}" for day in found] == expected


@pytest.mark.parametrize(
    ("start", "rule", "expected"),
    [
        ("19000101", "FREQ=DAILY;INTERVAL=7", [date(2026, 2, 16)]),
        ("20240131", "FREQ=MONTHLY", []),
        ("20240216", "FREQ=MONTHLY", [date(2026, 2, 16)]),
        ("20200101", "FREQ=WEEKLY;BYDAY=FR", [date(2026, 2, 20)]),
        ("20200101", "FREQ=DAILY;COUNT=1000", []),
        ("20240229", "FREQ=MONTHLY;INTERVAL=12", []),
    ],
)
def test_a_rule_that_began_long_ago(start: str, rule: str, expected: list[date]) -> None:
    assert days(start, rule, date(2026, 2, 16), date(2026, 2, 22)) == expected


def test_a_leap_day_recurs_in_leap_years_only() -> None:
    found = days("20240229", "FREQ=MONTHLY;INTERVAL=12", date(2024, 1, 1), date(2032, 12, 31))
    assert found == [date(2024, 2, 29), date(2028, 2, 29), date(2032, 2, 29)]


@pytest.mark.parametrize("rule", ["FREQ=DAILY", "FREQ=DAILY;INTERVAL=3", "FREQ=WEEKLY;BYDAY=MO,WE,SU", "FREQ=MONTHLY"])
@pytest.mark.parametrize("start", ["20200131", "20251229", "20260217"])
def test_skipping_the_past_changes_nothing(rule: str, start: str) -> None:
    """Without COUNT, old periods are skipped; with a COUNT that is never reached, all are walked through."""
    window = (date(2022, 2, 1), date(2022, 4, 30)) if start == "20200131" else (date(2026, 2, 1), date(2026, 4, 30))
    assert days(start, rule, *window) == days(start, f"{rule};COUNT=1000", *window) != []


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("FREQ=YEARLY", "FREQ=YEARLY is not supported; DAILY, WEEKLY and MONTHLY are"),
        ("INTERVAL=2", "FREQ= is not supported"),
        ("FREQ=MONTHLY;BYDAY=1MO", "BYDAY is supported with FREQ=WEEKLY only"),
        ("FREQ=WEEKLY;BYDAY=2MO", "'2MO' is not a day of the week"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "BYMONTHDAY=-1 is not supported"),
        ("FREQ=MONTHLY;BYSETPOS=1", "'BYSETPOS' is not supported in a rule"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20260301", "COUNT and UNTIL exclude each other"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL=0 is not a number from 1 to 1000"),
        ("FREQ=DAILY;COUNT=99999999999", "COUNT=99999999999 is not a number"),
        ("FREQ=DAILY;UNTIL=tomorrow", "'TOMORROW' is not a date"),
        ("", "'' is not supported in a rule"),
    ],
)
def test_rules_half_understood_are_refused(rule: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_rule(rule, TODAY)


@pytest.mark.parametrize(
    "value", ["2026-02-17", "20260230", "20260217T250000", "00010101", "99991231", "20260217T0900"]
)
def test_dates_that_are_none(value: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(value, UTC)


def test_until_is_a_moment_for_what_has_a_time() -> None:
    start = parse_moment("20260216T090000", BERLIN)
    rule = parse_rule("FREQ=DAILY;UNTIL=20260218T080000Z", start)  # 09:00 in Berlin, to the second
    assert len(list(occurrences(start, rule, date(2026, 1, 1), date(2026, 12, 31)))) == 3
    rule = parse_rule("FREQ=DAILY;UNTIL=20260218T075959Z", start)
    assert len(list(occurrences(start, rule, date(2026, 1, 1), date(2026, 12, 31)))) == 2


def test_the_wall_clock_holds_across_summer_time() -> None:
    """Berlin goes to summer time on 29 March 2026: 00:30 there is 23:30 of the day before in UTC, then 22:30."""
    [event] = _ics.parse_events(
        vcalendar(vevent("DTSTART;TZID=Europe/Berlin:20260327T003000", "RRULE:FREQ=DAILY;COUNT=4")), "c.ics", UTC
    )
    found = _ics.expand([event], date(2026, 3, 27), date(2026, 3, 29), UTC)
    assert [f"{moment:%m-%d %H:%M}" for moment, _ in found] == ["03-27 23:30", "03-28 23:30", "03-29 22:30"]


def test_a_time_that_the_clock_skips_is_read_by_the_offset_before() -> None:
    [event] = _ics.parse_events(vcalendar(vevent("DTSTART;TZID=Europe/Berlin:20260329T023000")), "c.ics", UTC)
    [(moment, _)] = _ics.expand([event], date(2026, 3, 29), date(2026, 3, 29), UTC)
    assert moment == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def test_one_occurrence_moved_one_excluded_one_cancelled() -> None:
    text = vcalendar(
        vevent(
            "UID:u",
            "DTSTART;TZID=Europe/Berlin:20260216T090000",
            "RRULE:FREQ=DAILY;COUNT=5",
            "EXDATE;TZID=Europe/Berlin:20260217T090000",
        ),
        vevent("UID:u", "DTSTART:20260225T090000Z", "RECURRENCE-ID:20260218T080000Z", summary="moved"),
        vevent("UID:u", "DTSTART:20260219T080000Z", "RECURRENCE-ID:20260219T080000Z", "STATUS:CANCELLED"),
        vevent("UID:other", "DTSTART:20260220T080000Z", summary="other"),
    )
    found = _ics.expand(_ics.parse_events(text, "c.ics", UTC), date(2026, 2, 1), date(2026, 2, 28), UTC)
    assert sorted((f"{moment:%d}", event.summary) for moment, event in found) == [
        ("16", "S"),
        ("20", "S"),
        ("20", "other"),
        ("25", "moved"),
    ]


def test_folded_lines_escaped_text_and_parts_of_an_event() -> None:
    text = vcalendar(
        "BEGIN:VTIMEZONE\r\nTZID:X\r\nBEGIN:STANDARD\r\nDTSTART:16010101T000000\r\nRRULE:FREQ=YEARLY\r\nEND:STANDARD",
        "END:VTIMEZONE",
        vevent(
            'DTSTART;X-P="a:b;c";VALUE=DATE:20260217',
            "CATEGORIES:blog\\, long,news",
            " letter,,\\",
            "BEGIN:VALARM",
            "SUMMARY:an alarm",
            "END:VALARM",
            summary="One\\, two\\;\\n thr\r\n ee\\\\",
        ),
    )
    [event] = _ics.parse_events(text, "c.ics", UTC)
    assert event.summary == "One, two;\n three\\"
    assert event.categories == ("blog, long", "newsletter", "\\")
    assert event.start == date(2026, 2, 17)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "a calendar starts with BEGIN:VCALENDAR"),
        ("BEGIN:VEVENT\nEND:VEVENT\n", 1, "a calendar starts with BEGIN:VCALENDAR"),
        ("<html>", 1, "'<html>' is not a calendar line"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260217\n", 3, "the file ends inside VEVENT, which line 2 begins"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR\n", 3, "END:VCALENDAR doesn't match line 2"),
        ("BEGIN:VCALENDAR\nEND:VCALENDAR\nEND:VCALENDAR\n", 3, "a calendar starts with"),
        (vcalendar(vevent(vevent("DTSTART:20260217"))), 5, "an event inside VEVENT"),
        (vcalendar(vevent()), 3, "the event has no DTSTART"),
        (vcalendar(vevent("DTSTART:soon")), 5, "DTSTART: 'soon' is not a date"),
        (vcalendar(vevent("DTSTART:20260217,20260218")), 5, "DTSTART must be one date"),
        (vcalendar(vevent("DTSTART:20260217", "DTSTART:20260218")), 6, "DTSTART stands already in line 5"),
        (vcalendar(vevent("DTSTART;TZID=Mars/Olympus:20260217T090000")), 5, "unknown time zone 'Mars/Olympus'"),
        (vcalendar(vevent("DTSTART;TZID=../../etc/passwd:20260217T090000")), 5, "unknown time zone"),
        (vcalendar(vevent("DTSTART;TZID=Europe:20260217T090000")), 5, "unknown time zone 'Europe'"),
        (vcalendar(vevent("DTSTART:20260217", "RRULE:FREQ=YEARLY")), 6, "RRULE: FREQ=YEARLY is not supported"),
        (vcalendar(vevent("DTSTART:20260217", "RRULE:", " FREQ=HOURLY")), 6, "RRULE: FREQ=HOURLY is not supported"),
        (vcalendar(vevent("DTSTART:20260217", "RDATE:20260218")), 6, "RDATE is not supported"),
        (vcalendar(vevent("DTSTART:20260217", "STATUS:DONE")), 6, "STATUS is 'DONE', not one of TENTATIVE"),
    ],
)
def test_bad_calendars_are_named_with_their_line(text: str, line: int, said: str) -> None:
    with pytest.raises(SkillInputError) as error:
        _ics.parse_events(text, "knowledge/comms/calendar.ics", UTC)
    assert error.value.detail.startswith(f"knowledge/comms/calendar.ics line {line}: {said}")
    assert error.value.facts["line"] == line


@pytest.mark.timeout(10)
@pytest.mark.parametrize("line", ["X" * 1_000_000, "X" + ";A=b" * 250_000, 'X;A="' + '",",' * 250_000, "\\," * 500_000])
def test_a_huge_line_is_read_in_proportion_to_its_length(line: str) -> None:
    with pytest.raises(SkillInputError, match=r"line 5: .* is not a calendar line"):
        _ics.parse_events(vcalendar(vevent(line)), "c.ics", UTC)
