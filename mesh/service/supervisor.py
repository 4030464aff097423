"""`mesh up`: imports everything once, then forks the agents and starts crashed ones again.

The parent stays synchronous and has neither loop nor threads nor sockets: it forks again and again, and a dead
agent's port must refuse. Children see its end by a pipe. Forks run the code that the parent has imported, so before
an asked-for restart a parent whose source has changed replaces itself, keeping its children.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from mesh import clock
from mesh.errors import BadUse, MeshError, RoleBroken
from mesh.models import SCHEMA_VERSION
from mesh.service.core import log
from mesh.service.roster import Roster
from mesh.service.run_ends import PAUSE_GRACE_S, PauseGuard, end_runs
from mesh.store import Store
from mesh.store.incarnations import process_started
from mesh.store.switches import SUPERVISOR

LOOK_S = 0.25
_ADOPT = "MESH_SUPERVISOR_ADOPT"
_MODE = "processes"
_RECORD_BYTES = 512
#: How often the record is written again, should somebody have spoilt it.
_RECORD_EVERY_LOOKS = 20
_SOURCE = Path(__file__).resolve().parent.parent


class Supervisor:
    """Supervises until SIGTERM, SIGINT or, with a terminal, SIGHUP. `on_look` is called a few times a second."""

    def __init__(self, store: Store, tick_seconds: float, on_look: Callable[[Supervisor], None]) -> None:
        self.store = store
        self.roster = Roster(store)
        self._pause_guard = PauseGuard(store)
        self.tick_seconds = tick_seconds
        self._on_look = on_look
        self._pids: dict[int, str] = {}
        self._kill_at_s: dict[int, float] = {}
        self._ending = False
        self._looks = 0
        self._wake_r, self._wake_w = os.pipe()
        self._life_r, self._life_w, self._lock = self._take_over()
        self._source_stamp = _source_stamp()

    def run(self) -> int:
        """Returns the exit status once every agent has stopped."""
        self._import_everything()
        self._catch_signals()
        while True:
            self._look()
            if self._ending and not self._pids:
                break
            self._on_look(self)
            self._wait()
        end_runs(self.store, self.roster.entries, "the mesh was taken down", self.roster.limits.stop_grace_s)
        return 0

    def end(self) -> None:
        """Stop every agent, then return from `run`."""
        self._ending = True

    # -- looking

    def _wait(self) -> None:
        """Until the next look, or at once when a signal came: a child ended, or we shall."""
        if select.select([self._wake_r], [], [], LOOK_S)[0]:
            os.read(self._wake_r, 4096)

    def _look(self) -> None:
        now_s = self.store.time.monotonic()
        self._reap(now_s)
        self._looks += 1
        if self._looks % _RECORD_EVERY_LOOKS == 0:
            with contextlib.suppress(OSError):
                write_record(self.store, self._lock, _MODE, self.tick_seconds)
        try:
            self.roster.refresh()
            self._obey_requests()
        except MeshError as error:
            self.roster.report_held_up(error)
        for agent in list(self.roster.entries) if self._ending else self.roster.to_stop():
            self._stop(agent, now_s)
        for pid, kill_at_s in self._kill_at_s.items():
            if now_s >= kill_at_s:
                _signal(pid, signal.SIGKILL)
        if not self._ending:
            for agent in self.roster.to_start(now_s):
                self._start(agent)
        late = self._pause_guard.overdue(self.roster.entries, now_s)
        end_runs(self.store, late, "paused", PAUSE_GRACE_S)

    def _obey_requests(self) -> None:
        restarts = False
        for verb, agent in self.roster.take_requests():
            self.roster.start_now(agent)
            if verb == "restart" and self.roster.entries[agent].running:
                self._stop(agent, self.store.time.monotonic())
                restarts = True
        # After all of them: what was taken is gone from its files.
        if restarts and _source_stamp() != self._source_stamp:
            self._replace_myself()

    def _reap(self, now_s: float) -> None:
        for pid in list(self._pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                agent = self._pids.pop(pid)
                self._kill_at_s.pop(pid, None)
                self.roster.ended(agent, os.waitstatus_to_exitcode(status), now_s)
                if self.store.switches.is_stopped(agent):
                    end_runs(self.store, [agent], "the agent was stopped", self.roster.limits.stop_grace_s)

    # -- processes

    def _start(self, agent: str) -> None:
        with contextlib.suppress(OSError):  # what can't be written must not be written twice, nor stop the start
            sys.stdout.flush()
            sys.stderr.flush()
        try:
            pid = os.fork()
        except OSError as error:  # too many processes, or too little memory: tried again
            self.roster.put_off(agent, self.store.time.monotonic(), error.strerror or "no process")
            return
        if pid == 0:
            self._become_agent(agent)
        self._pids[pid] = agent
        self.roster.started(agent)

    def _become_agent(self, agent: str) -> None:
        """In the child: run the agent's whole life, and never return."""
        status = 1
        try:
            os.setpgid(0, 0)  # Ctrl-C is for the parent, which stops its agents in order
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            for fd in (self._life_w, self._wake_r, self._wake_w, self._lock):
                os.close(fd)
            gc.enable()
            from mesh.service.server import run_agent

            status = run_agent(agent, self.store.layout.root, self.tick_seconds, self._life_r)
        except BaseException:
            log.exception("%s: the process fails", agent)
        finally:
            os._exit(status)  # whatever happened: a child must never run on as a second supervisor

    def _stop(self, agent: str, now_s: float) -> None:
        for pid, name in self._pids.items():
            if name == agent and pid not in self._kill_at_s:
                self.roster.entries[agent].expected = True
                self._kill_at_s[pid] = now_s + self.roster.limits.stop_grace_s + 1.0
                _signal(pid, signal.SIGTERM)
                _signal(pid, signal.SIGCONT)  # a stopped process must wake up to end

    def _import_everything(self) -> None:
        """Import once what every agent needs; then freeze it, so that forks share its memory."""
        import asyncio.subprocess
        import concurrent.futures.thread

        import apscheduler.triggers.interval
        import asyncinotify
        import httptools
        import httpx
        import uvicorn.lifespan.on
        import uvicorn.protocols.http.httptools_impl

        import mesh.service.server
        from mesh.service.roles import load

        libraries = (asyncio.subprocess, concurrent.futures.thread, apscheduler, asyncinotify, httptools, httpx)
        assert all((*libraries, uvicorn, mesh))
        for agent in self.roster.registry.agents:
            with contextlib.suppress(RoleBroken):  # it will say so itself, and only it is kept down
                load(agent)
        gc.collect()
        gc.freeze()

    # -- signals and succession

    def _catch_signals(self) -> None:
        os.set_blocking(self._wake_w, False)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)

        def ask_to_end(number: int, frame: FrameType | None) -> None:
            self.end()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ask_to_end)
        if sys.stdin is not None and sys.stdin.isatty():
            signal.signal(signal.SIGHUP, ask_to_end)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # its byte in the wake-up pipe is enough

    def _take_over(self) -> tuple[int, int, int]:
        """The pipe whose end tells children of ours, and the lock of the one supervisor; from a predecessor of
        ours where it handed them on."""
        handed = os.environ.pop(_ADOPT, None)
        if handed is not None:
            note = json.loads(handed)
            self._pids = {int(pid): agent for pid, agent in note["pids"].items()}
            self.roster.refresh()
            for agent in self._pids.values():
                self.roster.started(agent)
                self.roster.entries[agent].expected = agent in note["expected"]
            # The clock is the host's and goes on: a hung agent is killed when it was to be.
            self._kill_at_s = {int(pid): kill_at_s for pid, kill_at_s in note["killAt"].items()}
            for fd in note["fds"]:
                os.set_inheritable(fd, False)
            life_r, life_w, lock = note["fds"]
            write_record(self.store, lock, _MODE, self.tick_seconds)
            return life_r, life_w, lock
        return *os.pipe(), hold_supervision(self.store, _MODE, self.tick_seconds)

    def _replace_myself(self) -> None:
        """Run the new source in this process; the children stay its children."""
        fds = [self._life_r, self._life_w, self._lock]
        for fd in fds:
            os.set_inheritable(fd, True)
        expected = [agent for agent, entry in self.roster.entries.items() if entry.running and entry.expected]
        note = {"pids": self._pids, "fds": fds, "killAt": self._kill_at_s, "expected": expected}
        os.environ[_ADOPT] = json.dumps(note)
        self.store.journal.event("mesh", "supervisor_replaced", "its source has changed")
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def hold_supervision(store: Store, mode: str, tick_seconds: float) -> int:
    """The lock of the one supervisor of a root, held until the process ends; its file says who holds it. Raises
    BadUse if there is one."""
    handle = store.disk.try_lock(store.locks.path(SUPERVISOR))
    if handle is None:
        note = store.switches.supervisor() or {}
        raise BadUse(
            f"The mesh of {store.layout.root} is up already (pid {note.get('pid', '?')}). "
            "`mesh down` stops it; `mesh status` shows it."
        )
    write_record(store, handle, mode, tick_seconds)
    return handle


def write_record(store: Store, handle: int, mode: str, tick_seconds: float) -> None:
    """Record who supervises, for `mesh down` and `mesh status`: in the lock's own file, which is held open."""
    note = {
        "schemaVersion": SCHEMA_VERSION,
        "pid": os.getpid(),
        "started": process_started(os.getpid()),
        "bootId": store.time.boot_id(),
        "mode": mode,
        "tickSeconds": tick_seconds,
        "at": clock.iso(store.time.wall()),
    }
    store.disk.label_lock(handle, json.dumps(note).encode().ljust(_RECORD_BYTES - 1) + b"\n")


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has just ended and will be reaped


def _source_stamp() -> float:
    """When the newest file of the packages was written."""
    folders = (_SOURCE, _SOURCE.parent / "agents")
    return max((path.stat().st_mtime for folder in folders for path in folder.rglob("*.py")), default=0.0)
