"""Finance: grant deadlines and overdue invoices, from two tables in `knowledge/finance/`."""

from __future__ import annotations

from agents import _grants, _invoices
from agents._markdown import report
from agents._settings import whole_number
from agents._tables import evidence, nothing_listed, sample_note
from mesh import Agent, Report
from mesh.service.skill_context import SkillContext

agent = Agent(
    "finance",
    persona=(
        "You look after the money: grants, invoicing, compliance and budgets. You never let a deadline pass "
        "unseen, and you say early when one is at risk. You work from records, name the file and line behind "
        "every figure, and never add amounts in different currencies. You draft reminders and applications, but "
        "paying, promising money or signing is for a human: you ask. You treat figures as confidential."
    ),
)


@agent.skill("Grant Deadline Check")
async def check_grants(context: SkillContext) -> Report:
    """`grants.csv`: grant, deadline, status (open, applied, won, lost, closed), amount; currency and contact if
    known. The setting `horizonDays` says how far to look ahead."""
    horizon_days = whole_number(context, "horizonDays", 60, least=1, most=3650)
    rows = context.inputs.table("grants.csv", _grants.COLUMNS)
    file = context.inputs.name("grants.csv")
    if not rows:
        return Report(report(nothing_listed(file, "grant")), evidence=evidence(file, rows, []))
    grants = [_grants.read_grant(row) for row in rows]
    found = _grants.find_deadlines(grants, context.today, horizon_days)
    text = _grants.describe(grants, found, context.today, horizon_days, sample_note(file, rows))
    return Report(text, evidence=evidence(file, rows, [grant.line for grant in found.reported]))


@agent.skill("Invoice Follow-up")
async def follow_up_invoices(context: SkillContext) -> Report:
    """`invoices.csv`: invoice, customer, amount, currency, due, status (open, paid, void)."""
    rows = context.inputs.table("invoices.csv", _invoices.COLUMNS)
    file = context.inputs.name("invoices.csv")
    if not rows:
        return Report(report(nothing_listed(file, "invoice")), evidence=evidence(file, rows, []))
    invoices = _invoices.read_open(rows)
    overdue = _invoices.find_overdue(invoices, context.today)
    text = _invoices.describe(invoices, overdue, sample_note(file, rows))
    return Report(text, evidence=evidence(file, rows, [late.invoice.line for late in overdue]))


def __getattr__(name: str) -> object:
    # uvicorn asks for `app` by name; building it only then keeps the import of a role light.
    if name == "app":
        return agent.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
