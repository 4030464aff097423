"""Leads and when to contact them: rows and a day in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from agents._markdown import bullets, count, report, table
from agents._money import amount, show
from agents._tables import Section
from mesh.store.inputs import Row

COLUMNS = ("lead", "company", "stage", "last_contact", "next_contact", "value", "owner", "note")
#: In the order of the pipeline.
STAGES = ("new", "contacted", "warm", "hot", "won", "lost")
#: Days after the last contact at which the next one is due where none is set: the hotter, the sooner.
CADENCE_DAYS = {"new": 2, "contacted": 5, "warm": 3, "hot": 1}


@dataclass(frozen=True)
class Lead:
    """One row. `next_contact` is None where there is no next step and none can be computed; it is `computed`
    where it comes from the stage's cadence."""

    name: str
    company: str
    stage: str
    next_contact: date | None
    computed: bool
    value: float | None
    owner: str
    note: str
    line: int

    @property
    def active(self) -> bool:
        return self.stage in CADENCE_DAYS


@dataclass(frozen=True)
class FollowUps:
    """Active leads. `due` in the order to act: by stage (hottest first), value, days overdue."""

    due: list[Lead]
    later: list[Lead]
    without_step: list[Lead]


def read_lead(row: Row, today: date) -> Lead:
    """A row as a lead. A last contact in the future is an error: it would hide the lead for as long."""
    stage = row.one_of("stage", STAGES)
    last = row.date("last_contact") if row.text("last_contact") else None
    if last and last > today + timedelta(days=1):  # one day's grace: the table may come from an earlier time zone
        raise row.wrong("last_contact", f"is {last}, which is in the future")
    planned = row.date("next_contact") if row.text("next_contact") else None
    cadence_days = CADENCE_DAYS.get(stage)
    computed = last + timedelta(days=cadence_days) if last and cadence_days and not planned else None
    return Lead(
        name=row.needed("lead"),
        company=row.text("company"),
        stage=stage,
        next_contact=planned or computed,
        computed=computed is not None,
        value=amount(row, "value") if row.text("value") else None,
        owner=row.text("owner"),
        note=row.text("note"),
        line=row.line,
    )


def find_follow_ups(leads: Iterable[Lead], today: date) -> FollowUps:
    """Sort the active leads into due by today, later, and those without a next step."""
    found = FollowUps([], [], [])
    for lead in leads:
        if lead.active:
            when = lead.next_contact
            (found.without_step if when is None else found.due if when <= today else found.later).append(lead)
    found.due.sort(key=_urgency)
    found.later.sort(key=lambda lead: (lead.next_contact or date.max, *_urgency(lead)))
    found.without_step.sort(key=_urgency)
    return found


def _urgency(lead: Lead) -> tuple[int, float, date, int]:
    return -STAGES.index(lead.stage), -(lead.value or 0.0), lead.next_contact or date.max, lead.line


def find_twice(leads: Iterable[Lead]) -> list[tuple[Lead, Lead]]:
    """Active leads that have the same name and company as an earlier one, after that one."""
    first: dict[tuple[str, str], Lead] = {}
    pairs = [(first.setdefault((x.name.casefold(), x.company.casefold()), x), x) for x in leads if x.active]
    return [(earlier, lead) for earlier, lead in pairs if earlier is not lead]


def describe(leads: Sequence[Lead], found: FollowUps, today: date, more: Sequence[Section]) -> str:
    """The report as Markdown."""
    twice = [f"{_who(lead)}: lines {earlier.line}, {lead.line}" for earlier, lead in find_twice(leads)]
    return report(
        _summary(leads, found, today),
        ("Due today or overdue", _due(found.due, today)),
        ("No next step", _without_step(found.without_step)),
        ("Pipeline", _pipeline(leads)),
        *([("Listed twice", bullets(twice))] if twice else []),
        *more,
    )


def _summary(leads: Sequence[Lead], found: FollowUps, today: date) -> str:
    overdue = sum(lead.next_contact is not None and lead.next_contact < today for lead in found.due)
    said = f"{count(len(found.due), 'lead')} to contact, {overdue} of them overdue" if found.due else "No lead is due"
    if not found.due and found.later:
        said += f"; next is {found.later[0].name} on {found.later[0].next_contact}"
    if found.without_step:
        said += f"; {count(len(found.without_step), 'lead')} without a next step"
    value = sum(lead.value or 0.0 for lead in leads if lead.active)
    return f"{said}; {show(value)} in the open pipeline."


def _due(leads: Sequence[Lead], today: date) -> str:
    if not leads:
        return "None."
    cells = [
        (
            _who(lead),
            lead.stage,
            _value(lead),
            _when(lead),
            _days_overdue(lead, today),
            lead.owner,
            lead.note,
            lead.line,
        )
        for lead in leads
    ]
    return table(("Lead", "Stage", "Value", "Due", "Days overdue", "Owner", "Note", "Line"), cells)


def _without_step(leads: Sequence[Lead]) -> str:
    if not leads:
        return "Every active lead has one."
    cells = [(_who(lead), lead.stage, _value(lead), lead.owner, lead.line) for lead in leads]
    return table(("Lead", "Stage", "Value", "Owner", "Line"), cells)


def _pipeline(leads: Sequence[Lead]) -> str:
    by_stage = [(stage, [lead for lead in leads if lead.stage == stage]) for stage in STAGES]
    cells = [(stage, len(of), show(sum(lead.value or 0.0 for lead in of))) for stage, of in by_stage]
    return table(("Stage", "Leads", "Value"), cells)


def _who(lead: Lead) -> str:
    return f"{lead.name}, {lead.company}" if lead.company else lead.name


def _value(lead: Lead) -> str:
    return "–" if lead.value is None else show(lead.value)


def _when(lead: Lead) -> str:
    return f"{lead.next_contact} (by cadence)" if lead.computed else str(lead.next_contact)


def _days_overdue(lead: Lead, today: date) -> int:
    assert lead.next_contact, f"{lead.name} is not due"
    return (today - lead.next_contact).days
