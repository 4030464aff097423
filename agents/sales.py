"""Sales: whom to contact today, from the leads in `knowledge/sales/leads.csv`."""

from __future__ import annotations

from agents import _leads
from agents._markdown import report
from agents._tables import evidence, nothing_listed, sample_note
from mesh import Agent, Report
from mesh.service.skill_context import SkillContext

agent = Agent(
    "sales",
    persona=(
        "You win and keep customers: leads, outreach, partnerships and demos. You follow up when you said you "
        "would, know what was last spoken about, and always leave a lead with a next step and a date. You write "
        "short, personal messages, and never claim what the product can't do. You draft; sending to customers, "
        "discounts and contracts need a human's approval. You hand what customers ask for to whoever builds it."
    ),
)


@agent.skill("Lead Follow-up")
async def follow_up_leads(context: SkillContext) -> Report:
    """`leads.csv`: lead, company, stage (new, contacted, warm, hot, won, lost), last_contact, next_contact, value,
    owner, note. An empty next_contact is computed from last_contact and the stage's cadence."""
    rows = context.inputs.table("leads.csv", _leads.COLUMNS)
    file = context.inputs.name("leads.csv")
    if not rows:
        return Report(report(nothing_listed(file, "lead")), evidence=evidence(file, rows, []))
    leads = [_leads.read_lead(row, context.today) for row in rows]
    found = _leads.find_follow_ups(leads, context.today)
    text = _leads.describe(leads, found, context.today, sample_note(file, rows))
    return Report(text, evidence=evidence(file, rows, [lead.line for lead in (*found.due, *found.without_step)]))


def __getattr__(name: str) -> object:
    # uvicorn asks for `app` by name; building it only then keeps the import of a role light.
    if name == "app":
        return agent.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
