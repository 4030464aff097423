"""Where one agent's programs run: their folders, their places on the host, their checkouts."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable

import psutil

from mesh import clock
from mesh.errors import RunnerUnfit
from mesh.models import Task
from mesh.models.running import Checkout, Place, RunRecord, Session, Usage
from mesh.policy.places import places_max, why_wait
from mesh.runners.profile import Ended
from mesh.runners.works import Order
from mesh.service import keeper, worktrees
from mesh.service.core import Core
from mesh.service.run_ends import keep_patch
from mesh.store.incarnations import process_started
from mesh.store.programs import find_program

_ASK_AGAIN_S = 1.0
_MB = 1_000_000
#: Of a finished run's output so much is looked at: the result stands at the end. Of one that runs, the newest.
_OUTPUT_BYTES_MAX = 32_000_000
_NEWEST_BYTES = 65_536


class RunningWork:
    """A process that works for the agent, whoever started it."""

    def __init__(self, core: Core, record: RunRecord) -> None:
        self._core = core
        self.record = record
        self._read = 0
        self._half = b""

    def is_alive(self) -> bool:
        if self.record.pid is not None:
            keeper.reap(self.record.pid)
        return self._core.store.runs.is_alive(self.record)

    def is_lost(self) -> bool:
        return not self.is_alive() and self._core.store.runs.status(self.record) is None

    async def why_stopped(self) -> str | None:
        found = await self._core.io(self._core.store.runs.find, self.record.agent, self.record.id)
        return found.stopped if found is not None else None

    async def new_lines(self) -> list[str]:
        part = await asyncio.to_thread(self._core.store.runs.output, self.record, "stdout", self._read)
        self._read += len(part)
        *lines, self._half = (self._half + part).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    async def so_far(self) -> Ended:
        return await asyncio.to_thread(self._left, _NEWEST_BYTES)

    async def ended(self) -> Ended:
        return await asyncio.to_thread(self._left, _OUTPUT_BYTES_MAX)

    def _left(self, bytes_max: int) -> Ended:
        """What it has printed, or the end of it."""
        runs, record = self._core.store.runs, self.record
        out, err, scratch = (runs.end_of(record, name, bytes_max) for name in ("stdout", "stderr", "scratch"))
        return Ended(
            status=runs.status(record),
            stdout=out,
            stderr=err,
            scratch=scratch,
            session=record.session or "",
            now=self._core.time.wall().astimezone(),  # the CLI speaks of this host's zone
            resumed=record.resumed,
            before=record.used_before,
        )

    async def note(
        self, *, session: str | None = None, stopped: str | None = None, session_usage: Usage | None = None
    ) -> None:
        record = self.record
        if session is not None:
            record.session, record.begun = session, True
        record.stopped = stopped or record.stopped
        record.session_usage = session_usage or record.session_usage
        await self._core.io(self._core.store.runs.save, record)

    async def stop(self, reason: str, *, keep: bool) -> None:
        """As in the protocol. What is recorded first survives our own end: the run is not taken up again."""
        core, record = self._core, self.record
        record.stopped = core.paused or reason
        await core.io(core.store.runs.save, record)
        if record.pid is not None:
            await keeper.end(record.pid, record.started or 0.0, record.id, core.limits.stop_grace_s / 2)
        if keep:
            await keep_patch(core.store, record)
        await self.close()

    async def close(self) -> None:
        core = self._core
        if self.record.pid is not None:
            # What it left running holds memory and may go on writing.
            await keeper.end(self.record.pid, self.record.started or 0.0, self.record.id, core.limits.stop_grace_s)
        await core.io(core.store.places.leave, self.record.id)
        await core.io(core.store.runs.drop_temporary, self.record)


class HostWorkplace:
    """The agent's workplace on this host."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.agent = core.agent
        #: Why the work at hand hasn't begun, in words; None if it has.
        self.waits_for: str | None = None
        #: Called when that changed.
        self.on_wait: Callable[[], None] = lambda: None

    def persona(self) -> str:
        return self._core.role.persona

    # -- runs

    def new_run(self, task: Task | None, cli: str) -> RunRecord:
        """A run's id sorts by time and ends with its task's."""
        now = self._core.time.wall()
        about = task.id if task is not None else "mail"
        return RunRecord(
            id=f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{secrets.token_hex(2)}-{about}",
            agent=self.agent,
            task_id=task.id if task is not None else None,
            attempt=task.attempts if task is not None else 0,
            cli=cli,
            cwd=self._core.store.layout.work(self.agent),
            started_at=clock.iso(now),
        )

    def scratch_file(self, record: RunRecord) -> str:
        return f"{self._core.store.runs.folder(self.agent, record.id)}/scratch"

    def prompt_file(self, record: RunRecord) -> str:
        return f"{self._core.store.runs.folder(self.agent, record.id)}/prompt"

    def temporary_folder(self, record: RunRecord) -> str:
        return self._core.store.runs.temporary_folder(record)

    def session_folder(self, session: str) -> str:
        return f"{self._core.store.layout.cli_sessions(self.agent)}/{session}"

    async def last_run(self, task: Task) -> RunRecord | None:
        return await self._core.io(self._core.store.runs.last, self.agent, task.id)

    async def reopen(self, record: RunRecord) -> RunningWork:
        return RunningWork(self._core, record)

    async def begin(self, order: Order) -> RunningWork:
        core, record = self._core, order.record
        scope = await keeper.scope_prefix(record.id)
        try:
            await self._wait_for_place(order)
            work = await core.io(self._start, order, scope)
        except BaseException:
            # Also where we were cancelled while waiting: nobody may stand in line for ever.
            await asyncio.shield(asyncio.ensure_future(core.io(core.store.places.leave, record.id)))
            raise
        finally:
            self._waits(None)
        core.event("work_started", f"{record.cli} in {record.cwd}", taskId=record.task_id, run=record.id)
        return work

    def _start(self, order: Order, scope: list[str]) -> RunningWork:
        """Start the process; on the writer thread, so that nothing comes between process and record."""
        core, record = self._core, order.record
        if record.task_id is not None and core.store.switches.is_paused(self.agent):
            raise RunnerUnfit(f"{self.agent} was paused before its program began.", state="paused")
        folder = core.store.runs.prepare(record, order.prompt)
        core.store.files.make_folders(core.store.layout.work(self.agent))
        if record.session:
            core.store.files.make_folders(self.session_folder(record.session))
        stdin = f"{folder}/prompt" if order.prompt_on_stdin else "/dev/null"
        pid, started = keeper.start(folder, record.cwd, order.argv, order.environment, stdin, scope)
        record.pid, record.started, record.boot_id = pid, started, core.time.boot_id()
        core.store.runs.save(record)
        core.store.places.hold(record.id, pid, started)
        return RunningWork(core, record)

    async def _wait_for_place(self, order: Order) -> None:
        core = self._core
        ask = Place(
            run=order.record.id,
            agent=self.agent,
            title=order.title,
            writes=order.writes,
            light=order.light,
            since=clock.iso(core.time.wall()),
            pid=os.getpid(),
            started=process_started(os.getpid()) or 0.0,
            boot_id=core.time.boot_id(),
        )

        def decide(ask: Place, taken: list[Place], earlier: list[Place]) -> str | None:
            available_mb = psutil.virtual_memory().available / _MB
            running = sum(not place.light for place in taken)
            places = places_max(core.limits.max_running, running, available_mb, core.limits.cli_memory_mb)
            return why_wait(ask, taken, earlier, places)

        while (why := await core.io(core.store.places.take, ask, decide)) is not None:
            self._waits(why)
            await asyncio.sleep(_ASK_AGAIN_S)

    def _waits(self, why: str | None) -> None:
        if why != self.waits_for:
            self.waits_for = why
            self.on_wait()

    # -- checkouts

    async def checkout(self, repo: str, task: Task, known: Checkout | None) -> Checkout:
        folder = self._core.store.layout.worktrees(self.agent)
        await self._core.io(self._core.store.files.make_folders, folder)
        return await worktrees.open_worktree(repo, folder, self.agent, task.id, known)

    async def work_in(self, checkout: Checkout) -> tuple[list[str], bool]:
        return await worktrees.work_in(checkout)

    async def leave(self, checkout: Checkout) -> bool:
        try:
            return await worktrees.leave(checkout)
        except worktrees.GitFailed as error:  # in doubt it stays
            self._core.event("worktree_kept", error.detail, path=checkout.path)
            return False

    # -- sessions and surroundings

    async def session(self) -> Session | None:
        return await self._core.io(self._core.store.sessions.find, self.agent)

    async def keep_session(self, session: Session) -> None:
        known = await self.session()
        if known is None or not known.joined:  # a person's own session stays bound until they leave
            await self._core.io(self._core.store.sessions.bind, self.agent, session)

    def which(self, program: str) -> str | None:
        return find_program(program, self.environment().get("PATH", ""))

    def has_file(self, path: str) -> bool:
        return self._core.store.disk.signature(path) is not None

    def environment(self) -> dict[str, str]:
        return {**self._core.store.secret_file.all(), **os.environ}

    def secret(self) -> str:
        found = self._core.store.secrets.of(self.agent)
        assert found, "an agent that runs has a secret"
        return found
