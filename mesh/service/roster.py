"""Which agents should run, and what is known of each: the bookkeeping of both supervisors, without processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mesh.errors import MeshError, StoreUnavailable
from mesh.limits import Limits
from mesh.models import Registry
from mesh.policy.healing import after_exit
from mesh.store import Store

_RECORD_EVERY_S = 60.0


@dataclass
class Entry:
    """One agent, as its supervisor sees it."""

    running: bool = False
    #: When to start it, monotonic; None leaves it down.
    start_at_s: float | None = 0.0
    #: Moments of restarts after crashes, monotonic.
    restarts_s: list[float] = field(default_factory=list)
    #: It ends because we asked it to.
    expected: bool = False
    #: Why it is down, for people.
    note: str = ""
    address: tuple[str, int] | None = None


class Roster:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.entries: dict[str, Entry] = {}
        #: When each reason that kept the supervisor from its files was last recorded.
        self._recorded_s: dict[str, float] = {}

    @property
    def registry(self) -> Registry:
        return self._store.registry.current

    @property
    def limits(self) -> Limits:
        return self.registry.limits_for()

    def refresh(self) -> None:
        """Read an edited registry and the stop switches."""
        if self._store.registry.changed():
            self._store.registry.refresh()
        for agent, found in self.registry.agents.items():
            entry = self.entries.setdefault(agent, Entry())
            moved = entry.address not in (None, (found.host, found.port))
            entry.address = (found.host, found.port)
            if moved and not entry.running and entry.start_at_s is None:
                self.start_now(agent)  # the address may have been what kept it down
        for agent in list(self.entries):
            if agent not in self.registry.agents and not self.entries[agent].running:
                del self.entries[agent]

    def to_stop(self) -> list[str]:
        """Who runs and should not."""
        return [agent for agent, entry in self.entries.items() if entry.running and not self._wanted(agent)]

    def to_start(self, now_s: float) -> list[str]:
        """Who should run, doesn't, and is due."""
        return [
            agent
            for agent, entry in self.entries.items()
            if not entry.running and entry.start_at_s is not None and entry.start_at_s <= now_s and self._wanted(agent)
        ]

    def start_now(self, agent: str) -> None:
        """Forget earlier crashes and start the agent at once: somebody asked for it."""
        entry = self.entries.setdefault(agent, Entry())
        entry.start_at_s, entry.restarts_s, entry.note = 0.0, [], ""

    def put_off(self, agent: str, now_s: float, reason: str) -> None:
        """It could not be started now; try again a little later."""
        entry = self.entries[agent]
        entry.note, entry.start_at_s = reason, now_s + self.limits.unavailable_retry_s

    def started(self, agent: str) -> None:
        entry = self.entries[agent]
        entry.running, entry.expected, entry.note = True, False, ""

    def ended(self, agent: str, status: int, now_s: float) -> None:
        """Decide what becomes of an agent whose process ended."""
        entry = self.entries[agent]
        entry.running = False
        if entry.expected or not self._wanted(agent):
            entry.start_at_s, entry.note = now_s, "stopped"
            return
        decision = after_exit(status, entry.restarts_s, now_s, self.limits)
        entry.note = decision.reason
        self._store.journal.event("mesh", "agent_ended", decision.reason, about=agent, status=status)
        if decision.delay_s is None:
            entry.start_at_s = None
            self._report(agent, decision.reason)
        else:
            entry.start_at_s = now_s + decision.delay_s
            if decision.counts:
                entry.restarts_s = [*entry.restarts_s, entry.start_at_s][-20:]

    def notes(self) -> dict[str, str]:
        """Why agents are down, for the table."""
        return {agent: entry.note for agent, entry in self.entries.items() if not entry.running and entry.note}

    def take_requests(self) -> Iterable[tuple[str, str]]:
        """What commands asked for: (verb, agent) of agents that exist."""
        return [(verb, agent) for verb, agent in self._store.switches.requests() if agent in self.registry.agents]

    def _wanted(self, agent: str) -> bool:
        """Whether it should run. A switch that can't be looked at stops nobody: unknown is not stopped."""
        try:
            stopped = self._store.switches.is_stopped(agent)
        except StoreUnavailable as error:
            self.report_held_up(error)
            stopped = False
        return agent in self.registry.agents and not stopped

    def report_held_up(self, error: MeshError) -> None:
        """Record what keeps the supervisor from its files: it looks several times a second, once a minute is enough."""
        now_s = self._store.time.monotonic()
        if now_s - self._recorded_s.get(error.detail, -_RECORD_EVERY_S) >= _RECORD_EVERY_S:
            self._recorded_s[error.detail] = now_s
            self._store.journal.event("mesh", "supervisor_held_up", error.detail)

    def _report(self, agent: str, reason: str) -> None:
        try:
            self._store.alerts.raise_alert(
                "agent_down",
                agent,
                f"{agent} is down and stays down",
                reason,
                severity="high",
                tried=["restart"],
                next_=f"mend the cause, then: mesh start {agent}",
            )
        except MeshError as error:
            self._store.journal.event("mesh", "alert_failed", error.detail, about=agent)
