"""Ends programs that work for agents when their daemons can't: the mesh goes down, an agent is to stay stopped, a pause
must hold though its daemon hangs. What the work had is kept as its own daemon would keep it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mesh.errors import MeshError
from mesh.models.running import RunRecord
from mesh.service import keeper, worktrees
from mesh.service.core import log
from mesh.store import Store
from mesh.store.switches import ALL

#: A daemon that is well ends its work within this after a pause; two seconds are promised.
PAUSE_OBEYED_S = 1.2
#: Then programs get this long to end by themselves.
PAUSE_GRACE_S = 0.5


def live_runs(store: Store, agents: Iterable[str]) -> list[RunRecord]:
    """The runs of these agents whose processes exist. From the record of places: nothing else is read."""
    wanted = set(agents)
    found = []
    for place in store.places.taken():
        if place.agent in wanted:
            run = store.runs.find(place.agent, place.run)
            if run is not None and store.runs.is_alive(run):
                found.append(run)
    return found


def end_runs(store: Store, agents: Iterable[str], reason: str, grace_s: float) -> list[RunRecord]:
    """End what works for these agents, all at once; each goes on from there with its next attempt. Returns what was
    ended."""
    runs = live_runs(store, agents)

    async def end_all() -> None:
        await asyncio.gather(*(end_run(store, run, reason, grace_s) for run in runs))

    if runs:
        asyncio.run(end_all())
    return runs


async def end_run(store: Store, run: RunRecord, reason: str, grace_s: float) -> None:
    """End one run: recorded first, so that it isn't taken up again, then its processes, then its work is kept."""
    run.stopped = reason
    store.runs.save(run)
    assert run.pid is not None and run.started is not None
    await keeper.end(run.pid, run.started, run.id, grace_s)
    await keep_patch(store, run)
    store.places.leave(run.id)
    store.runs.drop_temporary(run)
    store.journal.event(run.agent, "work_ended", reason, run=run.id, taskId=run.task_id)


async def keep_patch(store: Store, run: RunRecord) -> None:
    """Save what is uncommitted as a patch beside the run; the worktree itself stays as it is."""
    if run.checkout is None:
        return
    try:
        patch = await worktrees.patch_of(run.checkout, f"{store.runs.folder(run.agent, run.id)}/index")
        if patch:
            run.patch = store.runs.keep(run, "uncommitted.patch", patch)
            store.runs.save(run)
    except MeshError as error:
        log.warning("%s: no patch of %s: %s", run.agent, run.checkout.path, error.detail)


class PauseGuard:
    """Makes a pause hold for programs whose daemons hang: whoever supervises looks a few times a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since_s: dict[str, float] = {}

    def overdue(self, agents: Iterable[str], now_s: float) -> list[str]:
        """Agents that are paused, and whose daemons have had the time to end their work and haven't."""
        paused = self._store.switches.paused()
        held = [agent for agent in agents if ALL in paused or agent in paused] if paused else []
        self._since_s = {agent: self._since_s.get(agent, now_s) for agent in held}
        late = [agent for agent, since_s in self._since_s.items() if now_s - since_s > PAUSE_OBEYED_S]
        return sorted({run.agent for run in live_runs(self._store, late)}) if late else []
