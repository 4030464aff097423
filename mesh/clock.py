"""Wall and monotonic time: the only place that reads a clock.

Decisions come from monotonic intervals (I10); wall time is for display, triggers and expiry. `boottime` goes on
through suspend and means the same in every process of this boot, so it dates what processes compare.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import cache
from typing import Protocol

MINUTE_S = 60.0


class Clock(Protocol):
    """What the mesh needs of time. Tests pass a fake."""

    def wall(self) -> datetime:
        """Now, in UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, of this process' host, without time asleep."""
        ...

    def boottime(self) -> float:
        """Seconds since boot, time asleep included; comparable between processes of one boot."""
        ...

    def boot_id(self) -> str:
        """Names this boot of the host."""
        ...


class SystemClock:
    """The host's clocks."""

    def wall(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot_id(self) -> str:
        return _boot_id()

    def sleep(self, seconds: float) -> None:
        """Block this thread; for synchronous code only (lock waits, the supervisor)."""
        time.sleep(seconds)


@cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # no /proc: one id for all boots, so that only a changed slot tells them apart
        return "unknown-boot"


SYSTEM = SystemClock()
_ISO = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}([T ][0-9:.,]+(Z|[+-][0-9:]+)?)?")


def iso(moment: datetime) -> str:
    """ISO 8601 UTC with milliseconds and `Z`, as every file and answer writes times."""
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds")[:-6] + "Z"


def parse(text: str) -> datetime:
    """The moment that `iso` wrote; also takes other ISO 8601 forms. Raises ValueError."""
    if _ISO.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a time such as 2026-02-16T20:45:00.000Z")
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is beyond what a calendar holds") from None
