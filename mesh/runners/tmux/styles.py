"""What `tmux capture-pane -e` gives, as text and as what of it is faint: pure.

tmux repeats what it knows of a cell's looks as SGR sequences (ECMA-48); they hold on from row to row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: SGR, any other control sequence, operating system commands (links), and what else begins with ESC.
_ESCAPE = re.compile(
    "\x1b\\[([0-9;:]*)m|\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[ -/]*[0-~]?"
)
_FAINT, _NOT_FAINT = 2, 22
_COLOURS = (38, 48, 58)


@dataclass(frozen=True)
class Row:
    """One row of a screen. `faint` says of each character of `text` whether it is drawn faintly (SGR 2)."""

    text: str
    faint: tuple[bool, ...]

    def is_faint(self, start: int) -> bool:
        """Whether something stands from this column on, and all of it is faint."""
        drawn = [faint for mark, faint in zip(self.text[start:], self.faint[start:], strict=True) if not mark.isspace()]
        return bool(drawn) and all(drawn)


def rows(lines: Sequence[str]) -> tuple[Row, ...]:
    """Rows from captured lines, with or without escapes; spaces at a row's end are dropped."""
    found, faint = [], False
    for line in lines:
        text: list[str] = []
        marks: list[bool] = []
        place = 0
        for match in _ESCAPE.finditer(line):
            piece = line[place : match.start()]
            text.append(piece)
            marks += [faint] * len(piece)
            place = match.end()
            if match.group(1) is not None:
                faint = _faint_after(match.group(1), faint)
        text.append(line[place:])
        marks += [faint] * len(line[place:])
        whole = "".join(text).rstrip()
        found.append(Row(whole, tuple(marks[: len(whole)])))
    return tuple(found)


def _faint_after(codes: str, faint: bool) -> bool:
    parts = iter(codes.split(";"))
    for part in parts:
        code = int(part.partition(":")[0] or 0)
        if code in _COLOURS and ":" not in part:
            # The colour's own numbers follow, a 2 among them: 5;n or 2;r;g;b.
            for _ in range(1 if next(parts, "") == "5" else 3):
                next(parts, "")
        elif code == _FAINT:
            faint = True
        elif code in (0, _NOT_FAINT):
            faint = False
    return faint
