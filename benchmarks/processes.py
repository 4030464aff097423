"""Start, memory and idle processor time of a whole mesh."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.measure import (
    Figure,
    at_most,
    cpu_s,
    family,
    initialised_root,
    mesh_command,
    pss_mb,
    rss_mb,
    running,
    until_healthy,
)

_IMPORTS = "import fastapi, uvicorn, httpx, pydantic, apscheduler"
_BARE = "bare server process"


def figures(idle_s: float) -> list[Figure]:
    """Every figure of this file; `idle_s` is how long the idle mesh is watched."""
    imports_s = statistics.median(_import_s() for _ in range(3))
    bare_mb = _bare_rss_mb()
    found = []
    for mode, start_bar, memory_bar, cpu_bar in (
        ("eight processes", 3.0, 320.0, 2.0),
        ("one process", 2.0, 120.0, 1.0),
    ):
        flags = ["--one-process"] if mode == "one process" else []
        starts = [_start_s(flags) for _ in range(3)]
        with initialised_root() as (root, base), running([mesh_command(), "up", "--root", str(root), *flags]) as mesh:
            until_healthy(base, 8)
            time.sleep(5)  # the first syncs are over
            pids = family(mesh.pid)
            before = cpu_s(pids)
            time.sleep(idle_s)
            used_percent = 100 * (cpu_s(pids) - before) / idle_s
            memory = pss_mb(pids) if mode == "eight processes" else rss_mb(mesh.pid)
        kind = "PSS" if mode == "eight processes" else "RSS"
        found += [
            at_most(
                f"make up to eight healthy, {mode}", statistics.median(starts), "s", start_bar, _IMPORTS, imports_s
            ),
            at_most(f"memory idle, {mode}, {kind}", memory, "MB", memory_bar, _BARE + ", RSS", bare_mb),
            at_most(f"processor idle, {mode}", used_percent, "% of a core", cpu_bar, "seconds watched", idle_s),
        ]
    found.append(at_most("memory, one agent on its own, RSS", _one_agent_mb(), "MB", 65.0, _BARE + ", RSS", bare_mb))
    return found


def _start_s(flags: list[str]) -> float:
    with initialised_root() as (root, base):
        began = time.monotonic()
        with running(["make", "up", f"ROOT={root}", f"ARGS={' '.join(flags)}"]):
            until_healthy(base, 8)
            return time.monotonic() - began


def _one_agent_mb() -> float:
    with initialised_root() as (root, base):
        argv = [sys.executable, "-m", "agents", "chief", "--root", str(root)]
        with running(argv) as agent:
            until_healthy(base, 1)
            time.sleep(3)
            return rss_mb(agent.pid)


def _import_s() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True)
    return time.monotonic() - began


def _bare_rss_mb() -> float:
    with running([sys.executable, "-m", "benchmarks.bare_server", "29999"]) as server:
        until_healthy(29_998, 1)
        return rss_mb(server.pid)
