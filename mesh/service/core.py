"""What the parts of one agent's service share: its store, its registry and its state.

Reads of a few bytes happen on the event loop; everything that flushes goes through `io` to the writer thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from mesh import clock
from mesh.errors import DiskFull, DurabilityLost, Fenced, MeshError
from mesh.limits import Limits
from mesh.models import AgentState, ClockFile, Metrics, Registry, Stamps, TaskStatus
from mesh.models.running import Occupancy
from mesh.policy.buddy import Situation, concerns
from mesh.service.compose import put_in_force
from mesh.service.roles import Agent
from mesh.service.writer import in_writer, writer
from mesh.store import Store
from mesh.store.locks import SleepingClock

log = logging.getLogger("mesh")

P = ParamSpec("P")
T = TypeVar("T")

DAY = timedelta(days=1)


class Core:
    """One agent's present incarnation: identity, state and the ways to change them."""

    def __init__(self, role: Agent, root: str, tick_seconds: float, time: SleepingClock) -> None:
        self.role = role
        self.agent = role.id
        self.tick_seconds = tick_seconds
        self.time = time
        self.store, self.incarnation = Store.become(root, self.agent, time=time)
        self.store.journal.tick = lambda: self.clock.tick
        self.clock: ClockFile = self.store.ticks.read()
        self.registry: Registry = self.store.registry.current
        self.limits: Limits = self.registry.limits_for(self.agent)
        self.store.apply(self.limits)
        put_in_force(self.store, self.registry)
        self.started_s = time.monotonic()
        self.paused: str | None = None
        self.disk_low = False
        #: Why what does its work rests (a usage limit, no login), or None.
        self.parked: str | None = None
        self.queue_length = 0
        self.open_alerts = 0
        self.recent: list[dict[str, Any]] = []
        self.state = self._first_state()
        #: Why the last write of its state failed, or None.
        self.unwritten: str | None = None
        #: Why it listens elsewhere than the registry says, or None.
        self.misplaced: str | None = None
        #: When the store work that isn't done yet was asked for.
        self._asked_s: dict[object, float] = {}
        #: Set to a reason when this process must end: a newer incarnation, or a disk that can't be trusted.
        self.fatal: str | None = None
        #: Called when there may be something to do.
        self.wake_worker: Callable[[], None] = lambda: None
        #: Called when a task is over: what waited for that may go on.
        self.turn_ended: Callable[[], None] = lambda: None
        #: Held by whoever has the runner's attention: a task, or the reading of mail.
        self.turn = asyncio.Lock()

    # -- doing

    async def io(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run store work on the writer thread. What means the end of this process is noted on the way."""
        ticket = object()
        self._asked_s[ticket] = self.time.monotonic()
        try:
            return await in_writer(function, *args, **kwargs)
        except (Fenced, DurabilityLost) as error:
            if self.store.files.lost:
                self.fatal = error.detail
            elif not self.store.disk.signature(self.store.files.scratch):
                self.fatal = f"a newer incarnation of {self.agent} has taken over"
            raise
        except DiskFull:
            self.disk_low = True
            raise
        finally:
            del self._asked_s[ticket]

    def event(self, event: str, reason: str = "", **ids: Any) -> None:
        """Record a decision that was carried out; never waits."""
        writer().submit(self.store.journal.event, self.agent, event, reason, **ids)

    async def save(self) -> None:
        """Write the agent's state. A state that can't be written now is written with the next change."""
        self.state.last_heartbeat = clock.iso(self.time.wall())
        try:
            await self.io(self.store.write_state, self.state)
            self.unwritten = None
        except MeshError as error:
            self.unwritten = error.detail
            log.warning("%s: state not written: %s", self.agent, error.detail)

    def note_occupancy(self, occupancy: Occupancy) -> None:
        """How full the agent's context is, as of the last call; in the state with the next save."""
        self.state.context, self.state.context_tokens = occupancy, occupancy.tokens
        self.state.context_limit = occupancy.window or self.limits.context_limit_tokens

    def active_now(self) -> None:
        """Note that the agent did something."""
        self.state.last_activity = clock.iso(self.time.wall())
        self.state.stamps.activity_s = self.time.boottime()

    # -- knowing

    @property
    def mesh_now(self) -> datetime:
        """The time that triggers and sync minutes go by."""
        return self.clock.mesh_time(self.time.wall())

    @property
    def uptime_s(self) -> float:
        return self.time.monotonic() - self.started_s

    def use_registry(self, registry: Registry) -> None:
        """Put a newly read registry in force."""
        self.registry = registry
        if self.agent in registry.agents:
            self.limits = registry.limits_for(self.agent)
            self.store.apply(self.limits)
        put_in_force(self.store, registry)

    def situation(self, state: AgentState | None = None, queue_length: int | None = None) -> Situation:
        """What is known of this agent, or of another by its state."""
        own = state is None
        state = state or self.state
        stamps = state.stamps
        same_boot = stamps.boot_id == self.time.boot_id()

        def age(stamp: float | None) -> float | None:
            if stamp is None or not same_boot:
                return None
            return self.clock.mesh_minutes(max(0.0, self.time.boottime() - stamp))

        return Situation(
            state=state,
            queue_length=self.queue_length if queue_length is None else queue_length,
            idle_min=age(stamps.idle_s),
            activity_min=age(stamps.activity_s),
            completed_min=age(stamps.completed_s),
            task_min=age(stamps.task_s),
            buddy_answer_min=age(stamps.buddy_answer_s),
            alerts=self.open_alerts,
            paused=own and self.paused is not None,
            disk_low=own and self.disk_low,
        )

    def concerns(self) -> list[str]:
        return concerns(self.situation(), self.limits)

    def health(self) -> tuple[str, list[str]]:
        """`healthy`, `degraded` or `unhealthy`, and why. From memory: it must answer with a full disk."""
        if self.fatal:
            return "unhealthy", [self.fatal]
        reasons = []
        if self.disk_low:
            reasons.append(f"less than {self.limits.disk_free_min_mb} MB of disk free: nothing new starts")
        waited_s = self.time.monotonic() - min(self._asked_s.values(), default=self.time.monotonic())
        if waited_s > self.limits.lock_wait_s:
            reasons.append(f"the disk or a lock has kept a write waiting for {waited_s:.0f} s")
        if self.unwritten and not self.disk_low:
            reasons.append(self.unwritten)
        if self.parked:
            reasons.append(self.parked)
        if self.misplaced:
            reasons.append(self.misplaced)
        if self.store.registry.error:
            reasons.append(f"the registry edit is not valid: {self.store.registry.error.detail}")
        if self.store.journal.dropped:
            reasons.append(f"{self.store.journal.dropped} events could not be written")
        return ("degraded" if reasons else "healthy"), reasons

    def refresh_metrics(self) -> None:
        """Work the last day's figures out of the history."""
        oldest = self.time.wall() - DAY
        self.recent = [entry for entry in self.recent if _moment(entry) >= oldest]
        completed = [entry for entry in self.recent if entry.get("status") == TaskStatus.COMPLETED]
        errors = sum(bool(entry.get("error")) for entry in self.recent)
        minutes = [float(entry.get("durationS", 0)) / 60 for entry in completed]
        self.state.metrics = Metrics(
            tasks_completed24h=len(completed),
            avg_task_duration_min=round(sum(minutes) / len(minutes), 3) if minutes else 0.0,
            error_rate=round(errors / len(self.recent), 3) if self.recent else 0.0,
            errors24h=errors,
        )

    def _first_state(self) -> AgentState:
        now, known = clock.iso(self.time.wall()), self.store.state(self.agent)
        stamps = Stamps(boot_id=self.time.boot_id(), activity_s=self.time.boottime(), idle_s=self.time.boottime())
        if known is not None and known.stamps.boot_id == stamps.boot_id:
            stamps = known.stamps.model_copy(update={"task_s": None, "idle_s": self.time.boottime()})
        fresh = AgentState(
            agent_id=self.agent,
            last_activity=known.last_activity if known else now,
            last_heartbeat=now,
            last_completed_task=known.last_completed_task if known else None,
            context_limit=self.limits.context_limit_tokens,
            session_id=f"{self.agent}-{self.incarnation}",
            incarnation=self.incarnation,
            stamps=stamps,
            last_tick=known.last_tick if known else self.clock.tick,
            last_sync=known.last_sync if known else None,
            last_sync_hour=known.last_sync_hour if known else None,
            buddy_seen=known.buddy_seen if known else None,
            skills=sorted(self.role.skills),
        )
        extra = known.model_extra if known else None
        return fresh.model_copy(update=extra) if extra else fresh


def _moment(entry: dict[str, Any]) -> datetime:
    try:
        return clock.parse(str(entry.get("at")))
    except ValueError:
        return datetime.fromtimestamp(0, tz=UTC)
