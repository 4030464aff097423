"""`GET /health` requests per second against the bare server, in interleaved blocks."""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks.measure import Figure, at_least, free_base_port, initialised_root, interleaved, running, until_healthy

_CONNECTIONS = 16
_REQUESTS_PER_BLOCK = 4000
_BLOCKS = 7


def figures() -> list[Figure]:
    with initialised_root() as (root, base):
        bare_port = free_base_port(1) + 1
        agent = running([sys.executable, "-m", "agents", "chief", "--root", str(root)])
        bare = running([sys.executable, "-m", "benchmarks.bare_server", str(bare_port)])
        with agent, bare:
            until_healthy(base, 1)
            until_healthy(bare_port - 1, 1)
            ours, theirs = interleaved(_BLOCKS, lambda: _rate(base + 1), lambda: _rate(bare_port))
    return [at_least("GET /health", ours, "requests/s", 0.85, "bare FastAPI, same options", theirs)]


def _rate(port: int) -> float:
    return asyncio.run(_load(port))


async def _load(port: int) -> float:
    connections = [await asyncio.open_connection("127.0.0.1", port) for _ in range(_CONNECTIONS)]
    each = _REQUESTS_PER_BLOCK // _CONNECTIONS
    began = time.perf_counter()
    await asyncio.gather(*(_ask(reader, writer, each) for reader, writer in connections))
    rate = each * _CONNECTIONS / (time.perf_counter() - began)
    for _, writer in connections:
        writer.close()
        await writer.wait_closed()
    return rate


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, times: int) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(times):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
