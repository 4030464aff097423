"""A disk that doesn't answer makes an agent slow to write, not deaf and not dead."""

from __future__ import annotations

import asyncio
import threading

from tests.service.stage import Mesh, until


async def test_a_hung_writer_leaves_beats_and_health_alive_and_shows_as_degraded(mesh: Mesh) -> None:
    mesh.limit(lockWaitS=0.2, beatIntervalS=0.1, fileFreshS=0.1)
    async with mesh.running("ada") as ada, ada.client() as client:
        core = ada.service.core
        free = threading.Event()
        hung = asyncio.ensure_future(core.io(free.wait))
        mesh.store.switches.pause("bob", "human")  # looks go on as well
        before = mesh.store.beat("ada")
        assert before is not None
        await until(lambda: core.health()[0] == "degraded")
        await until(lambda: (beat := mesh.store.beat("ada")) and beat.sequence >= before.sequence + 5)
        found = (await client.get("/health")).json()
        assert found["status"] == "degraded" and "a write waiting" in found["reasons"][0]
        free.set()
        await hung
        await until(lambda: core.health()[0] == "healthy")
