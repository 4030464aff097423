"""Whether an agent answers at its socket, asked as a hook asks."""

from __future__ import annotations

import socket

from mesh.store.socket_file import short_path

_TIMEOUT_S = 2.0


def silence(path: str) -> str | None:
    """Why nobody answers there, in words; None if an agent does."""
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    try:
        with short_path(path) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_TIMEOUT_S)
            sock.connect(address)
            sock.sendall(request)
            answer = sock.recv(4096)
    except TimeoutError:
        return f"nothing came within {_TIMEOUT_S:g} s"
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None if answer.startswith(b"HTTP/1.1 ") else "what listens there is no agent"
