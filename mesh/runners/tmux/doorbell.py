"""Rings: types one line into a session and submits it, or doesn't, and knows which.

    look, until the session is idle, its composer empty, and two looks agree
    paste, if tmux finds the cursor where it was        nothing was typed before this
    look, until the line stands in the composer, alone
    Enter, if tmux finds the cursor where it was
    look, until the line has left the composer          proven, and only then said to be

Whatever comes between (a question, somebody's words, copy mode) stops it. A line that still stands alone is taken
away again where that is safe; else the outcome is `uncertain`, and nobody types it twice.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from mesh.clock import SYSTEM, Clock
from mesh.errors import RunnerUnfit
from mesh.runners.tmux import lock
from mesh.runners.tmux.pane import Pane
from mesh.runners.tmux.screens import SHELLS, Capture, Look, Reading, State, find_composer, read


@dataclass(frozen=True)
class Pace:
    """How long things are waited for, in seconds."""

    #: Between the two looks that must agree.
    settle_s: float = 0.3
    #: Between looks at a session that is not free; doubles up to the maximum.
    poll_s: float = 0.5
    poll_max_s: float = 2.0
    #: Between the paste and Enter at least: some programs take Enter for a newline at the end of a burst.
    paste_s: float = 0.5
    #: Until pasted words stand in the composer; programs that redraw slowly need a second.
    stands_s: float = 5.0
    #: Until submitted words have left it: a program that is just starting may take Enter late.
    leaves_s: float = 15.0
    look_s: float = 0.1
    #: Between interrupting keys; all of them take less than a second.
    keys_s: float = 0.2
    #: How long it is tried to take a line away that can't be submitted now, and how long is waited if it must end.
    clears_up_s: float = 3.0
    #: How often Enter is pressed at most, when it was taken for a newline.
    enters_max: int = 3


@dataclass(frozen=True)
class Rung:
    """What became of a doorbell. `refused`: nothing of it is left in the session, it may be rung again."""

    outcome: Literal["submitted", "refused", "uncertain"]
    #: For people: why not, and what was seen.
    detail: str = ""
    state: State = State.UNKNOWN
    #: The cancellation that came when it was half typed, and was put off until it had ended.
    put_off: asyncio.CancelledError | None = None


@dataclass(frozen=True)
class _Seen:
    capture: Capture
    reading: Reading


#: A user option of the pane: the line that was typed last. If just that stands in the input box, it is ours and may be
#: taken away: an uncertain doorbell leaves it there, and Claude Code puts an interrupted prompt back.
TYPED = "@mesh_typed"


class Doorbell:
    """The doorbell of one pane."""

    def __init__(self, pane: Pane, look: Look, time: Clock = SYSTEM, pace: Pace | None = None) -> None:
        self._pane = pane
        self._look = look
        self._time = time
        self._pace = pace or Pace()
        self._turn = asyncio.Lock()
        self._hurry = asyncio.Event()
        #: What an earlier doorbell left in the input box, without white space.
        self._left_behind = ""

    async def reading(self) -> Reading:
        """What the session is now."""
        return (await self._see()).reading

    async def ring(self, line: str, patience_s: float, note: tuple[str, str] | None = None) -> Rung:
        """Submit the line, waiting so long at most for the session to be free. `note` is a user option of the pane and
        its value: tmux sets it in the same moment in which the line is typed. Cancelling it before anything was
        typed raises CancelledError; after that it ends within seconds, as if it had not been cancelled. Raises
        RunnerUnfit if tmux or the pane is not there, before anything was typed."""
        assert line.isascii() and line.isprintable() and line, "a doorbell is one line of plain letters"
        deadline_s = self._time.monotonic() + patience_s
        async with self._turn:
            self._left_behind = _bare(await self._pane.option(TYPED))
            while True:
                seen = await self._free(deadline_s)
                if not self._may_type(seen):
                    return Rung("refused", _why(seen), seen.reading.state)
                wait_s = max(self._pace.look_s, deadline_s - self._time.monotonic())
                try:
                    async with lock.held(self._pane, self._time, wait_s) as ours:
                        rung = await self._type(line, ours, note)
                except lock.Taken as error:
                    return Rung("refused", error.detail, seen.reading.state)
                if rung is not None:
                    return rung
                if self._time.monotonic() >= deadline_s:
                    return Rung("refused", "the session was never quiet", (await self.reading()).state)

    async def interrupt(self) -> State:
        """Stop what the session does, at once and whatever it shows; returns what it was before. One that is idle,
        holds somebody's words, or isn't there is left alone: there is nothing to stop, and the keys mean other
        things. Raises RunnerUnfit if tmux or the pane is not there."""
        seen = await self._see()
        if seen.capture.in_mode:  # copy mode would take the keys for itself
            await self._pane.do_if("#{pane_in_mode}", ("send-keys", "-t", self._pane.id, "-X", "cancel"))
            seen = await self._see()
        state, command = seen.reading.state, seen.capture.command
        foreign = command in SHELLS or not re.fullmatch(self._look.commands, command)
        if foreign or state in (State.GONE, State.IDLE, State.DRAFT):
            return state
        for number, key in enumerate(self._look.interrupt):
            if number:
                # Two at once would be read as one other key.
                await asyncio.sleep(self._pace.keys_s)
                if (await self._see()).reading.state is not State.BUSY:
                    break
            await self._pane.tmux("send-keys", "-t", self._pane.id, key)
        return state

    # -- looking

    async def _see(self) -> _Seen:
        capture = await self._pane.capture()
        return _Seen(capture, read(capture, self._look))

    def _may_type(self, seen: _Seen) -> bool:
        """Whether it is free, or holds only what we left there ourselves."""
        reading = seen.reading
        ours = bool(self._left_behind) and reading.bare == self._left_behind
        return reading.state is State.IDLE or (reading.state is State.DRAFT and ours)

    async def _free(self, deadline_s: float) -> _Seen:
        """Wait until the session may be typed into, and stays as it is for a moment. What it was last, if never."""
        pause_s = self._pace.poll_s
        while True:
            seen = await self._see()
            if self._may_type(seen):
                await asyncio.sleep(self._pace.settle_s)
                again = await self._see()
                if again == seen:
                    return again
                seen, pause_s = _restless(again) if self._may_type(again) else again, self._pace.poll_s
            if seen.reading.state is State.GONE or self._time.monotonic() >= deadline_s:
                return seen
            await asyncio.sleep(min(pause_s, max(0.0, deadline_s - self._time.monotonic())))
            pause_s = min(2 * pause_s, self._pace.poll_max_s)

    async def _until(self, wait_s: float, condition: Callable[[_Seen], bool], hurried_s: float) -> _Seen:
        """Look until the condition holds twice in a row: a look may fall into the middle of a redraw. `hurried_s`: the
        wait if all is to end soon."""
        deadline_s, hurries = self._time.monotonic() + wait_s, False
        held_before = False
        while True:
            seen = await self._see()
            holds, now_s = condition(seen), self._time.monotonic()
            if self._hurry.is_set() and not hurries:
                hurries, deadline_s = True, min(deadline_s, now_s + hurried_s)
            if (holds and held_before) or now_s >= deadline_s:
                return seen
            held_before = holds
            await asyncio.sleep(self._pace.look_s)

    # -- what is seen of the line

    def _stands(self, seen: _Seen, line: str) -> bool:
        """The line stands in the composer, and nothing else does."""
        words, folds = seen.reading.words or "", self._look.folds
        folded = folds is not None and len(line) >= folds[0] and re.fullmatch(folds[1], words.strip())
        return _bare(words) == _bare(line) or bool(folded)

    def _ready(self, seen: _Seen, line: str) -> bool:
        # With words in the composer, `draft` says that nothing else is the matter.
        return seen.reading.state is State.DRAFT and self._stands(seen, line)

    def _place(self, seen: _Seen) -> tuple[int, int, int]:
        """The cursor, and the row where the composer begins: a newline moves one of them, for some grow upwards."""
        composer = find_composer(seen.capture, self._look)
        return (*seen.capture.cursor, composer.first_row if composer else -1)

    def _has_left(self, seen: _Seen, line: str) -> bool:
        bare = seen.reading.bare
        if bare is None:  # some show no composer while they work
            return seen.reading.state is State.BUSY
        return _bare(line) not in bare and not self._stands(seen, line)

    # -- typing

    async def _type(self, line: str, ours: str, note: tuple[str, str] | None) -> Rung | None:
        """With the lock held. None if the line was not typed, for something moved meanwhile."""
        seen = await self._see()
        if not self._may_type(seen):
            return None
        if seen.reading.state is not State.IDLE:
            await self._take_back(self._left_behind, ours, seen)
            return None
        self._hurry.clear()
        typing = asyncio.ensure_future(self._typed(line, ours, seen.capture, note))
        put_off: asyncio.CancelledError | None = None
        while not typing.done():
            try:
                await asyncio.shield(typing)
            except asyncio.CancelledError as stop:
                if typing.cancelled():
                    raise
                put_off = stop
                self._hurry.set()  # half-typed words are left to nobody: it goes on to an end, only sooner
        rung = typing.result()
        if put_off is None:
            return rung
        if rung is None:
            raise put_off
        return replace(rung, put_off=put_off)

    async def _typed(self, line: str, ours: str, before: Capture, note: tuple[str, str] | None) -> Rung | None:
        buffer = f"mesh-{secrets.token_hex(6)}"
        notes = [("set-option", "-p", "-t", self._pane.id, *fact) for fact in ((TYPED, line), note) if fact is not None]
        paste = ("paste-buffer", "-p", "-d", "-b", buffer, "-t", self._pane.id)
        await self._pane.tmux("load-buffer", "-b", buffer, "-", given=line)
        try:
            if not await self._pane.do_if(_unmoved(before, ours), *notes, paste):
                await self._pane.tmux("delete-buffer", "-b", buffer)
                return None
            return await self._submit(line, ours)
        except RunnerUnfit as error:  # tmux failed, or the pane is gone: whether before or after, it doesn't say
            return Rung("uncertain", f"while it was typed: {error.detail}")

    async def _submit(self, line: str, ours: str) -> Rung:
        await asyncio.sleep(self._pace.paste_s)
        seen = await self._until(self._pace.stands_s, lambda now: self._ready(now, line), 0)
        for _ in range(self._pace.enters_max):
            if not self._ready(seen, line) or self._hurry.is_set():
                return await self._take_back(line, ours, seen)
            if await self._pane.do_if(_unmoved(seen.capture, ours), ("send-keys", "-t", self._pane.id, "Enter")):
                rung = await self._submitted(line, ours, seen)
                if rung is not None:
                    return rung
                await asyncio.sleep(self._pace.paste_s)
            seen = await self._until(self._pace.stands_s, lambda now: self._ready(now, line), 0)
        return await self._take_back(line, ours, seen)

    async def _submitted(self, line: str, ours: str, before: _Seen) -> Rung | None:
        """What Enter came to. None if it was taken for a newline."""

        def newline(now: _Seen) -> bool:
            return self._ready(now, line) and self._place(now) != self._place(before)

        pace = self._pace
        now = await self._until(pace.leaves_s, lambda now: self._has_left(now, line) or newline(now), pace.clears_up_s)
        if self._has_left(now, line):
            return Rung("submitted", "", now.reading.state)
        if newline(now):
            return None
        if self._stands(now, line):
            # Not even a newline came of it: the program hangs, and Enter may still wait for it.
            taken = await self._take_back(line, ours, now)
            return Rung("uncertain", f"Enter did nothing for {self._pace.leaves_s:g} s", taken.state)
        return Rung("uncertain", f"after Enter, {_why(now)}", now.reading.state)

    async def _take_back(self, line: str, ours: str, seen: _Seen) -> Rung:
        """Remove what was typed, if it stands there alone; everything else is left as it is."""
        if seen.reading.bare == "":
            return Rung("uncertain", "it was typed and never seen in the input box", seen.reading.state)
        why, deadline_s = _why(seen), self._time.monotonic() + self._pace.clears_up_s
        begun = False
        while seen.reading.bare != "":
            if self._time.monotonic() >= deadline_s:
                return Rung("uncertain", f"it was typed but not submitted: {_why(seen)}", seen.reading.state)
            # A key may take away a part of it, where the line was broken.
            rest = begun and _bare(line).startswith(seen.reading.bare or " ")
            if (rest or self._stands(seen, line)) and seen.reading.state in (State.DRAFT, State.BUSY):
                keys = ("send-keys", "-t", self._pane.id, *self._removal(seen))
                begun = await self._pane.do_if(_unmoved(seen.capture, ours), keys) or begun
            await asyncio.sleep(2 * self._pace.look_s)
            seen = await self._see()
        return Rung("refused", f"it was typed and taken away again: {why}", seen.reading.state)

    def _removal(self, seen: _Seen) -> tuple[str, ...]:
        composer = find_composer(seen.capture, self._look)
        assert composer is not None, "words were read in it"
        # At the start of a line, which an unwanted newline began, only a backspace goes on.
        if seen.capture.cursor[0] <= composer.column and seen.capture.cursor[1] > composer.first_row:
            return ("BSpace",)
        return self._look.clear or ("-N", str(len(composer.text)), "BSpace")


def _restless(seen: _Seen) -> _Seen:
    return _Seen(seen.capture, Reading(State.BUSY, "its screen is changing", seen.reading.words))


def _bare(text: str) -> str:
    return "".join(text.split())


def _why(seen: _Seen) -> str:
    reading = seen.reading
    return f"{reading.state.replace('_', ' ')}: {reading.detail}" if reading.detail else reading.state.replace("_", " ")


def _unmoved(capture: Capture, ours: str) -> str:
    """The condition (a tmux format) that the lock is ours, and the pane's cursor and modes are as they were seen."""
    facts = {
        "cursor_x": capture.cursor[0],
        "cursor_y": capture.cursor[1],
        "cursor_flag": int(capture.cursor_shown),
        "alternate_on": int(capture.alternate),
        "pane_in_mode": 0,
        "pane_synchronized": 0,  # else Enter would go to the panes beside it too
        "pane_input_off": 0,
        "pane_dead": 0,
    }
    condition = ours
    for name, value in facts.items():
        condition = f"#{{&&:{condition},#{{==:#{{{name}}},{value}}}}}"
    return condition
