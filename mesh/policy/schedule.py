"""What is due on a tick.

Everything periodic is a pure function of the tick and what was done last. An agent that missed ticks does the thing
once, late, never once for each tick missed. Hourly work goes by the hour and minute of mesh time, so that a jump of
the wall clock makes it a little early or late, but not twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

HOUR_S = 3600
_MAINTENANCE_HOUR, _MAINTENANCE_MINUTES = 3, 10
_EVENTS_AHEAD_MIN = 60

Phase = Literal["work", "sync", "maintenance"]


def crossed(last_tick: int, tick: int, every: int, offset: int = 0) -> bool:
    """Whether a tick t with t mod `every` = `offset` lies in (last_tick, tick]."""
    return (tick - offset) // every > (last_tick - offset) // every


def hour_of(mesh_now: datetime) -> int:
    """The hour, counted from 1970: names one hourly sync."""
    return int(mesh_now.timestamp()) // HOUR_S


def before_first_sync(mesh_now: datetime, sync_minute: int) -> int:
    """The hour that counts as done for an agent that never synced: its first sync is at its next minute, not at
    once, or all agents of a new mesh would sync together."""
    return hour_of(mesh_now) - (mesh_now.minute <= sync_minute)


def sync_due(mesh_now: datetime, sync_minute: int, last_hour: int) -> bool:
    """Whether this hour's sync has still to be done.

    A clock set back by up to two hours waits until it has caught up; further back, counting starts anew.
    """
    hour = hour_of(mesh_now)
    return mesh_now.minute >= sync_minute and (hour > last_hour or hour < last_hour - 2)


def next_sync(mesh_now: datetime, sync_minutes: Mapping[str, int]) -> tuple[datetime, str]:
    """When the next sync is, and whose."""
    upcoming = [(_next_minute(mesh_now, minute), agent) for agent, minute in sync_minutes.items()]
    return min(upcoming)


def phase(mesh_now: datetime, sync_minutes: Mapping[str, int]) -> Phase:
    """`maintenance` from 03:00 to 03:10, `sync` in a minute in which an agent syncs, else `work`."""
    if mesh_now.hour == _MAINTENANCE_HOUR and mesh_now.minute < _MAINTENANCE_MINUTES:
        return "maintenance"
    return "sync" if mesh_now.minute in sync_minutes.values() else "work"


def scheduled_events(mesh_now: datetime, tick: int, sync_minutes: Mapping[str, int]) -> list[dict[str, Any]]:
    """The syncs of the coming hour, as clock.json lists them."""
    events = []
    for agent, minute in sync_minutes.items():
        ahead_min = (_next_minute(mesh_now, minute) - mesh_now.replace(second=0, microsecond=0)) // timedelta(minutes=1)
        if ahead_min <= _EVENTS_AHEAD_MIN:
            events.append({"tick": tick + ahead_min, "event": f"{agent}_hourly_sync"})
    return sorted(events, key=lambda event: (event["tick"], event["event"]))


def _next_minute(mesh_now: datetime, minute: int) -> datetime:
    """The next moment after now whose minute it is."""
    start = mesh_now.replace(minute=minute, second=0, microsecond=0)
    return start if start > mesh_now else start + timedelta(hours=1)
