"""APScheduler rings the tick, and nothing else lives in its jobs.

The trigger computes the next slot from the suspend-proof clock. APScheduler itself waits by wall time: after the
wall clock was set, `check` makes it look again, so that a jump back doesn't silence the mesh for as long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger

from mesh.service.core import Core

_JOB = "tick"
#: How far wall and suspend-proof time may drift apart before the ring is set anew.
_JUMP_S = 1.0
#: Ring a little after the slot begins, never a little before it.
_AFTER_S = 0.005


class SlotTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires at the beginning of each slot of the mesh's clock."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime:
        core = self._core
        return now + timedelta(seconds=core.clock.until_next_slot_s(core.time.boottime()) + _AFTER_S)


class Scheduler:
    def __init__(self, core: Core, ring: Callable[[], Awaitable[None]]) -> None:
        self._core = core
        self._offset_s = self._wall_offset_s()
        self._scheduler = AsyncIOScheduler(timezone="UTC")
        # A late ring still rings, once: the gate counts what was missed.
        self._scheduler.add_job(
            ring, SlotTrigger(core), id=_JOB, coalesce=True, max_instances=1, misfire_grace_time=None
        )

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def check(self) -> None:
        """Look whether the wall clock was set, or the count of slots began anew; then ring at the right moment."""
        offset_s = self._wall_offset_s()
        if abs(offset_s - self._offset_s) > _JUMP_S:
            self._offset_s = offset_s
            self.set_anew()

    def set_anew(self) -> None:
        """Compute the next ring afresh."""
        self._scheduler.reschedule_job(_JOB, trigger=SlotTrigger(self._core))

    def _wall_offset_s(self) -> float:
        return self._core.time.wall().timestamp() - self._core.time.boottime()
