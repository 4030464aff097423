"""How often a crashed agent is started again.

At once after a first crash, later after a pause that doubles; more crashes than allowed within the window, and it
stays down and is reported, for a person to look at. An exit that says "don't retry" is obeyed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mesh.limits import Limits

#: Exit statuses of an agent's process. A supervisor must not retry after these two …
EXIT_PORT_TAKEN = 3
EXIT_REFUSED = 4
#: … and after this one it retries for as long as it takes: the disk is full, or a lock is held.
EXIT_UNAVAILABLE = 75


@dataclass(frozen=True)
class Restart:
    """Start again after `delay_s`, or leave it down (None) for `reason`."""

    delay_s: float | None
    reason: str
    #: Whether it uses up one of the restarts allowed within the window.
    counts: bool = True


def after_exit(status: int, earlier_s: Sequence[float], now_s: float, limits: Limits) -> Restart:
    """What to do about an agent that exited though it should run. `earlier_s` are the moments of restarts before
    this exit, monotonic. Status 0 is an agent that was asked to end, to be started afresh."""
    if status == EXIT_PORT_TAKEN:
        return Restart(None, "its port is taken")
    if status == EXIT_REFUSED:
        return Restart(None, "it refused to start; see its message")
    if status == EXIT_UNAVAILABLE:
        return Restart(limits.unavailable_retry_s, "the mesh's files can't be used right now", counts=False)
    recent = [moment for moment in earlier_s if now_s - moment <= limits.restarts_window_s]
    if len(recent) >= limits.restarts_max:
        return Restart(None, f"it crashed {len(recent) + 1} times within {limits.restarts_window_s:g} s")
    delay_s = 0.0 if not recent else limits.restart_backoff_s * 2 ** (len(recent) - 1)
    return Restart(delay_s, "asked to restart" if status == 0 else f"it ended with status {status}")
