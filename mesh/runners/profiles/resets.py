"""When a usage limit ends, read from a CLI's own words. Pure: the moment at which they were said is an argument.

CLIs say it in many ways: as seconds since 1970 (`limit reached|1760000000`, `"resets_at": 1760000000`), as a moment
(`2026-02-16T20:45:00Z`), as a time of day with or without day and zone (`resets 9:20pm (UTC)`, `try again at Dec 1st,
2026 1:53 AM`, `resets Mon 9am`), or as a duration (`resets in 3h 5m`, `retry in 35.5s`, `try again in 5 days 2 hours`).
A time without a zone is meant in the zone that the CLI ran in, which is that of the moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from mesh.clock import parse

#: Nobody is parked for longer by a text; what lies further off was misread.
FUTURE_DAYS_MAX = 62
#: A time of day that has just passed means now, not tomorrow.
_PASSED = timedelta(minutes=10)
_TEXT_CHARACTERS_MAX = 4_000

_EPOCH = re.compile(r"(?:\||reset[a-z]*[_ ]?(?:at|time)?[\"']?\s*[:=]?\s*)(1[0-9]{9}(?:[0-9]{3})?)(?![0-9])", re.I)
_MOMENT = re.compile(
    r"20[0-9]{2}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9](?::[0-9.]+)?(?:Z|[+-][0-2][0-9]:?[0-9]{2})?"
)
#: A time counts only after one of these: any other may be of a log line.
_LEAD = re.compile(
    r"(?:resets?|resetting|renews?|refresh(?:es)?|available|(?:try|trying) (?:it )?again|retry(?:ing)?|wait|back)"
    r"(?:[_ -]?(?:after|delay|at|in|on|until|for|by))*[\"']?\s*[:=]?\s*[\"']?"
    r"(?:about |approximately |around |another )?",
    re.I,
)
_UNITS = {
    "ms": 0.001, "msec": 0.001, "millisecond": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hr": 3600, "hour": 3600, "d": 86_400, "day": 86_400, "w": 604_800, "week": 604_800,
}  # fmt: skip
_PIECE = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,9})?)\s*([a-z]{1,12})(?![a-z])(?:\s*,?\s*(?:and\s+)?)", re.I)
_BARE_SECONDS = re.compile(r"([0-9]{1,7})(?![0-9:.a-z]|\s*[a-z]|\s*/)", re.I)
_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_DAYS = {name: number for number, name in enumerate("mon tue wed thu fri sat sun".split())}
_TIME_OF_DAY = re.compile(
    r"(?:on )?"
    r"(?:(?P<weekday>mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+(?:at )?)?"
    r"(?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"
    r"(?:,?\s+(?P<year>20[0-9]{2}))?,?\s+(?:at )?)?"
    r"(?P<hour>[0-2]?[0-9])(?::(?P<minute>[0-5][0-9]))?(?::[0-5][0-9])?\s*(?P<half>[ap]\.?m\b\.?)?"
    r"(?:\s*\(?(?P<zone>[A-Za-z]{1,12}(?:[/_+-][A-Za-z0-9_+-]{1,24}){0,3})\)?)?",
    re.I,
)
_ZONES = {"utc": 0, "gmt": 0, "z": 0, "bst": 1, "cet": 1, "cest": 2, "est": -5, "edt": -4, "cst": -6, "cdt": -5}
_ZONES |= {"mst": -7, "mdt": -6, "pst": -8, "pdt": -7}


def resets_at(text: str, now: datetime | None) -> datetime | None:
    """The first moment at which the text says that a limit ends, in UTC; None if it says none that can be. `now` has a
    time zone; without it only moments that stand by themselves are read."""
    text = text[:_TEXT_CHARACTERS_MAX]
    for found in _candidates(text, now):
        if now is None or -_PASSED <= found - now <= timedelta(days=FUTURE_DAYS_MAX):
            return found.astimezone(UTC)
    return None


def _candidates(text: str, now: datetime | None) -> Iterator[datetime]:
    for match in _EPOCH.finditer(text):
        number = int(match.group(1))
        yield datetime.fromtimestamp(number / 1000 if number >= 10**12 else number, UTC)
    for lead in _LEAD.finditer(text):
        at = lead.end()
        if moment := _MOMENT.match(text, at):
            if (read := _moment(moment.group())) is not None:
                yield read
        elif now is not None and (span := _duration(text, at)) is not None:
            yield now + span
        elif now is not None and (read := _time_of_day(text, at, now)) is not None:
            yield read


def _moment(text: str) -> datetime | None:
    try:
        return parse(text)
    except ValueError:
        return None


def _duration(text: str, at: int) -> timedelta | None:
    """`3h 5m`, `5 days 3 hours`, `1h2m3.5s`, or a bare number of seconds."""
    total, found = 0.0, False
    while piece := _PIECE.match(text, at):
        unit = piece.group(2).lower()
        seconds = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if seconds is None:
            break
        total, at, found = total + float(piece.group(1)) * seconds, piece.end(), True
    if not found:
        bare = _BARE_SECONDS.match(text, at)
        if bare is None or len(bare.group(1)) < 2:
            return None
        total = float(bare.group(1))
    return timedelta(seconds=total) if total <= FUTURE_DAYS_MAX * 86_400 else None


def _time_of_day(text: str, at: int, now: datetime) -> datetime | None:
    match = _TIME_OF_DAY.match(text, at)
    if match is None or not (match["minute"] or match["half"] or match["month"]):
        return None
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"][0] in "pP" else 0)
    if hour > 23:
        return None
    local = now.astimezone(_zone(match["zone"]) or now.tzinfo)
    same_day = local.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    if match["month"]:
        return _on_date(same_day, _MONTHS[match["month"].lower()], int(match["day"]), match["year"], local)
    if match["weekday"]:
        same_day += timedelta(days=(_DAYS[match["weekday"].lower()] - same_day.weekday()) % 7)
        return same_day if same_day >= local - _PASSED else same_day + timedelta(days=7)
    return same_day if same_day >= local - _PASSED else same_day + timedelta(days=1)


def _on_date(time: datetime, month: int, day: int, year: str | None, local: datetime) -> datetime | None:
    try:
        found = time.replace(year=int(year) if year else local.year, month=month, day=day)
        # In December, `Jan 2` is next year's.
        return found if year or found >= local - timedelta(days=1) else found.replace(year=local.year + 1)
    except ValueError:
        return None


def _zone(name: str | None) -> tzinfo | None:
    if not name:
        return None
    if name.lower() in _ZONES:
        return timezone(timedelta(hours=_ZONES[name.lower()]))
    if "/" not in name:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # no such zone
        return None
