"""The runner around the doorbell: what is rung for, once an attempt, and what comes of each outcome.

The doorbell here is a fake; the real one is rung in tests/live/test_tmux.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from mesh.errors import BadUse, DeliveryUncertain, RunnerUnfit
from mesh.models import Message, Task
from mesh.models.runner_choice import Cli, TmuxChoice
from mesh.models.running import Occupancy
from mesh.runners.base import Report, Runner, Stop
from mesh.runners.tmux import TmuxRunner
from mesh.runners.tmux.doorbell import Doorbell, Rung
from mesh.runners.tmux.looks import LOOKS
from mesh.runners.tmux.pane import Pane, Tmux
from mesh.runners.tmux.runner import TASK, Tells
from mesh.runners.tmux.screens import Reading, State

CHOICE = TmuxChoice.model_validate({"kind": "tmux", "cli": "codex", "target": "coder"})


class FakePane(Pane):
    """Only the user options."""

    def __init__(self) -> None:
        super().__init__(Tmux("none"), "%1")
        object.__setattr__(self, "options", {})

    options: dict[str, str]

    async def option(self, name: str) -> str:
        return self.options.get(name, "")

    async def set_option(self, name: str, value: str) -> None:
        self.options[name] = value


class FakeDoorbell:
    def __init__(self, pane: FakePane) -> None:
        self.pane = pane
        self.next = Rung("submitted", "", State.BUSY)
        self.state = State.IDLE
        self.lines: list[str] = []
        self.interrupts = 0
        self.patience_s = 0.0

    async def ring(self, line: str, patience_s: float, note: tuple[str, str] | None = None) -> Rung:
        self.lines.append(line)
        self.patience_s = patience_s
        if note is not None and self.next.outcome != "refused":
            self.pane.options[note[0]] = note[1]
        return self.next

    async def interrupt(self) -> State:
        self.interrupts += 1
        return State.BUSY

    async def reading(self) -> Reading:
        return Reading(self.state, "as seen")


class Told:
    """A context whose session tells when it is let."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.waiting = asyncio.Event()

    async def told(self, task: Task) -> Report:
        self.waiting.set()
        await self.end.wait()
        return Report(f"{task.id} is done")


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: object) -> None:
        self.pane = FakePane()
        self.bell = FakeDoorbell(self.pane)
        self.runner = TmuxRunner("coder", CHOICE, **options)  # type: ignore[arg-type]

        async def find() -> tuple[Pane, FakeDoorbell]:
            return self.pane, self.bell

        monkeypatch.setattr(self.runner, "_find", find)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch, patience_s=7.0)


def task(attempts: int = 1) -> Task:
    return Task.model_validate(
        {
            "id": "t1",
            "title": "Mend it",
            "owner": "coder",
            "from": "chief",
            "createdAt": "2026-01-01T00:00:00.000Z",
            "updatedAt": "2026-01-01T00:00:00.000Z",
            "attempts": attempts,
        }
    )


def message(id_: str = "m1") -> Message:
    fields = {"id": id_, "from": "ops", "to": "coder", "type": "message", "timestamp": "2026-01-01T00:00:00.000Z"}
    return Message.model_validate({**fields, "payload": {"text": "the body"}})


def test_it_is_a_runner() -> None:
    runner: Runner[Tells] = TmuxRunner("coder", CHOICE)
    assert runner.outlives and runner.reads_mail and runner.can_run(task())


# -- tasks


async def test_a_task_is_rung_for_and_ends_when_the_session_says_so(world: World) -> None:
    told = Told()
    running = asyncio.ensure_future(world.runner.run(task(), told))
    await told.waiting.wait()
    assert world.bell.lines == ["[mesh] normal task from chief. Read it with: mesh task show t1"]
    assert world.pane.options[TASK] == "t1/1/rung"
    assert not running.done()
    told.end.set()
    assert (await running).text == "t1 is done"
    assert world.bell.interrupts == 0


async def test_the_next_daemon_only_goes_on_waiting(world: World) -> None:
    told = Told()
    running = asyncio.ensure_future(world.runner.run(task(), told))
    await told.waiting.wait()
    running.cancel(Stop.DETACH)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.bell.interrupts == 0
    told.end.set()
    await world.runner.run(task(), told)
    assert len(world.bell.lines) == 1
    await world.runner.run(task(attempts=2), told)
    assert len(world.bell.lines) == 2, "another attempt is another doorbell"


@pytest.mark.parametrize("stop", [(Stop.INTERRUPT,), (Stop.KILL,), ()])
async def test_stopped_the_session_is_interrupted(world: World, stop: tuple[Stop, ...]) -> None:
    told = Told()
    running = asyncio.ensure_future(world.runner.run(task(), told))
    await told.waiting.wait()
    running.cancel(*stop)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert world.bell.interrupts == 1


