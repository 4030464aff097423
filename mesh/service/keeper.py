"""Starts and ends the processes that do an agent's work and outlive its daemon.

Each is the child of a keeper, a shell that waits for it and leaves its exit status in a file: a daemon that was
started later can't wait for it itself. Keeper and program are a session and process group of their own, under systemd
a scope of their own, so that what ends the daemon doesn't end them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import psutil

from mesh.errors import RunnerUnfit
from mesh.store.incarnations import process_started

_KEEPER = """
d=$1 in=$2; cd "$3" || exit 72; shift 3
"$@" <"$in" >>"$d/stdout" 2>>"$d/stderr"
echo $? >"$d/status.new"; mv "$d/status.new" "$d/status"
"""
_MARK = "MESH_RUN"
_LOOK_S = 0.05
_SCOPE_PROBE_S = 5.0


def start(
    folder: str, cwd: str, argv: Sequence[str], environment: Mapping[str, str], stdin: str, scope: Sequence[str] = ()
) -> tuple[int, float]:
    """Start the program; returns the pid of its keeper and when that began. Raises RunnerUnfit."""
    keeper = [*scope, "/bin/sh", "-c", _KEEPER, "mesh-run", folder, stdin, cwd, *argv]
    null = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        pid = os.posix_spawnp(keeper[0], keeper, dict(environment), file_actions=null, setsid=True)
    except OSError as error:
        raise RunnerUnfit(f"{argv[0]} can't be started: {error.strerror}.", state="missing") from None
    return pid, process_started(pid) or 0.0


def reap(pid: int) -> None:
    """Take the exit status of a child that has ended; one that an earlier daemon started is nobody's child here."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def end(pid: int, started: float, run: str, grace_s: float) -> None:
    """End the program, all of its group, and whatever else carries the run's mark: ask, wait, then kill."""
    if process_started(pid) != started and not _marked(run):
        return
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, grace_s)):
        _signal(pid, started, run, number)
        waited_s = 0.0
        while waited_s < patience_s:
            reap(pid)
            if not _group_lives(pid) and not _marked(run):
                return
            await asyncio.sleep(_LOOK_S)
            waited_s += _LOOK_S


def _signal(pid: int, started: float, run: str, number: signal.Signals) -> None:
    if process_started(pid) == started or _group_lives(pid):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
    for process in _marked(run):
        with suppress(psutil.Error):
            process.send_signal(number)


def _group_lives(pid: int) -> bool:
    """Whether the group has a member that is no zombie."""
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return any(_group_of(process) == pid for process in _running())


def _group_of(process: psutil.Process) -> int | None:
    with suppress(OSError):
        return os.getpgid(process.pid)
    return None


def _running() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _marked(run: str) -> list[psutil.Process]:
    """What was started by the run and has left its group: daemons of CLIs do."""
    found = []
    for process in _running():
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(_MARK) == run:
                found.append(process)
    return found


async def scope_prefix(run: str) -> list[str]:
    """Under systemd: what gives a program a scope of its own, so that stopping the agent's unit leaves it running;
    empty where there is no systemd, or it won't let us."""
    if "INVOCATION_ID" not in os.environ:
        return []
    user = [] if os.geteuid() == 0 else ["--user"]
    prefix = ["systemd-run", *user, "--scope", "--quiet", "--collect"]
    try:
        probe = await asyncio.create_subprocess_exec(
            *prefix, "true", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return []
    try:
        async with asyncio.timeout(_SCOPE_PROBE_S):
            allowed = await probe.wait() == 0
    except TimeoutError:
        probe.kill()
        await probe.wait()
        allowed = False
    return [*prefix, f"--unit=mesh-run-{run}", "--"] if allowed else []
