"""The doorbell in real terminals: a fake TUI that behaves badly, and real CLIs that are asked the same."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.runners.tmux import lock
from mesh.runners.tmux.doorbell import TYPED, Pace, Rung
from mesh.runners.tmux.pane import NoTarget, Tmux, find
from mesh.runners.tmux.screens import State
from tests.live.stub_llm import stub
from tests.live.tmux_sessions import FakeSession, Host, RealSession, Session, line, tmux_host
from tests.live.tmux_storm import judge, storm

pytestmark = [pytest.mark.live, pytest.mark.timeout(230)]


@pytest.fixture
def host() -> Iterator[Host]:
    with tmux_host() as host:
        yield host


@pytest.fixture
def fake(host: Host, tmp_path: Path) -> FakeSession:
    session = FakeSession(host, "coder", "codex", tmp_path)
    session.start()
    return session


# -- what holds for the fake and for the real programs


async def check_submits(session: Session) -> None:
    began_s = time.monotonic()
    rung = await (await session.doorbell()).ring(line(1), 20)
    assert rung.outcome == "submitted", rung
    assert time.monotonic() - began_s < 15
    assert await session.gets(line(1)) == 1


async def check_leaves_a_draft(session: Session) -> None:
    session.types("half typed words")
    await session.is_(State.DRAFT)
    rung = await (await session.doorbell()).ring(line(2), 0.5)
    assert (rung.outcome, rung.state) == ("refused", State.DRAFT)
    assert (await session.reading()).words == "half typed words"
    await session.clears()
    assert session.got(line(2)) == 0


async def check_waits_while_busy(session: Session) -> None:
    await session.is_(State.IDLE)
    await session.works(3)
    await session.is_(State.BUSY)
    doorbell = await session.doorbell()
    rung = await doorbell.ring(line(3), 0)
    assert (rung.outcome, rung.state) == ("refused", State.BUSY)
    assert (await doorbell.ring(line(4), 60)).outcome == "submitted"
    assert await session.gets(line(4)) == 1
    assert session.got(line(3)) == 0


async def check_leaves_copy_mode(session: Session) -> None:
    await session.is_(State.IDLE)
    session.host.tmux("copy-mode", "-t", session.name)
    rung = await (await session.doorbell()).ring(line(5), 0.5)
    assert (rung.outcome, rung.state) == ("refused", State.COPY_MODE)
    session.host.tmux("send-keys", "-t", session.name, "-X", "cancel")
    assert (await session.is_(State.IDLE)).words == ""
    assert session.got(line(5)) == 0


async def check_answers_no_question(session: Session) -> None:
    await session.asks()
    await session.is_(State.DIALOG)
    before = session.screen()
    rung = await (await session.doorbell()).ring(line(6), 0.5)
    assert (rung.outcome, rung.state) == ("refused", State.DIALOG)
    await asyncio.sleep(0.3)
    assert session.screen() == before
    assert session.got(line(6)) == 0


async def check_interrupts_at_once(session: Session) -> None:
    await session.is_(State.IDLE)
    doorbell = await session.doorbell()
    assert await doorbell.interrupt() is State.IDLE, "nothing to stop"
    await session.works(30)
    await session.is_(State.BUSY)
    await asyncio.sleep(0.5)
    began_s = time.monotonic()
    assert await doorbell.interrupt() is State.BUSY
    assert time.monotonic() - began_s < 1
    await session.until(lambda found: found.state in (State.IDLE, State.DRAFT), 10)


# -- the fake


async def test_the_fake_passes_what_the_real_ones_pass(host: Host, tmp_path: Path) -> None:
    fakes = [FakeSession(host, look, look, tmp_path) for look in ("codex", "claude")]
    async with asyncio.TaskGroup() as group:
        for fake in fakes:
            fake.start()
            group.create_task(check_fake(fake))


async def check_fake(fake: FakeSession) -> None:
    await check_submits(fake)
    await check_leaves_a_draft(fake)
    await check_waits_while_busy(fake)
    await check_leaves_copy_mode(fake)
    await check_answers_no_question(fake)
    await check_interrupts_at_once(fake)
    assert fake.events("interrupted") == [{"event": "interrupted", "busy": True}]
    assert fake.events("question_answered") == fake.events("draft_touched") == []


async def test_enter_taken_for_a_newline_is_pressed_again(host: Host, tmp_path: Path) -> None:
    """Its burst lasts longer than our pause: the first Enter gives a newline, which the screen shows."""
    fake = FakeSession(host, "slow", "codex", tmp_path, "--newline-ms", "900")
    fake.start()
    assert (await (await fake.doorbell()).ring(line(7), 10)).outcome == "submitted"
    assert [fact["text"] for fact in fake.events("submitted")] == [line(7)]


async def test_enter_that_only_ever_gives_newlines_leaves_nothing(host: Host, tmp_path: Path) -> None:
    fake = FakeSession(host, "never", "codex", tmp_path, "--newline-ms", "60000")
    fake.start()
    rung = await (await fake.doorbell()).ring(line(8), 10)
    assert rung.outcome == "refused", rung
    assert (await fake.reading()).words == ""
    assert fake.events("submitted") == []


async def after_paste(session: FakeSession, what: str, number: int) -> Rung:
    """Ring, and let something happen between the paste and Enter."""
    await session.is_(State.IDLE)
    ringing = asyncio.ensure_future((await session.doorbell()).ring(line(number), 10))
    await session.until(lambda found: bool(found.words))
    session.order(what)
    return await ringing


async def test_whoever_types_after_the_paste_is_left_alone(fake: FakeSession) -> None:
    rung = await after_paste(fake, "say and mine", 9)
    assert rung.outcome == "uncertain"
    assert (await fake.reading()).bare == "".join(f"{line(9)}and mine".split())
    assert fake.events("submitted") == fake.events("draft_touched") == []
    await fake.clears()


async def test_a_question_after_the_paste_gets_no_enter(fake: FakeSession) -> None:
    rung = await after_paste(fake, "ask 1.5", 10)
    assert rung.outcome == "submitted", "the question went away, and the line stood there alone"
    rung = await after_paste(fake, "ask 6", 11)
    assert rung.outcome == "uncertain"
    assert fake.events("question_answered") == []
    await fake.is_(State.DRAFT, 10)
    assert [fact["text"] for fact in fake.events("submitted")] == [line(10)]
    # What was left there is known to be ours, to every process: the next one takes it away first.
    assert (await (await fake.doorbell()).ring(line(12), 5)).outcome == "submitted"
    assert (fake.got(line(11)), fake.got(line(12))) == (0, 1)


async def test_a_program_that_hangs_gives_an_uncertain_doorbell(fake: FakeSession) -> None:
    await fake.is_(State.IDLE)
    fake.order("hang 6")
    rung = await (await fake.doorbell()).ring(line(13), 5)
    assert rung.outcome == "uncertain"
    assert fake.got(line(13)) <= 1
    assert fake.events("question_answered") == fake.events("draft_touched") == []


async def test_cancelled_when_half_typed_it_comes_to_an_end(fake: FakeSession) -> None:
    await fake.is_(State.IDLE)
    ringing = asyncio.ensure_future((await fake.doorbell()).ring(line(14), 10))
    await fake.until(lambda found: bool(found.words))
    ringing.cancel("why")
    rung = await ringing
    assert rung.put_off is not None and rung.put_off.args == ("why",)
    assert fake.got(line(14)) == {"submitted": 1, "refused": 0}[rung.outcome]
    assert not (await fake.reading()).words


async def test_cancelled_at_any_moment_it_leaves_nothing_behind(fake: FakeSession) -> None:
    await fake.is_(State.IDLE)
    pane, bell = await fake.pane(), await fake.doorbell(Pace(settle_s=0.05, paste_s=0.3))
    submitted = 0
    for number in range(12):
        ringing = asyncio.ensure_future(bell.ring(line(40 + number), 10))
        await asyncio.sleep(0.04 * number)
        ringing.cancel()
        done = (await asyncio.gather(ringing, return_exceptions=True))[0]
        assert isinstance(done, Rung | asyncio.CancelledError), done
        submitted += isinstance(done, Rung) and done.outcome == "submitted"
        assert await pane.option(lock.OPTION) == ""
        assert fake.host.tmux("list-buffers") == ""
        await fake.until(lambda found: not found.words)
    assert len(fake.events("submitted")) == submitted


async def test_a_session_that_ended_is_not_typed_into(host: Host, tmp_path: Path) -> None:
    fake = FakeSession(host, "ends", "codex", tmp_path)
    host.start("ends", ["bash", "--norc", "-i"], fake.environment, tmp_path)
    fake.types(" ".join(fake.argv))
    fake.presses("Enter")
    await fake.is_(State.IDLE)
    assert (await (await fake.doorbell()).ring(line(15), 5)).outcome == "submitted"
    fake.order("quit")
    await fake.is_(State.GONE)
    began_s = time.monotonic()
    rung = await (await fake.doorbell()).ring(line(16), 30)
    assert (rung.outcome, rung.state) == ("refused", State.GONE)
    assert time.monotonic() - began_s < 2, "nobody waits for what is gone"
    assert "mesh" not in host.tmux("capture-pane", "-p", "-t", "ends").partition("$ ")[2].partition("\n")[2]
    host.tmux("kill-session", "-t", "ends")
    with pytest.raises(NoTarget):
        await fake.doorbell()


async def test_a_cli_behind_a_script_is_found_and_its_shell_is_not(host: Host, tmp_path: Path) -> None:
    fake = FakeSession(host, "script", "codex", tmp_path)
    script = tmp_path / "start.sh"
    script.write_text(f"{' '.join(fake.argv)}\ntrue\n")
    host.start("script", ["sh", str(script)], fake.environment, tmp_path)
    await fake.is_(State.IDLE)
    assert (await (await fake.doorbell()).ring(line(17), 5)).outcome == "submitted"


async def test_the_pane_that_the_cli_runs_in_is_found(host: Host, tmp_path: Path) -> None:
    fake = FakeSession(host, "coder", "codex", tmp_path)
    fake.start()
    await fake.is_(State.IDLE)
    pane = await fake.pane()
    host.tmux("split-window", "-t", "coder", "-d", "exec bash --norc")
    host.tmux("new-window", "-t", "coder", "exec bash --norc")
    tmux = Tmux(host.socket)
    assert await find(tmux, "coder", fake.look) == pane
    assert await find(tmux, "coder:0.0", fake.look) == pane
    assert await find(tmux, pane.id, fake.look) == pane
    for absent in ("cod", "coder:7", "%99"):
        with pytest.raises(NoTarget):
            await find(tmux, absent, fake.look)
    with pytest.raises(NoTarget):
        await find(Tmux(f"{host.socket}-none"), "coder", fake.look)


# -- several at once


async def test_two_senders_take_turns(fake: FakeSession) -> None:
    bells = [await fake.doorbell() for _ in range(3)]
    rungs = await asyncio.gather(*(bell.ring(line(20 + number), 30) for number, bell in enumerate(bells)))
    assert [rung.outcome for rung in rungs] == ["submitted"] * 3
    assert sorted(fact["text"] for fact in fake.events("submitted")) == [line(20), line(21), line(22)]


async def test_a_lock_ends_with_its_time_and_is_nobody_elses(fake: FakeSession) -> None:
    pane = await fake.pane()
    clock = _Ahead()
    async with lock.held(pane, clock, 0) as ours:
        with pytest.raises(lock.Taken, match=str(os.getpid())):
            async with lock.held(pane, clock, 0.3):
                pass
        clock.ahead_s = lock.HELD_MAX_S + 1
        async with lock.held(pane, clock, 0):
            assert not await pane.do_if(ours, ("send-keys", "-t", pane.id, "-l", "late"))
    assert await pane.option(lock.OPTION) == ""
    await pane.set_option(lock.OPTION, "what, somebody} else set")
    async with lock.held(pane, clock, 1):
        pass
    assert not (await fake.reading()).words


class _Ahead:
    """The host's clock, set ahead."""

    ahead_s = 0.0

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.ahead_s

    def monotonic(self) -> float:
        return time.monotonic()

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the lock needs no {name}")


# -- the figure: a hundred messages


async def test_a_hundred_messages_come_once_or_are_reported_uncertain(host: Host, tmp_path: Path) -> None:
    judge(await storm(host, tmp_path, 100, 8), 100)


# -- the real programs


@pytest.mark.parametrize("names", ["codex pi opencode", "claude"])
async def test_real_sessions(host: Host, tmp_path: Path, names: str) -> None:
    """Several at once where they spend their time waiting."""
    with stub() as llm:
        sessions = [RealSession(host, cli, tmp_path / cli, llm) for cli in names.split()]
        async with asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(check_real(session))


async def check_real(session: RealSession) -> None:
    await session.start()
    await check_submits(session)
    await check_leaves_a_draft(session)
    await check_waits_while_busy(session)
    await check_leaves_copy_mode(session)
    await check_interrupts_at_once(session)
    await session.clears()
    if session.can_ask:
        await check_answers_no_question(session)
    pane = await session.pane()
    assert (await pane.option(TYPED)).startswith("[mesh]")