async def test_a_cancellation_that_was_put_off_is_made_up_for(world: World) -> None:
    world.bell.next = Rung("submitted", "", State.BUSY, asyncio.CancelledError(Stop.DETACH))
    with pytest.raises(asyncio.CancelledError):
        await world.runner.run(task(), Told())
    assert world.bell.interrupts == 0
    assert world.pane.options[TASK] == "t1/1/rung"


async def test_an_uncertain_doorbell_for_a_task_is_never_rung_again(world: World) -> None:
    world.bell.next = Rung("uncertain", "after Enter, busy")
    for _ in range(2):
        with pytest.raises(DeliveryUncertain) as caught:
            await world.runner.run(task(), Told())
        assert caught.value.facts["agentId"] == "coder"
    assert len(world.bell.lines) == 1


async def test_a_refused_one_may_be_rung_again(world: World) -> None:
    world.bell.next = Rung("refused", "dialog: it asks", State.DIALOG)
    for _ in range(2):
        with pytest.raises(RunnerUnfit, match="dialog: it asks"):
            await world.runner.run(task(), Told())
    assert len(world.bell.lines) == 2


# -- mail


async def test_messages_are_named_and_their_text_is_not_typed(world: World) -> None:
    await world.runner.show("the whole text", [message()])
    await world.runner.show("the whole text")
    assert world.bell.lines == [
        "[mesh] normal message (message) from ops. Read it with: mesh mail show m1",
        "[mesh] Mail waits for you. Read with: mesh mail list coder",
    ]
    assert world.bell.patience_s == 7.0


@pytest.mark.parametrize(
    ("rung", "error", "state"),
    [
        (Rung("uncertain", "why"), DeliveryUncertain, None),
        (Rung("refused", "why", State.BUSY), RunnerUnfit, "unknown"),
        (Rung("refused", "why", State.GONE), RunnerUnfit, "missing"),
    ],
)
async def test_what_is_not_submitted_is_an_error(
    world: World, rung: Rung, error: type[RunnerUnfit | DeliveryUncertain], state: str | None
) -> None:
    world.bell.next = rung
    with pytest.raises(error, match="why") as caught:
        await world.runner.show("text", [message()])
    assert caught.value.facts.get("state") == state


async def test_text_goes_to_the_inbox_and_only_its_doorbell_to_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    posted = []

    async def post(text: str) -> Message:
        posted.append(text)
        return message("m9")

    world = World(monkeypatch, post=post)
    assert (await world.runner.say("rm -rf /\nnow")).id == "m9"
    assert posted == ["rm -rf /\nnow"]
    assert world.bell.lines == ["[mesh] normal message (message) from ops. Read it with: mesh mail show m9"]
    with pytest.raises(BadUse):
        await World(monkeypatch).runner.say("text")


# -- the rest


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.IDLE, "ok"),
        (State.BUSY, "ok"),
        (State.DIALOG, "ok"),
        (State.GONE, "missing"),
        (State.UNKNOWN, "unknown"),
    ],
)
async def test_health(world: World, state: State, expected: str) -> None:
    world.bell.state = state
    health = await world.runner.health()
    assert (health.state, health.detail) == (expected, "coder: as seen")
    assert health.at is not None


async def test_without_tmux_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    runner = TmuxRunner("coder", CHOICE)
    for call in (lambda: runner.show("text"), lambda: runner.interrupt(), lambda: runner.run(task(), Told())):
        calling: Callable[[], object] = call
        with pytest.raises(RunnerUnfit, match="apt-get install tmux"):
            await calling()  # type: ignore[misc]
    health = await runner.health()
    assert health.state == "missing" and "apt-get install tmux" in health.detail


async def test_occupancy_and_summary_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reads() -> Occupancy:
        return Occupancy(tokens=5)

    plain = TmuxRunner("coder", CHOICE)
    assert await plain.occupancy() is None and await plain.summarise("text") is None
    assert await TmuxRunner("coder", CHOICE, reads_occupancy=reads).occupancy() == Occupancy(tokens=5)


def test_every_cli_of_the_registry_has_a_look() -> None:
    assert set(get_args(Cli)) == set(LOOKS)


def test_a_doorbell_takes_no_line_that_is_not_one() -> None:
    async def ring(line: str) -> None:
        await Doorbell(FakePane(), LOOKS["codex"]).ring(line, 0)

    for line in ("two\nlines", "", "ünsafe", "esc\x1b"):
        with pytest.raises(AssertionError):
            asyncio.run(ring(line))
