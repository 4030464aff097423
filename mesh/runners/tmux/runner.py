"""The runner of an interactive session: it is rung, does the work in its own terminal, and tells how it ended.

The session is a person's, or one that nobody ends: nothing is started and nothing killed here. What a task came to is
told by the agent in it, through the mesh's command, its tools or its hooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from mesh.clock import SYSTEM, Clock, iso
from mesh.errors import BadUse, DeliveryUncertain, RunnerUnfit
from mesh.models import Message, Task
from mesh.models.runner_choice import TmuxChoice
from mesh.models.running import Occupancy, RunnerHealth
from mesh.runners.base import Report, Stop
from mesh.runners.tmux import wording
from mesh.runners.tmux.doorbell import Doorbell, Pace, Rung
from mesh.runners.tmux.looks import LOOKS
from mesh.runners.tmux.pane import Pane, Tmux, find
from mesh.runners.tmux.screens import State

#: A user option of the pane: which attempt at which task was typed into it, and whether that was proven. It lives as
#: long as the session, so that the next daemon doesn't ring for the same attempt again.
TASK = "@mesh_task"
_TYPED, _RUNG = "typed", "rung"
#: A session may be busy for long; who shows mail gives up earlier, or never.
PATIENCE_S = 600.0


class Tells(Protocol):
    """What the runner needs to know of a task that it has handed over."""

    async def told(self, task: Task) -> Report:
        """Wait until the session has said how the task ended. Raises what the failure of the attempt is to be."""
        ...


class TmuxRunner:
    """Does an agent's work in the interactive session that `choice` names.

    `command` calls the mesh in the session's shell. `post` puts a text into the agent's inbox and returns the message
    (for `say`). `reads_occupancy` asks the session's transcript, where that is known.
    """

    outlives = True

    def __init__(
        self,
        agent: str,
        choice: TmuxChoice,
        *,
        command: wording.Command | None = None,
        post: Callable[[str], Awaitable[Message]] | None = None,
        reads_occupancy: Callable[[], Awaitable[Occupancy | None]] | None = None,
        patience_s: float = PATIENCE_S,
        pace: Pace | None = None,
        time: Clock = SYSTEM,
    ) -> None:
        self._agent = agent
        self._choice = choice
        self._look = LOOKS[choice.cli]
        self._command = command
        self._post = post
        self._reads_occupancy = reads_occupancy
        self._patience_s = patience_s
        self._pace = pace or Pace()
        self._time = time
        self._tmux = Tmux(choice.socket)
        self._doorbell: tuple[Pane, Doorbell] | None = None

    def can_run(self, task: Task) -> bool:
        return True

    async def run(self, task: Task, context: Tells) -> Report:
        """Ring for the task, unless that was done for this attempt, and wait until the session has told its end.
        Raises RunnerUnfit if it can't be rung, DeliveryUncertain if nobody knows whether it was. Cancelled, it
        interrupts the session; with `Stop.DETACH` it only stops watching."""
        pane, doorbell = await self._find()
        attempt = f"{task.id}/{task.attempts}"
        before = await pane.option(TASK)
        if before == f"{attempt}/{_TYPED}":
            raise self._uncertain("it was typed by a process that ended before it could tell")
        if before != f"{attempt}/{_RUNG}":
            line = wording.for_task(task, self._command)
            rung = await self._ring(pane, doorbell, line, (TASK, f"{attempt}/{_TYPED}"))
            await pane.set_option(TASK, f"{attempt}/{_RUNG}")
        else:
            rung = Rung("submitted")
        try:
            if rung.put_off is not None:
                raise rung.put_off
            return await context.told(task)
        except asyncio.CancelledError as stop:
            if Stop.DETACH not in stop.args:
                await self._let_go(doorbell)
            raise

    @property
    def reads_mail(self) -> bool:
        return True

    async def show(self, text: str, messages: Sequence[Message] = ()) -> None:
        """Ring for the messages, most urgent first; their text is read by the agent itself. Waits while the session
        is busy. Cancelled when the line is half typed, it goes on to its end all the same. Raises RunnerUnfit if the
        session never was free, or isn't there: nothing was typed; DeliveryUncertain if it can't be told whether the
        line was submitted."""
        await self._ring(*await self._find(), wording.for_messages(messages, self._agent, self._command))

    async def say(self, text: str) -> Message:
        """Bring any text to the agent: it goes to its inbox, and the session is rung. Raises as `show`; the message
        waits in the inbox all the same."""
        if self._post is None:
            raise BadUse("Text for this session can't be put into an inbox here.", agentId=self._agent)
        message = await self._post(text)
        await self.show(text, [message])
        return message

    async def interrupt(self) -> State:
        """For an urgent shutdown: stop at once what the session does. What it was doing before. Raises RunnerUnfit if
        tmux or the session is not there."""
        _, doorbell = await self._find()
        return await doorbell.interrupt()

    async def summarise(self, text: str) -> str | None:
        return None

    async def occupancy(self) -> Occupancy | None:
        return None if self._reads_occupancy is None else await self._reads_occupancy()

    async def health(self) -> RunnerHealth:
        """Whether tmux, the session and the CLI in it are there."""
        at = iso(self._time.wall())
        try:
            _, doorbell = await self._find()
            reading = await doorbell.reading()
        except RunnerUnfit as error:
            return RunnerHealth(state=error.facts.get("state", "unknown"), detail=error.detail, at=at)
        told = f"{self._choice.target}: {reading.detail or reading.state.replace('_', ' ')}"
        if reading.state is State.GONE:
            return RunnerHealth(state="missing", detail=told, at=at)
        return RunnerHealth(state="unknown" if reading.state is State.UNKNOWN else "ok", detail=told, at=at)

    # -- the doorbell

    async def _find(self) -> tuple[Pane, Doorbell]:
        """The pane, looked up each time: the session may have been started anew."""
        pane = await find(self._tmux, self._choice.target, self._look)
        if self._doorbell is None or self._doorbell[0] != pane:
            self._doorbell = pane, Doorbell(pane, self._look, self._time, self._pace)
        return self._doorbell

    async def _ring(self, pane: Pane, doorbell: Doorbell, line: str, note: tuple[str, str] | None = None) -> Rung:
        rung = await doorbell.ring(line, self._patience_s, note)
        if rung.outcome == "uncertain":
            raise self._uncertain(rung.detail)
        if rung.outcome == "refused":
            if note is not None and rung.state is not State.GONE:  # nothing of it is left: it may be rung for again
                await pane.set_option(note[0], "")
            detail = f"{self._agent}'s session {self._choice.target} can't be rung: {rung.detail}"
            raise RunnerUnfit(detail, agentId=self._agent, state="missing" if rung.state is State.GONE else "unknown")
        return rung

    def _uncertain(self, why: str) -> DeliveryUncertain:
        detail = f"Whether {self._agent}'s session {self._choice.target} got its doorbell is not known: {why}."
        return DeliveryUncertain(detail, agentId=self._agent)

    async def _let_go(self, doorbell: Doorbell) -> None:
        try:
            await doorbell.interrupt()
        except RunnerUnfit:  # with the pane its work is gone
            return
