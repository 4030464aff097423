"""The mesh's clock: one tick a slot, carried by whichever agent comes first (I6).

A slot is a minute of this boot's suspend-proof clock since `originS`, so a jump of the wall clock neither repeats
nor stops the ticks. Every agent passes the same gate each slot; who finds the slot not yet taken writes tick + 1
durably and carries it. Nobody stays carrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from mesh import clock
from mesh.models import ClockFile
from mesh.store.documents import CLOCK, Documents
from mesh.store.layout import Layout
from mesh.store.locks import Locks


@dataclass(frozen=True)
class Passed:
    """What came of passing the gate: the clock as it stands, and whether this agent carries the tick."""

    clock: ClockFile
    carries: bool


class Ticks:
    def __init__(self, documents: Documents, locks: Locks, layout: Layout, time: clock.Clock) -> None:
        self._documents = documents
        self._locks = locks
        self._layout = layout
        self._time = time
        #: The highest tick that this process has seen: should the file be lost, the count goes on from there.
        self._seen = 0

    def read(self) -> ClockFile:
        """The clock as it stands; all zero before the first tick."""
        now = ClockFile.model_validate(self._documents.read(self._layout.clock, CLOCK) or CLOCK.empty())
        self._seen = max(self._seen, now.tick)
        return now

    def pass_gate(self, agent: str, tick_seconds: float) -> Passed:
        """Pass the gate of the present slot. Raises LockTimeout if a holder hangs."""
        now = self.read()
        if self._same_count(now, tick_seconds) and now.slot_at(self._time.boottime()) <= now.slot:
            return Passed(now, carries=False)
        with self._locks.hold("system/clock.json"):
            document = self._documents.read_held(self._layout.clock, CLOCK)
            if document is None:  # never written, or deleted: a tick must not come twice
                document = self._documents.last_good(self._layout.clock, CLOCK) or CLOCK.empty()
            now = ClockFile.model_validate(document)
            wall = self._time.wall()
            if not self._same_count(now, tick_seconds):
                now = self._new_count(now, tick_seconds, wall)
            else:
                slot = now.slot_at(self._time.boottime())
                if slot <= now.slot:
                    return Passed(now, carries=False)
                now.missed += slot - now.slot - 1
                now.slot = slot
            now.tick = self._seen = max(now.tick, self._seen) + 1
            now.carrier = agent
            now.timestamp = clock.iso(wall)
            self._documents.write(self._layout.clock, now.dump())
            return Passed(now, carries=True)

    def record(self, refreshed: ClockFile) -> None:
        """Write what the carrier worked out (phase, next sync, events), unless a later tick was carried."""
        with self._locks.hold("system/clock.json"):
            document = self._documents.read_held(self._layout.clock, CLOCK)
            if document is not None and document["tick"] == refreshed.tick:
                self._documents.write(self._layout.clock, refreshed.dump())

    def _same_count(self, now: ClockFile, tick_seconds: float) -> bool:
        return now.boot_id == self._time.boot_id() and now.tick_seconds == tick_seconds and now.tick > 0

    def _new_count(self, now: ClockFile, tick_seconds: float, wall: datetime) -> ClockFile:
        """After a reboot, or with other tick lengths, slots are counted anew; the tick goes on from where it
        was. Slots of a minute begin with the minutes of the wall clock as it is now."""
        boottime = self._time.boottime()
        into_slot = wall.timestamp() % tick_seconds
        began = wall - timedelta(seconds=into_slot)
        counted = now.model_copy()
        counted.boot_id = self._time.boot_id()
        counted.tick_seconds = tick_seconds
        counted.origin_s = round(boottime - into_slot, 6)
        counted.slot = counted.epoch_slot = 0
        # Fast ticks start on a whole minute of mesh time, so that sync minutes and triggers are met.
        counted.mesh_epoch = clock.iso(began.replace(second=0, microsecond=0))
        return counted
