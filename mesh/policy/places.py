"""How many CLI programs run at once on the host, and who may start one now.

One takes 1 to 2 GB: a host that is out of memory kills what happens to be largest, which is nobody's decision.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.models.running import Place


def places_max(limit: int | None, running: int, available_mb: float, each_mb: float) -> int:
    """The number of places. Without a limit of the registry's as many as free memory holds, beside what runs already
    and has its memory; always one, or nothing would ever get done."""
    return limit if limit is not None else max(1, running + int(available_mb // each_mb))


def why_wait(ask: Place, taken: Sequence[Place], earlier: Sequence[Place], places: int) -> str | None:
    """Why this one can't start now, in words; None if it can. Who waits for longer goes first, unless it waits for a
    checkout that this one leaves alone."""
    writer = _writer(ask, taken)
    if writer is not None:
        return f"{ask.writes} is being worked in by {writer.agent} ({writer.title})"
    if ask.light:
        return None
    taken = [place for place in taken if not place.light]
    ahead = [other for other in earlier if _writer(other, taken) is None]
    if len(taken) + len(ahead) < places:
        return None
    running = ", ".join(f"{place.agent} ({place.title})" for place in taken) or "nobody"
    line = f"; {len(ahead)} wait before it" if ahead else ""
    return f"all {places} places for CLI programs are taken: {running}{line}"


def _writer(ask: Place, taken: Sequence[Place]) -> Place | None:
    return next((place for place in taken if ask.writes is not None and place.writes == ask.writes), None)
