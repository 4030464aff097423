"""Who may type into a pane: one lock a pane, kept by its tmux server, for every process of the host.

tmux's own `wait-for -L` isn't it: a holder that dies would keep it for ever. A user option of the pane is set only if
it isn't set yet, and says when it ends; who finds it past its end swaps it for its own, compared and set in one step.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mesh.clock import Clock
from mesh.errors import RunnerUnfit
from mesh.runners.tmux.pane import NoTarget, Pane, TmuxFailed

OPTION = "@mesh_doorbell"
#: Longer than a doorbell may take from its first look to its last; a holder that is stopped for longer finds that
#: what it wanted to press is refused.
HELD_MAX_S = 60.0
_TRY_EVERY_S = 0.1
_OURS = re.compile(r"[0-9]+-[0-9]+\.[0-9]-[0-9a-f]{8}")


class Taken(RunnerUnfit):
    """Somebody else types into the pane."""


@asynccontextmanager
async def held(pane: Pane, time: Clock, wait_s: float) -> AsyncIterator[str]:
    """Hold the pane's lock; yields the condition (a tmux format) that it is still ours. Raises Taken if
    somebody else holds it for too long, NoTarget if the pane is gone."""
    ours = await _acquire(pane, time, wait_s)
    try:
        yield _is_still(ours)
    finally:
        await _release(pane, ours)


async def _release(pane: Pane, ours: str) -> None:
    try:
        await pane.do_if(_is_still(ours), ("set-option", "-p", "-u", "-t", pane.id, OPTION))
    except TmuxFailed:  # with the pane its lock is gone; else it ends by itself
        return


def _is_still(value: str) -> str:
    return f"#{{==:#{{{OPTION}}},{value}}}"


async def _acquire(pane: Pane, time: Clock, wait_s: float) -> str:
    deadline_s = time.monotonic() + wait_s
    while True:
        # The suspend-proof clock means the same in every process of this boot; a tmux server lives in one boot.
        ours = f"{os.getpid()}-{time.boottime() + HELD_MAX_S:.1f}-{secrets.token_hex(4)}"
        try:
            await pane.tmux("set-option", "-p", "-o", "-t", pane.id, OPTION, ours)
            return ours
        except asyncio.CancelledError:  # it may have been set all the same
            await _release(pane, ours)
            raise
        except NoTarget:
            raise
        except TmuxFailed:
            theirs = await pane.option(OPTION)
        if theirs and not _OURS.fullmatch(theirs):
            await pane.tmux("set-option", "-p", "-u", "-t", pane.id, OPTION)  # nobody would ever take it away
            continue
        take_over = ("set-option", "-p", "-t", pane.id, OPTION, ours)
        if _ended(theirs, time) and await pane.do_if(_is_still(theirs), take_over):
            return ours
        if time.monotonic() >= deadline_s:
            holder = theirs.partition("-")[0]
            raise Taken(f"process {holder} types into pane {pane.id}", state="unknown")
        await asyncio.sleep(_TRY_EVERY_S)


def _ended(value: str, time: Clock) -> bool:
    return bool(value) and float(value.split("-")[1]) <= time.boottime()
