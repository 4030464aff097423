"""A content calendar: what is planned, where it has gaps, what is late. Entries and a day in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

from agents import _ics
from agents._markdown import bullets, count, report, table
from agents._tables import Section
from mesh.store.inputs import Row

COLUMNS = ("date", "channel", "title", "status", "owner")
STATUSES = ("idea", "draft", "scheduled", "published")
#: What a calendar program's word means here. It has none for published: what it confirms counts as done in time.
_ICS_STATUS = {"TENTATIVE": "draft", "CONFIRMED": "confirmed", "": "confirmed"}
_UNFINISHED = ("idea", "draft")
_UNPUBLISHED = ("idea", "draft", "scheduled")
#: Channels are those of this much of the past, and what follows: one long given up is no gap. A calendar program's
#: events are read back as far, for they may recur for ever.
PAST_DAYS = 60


@dataclass(frozen=True)
class Plan:
    """What to look for: how far ahead, from how many empty days on a gap counts, how soon a draft must be ready,
    which channels must have something (those of the calendar where none are named)."""

    horizon_days: int = 14
    gap_days: int = 3
    draft_days: int = 7
    channels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """One thing to publish; `time` is empty where only the day is known."""

    day: date
    time: str
    channels: tuple[str, ...]
    title: str
    status: str
    owner: str
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file.rpartition('/')[2]} line {self.line}"


@dataclass(frozen=True)
class Findings:
    """What a review found; `gaps` are first and last day of each run of empty days."""

    planned: list[Entry]
    gaps: list[tuple[date, date]]
    silent: list[str]
    drafts: list[Entry]
    overdue: list[Entry]

    @property
    def reported(self) -> list[Entry]:
        return [*self.planned, *self.overdue]


def read_entry(row: Row) -> Entry:
    return Entry(
        day=row.date("date"),
        time="",
        channels=(row.needed("channel"),),
        title=row.needed("title"),
        status=row.one_of("status", STATUSES),
        owner=row.text("owner"),
        file=row.file,
        line=row.line,
    )


def read_calendar(text: str, file: str, today: date, horizon_days: int, zone: tzinfo) -> list[Entry]:
    """The entries of an iCalendar file from the past that still matters to the horizon, by days in `zone`."""
    first, last = today - timedelta(days=PAST_DAYS), today + timedelta(days=horizon_days)
    events = _ics.parse_events(text, file, zone)
    return [_entry(moment, event, file) for moment, event in _ics.expand(events, first, last, zone)]


def _entry(moment: date | datetime, event: _ics.Event, file: str) -> Entry:
    return Entry(
        day=moment.date() if isinstance(moment, datetime) else moment,
        time=f"{moment:%H:%M}" if isinstance(moment, datetime) else "",
        channels=event.categories,
        title=event.summary or "(no title)",
        status=_ICS_STATUS[event.status],
        owner="",
        file=file,
        line=event.line,
    )


def review(entries: Iterable[Entry], today: date, plan: Plan) -> Findings:
    """What the calendar says about today and the days after it, `plan.horizon_days` in all."""
    entries = sorted(entries, key=lambda entry: (entry.day, entry.time, entry.line))
    days = [today + timedelta(days=ahead) for ahead in range(plan.horizon_days)]
    planned = [entry for entry in entries if days[0] <= entry.day <= days[-1]]
    busy = {entry.day for entry in planned}
    covered = {channel.casefold() for entry in planned for channel in entry.channels}
    return Findings(
        planned=planned,
        gaps=[run for run in _runs([day for day in days if day not in busy]) if _length(run) >= plan.gap_days],
        silent=[name for name in plan.channels or _channels(entries, today) if name.casefold() not in covered],
        drafts=[e for e in planned if e.status in _UNFINISHED and (e.day - today).days <= plan.draft_days],
        overdue=[entry for entry in entries if entry.day < today and entry.status in _UNPUBLISHED],
    )


def _channels(entries: Sequence[Entry], today: date) -> list[str]:
    recent = [entry for entry in entries if (today - entry.day).days <= PAST_DAYS]
    names = {channel.casefold(): channel for entry in recent for channel in entry.channels}
    return [names[key] for key in sorted(names)]


def _runs(days: Iterable[date]) -> list[tuple[date, date]]:
    """First and last day of each run of days that follow one another."""
    runs: list[tuple[date, date]] = []
    for day in days:
        if runs and (day - runs[-1][1]).days == 1:
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    return runs


def _length(run: tuple[date, date]) -> int:
    return (run[1] - run[0]).days + 1


def describe(found: Findings, today: date, plan: Plan, more: Sequence[Section]) -> str:
    """The report as Markdown."""
    return report(
        _summary(found, plan),
        (f"Next {count(plan.horizon_days, 'day')}", _listed(found.planned, "Nothing is planned.")),
        ("Gaps", bullets(_gaps(found, plan), none="None.")),
        ("Drafts due soon", _listed(found.drafts, f"None within {count(plan.draft_days, 'day')}.")),
        ("Overdue, not published", _listed(found.overdue, "None.", today)),
        *more,
    )


def _summary(found: Findings, plan: Plan) -> str:
    planned = count(len(found.planned), "entry", "entries") if found.planned else "Nothing"
    parts = (
        f"{planned} planned in the next {count(plan.horizon_days, 'day')}",
        count(len(found.gaps) + len(found.silent), "gap"),
        f"{count(len(found.drafts), 'draft')} due soon",
        f"{len(found.overdue)} overdue and not published.",
    )
    return "; ".join(parts)


def _gaps(found: Findings, plan: Plan) -> list[str]:
    days = [f"{run[0]:%a} {run[0]} to {run[1]:%a} {run[1]}: {count(_length(run), 'day')} empty" for run in found.gaps]
    return days + [f"{name}: nothing in the next {count(plan.horizon_days, 'day')}" for name in found.silent]


def _listed(entries: Sequence[Entry], none: str, today: date | None = None) -> str:
    """A table of entries; with the days that they are late where `today` is given."""
    if not entries:
        return none
    late = [] if today is None else ["Days late"]
    cells = [
        (
            f"{e.day:%a} {e.day} {e.time}".rstrip(),
            *([] if today is None else [(today - e.day).days]),
            ", ".join(e.channels) or "–",
            e.title,
            e.status,
            e.owner or "–",
            e.where,
        )
        for e in entries
    ]
    return table(("Day", *late, "Channel", "Title", "Status", "Owner", "From"), cells)
