"""Comms: what the content calendar in `knowledge/comms/` plans, where it has gaps, what is late."""

from __future__ import annotations

import asyncio
from zoneinfo import ZoneInfo

from agents import _calendar
from agents._calendar import Entry, Findings, Plan
from agents._markdown import count
from agents._settings import texts, whole_number
from agents._tables import Section, evidence, sample_note
from mesh import Agent, Report
from mesh.errors import SkillInputError
from mesh.service.skill_context import SkillContext

_TABLE, _ICS = "calendar.csv", "calendar.ics"

agent = Agent(
    "comms",
    persona=(
        "You speak for the team in public: content, social media, email campaigns and press. You write plainly, "
        "check every fact and name before it goes out, and keep one voice across channels. You plan ahead from the "
        "content calendar and say early when a slot is empty or a draft is late. You draft and schedule; what "
        "is published, sent to a list or said to the press needs a human's approval first."
    ),
)


@agent.skill("Content Calendar Review")
async def review_calendar(context: SkillContext) -> Report:
    """`calendar.csv` (date, channel, title, status: idea, draft, scheduled, published, owner), `calendar.ics`, or both.
    Settings: `horizonDays`, `gapDays`, `draftDays`, `channels`."""
    plan = Plan(
        horizon_days=whole_number(context, "horizonDays", 14, least=1, most=366),
        gap_days=whole_number(context, "gapDays", 3, least=1, most=366),
        draft_days=whole_number(context, "draftDays", 7, least=0, most=366),
        channels=tuple(texts(context, "channels")),
    )
    # A long calendar takes a while to read, and the agent's loop must go on beating meanwhile.
    return await asyncio.to_thread(_review, context, plan)


def _review(context: SkillContext, plan: Plan) -> Report:
    inputs, entries, more = context.inputs, list[Entry](), list[Section]()
    if not inputs.has(_TABLE) and not inputs.has(_ICS):
        file = inputs.name(_TABLE)
        raise SkillInputError(
            f"{file} is missing, and so is {_ICS} beside it: list what is planned in one of them. The columns of "
            f"{_TABLE} are {', '.join(_calendar.COLUMNS)}.",
            file=file,
        )
    rows = inputs.table(_TABLE, _calendar.COLUMNS) if inputs.has(_TABLE) else None
    if rows is not None:
        entries += [_calendar.read_entry(row) for row in rows]
        more += sample_note(inputs.name(_TABLE), rows)
        if not rows:
            more.append((_TABLE, "It has a header and no rows."))
    if inputs.has(_ICS):
        zone = ZoneInfo(context.registry.timezone)
        name = inputs.name(_ICS)
        entries += _calendar.read_calendar(inputs.text(_ICS), name, context.today, plan.horizon_days, zone)
    found = _calendar.review(entries, context.today, plan)
    facts = evidence(inputs.name(_TABLE), rows, _lines(found, inputs.name(_TABLE))) if rows is not None else []
    if inputs.has(_ICS):
        facts += _ics_evidence(inputs.name(_ICS), entries, found)
    return Report(_calendar.describe(found, context.today, plan, more), evidence=facts)


def _lines(found: Findings, file: str) -> list[int]:
    return [entry.line for entry in found.reported if entry.file == file]


def _ics_evidence(file: str, entries: list[Entry], found: Findings) -> list[str]:
    read = sum(entry.file == file for entry in entries)
    listed = ", ".join(map(str, sorted(set(_lines(found, file))))) or "none"
    return [f"{file}: {count(read, 'date')} near today; lines reported: {listed}"]


def __getattr__(name: str) -> object:
    # uvicorn asks for `app` by name; building it only then keeps the import of a role light.
    if name == "app":
        return agent.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
