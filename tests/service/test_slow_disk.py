"""A disk that doesn't answer makes an agent slow to write, not deaf and not dead."""

from __future__ import annotations

import asyncio
import threading

from mesh.errors import StoreUnavailable
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


async def test_a_clock_that_a_hung_process_holds_is_reported_with_its_holder(mesh: Mesh) -> None:
    mesh.limit(lockWaitS=0.2)
    async with mesh.running("ada", tick_seconds=0.05) as ada:
        with mesh.store.locks.hold("system/clock.json"):
            alert = await until(lambda: next((a for a in mesh.store.alerts.open() if a.type == "clock_held"), None))
            assert mesh.store.locks.holder in alert.next and "system/clock.json" in alert.detail
            tick = ada.service.core.clock.tick
        await until(lambda: ada.service.core.clock.tick > tick)
        await until(lambda: not mesh.store.alerts.open())


async def test_a_root_that_can_not_be_written_is_not_healthy(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        write = ada.service.core.store.write_state

        def fail(state: object) -> None:
            raise StoreUnavailable("Could not write state.json: Read-only file system.")

        ada.service.core.store.write_state = fail  # type: ignore[assignment]
        await ada.service.core.save()
        status, reasons = ada.service.core.health()
        assert status == "degraded" and "Read-only" in reasons[0]
        ada.service.core.store.write_state = write  # type: ignore[method-assign]
        await ada.service.core.save()
        assert ada.service.core.health()[0] == "healthy"


async def test_a_beat_file_that_somebody_removed_is_made_again(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        await until(lambda: mesh.store.beat("ada"))
        (mesh.root / "agents/ada/beat").unlink()
        beat = await until(lambda: mesh.store.beat("ada"))
        assert beat.incarnation == ada.service.core.incarnation
        await until(lambda: (now := mesh.store.beat("ada")) and now.sequence > beat.sequence + 2)
