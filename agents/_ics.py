"""Calendars as programs export them: VEVENTs of iCalendar (RFC 5545). Errors name file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NoReturn
from zoneinfo import ZoneInfo

from agents._recurrence import Moment, Rule, day_of, occurrences, parse_moment, parse_rule
from mesh.errors import SkillInputError

_PARAMETER = r';[A-Za-z0-9-]+=(?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*'
_LINE = re.compile(rf"([A-Za-z0-9-]+)((?:{_PARAMETER})*):(.*)", re.DOTALL)
_ZONE = re.compile(r';TZID="?([^";:,]*)"?', re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEMBER = re.compile(r"(?:[^,\\]|\\.?)+", re.DOTALL)
#: They stand once in an event, if at all; a second one would contradict the first.
_ONCE = ("DTSTART", "RRULE", "SUMMARY", "STATUS", "UID", "RECURRENCE-ID")
_REFUSED = ("RDATE", "EXRULE")
STATUSES = ("", "TENTATIVE", "CONFIRMED", "CANCELLED")


@dataclass(frozen=True)
class Line:
    """A content line, unfolded; `number` is that of its first line in the file."""

    number: int
    name: str
    parameters: str
    value: str


@dataclass(frozen=True)
class Event:
    """A VEVENT. `excluded` are starts at which it doesn't recur; `replaces` is the start of the occurrence that it
    stands in for, of the event with the same `uid`."""

    line: int
    uid: str
    summary: str
    categories: tuple[str, ...]
    status: str
    start: Moment
    rule: Rule | None
    excluded: frozenset[Moment]
    replaces: Moment | None


@dataclass
class _Block:
    """The lines of an event that is being read."""

    line: int
    lines: list[Line] = field(default_factory=list)

    def all(self, name: str) -> list[Line]:
        return [line for line in self.lines if line.name == name]

    def text(self, name: str) -> str:
        return next((_unescape(line.value) for line in self.all(name)), "")


class _Reader:
    """Reads one file; `zone` is where times without a zone are meant."""

    def __init__(self, file: str, zone: tzinfo) -> None:
        self.file = file
        self.zone = zone

    def wrong(self, line: int, what: str) -> NoReturn:
        raise SkillInputError(f"{self.file} line {line}: {what}.", file=self.file, line=line)

    def lines(self, text: str) -> Iterator[Line]:
        for number, content in _unfold(text):
            match = _LINE.fullmatch(content)
            if not match:
                self.wrong(number, f"{content[:40]!r} is not a calendar line (NAME:value)")
            yield Line(number, match[1].upper(), match[2], match[3])

    def blocks(self, text: str) -> Iterator[_Block]:
        """The events; what stands in a part of theirs (an alarm) or beside them (a zone) is left out."""
        opened: list[Line] = []
        event = _Block(0)
        last = 1
        for line in self.lines(text):
            last = line.number
            if not opened and (line.name, line.value.strip().upper()) != ("BEGIN", "VCALENDAR"):
                self.wrong(line.number, "a calendar starts with BEGIN:VCALENDAR")
            if line.name == "BEGIN":
                if _component(line) == "VEVENT":
                    if len(opened) != 1:
                        self.wrong(line.number, f"an event inside {_component(opened[-1])}")
                    event = _Block(line.number)
                opened.append(line)
            elif line.name == "END":
                if _component(line) != _component(opened[-1]):
                    self.wrong(line.number, f"END:{line.value[:40]} doesn't match line {opened[-1].number}")
                if _component(opened.pop()) == "VEVENT":
                    yield event
            elif _component(opened[-1]) == "VEVENT":
                event.lines.append(line)
        if opened:
            self.wrong(last, f"the file ends inside {_component(opened[-1])}, which line {opened[-1].number} begins")
        if last == 1:
            self.wrong(1, "a calendar starts with BEGIN:VCALENDAR")

    def event(self, block: _Block) -> Event:
        self._check(block)
        start, rule = self._moment(block.all("DTSTART")[0]), None
        for line in block.all("RRULE"):
            try:
                rule = parse_rule(line.value.strip(), start)
            except ValueError as error:
                self.wrong(line.number, f"RRULE: {error}")
        replaced = [self._moment(line) for line in block.all("RECURRENCE-ID")]
        return Event(
            line=block.line,
            uid=block.text("UID"),
            summary=block.text("SUMMARY"),
            categories=tuple(name for line in block.all("CATEGORIES") for name in _listed(line.value)),
            status=block.text("STATUS").upper(),
            start=start,
            rule=rule,
            excluded=frozenset(_key(moment) for line in block.all("EXDATE") for moment in self._moments(line)),
            replaces=replaced[0] if replaced else None,
        )

    def _check(self, block: _Block) -> None:
        if not block.all("DTSTART"):
            self.wrong(block.line, "the event has no DTSTART")
        for name in _ONCE:
            if len(found := block.all(name)) > 1:
                self.wrong(found[1].number, f"{name} stands already in line {found[0].number}")
        for line in block.lines:
            if line.name in _REFUSED or (line.name == "RECURRENCE-ID" and "RANGE=" in line.parameters.upper()):
                self.wrong(line.number, f"{line.name}{line.parameters[:40]} is not supported")
            if line.name == "STATUS" and line.value.strip().upper() not in STATUSES:
                self.wrong(line.number, f"STATUS is {line.value[:40]!r}, not one of {', '.join(STATUSES[1:])}")

    def _moment(self, line: Line) -> Moment:
        moments = self._moments(line)
        if len(moments) != 1:
            self.wrong(line.number, f"{line.name} must be one date")
        return moments[0]

    def _moments(self, line: Line) -> list[Moment]:
        zone = self._zone(line)
        try:
            return [parse_moment(value.strip(), zone) for value in line.value.split(",")]
        except ValueError as error:
            self.wrong(line.number, f"{line.name}: {error}")

    def _zone(self, line: Line) -> tzinfo:
        match = _ZONE.search(line.parameters)
        if not match:
            return self.zone
        try:
            return ZoneInfo(match[1])
        except (KeyError, ValueError, OSError):  # unknown, not a name at all, a folder of names
            self.wrong(line.number, f"unknown time zone {match[1][:40]!r}; use a name such as Europe/Berlin")


def parse_events(text: str, file: str, zone: tzinfo) -> list[Event]:
    """The events of a calendar. Raises SkillInputError with file and line."""
    reader = _Reader(file, zone)
    return [reader.event(block) for block in reader.blocks(text)]


def expand(events: Sequence[Event], first: date, last: date, zone: tzinfo) -> list[tuple[Moment, Event]]:
    """When each event takes place from `first` to `last` (both included), moments in `zone`; cancelled ones don't."""
    replaced = {(event.uid, _key(event.replaces)) for event in events if event.replaces is not None}
    found = []
    for event in events:
        if event.status == "CANCELLED":
            continue
        for moment in _starts(event, first, last):
            if _key(moment) in event.excluded or (event.replaces is None and (event.uid, _key(moment)) in replaced):
                continue
            local = moment.astimezone(zone) if isinstance(moment, datetime) else moment
            if first <= day_of(local) <= last:
                found.append((local, event))
    return found


def _starts(event: Event, first: date, last: date) -> Iterator[Moment]:
    if event.rule is None:
        yield event.start
    else:
        # The day in the event's own zone can be the one before or after.
        margin = timedelta(days=1)
        yield from occurrences(event.start, event.rule, first - margin, last + margin)


def _key(moment: Moment) -> Moment:
    """Equal for equal moments, whatever their zones."""
    return moment.astimezone(UTC) if isinstance(moment, datetime) else moment


def _component(line: Line) -> str:
    return line.value.strip().upper()


def _unfold(text: str) -> Iterator[tuple[int, str]]:
    """Content lines, those that continue joined on, each with the number of its first line; blank ones left out."""
    number, parts = 0, list[str]()
    for at, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r")
        if line[:1] in (" ", "\t") and parts:
            parts.append(line[1:])
            continue
        if parts:
            yield number, "".join(parts)
        number, parts = at, [line] if line.strip() else []
    if parts:
        yield number, "".join(parts)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] in "nN" else match[1], text).strip()


def _listed(text: str) -> list[str]:
    """The members of a list, which commas separate unless they are escaped."""
    return [name for part in _MEMBER.findall(text) if (name := _unescape(part))]
