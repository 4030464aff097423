"""Spans of time as reports compute and say them."""

from __future__ import annotations

from datetime import datetime, timedelta

from mesh import clock


def since(moment: str | None, now: datetime) -> timedelta | None:
    """How long ago a recorded moment is, never negative; None where none is recorded or it can't be read."""
    return None if moment is None else between(moment, clock.iso(now))


def between(start: str | None, end: str | None) -> timedelta | None:
    """The span between two recorded moments. A clock that was set back makes it zero, not negative."""
    try:
        span = clock.parse(end or "") - clock.parse(start or "")
    except ValueError:
        return None
    return max(span, timedelta(0))


def say(span: timedelta | None) -> str:
    """A span in its two largest units, such as `3 d 4 h`; a dash for an unknown one."""
    if span is None:
        return "–"
    minutes = int(span.total_seconds() // 60)
    days, hours, minutes = minutes // 1440, minutes % 1440 // 60, minutes % 60
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{minutes} min" if minutes else f"{int(span.total_seconds())} s"
