"""A mesh of four that is down, and its MCP server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.interop.mcp.stage import Session, Tools, serving
from tests.service.conftest import ada, blank, mesh
from tests.service.stage import Mesh

__all__ = ["ada", "blank", "mesh"]


@pytest_asyncio.fixture(loop_scope="function")
async def tools(mesh: Mesh) -> AsyncIterator[Tools]:
    async with serving(mesh) as tools:
        yield tools


@pytest_asyncio.fixture(loop_scope="function")
async def bob(tools: Tools) -> AsyncIterator[Session]:
    """A client that acts as bob."""
    async with tools.of("bob") as session:
        yield session
