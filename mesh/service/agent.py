"""The one loop of an agent.

Once a second it beats and looks around (was the registry edited, was it paused, is there new work, is there room on
the disk); on each tick it writes its state and makes its rounds; whoever comes first at a tick carries it. The work
itself is the worker's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mesh import clock
from mesh.clock import SYSTEM
from mesh.errors import LockTimeout, MeshError
from mesh.models import AgentStatus, Task, Verdict
from mesh.policy import schedule
from mesh.policy import tasks as task_policy
from mesh.service import carrier
from mesh.service.agent_mail import AgentMail
from mesh.service.agent_runner import AgentRunner
from mesh.service.buddy_client import BuddyClient
from mesh.service.core import Core, log
from mesh.service.roles import Agent
from mesh.service.rounds import Rounds
from mesh.service.scheduler import Scheduler
from mesh.service.worker import Worker, raise_outcome_unknown, resting_status
from mesh.store.beats import Beat, BeatWriter, boot_mark
from mesh.store.disk import Signature
from mesh.store.locks import SleepingClock
from mesh.store.switches import ALL

_FREE_SPACE_EVERY_BEATS = 5
_TIDY_EVERY_TICKS = 60
_WORKER, _MAIL = "worker", "mail"


class AgentService:
    """One agent's service from `start` to `stop`. `on_fatal` is called when its process must end."""

    def __init__(
        self,
        role: Agent,
        root: str,
        *,
        tick_seconds: float = clock.MINUTE_S,
        time: SleepingClock = SYSTEM,
        on_fatal: Callable[[str], None] = lambda reason: None,
    ) -> None:
        #: Called with the host and port of a registry that came into force; answers why it can't listen there.
        self.on_address: Callable[[str, int], Awaitable[str | None]] | None = None
        self.core = Core(role, root, tick_seconds, time)
        self.client = BuddyClient(self.core)
        self.rounds = Rounds(self.core, self.client)
        self.runner = AgentRunner(self.core)
        self.runner.workplace.on_wait = self._waits_or_not
        self.worker = Worker(self.core, self.runner)
        self.mail = AgentMail(self.core, self.runner)
        self.mail.effects.on_shutdown = self._shut_down
        self.core.turn_ended = self.mail.turn_ended
        #: Called when somebody with the right to do so has ended this agent by message.
        self.on_shutdown: Callable[[str], None] = lambda reason: None
        self.scheduler = Scheduler(self.core, self.tick)
        self._on_fatal = on_fatal
        self._beat: BeatWriter | None = None
        self._beats = 0
        self._seen: dict[str, Signature | None] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._rounds: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._held_up = False

    # -- life

    async def start(self) -> None:
        """Take over from earlier incarnations, recover what they left, and begin to beat and work."""
        core = self.core
        await self._begin_beats()
        core.recent = await core.io(core.store.journal.read_history, core.agent)
        core.refresh_metrics()
        await self._recover()
        await self._look_once()
        await self._rest()
        await core.io(core.store.alerts.resolve, "agent_down", core.agent)
        core.event("started", f"incarnation {core.incarnation}")
        self._spawn(self._beat_forever(), "beats")
        self._spawn(self.worker.run(), _WORKER)
        self._spawn(self.mail.run(), _MAIL)
        # The first gate is passed at once: it begins the count of slots after a reboot.
        await self.tick()
        self.scheduler.start()

    async def stop(self) -> None:
        """Stop the work in hand (it goes back to the queue), then everything else."""
        self.scheduler.stop()
        self.worker.stop()
        self.mail.stop()
        grace_s = self.core.limits.stop_grace_s
        working = {task for task in self._running if task.get_name() in (_WORKER, _MAIL)}
        if working:
            await asyncio.wait(working, timeout=grace_s)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.client.close()
        if not self.core.fatal:
            with contextlib.suppress(MeshError):  # what can't be written now must not keep it from ending
                await self._write_farewell()
        if self._beat is not None:
            self._beat.close()

    async def _write_farewell(self) -> None:
        core = self.core
        if core.agent not in core.registry.agents:
            await core.io(core.store.tasks.give_back, core.agent)
        core.state.status, core.state.reason = AgentStatus.IDLE, "stopped"
        await core.save()
        core.event("stopped", "asked to stop")
        await core.io(lambda: None)  # what was queued for the writer is written

    def wake(self, giver: str, reason: str) -> list[str]:
        """The agent's own pass now: look around and take due work. Never touches a task that runs."""
        did = ["looked for edited files", "looked for tasks", "looked for mail"]
        self._seen.clear()
        self._spawn(self._look_once())
        self._spawn(self._try_again(), "try again")
        self.core.wake_worker()
        self.mail.postman.notice()
        self.core.event("woken", reason or "no reason given", by=giver)
        return did

    async def _try_again(self) -> None:
        """Somebody says that it is worth a try: what was parked is tried, though nothing is known to have changed."""
        if self.core.parked is not None:
            await self.runner.parking.forget()
            await self._rest()
            self.core.wake_worker()
            self.mail.turn_ended()

    def _shut_down(self, reason: str) -> None:
        self.on_shutdown(reason)

    # -- beats

    async def _beat_forever(self) -> None:
        core, interval_s = self.core, self.core.limits.beat_interval_s
        next_s = core.time.monotonic()
        while True:
            next_s = max(next_s + interval_s, core.time.monotonic())
            try:
                self._write_beat()
                self.scheduler.check()
                self._look_at_pause()
            except (MeshError, OSError) as error:
                log.warning("%s: %s", core.agent, error)
            if self._looking is None or self._looking.done():
                # Beside the beats: a look may wait for a slow disk, and a slow disk is not death.
                self._looking = self._spawn(self._look_once(), "look")
            if core.fatal:
                self._on_fatal(core.fatal)
                return
            interval_s = min(core.limits.beat_interval_s, core.limits.file_fresh_s)
            await asyncio.sleep(max(0.0, next_s - core.time.monotonic()))

    async def _begin_beats(self) -> None:
        """Put a beat file in place: the first, or a new one where somebody removed it."""
        core = self.core
        old = self._beat
        first = Beat(self._beats, core.incarnation, core.time.boottime(), self._beats, boot_mark(core.time))
        self._beat = await core.io(BeatWriter, core.store.files, core.store.layout.beat(core.agent), first)
        if old is not None:
            old.close()

    def _write_beat(self) -> None:
        if self._beat is not None:
            self._beat.write(self.core.time.boottime(), self._beats)
        self._beats += 1

    async def _look_once(self) -> None:
        """Look around; what can't be read now is looked at again with the next beat."""
        try:
            self._look_at_pause()
            await self._look_around()
        except (MeshError, OSError) as error:
            self._seen.clear()
            log.warning("%s: %s", self.core.agent, error)

    async def _look_around(self) -> None:
        """Notice what was edited or switched, and new work."""
        core = self.core
        if core.store.registry.changed():
            await self._read_registry()
        layout = core.store.layout
        if self._changed(layout.inbox(core.agent)) or self._changed(layout.queue):
            await self._read_queue()
        if self._beat is not None and self._beat.replaced():
            await self._begin_beats()
        if self._beats % _FREE_SPACE_EVERY_BEATS == 1 or core.disk_low:
            await self._read_free_space()

    def _changed(self, path: str) -> bool:
        found = self.core.store.disk.signature(path)
        if path in self._seen and self._seen[path] == found:
            return False
        self._seen[path] = found
        return True

    async def _read_registry(self) -> None:
        core = self.core
        before = core.store.registry.error
        changed = await core.io(core.store.registry.refresh)
        error = core.store.registry.error
        if changed:
            core.use_registry(core.store.registry.current)
            self.runner.use(core.registry.agents.get(core.agent))
            core.event("registry_in_force", "an edit was read")
            core.wake_worker()
            entry = core.registry.agents.get(core.agent)
            if entry is None:
                self._on_fatal("it was removed from the registry")
            elif self.on_address is not None:
                core.misplaced = await self.on_address(entry.host, entry.port)
        if error is not None and str(error) != str(before):
            core.event("registry_refused", error.detail)

    def _look_at_pause(self) -> None:
        """Obey a pause, or its end. On the beat itself, and with no step that could wait: it must hold within
        seconds while the writer waits for a lock or a disk."""
        core = self.core
        paused = core.store.switches.paused()  # a few bytes, and only while somebody is paused
        note = paused.get(core.agent) or paused.get(ALL)
        was, core.paused = core.paused, None if note is None else (note["reason"] or f"by {note['by']}")
        if was != core.paused:
            core.event("paused" if core.paused else "resumed", core.paused or "")
            core.wake_worker()
            self.mail.turn_ended()
            self._spawn(self._rest(), "rest")

    async def _read_queue(self) -> None:
        core = self.core
        open_tasks = await core.io(core.store.tasks.open)
        mine = [task for task in open_tasks if task.owner == core.agent]
        core.queue_length = len(mine) - sum(task.status == "working" for task in mine)
        core.wake_worker()

    async def _read_free_space(self) -> None:
        core = self.core
        free_mb = core.store.free_mb()
        low = free_mb < core.limits.disk_free_min_mb or core.store.files.full
        if core.store.files.full and free_mb >= core.limits.disk_free_min_mb:
            core.store.files.full = low = False  # there is room again; the next write shows whether it is true
        if low != core.disk_low:
            core.disk_low = low
            core.event("disk_low" if low else "disk_ok", f"{free_mb} MB free")
            await self._rest()
            core.wake_worker()

    async def _rest(self) -> None:
        """Bring the state up to date while no task runs."""
        core = self.core
        if core.state.current_task is None:
            core.state.status, core.state.reason = resting_status(core)
            await core.save()

    # -- ticks

    async def tick(self) -> None:
        """Pass the gate of the present slot; make the rounds that are due; carry the tick if it falls to us."""
        core = self.core
        slots_before = (core.clock.boot_id, core.clock.origin_s)
        try:
            passed = await core.io(core.store.ticks.pass_gate, core.agent, core.tick_seconds)
        except LockTimeout as error:
            core.event("tick_held_up", error.detail)
            await self._report_held_up(error)
            return
        except MeshError as error:
            log.warning("%s: tick: %s", core.agent, error.detail)
            return
        core.clock = passed.clock
        if self._held_up:
            self._held_up = False
            await core.io(core.store.alerts.resolve, "clock_held", "mesh")
        if (core.clock.boot_id, core.clock.origin_s) != slots_before and self._beats:
            self.scheduler.set_anew()
        last, core.state.last_tick = core.state.last_tick, core.clock.tick
        core.refresh_metrics()
        await core.save()
        await self._look_at_runner()
        core.wake_worker()
        if passed.carries:
            await carrier.carry(core)
        self._rounds = self._spawn(self._make_rounds(last, core.clock.tick), "rounds")

    async def _look_at_runner(self) -> None:
        """Whether what does the work could work; what was parked goes on when it can."""
        before = self.core.parked
        try:
            if await self.runner.look():
                self.mail.turn_ended()
            if self.core.parked != before:
                await self._rest()
            if self.core.clock.tick % _TIDY_EVERY_TICKS == 0:
                await self.runner.tidy()
        except MeshError as error:
            log.warning("%s: %s", self.core.agent, error.detail)

    async def _report_held_up(self, error: LockTimeout) -> None:
        """Nobody can carry ticks while a hung process holds the clock: a person is told whom to restart."""
        with contextlib.suppress(MeshError):
            await self.core.io(
                self.core.store.alerts.raise_alert,
                "clock_held",
                "mesh",
                "The clock stands still",
                error.detail,
                severity="high",
                next_=f"restart {error.facts.get('holder')}: its lock goes with it",
            )
        self._held_up = True

    async def rounds_done(self) -> None:
        """Wait until the rounds of the last tick are over."""
        if self._rounds is not None:
            await asyncio.wait({self._rounds})

    async def _make_rounds(self, last: int, tick: int) -> None:
        core = self.core
        if core.agent not in core.registry.agents:
            return
        try:
            minute = core.registry.sync_minute(core.agent)
            if core.state.last_sync_hour is None:
                core.state.last_sync_hour = schedule.before_first_sync(core.mesh_now, minute)
            if schedule.sync_due(core.mesh_now, minute, core.state.last_sync_hour):
                core.state.last_sync_hour = schedule.hour_of(core.mesh_now)
                await self.rounds.sync()
            elif schedule.crossed(last, tick, core.limits.ping_every_ticks, core.registry.check_offset(core.agent)):
                await self.rounds.ping()
        except MeshError as error:
            core.event("round_failed", error.detail)

    # -- after a crash

    async def _recover(self) -> None:
        core = self.core

        def decide(task: Task) -> Verdict | None:
            attempt = self.runner.after_restart(task)
            return None if attempt is None else task_policy.decide(task, attempt, core.clock.tick, core.limits)

        settled = await core.io(core.store.tasks.recover, core.agent, core.incarnation, decide)
        for task, verdict in settled:
            if verdict is None:
                self.worker.take_up(task)
                continue
            core.event("task_recovered", verdict.reason, taskId=task.id, status=verdict.status)
            if verdict.status == "outcome_unknown":
                await core.io(raise_outcome_unknown, core, task)

    def _waits_or_not(self) -> None:
        """The work at hand waits for a place on the host, or has got one: people see it in the state."""
        self.core.state.reason = self.runner.workplace.waits_for
        self._spawn(self.core.save(), "save")

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str = "") -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine, name=name or "look")
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            # A bug in a loop of ours: end the process, so that a fresh one takes over, rather than half live on.
            log.error("%s: %s died", self.core.agent, task.get_name(), exc_info=error)
            self.core.fatal = f"{task.get_name()} died: {error!r}"
            self._on_fatal(self.core.fatal)
