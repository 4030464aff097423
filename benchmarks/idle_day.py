"""A day of idle ticks, simulated: eight real services, real files and sockets, a clock that is moved.

Counts what would be a model call: work given to a runner, and connections to anywhere but the mesh's own ports.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.measure import Figure, initialised_root
from mesh.models import Task
from mesh.runners.base import Report
from mesh.runners.skills import SkillsRunner
from mesh.service.server import AgentServer, open_agent

_TICKS = 24 * 60


class MovedClock:
    """A clock that only moves when told to; the bench's own, in place of the host's."""

    def __init__(self) -> None:
        self._s = 1_000.0
        self._began = datetime(2026, 2, 16, tzinfo=UTC)

    def advance(self, seconds: float) -> None:
        self._s += seconds

    def wall(self) -> datetime:
        return self._began + timedelta(seconds=self._s)

    def monotonic(self) -> float:
        return self._s

    def boottime(self) -> float:
        return self._s

    def boot_id(self) -> str:
        return "bench"

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))


def figures() -> list[Figure]:
    foreign: list[Any] = []
    runs: list[str] = []
    with initialised_root() as (root, base):
        ours = range(base + 1, base + 9)

        def watch(event: str, arguments: Iterable[Any]) -> None:
            if event == "socket.connect":
                address = list(arguments)[1]
                if not (isinstance(address, tuple) and address[0] == "127.0.0.1" and address[1] in ours):
                    foreign.append(address)

        sys.addaudithook(watch)
        ticks, syncs = asyncio.run(_day(str(root), runs))
    if ticks != _TICKS or syncs < 8 * 23:
        raise RuntimeError(f"the day was not lived through: {ticks} ticks, {syncs} syncs")
    calls = float(len(foreign) + len(runs))
    return [Figure("model calls in a day of idle ticks", calls, "calls", "ticks", float(ticks), None, "= 0", not calls)]


async def _day(root: str, runs: list[str]) -> tuple[int, int]:
    run = SkillsRunner.run

    async def counted(self: SkillsRunner[Any], task: Task, context: Any) -> Report:
        runs.append(task.title)
        return await run(self, task, context)

    SkillsRunner.run = counted  # type: ignore[method-assign]
    clock = MovedClock()
    servers: list[AgentServer] = []
    for agent in ("chief", "coder", "sales", "finance", "intel", "devops", "comms", "ops"):
        servers.append(open_agent(agent, root, 60.0, clock))
    lives = [asyncio.create_task(server.run_until_ended()) for server in servers]
    while not all(server.started for server in servers):  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    first = servers[0].service.core.clock.tick
    for _ in range(_TICKS):
        clock.advance(60.0)
        await asyncio.gather(*(server.service.tick() for server in servers))
        await asyncio.gather(*(server.service.rounds_done() for server in servers))
    last = servers[0].service.core.clock.tick
    syncs = len(servers[0].service.core.store.files.names(servers[0].service.core.store.layout.syncs))
    for server in servers:
        server.end()
    await asyncio.gather(*lives)
    return last - first, syncs
