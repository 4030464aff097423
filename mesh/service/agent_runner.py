"""What does one agent's work: the skills of its role, and beside them the runner that the registry chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from mesh import clock
from mesh.errors import BadUse, RunnerUnfit
from mesh.models import AgentEntry, Message, Task
from mesh.models.runner_choice import CommandChoice, ModelChoice, RunnerChoice, TmuxChoice
from mesh.models.running import RunnerHealth
from mesh.policy.prices import priced
from mesh.policy.tasks import Attempt, after_restart
from mesh.runners.base import Report, Runner
from mesh.runners.command import CommandRunner
from mesh.runners.skills import SkillsRunner
from mesh.service.core import Core
from mesh.service.parking import Parking
from mesh.service.skill_context import SkillContext
from mesh.service.told import Told
from mesh.service.workplace import HostWorkplace

if TYPE_CHECKING:
    from mesh.runners.tmux.wording import Command


class AgentRunner:
    """A task's skill does it, else the one of its title, else the chosen runner (contract, `POST /task`)."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.skills = SkillsRunner[SkillContext](core.role.skills, core.role.mail_reader)
        self.workplace = HostWorkplace(core)
        self.parking = Parking(core)
        #: What a session that is no child of ours says of the task in hand.
        self.told = Told()
        self.health: RunnerHealth | None = None
        self._choice: RunnerChoice | None = None
        self._repo: str | None = None
        self.chosen: Runner[Told] | None = None
        self.use(core.registry.agents.get(core.agent))

    def use(self, entry: AgentEntry | None) -> None:
        """Put the registry's choice in force. What runs already ends as it began."""
        if entry is None or (entry.runner, entry.repo) == (self._choice, self._repo):
            return
        self._choice, self._repo = entry.runner, entry.repo
        self.chosen = self._made(entry)
        self.parking.account = account_of(entry.runner)
        self.health = None

    def _made(self, entry: AgentEntry) -> Runner[Told] | None:
        choice = entry.runner
        if isinstance(choice, CommandChoice):
            from mesh.runners.profiles import profile

            return CommandRunner(choice, profile(choice.cli), self.workplace, entry.repo, self._core.registry.windows)
        if isinstance(choice, ModelChoice):
            from mesh.runners.model.profile import model_profile

            own = model_profile(choice, timeout_s=choice.timeout_s or self._core.limits.cli_run_max_s)
            return CommandRunner(choice, own, self.workplace)
        if isinstance(choice, TmuxChoice):
            from mesh.runners.tmux import TmuxRunner

            return TmuxRunner(self._core.agent, choice, command=self._typed_command())
        return None

    def _typed_command(self) -> Command:
        """How the mesh is called in a session's shell: with its root, if that can be typed there. Where it can't the
        session's own MESH_ROOT has to name it."""
        from mesh.runners.tmux.wording import Command

        try:
            return Command("mesh", f"--root {self._core.store.layout.root}")
        except BadUse:
            return Command("mesh")

    # -- tasks

    def can_run(self, task: Task) -> bool:
        """Whether this agent knows how to do the task, now or later."""
        return self.skills.can_run(task) or (task.skill is None and self.chosen is not None)

    def can_run_now(self, task: Task) -> bool:
        """Whether it could begin at once: a parked runner can't, while skills still can."""
        return self.skills.can_run(task) or (self.can_run(task) and self.parking.unfit is None)

    def outlives(self, task: Task) -> bool:
        """Whether the work on it goes on when this daemon ends."""
        return self.chosen is not None and not self.skills.can_run(task)

    def after_restart(self, task: Task) -> Attempt | None:
        """How an attempt stands that an earlier daemon began; None where the work goes on without that daemon. On the
        writer thread."""
        runs = self._core.store.runs
        if self.outlives(task) and isinstance(self._choice, TmuxChoice):
            return None  # the session is there or not: the runner finds out what became of its doorbell
        run = runs.last(self._core.agent, task.id) if self.outlives(task) else None
        lost = run is not None and not runs.is_alive(run) and runs.status(run) is None
        return after_restart(task, run, self._core.agent, lost=lost)

    async def run(self, task: Task, context: SkillContext) -> Report:
        if self.skills.can_run(task):
            return await self.skills.run(task, context)
        assert self.chosen is not None
        self.told.begin(task, context.progress)
        try:
            report = await self.chosen.run(task, self.told)
        except RunnerUnfit as error:
            await self.parking.note(error)
            raise
        finally:
            self.told.over()
        await self.parking.note_success()
        await self._note_occupancy()
        if report.usage is not None:
            report = replace(report, usage=priced(report.usage, self._core.registry.prices))
        return report

    def run_max_s(self, task: Task) -> float:
        """The longest that one attempt may take."""
        if self.skills.can_run(task):
            return self._core.limits.task_run_max_s
        own = getattr(self._choice, "timeout_s", None)
        return own or self._core.limits.cli_run_max_s

    # -- mail

    @property
    def reads_mail(self) -> bool:
        return self.chosen is not None or self.skills.reads_mail

    @property
    def may_show(self) -> bool:
        """Whether text could be shown now."""
        return self.skills.reads_mail or self.parking.unfit is None

    async def show(self, text: str, messages: Sequence[Message] = ()) -> None:
        if self.skills.reads_mail or self.chosen is None:
            await self.skills.show(text, messages)
            return
        try:
            await self.chosen.show(text, messages)
        except RunnerUnfit as error:
            await self.parking.note(error)
            raise
        await self.parking.note_success()
        await self._note_occupancy()

    async def _note_occupancy(self) -> None:
        occupancy = await self.chosen.occupancy() if self.chosen is not None else None
        if occupancy is not None:
            self._core.note_occupancy(occupancy)

    # -- health

    async def look(self) -> bool:
        """Look at the runner's health; True if what was parked may go on."""
        if self.chosen is None and self.parking.unfit is None:
            return False
        self.health = await self.chosen.health() if self.chosen is not None else None
        return await self.parking.look(self.health)

    async def tidy(self) -> int:
        """Delete what programs printed that ended long ago, and worktrees in which nothing is left to lose; returns
        how many runs went."""
        core, runs = self._core, self._core.store.runs
        if self.chosen is None:
            return 0
        oldest = clock.iso(core.time.wall() - timedelta(days=core.limits.run_retention_days))
        gone = 0
        for record in await core.io(runs.all, core.agent):
            if record.started_at <= oldest and not runs.is_alive(record):
                if record.checkout is not None:
                    await self.workplace.leave(record.checkout)
                await core.io(runs.forget, record)
                gone += 1
        return gone

    def overview(self) -> dict[str, object]:
        """How the runner stands, for `/status`."""
        choice = self._choice
        return {
            "kind": choice.kind if choice else "skills",
            "cli": getattr(choice, "cli", None),
            "model": getattr(choice, "model", None),
            "account": self.parking.account,
            "health": self.health.dump() if self.health else None,
            "parked": self.parking.reason,
            "waitsFor": self.workplace.waits_for,
        }


def account_of(choice: RunnerChoice) -> str | None:
    """Which login or key the runner spends; None for one that spends nothing."""
    if isinstance(choice, CommandChoice):
        return choice.account or " in ".join(part for part in (choice.binary or choice.cli, choice.home) if part)
    if isinstance(choice, TmuxChoice):
        return choice.account or f"{choice.cli} at {choice.target}"
    if isinstance(choice, ModelChoice):
        return choice.account or choice.key_env or choice.model.partition("/")[0]
    return None
