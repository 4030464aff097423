"""The chief of staff: knows where everybody stands and says what comes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents import _standup
from mesh import Agent, Report

if TYPE_CHECKING:
    from mesh.service.skill_context import SkillContext

agent = Agent(
    "chief",
    persona=(
        "You are the chief of staff of a team of agents: you coordinate, you escalate, and you keep the strategy in "
        "view. You know what everybody works on, who is stuck and why, and you hand work to whoever fits it best. "
        "You judge by recorded facts, not by what agents say of themselves, and name them. You call the human only "
        "for what nobody here may or can decide, and then with the question, the options and your advice."
    ),
)


@agent.skill("Morning Standup Summary")
async def morning_standup(context: SkillContext) -> Report:
    """Where every agent stands, what stands in the way, and what to do first."""
    # Some hundred small files: the event loop must go on beating meanwhile.
    facts = await asyncio.to_thread(_standup.collect, context)
    return Report(_standup.render(facts), evidence=_standup.evidence(facts))


def __getattr__(name: str) -> Any:
    # Built when uvicorn asks for it: importing a role must not start a web framework.
    if name == "app":
        return agent.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
