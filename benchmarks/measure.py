"""What every benchmark shares: results, medians of interleaved blocks, a mesh to measure."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

BARE_MAX_PER_S = 10_000


@dataclass(frozen=True)
class Figure:
    """One line of bench.json. `ok` is None where the figure means nothing on this machine."""

    name: str
    value: float
    unit: str
    yardstick: str
    yardstickValue: float
    ratio: float | None
    bar: str
    ok: bool | None

    def dump(self) -> dict[str, object]:
        return asdict(self)


def at_most(name: str, value: float, unit: str, bar: float, yardstick: str, yardstick_value: float) -> Figure:
    """A figure with an upper bar of its own; the yardstick shows how fast this machine is."""
    ratio = value / yardstick_value if yardstick_value else None
    return Figure(name, round(value, 4), unit, yardstick, round(yardstick_value, 4), ratio, f"≤ {bar:g}", value <= bar)


def at_least(name: str, value: float, unit: str, bar: float, yardstick: str, yardstick_value: float) -> Figure:
    """A rate that must reach a share of the yardstick's."""
    ratio = value / yardstick_value
    return Figure(
        name, round(value, 1), unit, yardstick, round(yardstick_value, 1), ratio, f"≥ {bar:g} ×", ratio >= bar
    )


def exactly(name: str, value: float, unit: str, yardstick: str, yardstick_value: float) -> Figure:
    """A count that must be zero."""
    return Figure(name, value, unit, yardstick, yardstick_value, None, "= 0", value == 0)


def quantile(values: list[float], share: float) -> float:
    """The value below which this share of them lies; of the sorted values themselves, none is invented."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def interleaved(blocks: int, *runs: Callable[[], float]) -> list[float]:
    """The median rate of each run, blocks taken in turns so that a drifting machine drifts for all."""
    rates: list[list[float]] = [[] for _ in runs]
    for _ in range(blocks):
        for found, run in zip(rates, runs, strict=True):
            found.append(run())
    return [statistics.median(found) for found in rates]


def mesh_command() -> str:
    """The installed `mesh` of the environment that runs the benchmark."""
    return str(Path(sys.executable).with_name("mesh"))


def free_base_port(count: int = 8) -> int:
    """A base port above which `count` ports are free."""
    for base in range(30_000, 60_000, 50):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base + 1, base + 1 + count):
                    sock = stack.enter_context(socket.socket())
                    sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise RuntimeError("no free block of ports")


@contextlib.contextmanager
def initialised_root() -> Iterator[tuple[Path, int]]:
    """A root on the disk that the checkout lies on, and its base port."""
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path.cwd()))
    try:
        base = free_base_port()
        root = folder / "root"
        subprocess.run(
            [mesh_command(), "init", "--root", str(root), "--base-port", str(base)], check=True, capture_output=True
        )
        yield root, base
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def running(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs while the block does; then its process group is asked to end."""
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def until_healthy(base: int, count: int, wait_s: float = 30.0) -> float:
    """Seconds until all ports answer `GET /health` with 200."""
    began = time.monotonic()
    waiting = set(range(base + 1, base + 1 + count))
    while waiting:
        waiting = {port for port in waiting if not _answers(port)}
        if waiting:
            if time.monotonic() - began > wait_s:
                raise RuntimeError(f"not healthy after {wait_s} s: {sorted(waiting)}")
            time.sleep(0.01)
    return time.monotonic() - began


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += family(int(child))
    return found


def pss_mb(pids: list[int]) -> float:
    """Memory of the processes in all, shared pages counted once."""
    return sum(_rollup(pid, "Pss:") for pid in pids) / 1000


def rss_mb(pid: int) -> float:
    """Memory of one process, shared pages included."""
    return _rollup(pid, "Rss:") / 1000


def cpu_s(pids: list[int]) -> float:
    """Processor time that the processes have used so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _rollup(pid: int, key: str) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(key):
            return float(line.split()[1])
    raise RuntimeError(f"no {key} of {pid}")
