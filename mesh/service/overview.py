"""The mesh at a glance, from files alone: it works with the mesh down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from mesh import clock
from mesh.errors import MeshError
from mesh.limits import Limits
from mesh.models import AgentHealth, AgentState
from mesh.policy.liveness import Seen, health_of
from mesh.store import Store
from mesh.store.incarnations import process_started


@dataclass(frozen=True)
class Row:
    """One agent's line."""

    agent: str
    port: int
    status: str
    task: str
    progress: float | None
    buddy: str
    watched_by: str
    beat_age_s: float | None
    queue: int
    #: Messages that wait in its inbox.
    mail: int
    healthy: bool
    note: str
    #: The CLI session that it works in: `{cli, id, joined, busy, seenFor, seenAgeS}`.
    session: dict[str, Any] | None = None


def rows(store: Store, notes: dict[str, str] | None = None) -> list[Row]:
    """A line for each agent of the registry in force. `notes` says why agents are down."""
    registry = store.registry.current
    waiting: dict[str, int] = {}
    for task in store.tasks.open():
        if task.status != "working":
            waiting[task.owner] = waiting.get(task.owner, 0) + 1
    found = []
    for agent, entry in registry.agents.items():
        state = _state(store, agent)
        seen = observe(store, agent, state)
        age_s = seen.beat_age_s
        health = health_of(seen, registry.limits_for(agent))
        task_now = state.current_task if state and seen.process else None
        note = (notes or {}).get(agent) or ("" if health.concern in (None, "offline") else str(health.concern))
        found.append(
            Row(
                agent=agent,
                port=entry.port,
                status=health.status.value,
                task=task_now.title if task_now else "",
                progress=task_now.progress if task_now else None,
                buddy=entry.buddy,
                watched_by=registry.watcher_of(agent) or "",
                beat_age_s=round(age_s, 1) if age_s is not None else None,
                queue=waiting.get(agent, 0),
                mail=store.mail.counting.waiting(store.layout.mail(agent)),
                healthy=health.healthy and health.concern != "stopped",
                note=note,
                session=_session(store, agent),
            )
        )
    return found


def summary(store: Store) -> dict[str, Any]:
    """Everything that `mesh status` shows."""
    store.registry.refresh()
    clock = store.ticks.read()
    error = store.registry.error
    open_tasks = store.tasks.open()
    return {
        "root": store.layout.root,
        "supervisor": supervisor(store),
        "registry": {
            "ok": error is None,
            "error": error.problem() if error else None,
            "replacedLink": store.registry.replaced_link(),
        },
        "paused": store.switches.paused(),
        "tick": clock.tick,
        "phase": clock.phase,
        "freeMb": store.free_mb(),
        "globalQueue": sum(task.owner == "any" for task in open_tasks),
        "openTasks": len(open_tasks),
        "blockers": [blocker.dump() for blocker in store.knowledge.blockers()],
        "alerts": [alert.dump() for alert in store.alerts.open()],
        "agents": [{to_camel(key): value for key, value in asdict(row).items()} for row in rows(store)],
    }


def observe(store: Store, agent: str, state: AgentState | None) -> Seen:
    """What can be seen of an agent from outside: its state as it wrote it, its beat, its process."""
    beat = store.beat(agent)
    return Seen(
        status=state.status if state else None,
        reason=state.reason if state else None,
        last_seen=state.last_heartbeat if state else None,
        beat_age_s=beat.age_s(store.time) if beat else None,
        process=store.process(agent) is not None,
        stopped=store.switches.is_stopped(agent),
    )


def health(store: Store, agent: str, limits: Limits) -> AgentHealth:
    """The agent's line in health.json."""
    return health_of(observe(store, agent, _state(store, agent)), limits)


def supervisor(store: Store) -> dict[str, Any] | None:
    """Who supervises the mesh now, or None: `{pid, mode, tickSeconds, …}`."""
    note = store.switches.supervisor()
    if note is None or note.get("bootId") != store.time.boot_id():
        return None
    started = process_started(int(note["pid"]))
    return note if started is not None and started == note["started"] else None


def _session(store: Store, agent: str) -> dict[str, Any] | None:
    """The agent's session, and how long ago one of its hooks last called."""
    try:
        found = store.sessions.find(agent)
        heard = clock.parse(found.seen_at) if found is not None and found.seen_at else None
    except (MeshError, ValueError):
        return None
    if found is None:
        return None
    age_s = round((store.time.wall() - heard).total_seconds(), 1) if heard else None
    shown = {"cli": found.cli, "id": found.id, "joined": found.joined, "busy": found.busy}
    return {**shown, "seenFor": found.seen_for, "seenAgeS": age_s}


def _state(store: Store, agent: str) -> AgentState | None:
    try:
        return store.state(agent)
    except (MeshError, ValueError):
        return None
