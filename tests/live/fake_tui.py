"""A terminal program that behaves as badly as real agent CLIs do, and keeps a record of what was done to it.

It wears the look of one of them, reads its terminal raw, takes Enter for a newline for a moment after a burst, is busy,
asks questions at any moment, holds words that a person has typed, and hangs. What comes in a bracketed paste it takes
for ours, what comes as keys for a person's. Its record is a file of JSON lines:

    {"event": "submitted", "text", "mixed"}     a prompt; mixed if a person's words were in it
    {"event": "question_answered", "keys"}      keys reached a question
    {"event": "draft_touched", "how"}           a paste into a person's words, or keys that erased some of them
    {"event": "interrupted", "busy"}            the interrupting key came

It is told what to do by datagrams on a Unix socket: `ask SECONDS`, `busy SECONDS`, `hang SECONDS`, `clear`, `say
WORDS` (a person's, typed elsewhere), `quit`. The same checks run against the real programs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Callable
from dataclasses import dataclass, field

_PASTE_BEGIN, _PASTE_END = "\x1b[200~", "\x1b[201~"
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LISTENS_AFTER_S = 0.01
_CLOCK = "◐◓◑◒"
PLACEHOLDER = "Ask Codex to do anything"


@dataclass
class Model:
    """What the program knows; no terminal in it."""

    record: Callable[[dict[str, object]], None]
    newline_s: float
    busy_s: tuple[float, float]
    chance: random.Random
    transcript: list[str] = field(default_factory=list)
    #: Each character, and whether a person typed it.
    words: list[tuple[str, bool]] = field(default_factory=list)
    busy_until_s: float = 0.0
    asking_until_s: float = 0.0
    #: A question takes keys from then on: whoever reads events in turns gives the last ones to what stood there before.
    asks_from_s: float = 0.0
    burst_at_s: float = -1.0

    @property
    def text(self) -> str:
        return "".join(mark for mark, _ in self.words)

    @property
    def holds_draft(self) -> bool:
        return any(by_person for _, by_person in self.words)

    def asks(self, now_s: float) -> bool:
        return now_s < self.asking_until_s

    def listens(self, now_s: float) -> bool:
        """Whether keys go to a question."""
        return self.asks(now_s) and now_s >= self.asks_from_s

    def ask(self, now_s: float, for_s: float) -> None:
        self.asking_until_s, self.asks_from_s = now_s + for_s, now_s + _LISTENS_AFTER_S

    def works(self, now_s: float) -> bool:
        return now_s < self.busy_until_s

    def paste(self, text: str, now_s: float) -> None:
        self.burst_at_s = now_s
        if self.listens(now_s):
            self.record({"event": "question_answered", "keys": text})
            return
        if self.holds_draft:
            self.record({"event": "draft_touched", "how": "paste"})
        self.words += [(mark, False) for mark in text]

    def keys(self, text: str, now_s: float) -> None:
        if self.listens(now_s):
            self.record({"event": "question_answered", "keys": text})
            return
        if len(text) > 1:
            self.burst_at_s = now_s
        for key in text:
            self._key(key, now_s)

    def _key(self, key: str, now_s: float) -> None:
        if key == "\r":
            if now_s - self.burst_at_s < self.newline_s:
                self.words.append(("\n", False))
            else:
                self._submit(now_s)
        elif key in "\x1b\x03":
            self.record({"event": "interrupted", "busy": self.works(now_s)})
            self.busy_until_s = 0.0
        elif key == "\x7f":
            self._erase(1)
        elif key == "\x15":
            line = self.text.rpartition("\n")[2]
            self._erase(len(line))
        elif key.isprintable():
            self.words.append((key, True))

    def _erase(self, count: int) -> None:
        gone = [self.words.pop() for _ in range(min(count, len(self.words)))]
        if any(by_person for _, by_person in gone):
            self.record({"event": "draft_touched", "how": "erased"})

    def _submit(self, now_s: float) -> None:
        text = self.text.strip()
        if not text:
            return
        self.record({"event": "submitted", "text": text, "mixed": self.holds_draft})
        self.transcript += [f"› {text}", "", "• done", ""]
        self.words = []
        self.busy_until_s = now_s + self.chance.uniform(*self.busy_s)


class Screen:
    """Draws the model as one of the real programs looks."""

    def __init__(self, look: str) -> None:
        self._draw = {"codex": self._codex, "claude": self._claude}[look]

    def draw(self, model: Model, now_s: float) -> str:
        width, height = shutil.get_terminal_size()
        lines, cursor, shown, title = self._draw(model, now_s, width, height)
        lines = lines[-height:]
        body = "".join(f"\x1b[{number + 1};1H\x1b[0m\x1b[K{line}" for number, line in enumerate(lines))
        x, y = cursor
        return f"\x1b]2;{title}\x07{body}\x1b[0m\x1b[J\x1b[{y + 1};{x + 1}H\x1b[?25{'h' if shown else 'l'}"

    def _codex(self, model: Model, now_s: float, width: int, height: int) -> _Drawn:
        title = f"{_SPINNER[int(now_s * 10) % 10]} project" if model.works(now_s) else "project"
        if model.asks(now_s):
            box = ["  Would you like to run the following command?", "", "  $ make deploy", ""]
            box += ["› 1. Yes, proceed (y)", "  2. No (esc)", "", "  Press enter to confirm or esc to cancel"]
            lines = _above(model, height - len(box), width) + box
            return lines, (width - 1, height - 1), False, "[ . ] Action Required | project"
        composer, (x, y) = _wrapped(model.text, "› ", "  ", width)
        if not model.text:
            composer = [f"\x1b[1m›\x1b[0m \x1b[2m{PLACEHOLDER}"]
        status = ["• Working (1s • esc to interrupt)", "", ""] if model.works(now_s) else []
        below = ["", "  stub-model default · /srv/project", "  ? for shortcuts"]
        above = _above(model, height - len(composer) - len(below) - len(status), width) + status
        return above + composer + below, (x, len(above) + y), True, title

    def _claude(self, model: Model, now_s: float, width: int, height: int) -> _Drawn:
        title = f"{_CLOCK[int(now_s * 8) % 4] if model.works(now_s) else '✳'} Claude Code"
        rule = "─" * width
        if model.asks(now_s):
            box = [rule, " Bash command", "", " Do you want to proceed?", " ❯ 1. Yes", "   2. No", "", " Esc to cancel"]
            lines = _above(model, height - len(box), width) + box
            return lines, (1, height - 4), False, title
        composer, (x, y) = _wrapped(model.text, "❯\xa0", "  ", width)
        status = ["✻ Thinking…", ""] if model.works(now_s) else []
        below = [rule, "  ? for shortcuts"]
        above = _above(model, height - len(composer) - len(below) - len(status) - 1, width) + status
        return [*above, rule, *composer, *below], (x, len(above) + 1 + y), False, title


_Drawn = tuple[list[str], tuple[int, int], bool, str]


def _above(model: Model, rows: int, width: int) -> list[str]:
    text = [line[number : number + width] for line in model.transcript for number in range(0, max(1, len(line)), width)]
    return ([""] * rows + text)[-rows:] if rows > 0 else []


def _wrapped(text: str, first: str, other: str, width: int) -> tuple[list[str], tuple[int, int]]:
    rows = []
    for line in text.split("\n"):
        room = width - len(first) - 1
        rows += [line[number : number + room] for number in range(0, max(1, len(line)), room)]
    lines = [(other if number else first) + row for number, row in enumerate(rows)]
    return lines, (len(lines[-1]), len(lines) - 1)


class Program:
    def __init__(self, options: argparse.Namespace) -> None:
        self._log = open(options.log, "a", encoding="utf-8", buffering=1)
        self._chance = random.Random(options.seed)
        busy_s = (options.busy_s / 2, options.busy_s * 1.5)
        self._model = Model(self._record, options.newline_ms / 1000, busy_s, self._chance)
        self._screen = Screen(options.look)
        self._asks_every_s = options.asks_every_s
        self._hangs_until_s = 0.0
        self._ends = False
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._control.bind(options.control)
        self._next_question_s = time.monotonic() + self._pause_s()

    def run(self) -> None:
        before = termios.tcgetattr(0)
        tty.setraw(0)
        # Bracketed paste, the alternate screen.
        os.write(1, b"\x1b[?1049h\x1b[?2004h")
        try:
            while not self._ends:
                self._turn()
        finally:
            os.write(1, b"\x1b[?2004l\x1b[?1049l\x1b[?25h")
            termios.tcsetattr(0, termios.TCSADRAIN, before)

    def _turn(self) -> None:
        now_s = time.monotonic()
        if now_s < self._hangs_until_s:
            time.sleep(self._hangs_until_s - now_s)
            return
        if self._asks_every_s and now_s >= self._next_question_s:
            self._model.ask(now_s, self._chance.uniform(0.3, 1.2))
            self._next_question_s = self._model.asking_until_s + self._pause_s()
        os.write(1, self._screen.draw(self._model, now_s).encode())
        ready, _, _ = select.select([0, self._control], [], [], 0.05)
        if self._control in ready:
            self._obey(self._control.recv(1000).decode())
        if 0 in ready:
            self._read(os.read(0, 65536).decode(errors="replace"))

    def _read(self, text: str) -> None:
        for piece in re.split(f"({re.escape(_PASTE_BEGIN)}.*?{re.escape(_PASTE_END)})", text, flags=re.DOTALL):
            if piece.startswith(_PASTE_BEGIN):
                self._model.paste(piece[len(_PASTE_BEGIN) : -len(_PASTE_END)], time.monotonic())
            elif piece:
                self._model.keys(piece, time.monotonic())

    def _obey(self, order: str) -> None:
        verb, _, rest = order.partition(" ")
        now_s, model = time.monotonic(), self._model
        if verb == "ask":
            model.ask(now_s, float(rest))
        elif verb == "busy":
            model.busy_until_s = now_s + float(rest)
        elif verb == "hang":
            self._hangs_until_s = now_s + float(rest)
        elif verb == "clear":
            model.words = []
        elif verb == "say":
            model.words += [(mark, True) for mark in rest]
        elif verb == "quit":
            self._ends = True

    def _pause_s(self) -> float:
        return self._chance.expovariate(1 / self._asks_every_s) if self._asks_every_s else 0.0

    def _record(self, fact: dict[str, object]) -> None:
        self._log.write(json.dumps(fact) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--control", required=True)
    parser.add_argument("--look", choices=("codex", "claude"), default="codex")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--busy-s", type=float, default=0.3)
    parser.add_argument("--newline-ms", type=float, default=120)
    parser.add_argument("--asks-every-s", type=float, default=0.0)
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(0))
    Program(parser.parse_args()).run()


if __name__ == "__main__":
    main()
