"""One agent's process: a bound socket, the service behind it, and the exit status that tells a supervisor why.

uvicorn serves; its main loop is replaced, because waking ten times a second is what an idle agent would mostly do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial

import uvicorn

from mesh.clock import SYSTEM
from mesh.errors import (
    DurabilityLost,
    Fenced,
    MeshError,
    NewerSchema,
    PortTaken,
    RegistryInvalid,
    RoleBroken,
    StoreUnavailable,
)
from mesh.policy.healing import EXIT_PORT_TAKEN, EXIT_REFUSED, EXIT_UNAVAILABLE
from mesh.service import ports
from mesh.service.agent import AgentService
from mesh.service.api import build_app
from mesh.service.core import log
from mesh.service.guard import CAME_LOCALLY
from mesh.service.local_socket import LocalSocket
from mesh.service.roles import load
from mesh.store import Store
from mesh.store.locks import SleepingClock
from mesh.store.setup import prepare_agents

_GRACEFUL_S = 2
_BACKLOG = 2048
_BIND_TRIES, _BIND_PAUSE_S = 20, 0.05


class AgentServer(uvicorn.Server):
    """uvicorn for one agent: no signal handlers of its own, no polling, and it can move to another port."""

    def __init__(self, service: AgentService, sock: socket.socket) -> None:
        """`sock` is bound to the address that the registry in force names."""
        entry = service.core.registry.entry(service.core.agent)
        self.service = service
        app = build_app(service.core.role.id, lambda: service)
        self._app = app
        self._sock = sock
        self._ended = asyncio.Event()
        self._address = (entry.host, entry.port)
        self._local = LocalSocket(service.core, _BACKLOG)
        service.on_address = self.listen_at
        service.on_shutdown = lambda reason: self.end()
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                loop="asyncio",
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=_GRACEFUL_S,
                backlog=_BACKLOG,
            )
        )

    async def run_until_ended(self) -> None:
        """Serve until `end`. Raises what kept the agent from starting."""
        await self.serve(sockets=[self._sock])
        failure = getattr(self._app.state, "failure", None)
        if failure is not None:
            raise failure

    def end(self) -> None:
        """Stop serving; the agent's service is stopped on the way."""
        self.should_exit = True
        self._ended.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            self.servers = []
            return
        self.servers = [await self._listen(self._sock)]
        await self._local.open(partial(self._listen, local=True))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._local.close()
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), timeout=1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def listen_at(self, host: str, port: int) -> str | None:
        """Listen at another address, then leave the old one; returns why that can't be, or None.

        A port that is taken may be that of an agent which moves too, perhaps to ours: then the old address is left
        first, and taken back if the new one doesn't become free.
        """
        if (host, port) == self._address:
            return None
        core = self.service.core
        try:
            sock = ports.bind(host, port, core.agent)
        except PortTaken:
            self._close_listeners()
            try:
                sock = await self._bind_soon(host, port)
            except PortTaken as error:
                core.event("move_failed", error.detail, port=port)
                return await self._listen_again(error)
        old, self.servers = self.servers, [await self._listen(sock)]
        for server in old:
            server.close()
        self._address = (host, port)
        core.event("moved", f"listens on {host}:{port} now", port=port)
        return None

    async def _listen_again(self, error: PortTaken) -> str:
        """Back to the old address; if that is taken by now, the process must end: it can't be reached."""
        try:
            self.servers = [await self._listen(await self._bind_soon(*self._address))]
        except PortTaken:
            self.service.core.fatal = error.detail
        return f"it still listens on port {self._address[1]}: {error.detail}"

    def _close_listeners(self) -> None:
        for server in self.servers:
            server.close()
        self.servers = []

    async def _bind_soon(self, host: str, port: int) -> socket.socket:
        """Bind, with a second's patience. Raises PortTaken."""
        for _ in range(_BIND_TRIES):
            with contextlib.suppress(PortTaken):
                return ports.bind(host, port, self.service.core.agent)
            await asyncio.sleep(_BIND_PAUSE_S)
        return ports.bind(host, port, self.service.core.agent)

    async def _listen(self, sock: socket.socket, *, local: bool = False) -> asyncio.Server:
        """Serve who connects to this bound socket; every request carries whether that is the `local` one."""
        config = self.config
        state = {**self.lifespan.state, CAME_LOCALLY: local}

        def protocol() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=state
            )

        loop = asyncio.get_running_loop()
        return await loop.create_server(protocol, sock=sock, backlog=config.backlog)


async def serve_agent(agent: str, root: str, tick_seconds: float, life: int | None) -> None:
    """Run one agent in this event loop until SIGTERM, SIGINT or the end of its supervisor, which `life`, the
    reading end of a pipe, tells. Raises MeshError if it can't start or go on."""
    server = open_agent(agent, root, tick_seconds)
    loop = asyncio.get_running_loop()
    if life is not None:

        def orphaned() -> None:
            loop.remove_reader(life)
            server.end()

        loop.add_reader(life, orphaned)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.end)
    await server.run_until_ended()
    if server.service.core.fatal:
        raise MeshError(f"{agent} ends: {server.service.core.fatal}")


def open_agent(agent: str, root: str, tick_seconds: float, time: SleepingClock = SYSTEM) -> AgentServer:
    """The agent's server, its port bound and earlier incarnations locked out. Binding comes first: who can't
    serve must not lock out who does."""
    outside = Store(root)
    registry = outside.registry.current
    entry = registry.entry(agent)
    prepare_agents(outside, registry)  # an agent that was added by hand has no secret yet
    sock = ports.bind(entry.host, entry.port, agent)
    try:
        role = load(agent, outside.persona(agent))
        server: AgentServer | None = None

        def fatal(reason: str) -> None:
            log.error("%s ends: %s", agent, reason)
            if server is not None:
                server.end()

        service = AgentService(role, root, tick_seconds=tick_seconds, time=time, on_fatal=fatal)
        server = AgentServer(service, sock)
        return server
    except BaseException:
        sock.close()
        raise


def run_agent(agent: str, root: str, tick_seconds: float, life: int | None = None) -> int:
    """The whole life of an agent's process; returns its exit status: 0 asked to end, 1 failed, 3 port taken,
    4 refused to start. Says why in one line on stderr."""
    set_up_logging()
    set_title(f"mesh: {agent}")
    try:
        asyncio.run(serve_agent(agent, root, tick_seconds, life))
    except MeshError as error:
        with contextlib.suppress(OSError):  # its output may lie on the very disk that is full
            sys.stderr.write(f"mesh: {error.detail}\n")
        return exit_status(error)
    return 0


def exit_status(error: MeshError) -> int:
    """What a supervisor is told."""
    if isinstance(error, PortTaken):
        return EXIT_PORT_TAKEN
    if isinstance(error, StoreUnavailable) and not isinstance(error, NewerSchema | DurabilityLost | Fenced):
        return EXIT_UNAVAILABLE
    return EXIT_REFUSED if isinstance(error, RegistryInvalid | NewerSchema | RoleBroken) else 1


def set_title(title: str) -> None:
    """Name the process in `ps` and `top`."""
    import setproctitle

    setproctitle.setproctitle(title)


def set_up_logging() -> None:
    """Warnings and worse to stderr, one line each."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    # A late ring is the gate's business, which counts missed ticks.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
