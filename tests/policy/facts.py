"""Facts for the tables: a task, a registry, a state, and what is known of an agent."""

from __future__ import annotations

import json
from typing import Any

from mesh.models import AgentState, Registry, Task, parse_registry
from mesh.policy.buddy import Situation

AT = "2026-02-16T20:45:00.000Z"
#: Foreign names, and an orchestrator that isn't the first: nothing may hang on the eight of the example.
PAIRS = {"ada": "bob", "bob": "cyd", "cyd": "dee", "dee": "ada"}


def a_task(id_: str = "t1", **fields: Any) -> Task:
    given = {"id": id_, "title": "Work", "owner": "ada", "from": "human", "createdAt": AT, "updatedAt": AT}
    return Task.model_validate({**given, **fields})


def a_registry(policy: str = "peers", **agents: dict[str, Any]) -> Registry:
    entries = {
        agent: {"name": agent.title(), "port": 19000 + number, "responsibilities": [agent], "buddy": buddy}
        for number, (agent, buddy) in enumerate(PAIRS.items())
    }
    for agent, fields in agents.items():
        entries[agent] |= fields
    return parse_registry(json.dumps({"agents": entries, "orchestrator": "cyd", "policy": policy}), "registry.json")


def a_state(**fields: Any) -> AgentState:
    given = {
        "agentId": "ada",
        "lastActivity": AT,
        "lastHeartbeat": AT,
        "contextLimit": 180_000,
        "sessionId": "ada-1",
        "incarnation": 1,
        "stamps": {"bootId": "boot-1", "activityS": 0.0},
    }
    return AgentState.model_validate({**given, **fields})


def a_situation(*, state: dict[str, Any] | None = None, **fields: Any) -> Situation:
    """An agent that is well: it works, has more to do, and its buddy answered a moment ago."""
    given: dict[str, Any] = {
        "queue_length": 2,
        "idle_min": None,
        "activity_min": 1.0,
        "completed_min": 10.0,
        "task_min": 5.0,
        "buddy_answer_min": 3.0,
        "alerts": 0,
    }
    return Situation(state=a_state(**{"status": "working", **(state or {})}), **{**given, **fields})
