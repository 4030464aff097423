"""What agents and the mesh record about themselves: state, health, clock, alerts, blockers."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from mesh import clock
from mesh.models.base import SCHEMA_VERSION, Filed
from mesh.models.running import Occupancy


class AgentStatus(StrEnum):
    IDLE = "idle"
    WORKING = "working"
    BLOCKED = "blocked"
    STALLED = "stalled"
    OFFLINE = "offline"


_A = AgentStatus
#: The lifecycle of an agent. It writes only the first three of itself; `stalled` and `offline` are verdicts of
#: others and stand in health.json.
AGENT_TRANSITIONS: dict[AgentStatus, frozenset[AgentStatus]] = {
    _A.IDLE: frozenset({_A.WORKING, _A.BLOCKED, _A.STALLED, _A.OFFLINE}),
    _A.WORKING: frozenset({_A.IDLE, _A.BLOCKED, _A.STALLED, _A.OFFLINE}),
    _A.BLOCKED: frozenset({_A.IDLE, _A.WORKING, _A.STALLED, _A.OFFLINE}),
    _A.STALLED: frozenset({_A.IDLE, _A.WORKING, _A.BLOCKED, _A.OFFLINE}),
    _A.OFFLINE: frozenset({_A.IDLE, _A.WORKING, _A.BLOCKED}),
}


class CurrentTask(Filed):
    id: str
    type: str
    title: str
    description: str = ""
    started_at: str | None = None
    estimated_completion: str | None = None
    progress: float = 0.0


class Metrics(Filed):
    tasks_completed24h: int = Field(default=0, alias="tasksCompleted24h")
    avg_task_duration_min: float = 0.0
    error_rate: float = 0.0
    errors24h: int = Field(default=0, alias="errors24h")


class Stamps(Filed):
    """When things last happened, on this boot's suspend-proof clock: ages don't move when wall time is set."""

    boot_id: str
    activity_s: float
    idle_s: float | None = None
    task_s: float | None = None
    completed_s: float | None = None
    buddy_answer_s: float | None = None


class AgentState(Filed):
    """`agents/<id>/state.json`, written by the agent alone (protocol document, section 3)."""

    schema_version: int = SCHEMA_VERSION
    agent_id: str
    status: AgentStatus = AgentStatus.IDLE
    reason: str | None = None
    current_task: CurrentTask | None = None
    last_activity: str
    last_heartbeat: str
    last_completed_task: str | None = None
    context_tokens: int = 0
    context_limit: int
    #: How full the context was at the last call, and how that is known.
    context: Occupancy | None = None
    session_id: str
    incarnation: int
    metrics: Metrics = Metrics()
    stamps: Stamps
    last_tick: int = 0
    last_sync: str | None = None
    last_sync_hour: int | None = None
    buddy_seen: str | None = None
    buddy_review: dict[str, bool] | None = None
    skills: list[str] = []


class Alert(Filed):
    """One file in `system/human/`: something a person must know of."""

    id: str
    at: str
    severity: Literal["low", "medium", "high", "critical"]
    agent_id: str
    type: str
    title: str
    detail: str
    tried: list[str] = []
    next: str = ""
    since: str
    count: int = 1
    status: Literal["open", "acked", "resolved"] = "open"
    schema_version: int = SCHEMA_VERSION


class Blocker(Filed):
    id: str
    agent: str
    topic: str
    description: str
    needs: list[str] = []
    severity: Literal["low", "medium", "high", "critical"] = "medium"
    since: str
    count: int = 1
    task_id: str | None = None
    worked_by: str | None = None
    resolved_at: str | None = None
    #: The message that reported it last: the same report read twice counts once.
    reported_by: str | None = None


class Insight(Filed):
    """One entry of `knowledge/insights.json`."""

    id: str
    at: str
    agent: str
    topic: str
    data: Any = None
    tags: list[str] = []


class Decision(Filed):
    """One entry of `knowledge/decisions.json`."""

    id: str
    at: str
    agent: str
    decision: str
    why: str = ""
    task_id: str | None = None
    tags: list[str] = []


class ClockFile(Filed):
    """`system/clock.json` (protocol document, section 9). `slot` counts minutes of this boot since `originS`, so
    that a jump of the wall clock neither repeats nor stops the ticks; `tick` only ever grows."""

    schema_version: int = SCHEMA_VERSION
    tick: int = 0
    timestamp: str = ""
    phase: Literal["work", "sync", "maintenance"] = "work"
    next_sync: str = ""
    active_agents: list[str] = []
    scheduled_events: list[dict[str, Any]] = []
    boot_id: str = ""
    origin_s: float = 0.0
    tick_seconds: float = 60.0
    slot: int = 0
    mesh_epoch: str = ""
    epoch_slot: int = 0
    missed: int = 0
    carrier: str = ""
    as_of_tick: int = 0

    def slot_at(self, boottime_s: float) -> int:
        """Which slot of this count the moment lies in."""
        return int((boottime_s - self.origin_s) // self.tick_seconds)

    def until_next_slot_s(self, boottime_s: float) -> float:
        """Seconds until the next slot begins."""
        return self.tick_seconds - (boottime_s - self.origin_s) % self.tick_seconds

    def mesh_time(self, wall: datetime) -> datetime:
        """The time that triggers, sync minutes and phases go by: wall time at normal speed; with other tick
        lengths the minute of the slot, counted from when the fast count began."""
        if self.tick_seconds == clock.MINUTE_S or not self.mesh_epoch:
            return wall
        return clock.parse(self.mesh_epoch) + timedelta(minutes=self.slot - self.epoch_slot)

    def mesh_minutes(self, seconds: float) -> float:
        """How many mesh minutes a span of real seconds is: ages scale with the ticks."""
        return seconds / self.tick_seconds


class AgentHealth(Filed):
    status: AgentStatus
    last_seen: str | None
    healthy: bool
    concern: str | None = None


class HealthFile(Filed):
    """`agents/health.json` (protocol document, section 3)."""

    schema_version: int = SCHEMA_VERSION
    last_update: str
    as_of_tick: int
    agents: dict[str, AgentHealth]
    system_health: Literal["healthy", "degraded", "unhealthy"]
    alerts: list[dict[str, Any]] = []
