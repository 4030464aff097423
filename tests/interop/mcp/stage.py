"""A real MCP server on a real port of this event loop, and the official client for it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from mesh.interop.mcp.desk import Desk
from mesh.interop.mcp.server import HttpServer, address
from mesh.service import ports
from tests.service.stage import Mesh, until

TOOLS = {
    "whoami",
    "check_inbox",
    "read_message",
    "ack_message",
    "send_message",
    "broadcast",
    "list_agents",
    "create_task",
    "next_task",
    "update_task",
    "complete_task",
    "fail_task",
    "report_blocker",
    "resolve_blocker",
    "log_decision",
    "share_insight",
    "ask_for_help",
    "handoff_task",
    "my_context",
}


@dataclass
class Session:
    """One client that acts as one agent."""

    client: Client

    async def __call__(self, name: str, /, **arguments: Any) -> Any:
        """What the tool answers. Fails where it refuses."""
        result: Any = await self.client.call_tool(name, arguments)
        assert not result.is_error, result.content[0].text
        assert result.structured_content is not None
        return result.structured_content

    async def refused(self, name: str, /, **arguments: Any) -> str:
        """Why the tool refuses. Fails where it doesn't."""
        result: Any = await self.client.call_tool(name, arguments)
        assert result.is_error, result.structured_content
        text = str(result.content[0].text)
        assert text.startswith(f"Error executing tool {name}: "), text  # a bug of ours would say no more than the name
        return text.removeprefix(f"Error executing tool {name}: ")


@dataclass
class Tools:
    """The server of a mesh."""

    url: str
    mesh: Mesh
    desk: Desk

    @asynccontextmanager
    async def of(self, agent: str, secret: str | None = None) -> AsyncIterator[Session]:
        """A client with this agent's secret."""
        headers = {"Authorization": f"Bearer {secret or self.mesh.secret(agent)}"}
        http = httpx2.AsyncClient(headers=headers, timeout=20)
        async with http, connected(Client(streamable_http_client(self.url, http_client=http))) as session:
            yield session


@asynccontextmanager
async def serving(mesh: Mesh) -> AsyncIterator[Tools]:
    """The server of this mesh on a free port, from its start to its end."""
    desk = Desk(str(mesh.root))
    server = HttpServer(desk)
    sock = ports.bind("127.0.0.1", 0, "mcp")
    running = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        await until(lambda: server.started or running.done())
        yield Tools(address(sock.getsockname()[1]), mesh, desk)
    finally:
        server.end()
        await running
        await desk.close()


@asynccontextmanager
async def on_stdio(mesh: Mesh, agent: str) -> AsyncIterator[Session]:
    """`mesh mcp stdio` as a process of its own, as a CLI starts it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")}
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mesh", "mcp", "stdio", "--agent", agent, "--root", str(mesh.root)],
        env=environment,
    )
    async with connected(Client(stdio_client(started))) as session:
        yield session


@asynccontextmanager
async def connected(client: Client) -> AsyncIterator[Session]:
    """The client, connected. One task opens and closes it: fixtures are set up and torn down in two."""
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def hold() -> None:
        async with client:
            opened.set_result(None)
            await ended.wait()

    holding = asyncio.ensure_future(hold())
    await asyncio.wait({holding, opened}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if opened.done():
            yield Session(client)
    finally:
        ended.set()
        await holding
