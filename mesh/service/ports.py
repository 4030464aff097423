"""Listening sockets, and who holds a port that is taken."""

from __future__ import annotations

import errno
import socket

from mesh.errors import PortTaken


def bind(host: str, port: int, agent: str) -> socket.socket:
    """A bound socket for the agent. Raises PortTaken, naming the holder where it can be found out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio would not switch Nagle's delay off: 40 ms on every kept-alive request.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(socket.SOMAXCONN)
    except OSError as error:
        sock.close()
        raise _why(error, host, port, agent) from None
    sock.setblocking(False)
    return sock


def holder(port: int) -> tuple[int, str] | None:
    """Pid and program of who listens on the port, or None where that can't be seen."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr
            if listens and listens.port == port and connection.pid:
                return connection.pid, psutil.Process(connection.pid).name()
    except psutil.Error:
        return None
    return None


def _why(error: OSError, host: str, port: int, agent: str) -> PortTaken:
    facts: dict[str, object] = {"agentId": agent, "port": port}
    if error.errno != errno.EADDRINUSE:
        what = f"{host}:{port} can't be bound: {error.strerror}"
        return PortTaken(f"{agent} can't start: {what}. Change its host or port in registry.json.", **facts)
    found = holder(port)
    facts |= {"pid": found[0], "program": found[1]} if found else {}
    who = f"pid {found[0]} ({found[1]})" if found else "another user's process"
    return PortTaken(
        f"{agent} can't start: port {port} is taken by {who}. Stop that program, give {agent} another port in "
        "registry.json, or move all with `mesh init --base-port`.",
        **facts,
    )
