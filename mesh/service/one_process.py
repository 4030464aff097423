"""`mesh up --one-process`: all agents in one process and one event loop, for a small VPS.

An agent whose service fails is started again as under the forking supervisor; what only a process of its own can
survive (a blocked loop, a crash of the interpreter) takes all agents with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable

from mesh.errors import MeshError
from mesh.service.core import log
from mesh.service.roster import Roster
from mesh.service.run_ends import PAUSE_GRACE_S, PauseGuard, end_runs
from mesh.service.server import AgentServer, exit_status, open_agent
from mesh.service.supervisor import LOOK_S, hold_supervision
from mesh.store import Store


class OneProcess:
    def __init__(self, store: Store, tick_seconds: float, on_look: Callable[[OneProcess], None]) -> None:
        self.store = store
        self.roster = Roster(store)
        self._pause_guard = PauseGuard(store)
        self._holding: asyncio.Task[object] | None = None
        self.tick_seconds = tick_seconds
        self._on_look = on_look
        self._servers: dict[str, AgentServer] = {}
        self._lives: dict[str, asyncio.Task[int]] = {}
        self._ending = asyncio.Event()

    async def run(self) -> int:
        """Returns the exit status once every agent has stopped."""
        hold_supervision(self.store, "one process", self.tick_seconds)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        if sys.stdin is not None and sys.stdin.isatty():
            loop.add_signal_handler(signal.SIGHUP, self._ending.set)
        showing: asyncio.Task[None] | None = None
        while not self._ending.is_set():
            self._look()
            if showing is None or showing.done():
                # Reads files, and may wait for a lock to mend one: not on the loop that all agents share.
                showing = asyncio.create_task(asyncio.to_thread(self._on_look, self))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), LOOK_S)
        for server in self._servers.values():
            server.end()
        if self._lives:
            await asyncio.wait(self._lives.values(), timeout=self.roster.limits.stop_grace_s + 2)
        grace_s = self.roster.limits.stop_grace_s
        await asyncio.to_thread(end_runs, self.store, self.roster.entries, "the mesh was taken down", grace_s)
        return 0

    def _look(self) -> None:
        now_s = self.store.time.monotonic()
        for agent, life in list(self._lives.items()):
            if life.done():
                del self._lives[agent]
                self._servers.pop(agent, None)
                self.roster.ended(agent, life.result(), now_s)
        try:
            self.roster.refresh()
            for verb, agent in self.roster.take_requests():
                self.roster.start_now(agent)
                if verb == "restart" and agent in self._servers:
                    self._stop(agent)
        except MeshError as error:
            self.roster.report_held_up(error)
        late = self._pause_guard.overdue(self.roster.entries, now_s)
        if late and (self._holding is None or self._holding.done()):
            ending = asyncio.to_thread(end_runs, self.store, late, "paused", PAUSE_GRACE_S)
            self._holding = asyncio.create_task(ending)
        for agent in self.roster.to_stop():
            self._stop(agent)
        for agent in self.roster.to_start(now_s):
            self.roster.started(agent)
            self._lives[agent] = asyncio.create_task(self._live(agent), name=agent)

    def _stop(self, agent: str) -> None:
        self.roster.entries[agent].expected = True
        if agent in self._servers:
            self._servers[agent].end()

    async def _live(self, agent: str) -> int:
        try:
            root = self.store.layout.root
            server = self._servers[agent] = await asyncio.to_thread(open_agent, agent, root, self.tick_seconds)
            await server.run_until_ended()
            return 1 if server.service.core.fatal else 0
        except MeshError as error:
            log.error(error.detail)
            return exit_status(error)
        except Exception:
            log.exception("%s failed", agent)
            return 1
