"""The runner of headless CLI agents: one process a task, which outlives the daemon.

What a CLI is called with and what its output means is its profile's; processes, places and checkouts are the
workplace's. Here stands what happens in which order.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mesh.errors import RunnerUnfit, WorkBroken
from mesh.models import Message, Task
from mesh.models.runner_choice import CommandChoice, ModelChoice
from mesh.models.running import Checkout, Occupancy, RunnerHealth, RunRecord, Session
from mesh.runners import prompts
from mesh.runners.base import Report, Stop
from mesh.runners.environment import child_environment
from mesh.runners.profile import Ask, Outcome, Problem, Profile
from mesh.runners.transcripts import Transcript, find, open_transcript
from mesh.runners.works import Order, Work, Workplace

_LOOK_S = 0.25
_WAITING_EVERY_LOOKS = 20
#: What a program finds its agent's secret under: its way to the mesh's tools.
OWN_SECRET = "MESH_AGENT_SECRET"
#: What is shorter is no secret, and would blot out ordinary words.
_SECRET_CHARS_MIN = 8
#: A CLI doesn't say how much is left: progress grows with each step it takes and never says done.
_STEPS_HALF = 10
#: Problems of the account, which are no fault of the task.
_UNFIT = ("limited", "logged_out")


class Progressing(Protocol):
    """Who wants to know how far the work is."""

    def note_progress(self, share: float) -> None:
        """A share from 0 to 1."""
        ...


class CommandRunner:
    """Runs tasks on one CLI. `repo` is the registry's: where tasks work, each in a git worktree of its own."""

    outlives = True
    reads_mail = True

    def __init__(
        self,
        choice: CommandChoice | ModelChoice,
        profile: Profile,
        workplace: Workplace,
        repo: str | None = None,
        windows: Mapping[str, int] | None = None,
    ) -> None:
        self._choice = choice
        self._profile = profile
        self._workplace = workplace
        self._windows = dict(windows or {})
        self._transcript: Transcript | None = None
        self._repo = repo if isinstance(choice, CommandChoice) else None

    def can_run(self, task: Task) -> bool:
        """A CLI agent takes any task that it is given."""
        return True

    # -- tasks

    async def run(self, task: Task, context: Progressing) -> Report:
        """Do the task, or go on watching the process that does it already."""
        last = await self._workplace.last_run(task)
        work = None
        if last is not None and last.stopped is None:
            work = await self._workplace.reopen(last)
            if work.is_lost():
                await work.stop("its host or its process went down", keep=False)
            if last.stopped is not None or last.attempt != task.attempts:
                work = None
        work = work or await self._begin(task, last)
        outcome = await self._watch(work, context.note_progress)
        await self._remember_session(work.record)
        _raise_problem(outcome.problem)
        evidence = [*outcome.evidence, *_evidence(work.record)]
        report = Report(outcome.text, usage=outcome.usage, evidence=evidence)
        return await self._with_branch(report, work.record.checkout)

    async def _begin(self, task: Task, last: RunRecord | None) -> Work:
        shared = isinstance(self._choice, CommandChoice) and self._choice.checkout == "shared"
        checkout = None
        if self._repo is not None and not shared:
            checkout = await self._workplace.checkout(self._repo, task, last.checkout if last else None)
        record = self._workplace.new_run(task, self._profile.name)
        record.checkout = checkout
        record.cwd = checkout.path if checkout else (self._repo or record.cwd)
        # What was cut short goes on in its session; what failed begins afresh, knowing why.
        goes_on = last is not None and last.stopped and last.begun and last.cwd == record.cwd
        if last is not None and goes_on and self._profile.resumes:
            record.session, record.resumed, record.used_before = last.session, True, last.session_usage
            prompt = prompts.resume_prompt(task, str(last.stopped), record.cwd, checkout)
        else:
            prompt = prompts.task_prompt(task, self._workplace.persona(), record.cwd, checkout)
        writes = self._repo if shared else None
        return await self._start(record, prompt, writes=writes, title=task.title)

    async def _with_branch(self, report: Report, checkout: Checkout | None) -> Report:
        if checkout is None:
            return report
        commits, dirty = await self._workplace.work_in(checkout)
        if not commits and not dirty and await self._workplace.leave(checkout):
            return report
        left = [f"uncommitted changes in {checkout.path}"] if dirty else []
        return Report(
            report.text,
            evidence=[*report.evidence, *left],
            usage=report.usage,
            branch=checkout.branch,
            commits=commits,
        )

    # -- mail and summaries

    async def show(self, text: str, messages: Sequence[Message] = ()) -> None:
        """Hand the text to the agent's session as a turn of its own: it was shown if the turn was answered."""
        session = await self._workplace.session()
        record = self._workplace.new_run(None, self._profile.name)
        fits = session is not None and session.cli == self._profile.name and not session.joined
        if session is not None and fits and self._profile.resumes:
            record.session, record.resumed, record.used_before = session.id, True, session.usage
            record.cwd = session.cwd or record.cwd
        outcome = await self._turn(record, text, "reads its mail")
        if outcome.problem is not None and outcome.problem.kind == "failed" and record.resumed:
            # The session may be gone (its worktree, its file): the mail must reach somebody.
            outcome = await self._turn(self._workplace.new_run(None, self._profile.name), text, "reads its mail")
        _raise_problem(outcome.problem)

    async def summarise(self, text: str) -> str | None:
        """A summary by a session of its own."""
        record = self._workplace.new_run(None, self._profile.name)
        prompt = prompts.summary_prompt(text)
        outcome = await self._turn(record, prompt, "summarises", keep_session=False, args=self._profile.summary_args)
        _raise_problem(outcome.problem)
        return outcome.text

    async def _turn(
        self, record: RunRecord, prompt: str, title: str, *, keep_session: bool = True, args: Sequence[str] = ()
    ) -> Outcome:
        work = await self._start(record, prompt, title=title, args=args)
        outcome = await self._watch(work, lambda share: None)
        if outcome.problem is None and keep_session:
            await self._remember_session(work.record)
        return outcome

    # -- knowing

    async def occupancy(self) -> Occupancy | None:
        """What the transcript of the agent's session tells."""
        session = await self._workplace.session()
        if session is None or session.cli != self._profile.name:
            return None
        found = await asyncio.to_thread(self._transcript_of, session)
        return None if found is None else (await asyncio.to_thread(found.read)).occupancy

    def _transcript_of(self, session: Session) -> Transcript | None:
        """Kept from call to call: it remembers how far it was read."""
        own = self._home()
        home = own or self._workplace.environment().get("HOME", "")
        path = session.transcript or find(session.cli, home, session.id, session.cwd, {} if own else None)
        if path is None:
            return None
        if self._transcript is None or self._transcript.path != path:
            self._transcript = open_transcript(session.cli, path, session.id, self._windows)
        return self._transcript

    async def health(self) -> RunnerHealth:
        """Whether the program is there, and a key or a login."""
        if self._profile.fitness is not None:
            return self._profile.fitness(self._workplace.environment())
        if self._binary() is None:
            return RunnerHealth(state="missing", detail=f"{self._program()} is not installed, or not on the PATH")
        ours = self._workplace.environment()
        wanted = self._keys()
        if not wanted and not self._profile.logins:
            return RunnerHealth(state="ok")
        home = self._home() or ours.get("HOME", "")
        logins = [f"{home}/{name}" for name in self._profile.logins]
        if any(name in ours for name in wanted) or any(self._workplace.has_file(path) for path in logins):
            return RunnerHealth(state="ok")
        detail = f"{self._profile.name} has no login ({', '.join(self._profile.logins)}) and no key is set"
        return RunnerHealth(state="logged_out", detail=f"{detail} ({', '.join(wanted)})")

    # -- inside

    async def _start(
        self,
        record: RunRecord,
        prompt: str,
        *,
        writes: str | None = None,
        title: str = "",
        args: Sequence[str] = (),
    ) -> Work:
        binary = self._binary()
        if binary is None:
            raise RunnerUnfit(f"{self._program()} is not installed, or not on the PATH.", state="missing")
        if record.session is None and self._profile.chooses_session:
            record.session = str(uuid.uuid4())
        ask = Ask(
            binary=binary,
            prompt=prompt,
            prompt_file=self._workplace.prompt_file(record),
            cwd=record.cwd,
            session=record.session or "",
            resume=record.resumed,
            model=self._choice.model,
            args=[*(self._choice.args if isinstance(self._choice, CommandChoice) else ()), *args],
            command=self._choice.command if isinstance(self._choice, CommandChoice) else (),
            scratch_file=self._workplace.scratch_file(record),
            session_folder=self._workplace.session_folder(record.session or "none"),
        )
        marks = {
            "MESH_RUN": record.id,
            "MESH_AGENT": self._workplace.agent,
            OWN_SECRET: self._workplace.secret(),
            "TMPDIR": self._workplace.temporary_folder(record),
        }
        environment = child_environment(
            self._workplace.environment(), self._profile, self._extra(), home=self._home(), marks=marks
        )
        order = Order(
            record=record,
            prompt=prompt,
            argv=self._profile.argv(ask),
            environment=environment,
            prompt_on_stdin=self._profile.prompt_on_stdin,
            writes=writes,
            title=title,
            light=self._profile.light,
        )
        return await self._workplace.begin(order)

    async def _watch(self, work: Work, report_progress: Callable[[float], None]) -> Outcome:
        """Wait for the process to end, and say what came of it. Cancelled, it ends the process or leaves it running,
        as it is told."""
        try:
            outcome = await self._until_ended(work, report_progress)
        except asyncio.CancelledError as error:
            stop = _stop_of(error)
            if stop is not Stop.DETACH:
                reason = "interrupted" if stop is Stop.INTERRUPT else "ended"
                await asyncio.shield(asyncio.ensure_future(work.stop(reason, keep=stop is Stop.INTERRUPT)))
            raise
        if outcome.session or outcome.session_usage:
            await work.note(session=outcome.session, session_usage=outcome.session_usage)
        if outcome.problem is not None and outcome.problem.kind in _UNFIT:
            # The attempt won't count: its number comes again, and must not find this run's result.
            await work.note(stopped=outcome.problem.detail)
        await work.close()
        return outcome

    async def _until_ended(self, work: Work, report_progress: Callable[[float], None]) -> Outcome:
        steps, looks = 0, 0
        while True:
            alive = work.is_alive()  # before the output is read: what it printed last must not be missed
            progress = self._profile.progress(await work.new_lines())
            if progress.session and not (work.record.begun and progress.session == work.record.session):
                await work.note(session=progress.session)
            if progress.steps:
                steps += progress.steps
                report_progress(steps / (steps + _STEPS_HALF))
            if not alive:
                stopped = await work.why_stopped()
                if stopped is not None:  # by whoever had to, while this daemon hung
                    await work.close()
                    raise RunnerUnfit(f"its program was ended: {stopped}", state="stopped")
                return self._lost() if work.is_lost() else self._scrubbed(self._profile.outcome(await work.ended()))
            looks += 1
            if self._profile.waiting is not None and looks % _WAITING_EVERY_LOOKS == 0:
                problem = self._profile.waiting(await work.so_far())
                if problem is not None:
                    # It would hold its place and try for ever: the limit parks the agent instead.
                    await work.stop(problem.detail, keep=True)
                    return Outcome(session=work.record.session, problem=problem)
            await asyncio.sleep(_LOOK_S)

    def _scrubbed(self, outcome: Outcome) -> Outcome:
        """The outcome without the secrets that the program was given: what it says is kept and shown to others."""
        ours = self._workplace.environment()
        names = [name for name in self._keys() if len(ours.get(name, "")) >= _SECRET_CHARS_MIN]
        secrets = [self._workplace.secret(), *(ours[name] for name in names)]

        def clean(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, "[secret]")
            return text

        problem = outcome.problem and replace(outcome.problem, detail=clean(outcome.problem.detail))
        evidence = tuple(clean(fact) for fact in outcome.evidence)
        return replace(outcome, text=clean(outcome.text), evidence=evidence, problem=problem)

    def _lost(self) -> Outcome:
        detail = f"{self._profile.name}'s process vanished without an exit status: killed, or out of memory"
        return Outcome(problem=Problem("failed", detail))

    async def _remember_session(self, record: RunRecord) -> None:
        if record.session is not None and self._profile.resumes:
            session = Session(
                cli=self._profile.name,
                id=record.session,
                cwd=record.cwd,
                since=record.started_at,
                usage=record.session_usage,
            )
            await self._workplace.keep_session(session)

    def _program(self) -> str:
        named = self._choice.binary if isinstance(self._choice, CommandChoice) else None
        return named or self._profile.binary

    def _binary(self) -> str | None:
        command = self._choice.command if isinstance(self._choice, CommandChoice) else []
        return self._workplace.which(command[0] if command and self._profile.name == "generic" else self._program())

    def _home(self) -> str | None:
        return self._choice.home if isinstance(self._choice, CommandChoice) else None

    def _extra(self) -> list[str]:
        key = self._choice.key_env if isinstance(self._choice, ModelChoice) else None
        return [*self._choice.env, *([key] if key else [])]

    def _keys(self) -> list[str]:
        """The variables of which one is enough to be logged in."""
        return [*(name for name in self._profile.keys if "KEY" in name or "TOKEN" in name), *self._extra()]


def _evidence(record: RunRecord) -> list[str]:
    session = f", session {record.session}" if record.session else ""
    return [f"run {record.id} of {record.cli}{session}"]


def _stop_of(error: asyncio.CancelledError) -> Stop:
    """Why the coroutine was cancelled. Who doesn't say ends the work: nothing may be left behind unnoticed."""
    said: Any = error.args[0] if error.args else None
    return Stop(said) if said in list(Stop) else Stop.KILL


def _raise_problem(problem: Problem | None) -> None:
    if problem is None:
        return
    if problem.kind in _UNFIT:
        raise RunnerUnfit(problem.detail, state=problem.kind, until=problem.until)
    if problem.kind == "broken":
        raise WorkBroken(problem.detail)
    raise WorkFailed(problem.detail)


class WorkFailed(Exception):
    """The CLI said that it failed, in its own words."""
