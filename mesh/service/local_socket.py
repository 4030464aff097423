"""The agent's Unix socket, beside its port: the same application, and no secret needed by the mesh's user."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from mesh.errors import MeshError
from mesh.service.core import Core
from mesh.store.socket_file import SocketFile


class LocalSocket:
    """Listens at the agent's place for its socket, from `open` to `close`. The newest incarnation owns the place."""

    def __init__(self, core: Core, backlog: int) -> None:
        self._core = core
        self._backlog = backlog
        self._file: SocketFile | None = None
        self._server: asyncio.Server | None = None

    async def open(self, listen: Callable[[socket.socket], Awaitable[asyncio.Server]]) -> None:
        """Have `listen` serve the socket. Where none can be made, the agent goes on without and tells so."""
        core = self._core
        try:
            path = core.store.layout.socket(core.agent)
            self._file = await core.io(SocketFile, core.store.files, path, self._backlog)
        except MeshError as error:
            core.event("socket_unavailable", error.detail)
            return
        self._server = await listen(self._file.sock)

    def close(self) -> None:
        """Take no more connections, and the file away if it is still ours."""
        if self._file is not None:
            self._file.remove()
        if self._server is not None:
            self._server.close()
