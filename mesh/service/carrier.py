"""What the carrier of a tick does for the whole mesh: health.json, clock.json, repair, retention."""

from __future__ import annotations

from mesh import clock
from mesh.errors import MeshError
from mesh.models import HUMAN, HealthFile
from mesh.policy import schedule
from mesh.policy.liveness import system_health
from mesh.service import mail_care
from mesh.service.core import Core
from mesh.service.overview import health

_RETENTION_EVERY_TICKS = 60


async def carry(core: Core) -> None:
    """The carrier's work for the present tick. What fails is journalled; the next carrier does it again."""
    try:
        await _look_after_mail(core)
        await core.io(refresh, core)
        if mail_care.due(core.clock, core.mesh_now):
            kept = await core.io(mail_care.keep_house, core)
            if kept:
                core.event("mail_retention", ", ".join(f"{name}: {count}" for name, count in kept.items()), **kept)
        if core.clock.tick % core.limits.repair_every_ticks == 0:
            await core.io(core.store.tasks.repair)
            for task in await core.io(core.store.tasks.reclaim, list(core.registry.agents)):
                core.event("task_given_back", "its agent was removed", taskId=task.id)
        if core.clock.tick % _RETENTION_EVERY_TICKS == 0:
            done = await core.io(core.store.retention.run, core.registry.limits_for(), list(core.registry.agents))
            if done:
                core.event("retention", ", ".join(f"{name}: {count}" for name, count in done.items()))
    except MeshError as error:
        core.event("carry_failed", error.detail)


async def _look_after_mail(core: Core) -> None:
    """One inbox that can't be looked at doesn't keep the others from it."""
    for address in (*core.registry.agents, HUMAN):
        try:
            await core.io(mail_care.look_after, core, address)
        except MeshError as error:
            core.event("mail_care_failed", error.detail, address=address)


def refresh(core: Core) -> None:
    """Rewrite health.json and complete clock.json."""
    agents = {agent: health(core.store, agent, core.registry.limits_for(agent)) for agent in core.registry.agents}
    alerts = core.store.alerts.open()
    core.open_alerts = len(alerts)
    listed: list[dict[str, str | None]] = [
        {"agent": a.agent_id, "type": a.type, "since": a.since, "id": a.id, "title": a.title} for a in alerts
    ]
    for agent, found in agents.items():
        if not found.healthy:
            listed.append({"agent": agent, "type": found.concern, "since": found.last_seen})
    core.store.write_health(
        HealthFile(
            last_update=clock.iso(core.time.wall()),
            as_of_tick=core.clock.tick,
            agents=agents,
            system_health=system_health(agents, [alert.severity for alert in alerts]),
            alerts=listed,
        )
    )
    mesh_now = core.mesh_now
    minutes = {agent: core.registry.sync_minute(agent) for agent in core.registry.agents}
    now = core.clock.model_copy()
    now.phase = schedule.phase(mesh_now, minutes)
    now.next_sync = clock.iso(schedule.next_sync(mesh_now, minutes)[0])
    now.active_agents = [agent for agent, found in agents.items() if found.healthy and found.concern != "stopped"]
    now.scheduled_events = schedule.scheduled_events(mesh_now, core.clock.tick, minutes)
    now.as_of_tick = core.clock.tick
    core.store.ticks.record(now)
