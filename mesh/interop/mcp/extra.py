"""The official SDK is an extra: the core works without it, and says how to get it where it is needed."""

from __future__ import annotations

from importlib.util import find_spec

from mesh.errors import MeshError

_NAME = "mcp"


def need_sdk() -> None:
    """Raise MeshError unless the SDK is installed."""
    if find_spec(_NAME) is None:
        raise MeshError("The MCP server needs the official SDK, which is an extra: pip install 'agent-mesh[mcp]'.")
