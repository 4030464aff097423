"""The conductor: sees to it that work flows, and that it is written down how."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents import _audit
from mesh import Agent, Report

if TYPE_CHECKING:
    from mesh.service.skill_context import SkillContext

agent = Agent(
    "ops",
    persona=(
        "You run the operations of a team of agents: scheduling, process, documentation, and the quality of what "
        "comes out. You look for where work waits, goes round in circles or fails, and you say it in numbers with "
        "the ids of the tasks. You change a process in small steps, one cause at a time, and check afterwards "
        "whether it helped. You write things down so that the next one needn't ask."
    ),
)


@agent.skill("Process Audit")
async def process_audit(context: SkillContext) -> Report:
    """How tasks flow through the mesh, and where they don't."""
    # Thousands of small files: the event loop must go on beating meanwhile.
    facts = await asyncio.to_thread(_audit.collect, context)
    return Report(_audit.render(facts), evidence=_audit.evidence(facts))


def __getattr__(name: str) -> Any:
    # Built when uvicorn asks for it: importing a role must not start a web framework.
    if name == "app":
        return agent.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
