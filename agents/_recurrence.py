"""Recurring days of a calendar: the part of RFC 5545's RRULE that content calendars use.

FREQ=DAILY, WEEKLY (with BYDAY) and MONTHLY (on the day of the month on which it starts), with INTERVAL, COUNT,
UNTIL and WKST. Anything else is refused by name: a rule half understood would invent or lose entries. Times recur
on the wall clock of the event's own zone, so that 09:00 stays 09:00 across a change to summer time.
"""

from __future__ import annotations

import calendar
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

#: A whole day, or a moment with its zone.
Moment = date | datetime

_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_PARTS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "WKST")
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z?))?", re.ASCII)
#: Years outside are slips of the keyboard; the bound also keeps arithmetic with dates from overflowing.
_YEARS = range(1900, 2201)
_NUMBER_MAX = 1000


@dataclass(frozen=True)
class Rule:
    """An RRULE. `weekdays` (0 is Monday) is empty where the rule names none; COUNT is 0 where it isn't set."""

    frequency: str
    interval: int = 1
    count: int = 0
    until: Moment | None = None
    weekdays: tuple[int, ...] = ()
    week_start: int = 0


def parse_moment(value: str, zone: tzinfo) -> Moment:
    """RFC 5545's DATE or DATE-TIME; one without `Z` is in `zone`. Raises ValueError."""
    match = _MOMENT.fullmatch(value)
    if not match:
        raise ValueError(f"{value[:40]!r} is not a date such as 20260217 or 20260217T090000Z")
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    if year not in _YEARS:
        raise ValueError(f"the year {year} is not from {_YEARS[0]} to {_YEARS[-1]}")
    if match[4] is None:
        return date(year, month, day)
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC if match[7] else zone)


def day_of(moment: Moment) -> date:
    """The day, by the moment's own zone."""
    return moment.date() if isinstance(moment, datetime) else moment


def parse_rule(value: str, start: Moment) -> Rule:
    """The rule of an event that starts at `start`. Raises ValueError with the part that can't be followed."""
    parts = dict(_part(text) for text in value.upper().rstrip(";").split(";"))
    frequency = parts.get("FREQ", "")
    if frequency not in ("DAILY", "WEEKLY", "MONTHLY"):
        raise ValueError(f"FREQ={frequency} is not supported; DAILY, WEEKLY and MONTHLY are")
    if "BYDAY" in parts and frequency != "WEEKLY":
        raise ValueError(f"BYDAY is supported with FREQ=WEEKLY only, not with {frequency}")
    # Some programs write the day on which the event starts anyway; only another day would change its meaning.
    if "BYMONTHDAY" in parts and (frequency, parts["BYMONTHDAY"]) != ("MONTHLY", str(day_of(start).day)):
        raise ValueError(f"BYMONTHDAY={parts['BYMONTHDAY']} is not supported; the day on which the event starts is")
    if "COUNT" in parts and "UNTIL" in parts:
        raise ValueError("COUNT and UNTIL exclude each other")
    return Rule(
        frequency=frequency,
        interval=_number(parts, "INTERVAL", 1),
        count=_number(parts, "COUNT", 0),
        until=parse_moment(parts["UNTIL"], _zone_of(start)) if "UNTIL" in parts else None,
        weekdays=tuple(sorted({_weekday(name) for name in parts["BYDAY"].split(",")})) if "BYDAY" in parts else (),
        week_start=_weekday(parts.get("WKST", "MO")),
    )


def _part(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if name not in _PARTS:
        raise ValueError(f"{name[:40]!r} is not supported in a rule; {', '.join(_PARTS)} are")
    return name, value


def _number(parts: dict[str, str], name: str, default: int) -> int:
    value = parts.get(name)
    if value is None:
        return default
    if not re.fullmatch(r"\d{1,4}", value, re.ASCII) or not 1 <= int(value) <= _NUMBER_MAX:
        raise ValueError(f"{name}={value[:40]} is not a number from 1 to {_NUMBER_MAX}")
    return int(value)


def _weekday(name: str) -> int:
    if name not in _WEEKDAYS:
        raise ValueError(f"{name[:40]!r} is not a day of the week that is supported; {', '.join(_WEEKDAYS)} are")
    return _WEEKDAYS.index(name)


def _zone_of(moment: Moment) -> tzinfo:
    return (moment.tzinfo if isinstance(moment, datetime) else None) or UTC


def occurrences(start: Moment, rule: Rule, first: date, last: date) -> Iterator[Moment]:
    """When the event recurs from `first` to `last` (days in its own zone, both included), in order."""
    begin, seen = day_of(start), 0
    # What is counted must be counted from the start; otherwise years of the past are skipped in one step.
    for number in itertools.count(0 if rule.count else _periods_before(begin, rule, first)):
        period, days = _period(begin, rule, number)
        if period > last:
            return
        for day in days:
            if day < begin:
                continue
            moment = datetime.combine(day, start.timetz()) if isinstance(start, datetime) else day
            seen += 1
            if _after(moment, rule.until) or (rule.count and seen > rule.count):
                return
            if first <= day <= last:
                yield moment


def _period(begin: date, rule: Rule, number: int) -> tuple[date, list[date]]:
    """The first day of the rule's period of that number, and the days in it on which the event recurs."""
    step = number * rule.interval
    if rule.frequency == "DAILY":
        day = begin + timedelta(days=step)
        return day, [day]
    if rule.frequency == "WEEKLY":
        week = begin - timedelta(days=(begin.weekday() - rule.week_start) % 7) + timedelta(weeks=step)
        weekdays = rule.weekdays or (begin.weekday(),)
        return week, sorted(week + timedelta(days=(weekday - rule.week_start) % 7) for weekday in weekdays)
    years, month = divmod(begin.month - 1 + step, 12)
    month_start = date(begin.year + years, month + 1, 1)
    # A month without that day is left out (RFC 5545, 3.3.10), not moved to its last day.
    exists = begin.day <= calendar.monthrange(month_start.year, month_start.month)[1]
    return month_start, [month_start.replace(day=begin.day)] if exists else []


def _periods_before(begin: date, rule: Rule, first: date) -> int:
    """A number of periods that certainly lie before `first`."""
    if rule.frequency == "MONTHLY":
        units = (first.year - begin.year) * 12 + first.month - begin.month
    else:
        units = (first - begin).days // (7 if rule.frequency == "WEEKLY" else 1)
    return max(0, units // rule.interval - 1)


def _after(moment: Moment, until: Moment | None) -> bool:
    if until is None:
        return False
    if isinstance(moment, datetime) and isinstance(until, datetime):
        return moment.astimezone(UTC) > until.astimezone(UTC)
    return day_of(moment) > day_of(until)
