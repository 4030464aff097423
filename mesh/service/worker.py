"""Takes a task, runs it on the runner, records the outcome; one task at a time.

While a task runs the worker looks once a moment whether it was cancelled, the agent was paused, or time is up, and
stops the work if so. What policy decides of the attempt is settled in the store before anything else is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from mesh import clock
from mesh.errors import Fenced, MeshError, RunnerUnfit, SkillInputError
from mesh.models import HUMAN, AgentStatus, Claim, CurrentTask, Task, TaskResult, TaskStatus, Verdict, task_update
from mesh.models.base import plain_json
from mesh.policy import tasks as policy
from mesh.policy.tasks import Attempt, Ending
from mesh.runners.base import Report, Stop
from mesh.service.agent_runner import AgentRunner
from mesh.service.core import Core, log
from mesh.service.skill_context import SkillContext
from mesh.store.mailbox import Again

_LOOK_S = 0.25
_SAVE_PROGRESS_S = 2.0
_SETTLE_AGAIN_S = 1.0
_STUBBORN_GRACES = 6
#: An agent that gave a task is told of each quarter of it.
_TELL_EVERY = 0.25
_CANCELLED = "cancelled"
_CUT_NOTE = "\n\n… cut: the report was longer than the mesh keeps.\n"


class Worker:
    def __init__(self, core: Core, runner: AgentRunner) -> None:
        self._core = core
        self._runner = runner
        #: Work that an earlier daemon began and that goes on without it.
        self._found: list[Task] = []
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._progress = 0.0
        self._told = 0.0
        core.wake_worker = self._wakeup.set

    def can_run(self, task: Task) -> bool:
        return self._runner.can_run(task)

    async def run(self) -> None:
        """Work until stopped."""
        while not self._stopping:
            # Mail is read between tasks: who waits for the turn gets it after each.
            async with self._core.turn:
                worked = await self._work_once()
            if not worked and not self._stopping:
                await self._wakeup.wait()
                self._wakeup.clear()

    async def _work_once(self) -> bool:
        """Take a task, if there is one, and do it."""
        try:
            task = None if self._stopping else await self._take()
        except MeshError as error:
            log.warning("%s: no task could be taken: %s", self._core.agent, error.detail)
            return False
        if task is None:
            return False
        await self._work(task)
        return True

    def stop(self) -> None:
        """Take nothing more; what runs is stopped and goes back to the queue."""
        self._stopping = True
        self._wakeup.set()

    # -- taking

    def take_up(self, task: Task) -> None:
        """Go on with work that an earlier daemon of this agent began: it comes first."""
        self._core.event("work_taken_up", "it went on without the daemon that began it", taskId=task.id)
        self._found.append(task)

    async def _take(self) -> Task | None:
        core = self._core
        if self._found:
            return self._found.pop(0)
        if core.disk_low or core.fatal or core.paused:
            return None
        return await core.io(self._claim)

    def _claim(self) -> Task | None:
        core = self._core
        # Looked at again right before: a pause must hold even for a process that was itself stopped until now.
        if core.store.switches.is_paused(core.agent) or core.agent not in core.registry.agents:
            return None
        claim = Claim(agent=core.agent, incarnation=core.incarnation, since=clock.iso(core.time.wall()))
        skilled = core.registry.entry(core.agent).responsibilities
        return core.store.tasks.claim(
            claim,
            lambda own, shared: policy.next_task(own, shared, skilled, self._runner.can_run_now),
            core.clock.tick,
        )

    # -- working

    async def _work(self, task: Task) -> None:
        core = self._core
        assert task.claim is not None
        self._progress = 0.0
        await self._begin(task)
        began_s = core.time.monotonic()
        context = SkillContext(core.store, core.registry, core.agent, task, self._note_progress)
        running = asyncio.ensure_future(self._runner.run(task, context))
        ending, detail = await self._watch(task, task.claim, running)
        if ending is Ending.INTERRUPTED and self._goes_on_without_us(task):
            await self._end_early(running, Stop.DETACH)
            core.event("work_left_running", "the daemon ends; its successor takes it up again", taskId=task.id)
            return
        attempt, memory = await self._outcome(running, ending, detail)
        settled = await self._settle(task, task.claim, attempt)
        if settled is not None:
            await self._record(settled, attempt, core.time.monotonic() - began_s)
            if memory and settled.status is TaskStatus.COMPLETED:
                await self._quietly(lambda: core.io(core.store.remember, core.agent, memory))
        await self._outlast(running, task)
        await self._finish()

    async def _watch(self, task: Task, claim: Claim, running: asyncio.Future[Report]) -> tuple[Ending | None, str]:
        """Wait for the work to end. If it has to be stopped before: how, and why."""
        core = self._core
        run_max_s = self._runner.run_max_s(task)
        deadline_s = core.time.monotonic() + run_max_s
        looking = asyncio.create_task(self._until_cancelled(task, claim))
        both: set[asyncio.Future[Any]] = {running, looking}
        try:
            while not running.done():
                # Nothing here may wait for the disk: a pause must hold while the writer waits for a lock.
                await asyncio.wait(both, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    break
                if self._stopping:
                    return Ending.INTERRUPTED, "the agent was stopped"
                if core.paused is not None:
                    return Ending.INTERRUPTED, f"paused: {core.paused}"
                if core.time.monotonic() > deadline_s:
                    return Ending.TIMED_OUT, f"it took longer than {run_max_s:g} s"
                if looking.done():
                    looking.result()
                    return Ending.INTERRUPTED, _CANCELLED
            return None, ""
        finally:
            looking.cancel()

    async def _until_cancelled(self, task: Task, claim: Claim) -> None:
        """Save progress now and then, until somebody has cancelled the task."""
        core = self._core
        # Nothing is taken as seen yet: a cancellation may have come since the claim.
        saved_s = core.time.monotonic()
        found = seen = None
        while True:
            with contextlib.suppress(OSError):
                found = core.store.disk.signature(core.store.layout.active)
            if found != seen:
                cancelled = await self._cancelled(task)
                if cancelled:
                    return
                seen = seen if cancelled is None else found
            await asyncio.sleep(_LOOK_S)
            if core.time.monotonic() - saved_s >= _SAVE_PROGRESS_S and core.state.current_task is not None:
                saved_s = core.time.monotonic()
                if core.state.current_task.progress != self._progress:
                    await self._save_progress(task, claim)

    async def _cancelled(self, task: Task) -> bool | None:
        """Whether somebody has cancelled the task; None if that can't be read now."""
        try:
            now = await self._core.io(self._core.store.tasks.find, task.id)
        except MeshError:
            return None
        return now.cancel_requested is not None

    async def _outcome(
        self, running: asyncio.Future[Report], ending: Ending | None, detail: str
    ) -> tuple[Attempt, dict[str, Any]]:
        """How the attempt ended, and what its report asks to remember."""
        if ending is not None:
            cancelled = ending is Ending.INTERRUPTED and detail != _CANCELLED
            await self._end_early(running, Stop.INTERRUPT if cancelled else Stop.KILL)
            return Attempt(ending, detail), {}
        try:
            report = running.result()
            return Attempt(Ending.DONE, result=self._result(report)), plain_json(dict(report.remember))
        except SkillInputError as error:
            return Attempt(Ending.WRONG_INPUT, error.detail), {}
        except RunnerUnfit as error:
            begun = error.facts.get("state") in ("logged_out", "limited", "stopped")
            return Attempt(Ending.UNFIT if begun else Ending.NOT_BEGUN, error.detail), {}
        except (Exception, asyncio.CancelledError) as error:  # a skill's bug ends its attempt, nothing else
            log.warning("%s: skill failed:\n%s", self._core.agent, "".join(traceback.format_exception(error)))
            return Attempt(Ending.FAILED, f"{type(error).__name__}: {error}"), {}

    def _result(self, report: Report) -> TaskResult:
        """What of the report is kept. Raises what is wrong with a report that is none."""
        text, bytes_max = report.text, self._core.limits.result_bytes_max
        if len(text.encode()) > bytes_max:
            text = text.encode()[:bytes_max].decode(errors="ignore") + _CUT_NOTE
        result = TaskResult(
            text=text,
            files=list(report.files),
            evidence=list(report.evidence),
            usage=report.usage,
            branch=report.branch,
            commits=list(report.commits),
        )
        plain_json(result.dump())
        return result

    def _goes_on_without_us(self, task: Task) -> bool:
        """Whether the daemon ends while the work goes on. What is to stay stopped is stopped itself."""
        core = self._core
        return self._stopping and self._runner.outlives(task) and not core.store.switches.is_stopped(core.agent)

    async def _end_early(self, running: asyncio.Future[Report], stop: Stop) -> None:
        running.cancel(stop)
        await asyncio.wait({running}, timeout=self._core.limits.stop_grace_s)

    async def _outlast(self, running: asyncio.Future[Report], task: Task) -> None:
        """Wait for work that was stopped but goes on: nothing may run beside it. Work that will not stop at all
        ends with this process."""
        core = self._core
        if running.done():
            if not running.cancelled() and (late := running.exception()):
                log.info("%s: work ended with %r", core.agent, late)
            return
        core.event("work_goes_on", "it was told to stop and has not", taskId=task.id, title=task.title)
        await asyncio.wait({running}, timeout=_STUBBORN_GRACES * core.limits.stop_grace_s)
        if not running.done() and not self._stopping:
            core.fatal = f"the work on {task.id} ({task.title}) will not stop"

    # -- settling

    async def _settle(self, task: Task, claim: Claim, attempt: Attempt) -> Task | None:
        """Record the outcome, however long the disk takes to let us; None if the task is no longer ours."""
        core = self._core

        def decide(now: Task) -> Verdict:
            return policy.decide(now, attempt, core.clock.tick, core.limits)

        while not core.fatal:
            try:
                return await core.io(core.store.tasks.settle, claim, task.id, decide)
            except Fenced as error:
                core.event("claim_lost", error.detail, taskId=task.id)
                return None
            except MeshError as error:
                log.warning("%s: outcome of %s not recorded yet: %s", core.agent, task.id, error.detail)
                await asyncio.sleep(_SETTLE_AGAIN_S)
        return None

    async def _record(self, task: Task, attempt: Attempt, duration_s: float) -> None:
        core = self._core
        failed = attempt.ending in (Ending.FAILED, Ending.WRONG_INPUT, Ending.TIMED_OUT)
        entry = {
            "taskId": task.id,
            "title": task.title,
            "status": task.status,
            "attempt": task.attempts,
            "durationS": round(duration_s, 3),
            "error": attempt.detail if failed else None,
        }
        if attempt.ending is not Ending.INTERRUPTED:
            core.recent.append({"at": clock.iso(core.time.wall()), **entry})
            await self._quietly(lambda: core.io(core.store.journal.history, core.agent, **entry))
        core.event(f"task_{task.status}", task.history[-1]["reason"], taskId=task.id, title=task.title)
        if task.status is TaskStatus.OUTCOME_UNKNOWN:
            await self._quietly(lambda: core.io(raise_outcome_unknown, core, task))
        if task.status is TaskStatus.COMPLETED:
            core.state.last_completed_task = task.finished_at
            core.state.stamps.completed_s = core.time.boottime()
        core.refresh_metrics()

    async def _begin(self, task: Task) -> None:
        core = self._core
        if task.estimated_minutes:
            end = core.time.wall() + timedelta(minutes=task.estimated_minutes)
            task.estimated_completion = clock.iso(end)
        core.state.current_task = CurrentTask(
            id=task.id,
            type=task.type,
            title=task.title,
            description=task.description[:500],
            started_at=task.started_at,
            estimated_completion=task.estimated_completion,
        )
        core.state.status, core.state.reason = AgentStatus.WORKING, None
        core.state.stamps.task_s, core.state.stamps.idle_s = core.time.boottime(), None
        core.active_now()
        core.event("task_started", f"attempt {task.attempts}", taskId=task.id, title=task.title)
        await core.save()
        self._told = 0.0
        await self._tell_giver(task, 0.0)

    async def _finish(self) -> None:
        core = self._core
        core.state.current_task = None
        core.state.status, core.state.reason = resting_status(core)
        core.state.stamps.task_s, core.state.stamps.idle_s = None, core.time.boottime()
        core.active_now()
        await core.save()
        core.turn_ended()

    async def _tell_giver(self, task: Task, progress: float) -> None:
        """Tell the agent that gave the task how far it is. People look at the task itself."""
        core = self._core
        if task.from_ in (HUMAN, core.agent) or task.from_ not in core.registry.agents:
            return
        step = f"{task.attempts}-{round(progress * 100)}"
        told = task_update(task, progress, clock.iso(core.time.wall()), step)
        await self._quietly(lambda: core.io(core.store.mail.tell, told, Again.BY_ID))

    def _note_progress(self, share: float) -> None:
        self._progress = round(share, 3)
        self._core.active_now()

    async def _save_progress(self, task: Task, claim: Claim) -> None:
        core = self._core
        assert core.state.current_task is not None
        core.state.current_task.progress = self._progress
        await core.save()
        progress = core.store.tasks.progress
        await self._quietly(lambda: core.io(progress, claim, task.id, self._progress, task.estimated_completion))
        if self._progress - self._told >= _TELL_EVERY:
            self._told = self._progress
            await self._tell_giver(task, self._progress)

    async def _quietly(self, step: Callable[[], Awaitable[object]]) -> None:
        """Carry out a step whose failure must not undo what is settled already."""
        try:
            await step()
        except MeshError as error:
            log.warning("%s: %s", self._core.agent, error.detail)


def resting_status(core: Core) -> tuple[AgentStatus, str | None]:
    """What an agent is while no task runs."""
    if core.paused is not None:
        return AgentStatus.BLOCKED, f"paused: {core.paused}"
    if core.disk_low:
        return AgentStatus.BLOCKED, "too little free disk space"
    if core.parked is not None:
        return AgentStatus.BLOCKED, core.parked
    return AgentStatus.IDLE, None


def raise_outcome_unknown(core: Core, task: Task) -> None:
    """Ask a person what became of an attempt that may have acted on the outside world."""
    core.store.alerts.raise_alert(
        "outcome_unknown",
        core.agent,
        f"Did {task.title!r} take effect?",
        task.error or "the attempt was cut short",
        about=task.id,
        severity="high",
        next_=f"find out, then: mesh task resolve {task.id} --as completed|failed|retry",
    )
