"""What the whole mesh looks like: one line an agent and a sum.

A beat's age decides how an agent is shown; it decides nothing else. What an agent says of itself counts as long as
its beat is fresh. A beat that can't be read is unknown: shown as stale, not as dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mesh.limits import Limits
from mesh.models import AgentHealth, AgentStatus

SystemHealth = Literal["healthy", "degraded", "unhealthy"]


@dataclass(frozen=True)
class Seen:
    """What can be seen of an agent from outside."""

    #: As the agent wrote it; None if it never ran.
    status: AgentStatus | None
    reason: str | None
    last_seen: str | None
    #: Seconds since its last beat; None if there is none of this boot.
    beat_age_s: float | None
    #: Whether the process of its present incarnation exists.
    process: bool
    stopped: bool = False


def health_of(seen: Seen, limits: Limits) -> AgentHealth:
    """One agent's line in health.json."""
    age_s = seen.beat_age_s
    if seen.stopped and (not seen.process or age_s is None or age_s > limits.stale_after_s):
        return AgentHealth(status=AgentStatus.OFFLINE, last_seen=seen.last_seen, healthy=True, concern="stopped")
    if seen.status is None or not seen.process or (age_s is not None and age_s > limits.offline_after_s):
        return AgentHealth(status=AgentStatus.OFFLINE, last_seen=seen.last_seen, healthy=False, concern="offline")
    if age_s is None or age_s > limits.stale_after_s:
        return AgentHealth(status=seen.status, last_seen=seen.last_seen, healthy=False, concern="stale")
    return AgentHealth(status=seen.status, last_seen=seen.last_seen, healthy=True, concern=seen.reason)


def system_health(agents: Mapping[str, AgentHealth], alerts: Sequence[str]) -> SystemHealth:
    """`unhealthy` once half of the agents are; `degraded` with one, or with an alert of high severity."""
    sick = sum(not agent.healthy for agent in agents.values())
    if sick and 2 * sick >= len(agents):
        return "unhealthy"
    return "degraded" if sick or any(severity in ("high", "critical") for severity in alerts) else "healthy"
