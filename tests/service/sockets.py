"""Agents of a test mesh behind real sockets of the loopback interface, in this event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mesh.service import ports
from mesh.service.server import AgentServer
from tests.service.stage import Mesh, until


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def free_ports(mesh: Mesh) -> None:
    """Give every agent a port that nobody listens on."""
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in mesh.roles]
    numbers = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()

    def change(document: dict[str, Any]) -> None:
        for number, entry in zip(numbers, document["agents"].values(), strict=True):
            entry["port"] = number

    mesh.edit(change)


@asynccontextmanager
async def listening(mesh: Mesh, agent: str, **options: Any) -> AsyncIterator[AgentServer]:
    """One agent behind its socket, from its start to its end."""
    entry = mesh.store.registry.check().entry(agent)
    server: list[AgentServer] = []
    options.setdefault("on_fatal", lambda reason: server[0].end())
    sock = ports.bind(entry.host, entry.port, agent)
    try:
        server.append(AgentServer(mesh.service(agent, **options), sock))
    except BaseException:
        sock.close()
        raise
    running = asyncio.ensure_future(server[0].run_until_ended())
    try:
        await until(lambda: server[0].started or running.done())
        if running.done():
            running.result()
        yield server[0]
    finally:
        server[0].end()
        await running
