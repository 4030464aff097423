"""What a captured screen says of a session: pure.

A visible prompt isn't idleness: most of these programs keep their input box while they work, and some show it beside a
question. So what is looked for is the composer that holds the cursor, and then, around it, whatever speaks against
typing. Everything that isn't recognised is `unknown`, and nothing is ever typed into that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from mesh.runners.tmux.styles import Row

#: Programs that read command lines: what is typed into them is run.
SHELLS = frozenset("ash bash csh dash elvish fish ksh ksh93 mksh nu pwsh rbash sh tcsh xonsh yash zsh".split())
#: How far up from the cursor a composer may begin: drafts grow, but no doorbell does.
_COMPOSER_ROWS_MAX = 40
#: Where there is no composer: how many of the last rows are looked at for a question, or for work going on.
_LAST_ROWS = 24


class State(StrEnum):
    """What a session is, as far as its screen tells. Only `idle` is typed into."""

    IDLE = "idle"
    BUSY = "busy"
    DIALOG = "dialog"
    #: Somebody's half-typed words stand in the composer.
    DRAFT = "draft"
    COPY_MODE = "copy_mode"
    #: The program isn't running: a shell is there instead, or nothing.
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Capture:
    """One look at a pane; all of it is of the same moment."""

    rows: tuple[Row, ...]
    #: Column and row, from 0.
    cursor: tuple[int, int]
    cursor_shown: bool = True
    title: str = ""
    #: The name of what runs in the foreground.
    command: str = ""
    in_mode: bool = False
    dead: bool = False
    alternate: bool = False


@dataclass(frozen=True)
class Look:
    """How a CLI looks, as data. Patterns are searched in rows without escapes, unless said otherwise."""

    name: str
    #: What its process is called, in full.
    commands: str
    #: `ruled`: between two horizontal rules. `marked`: behind a mark, above a footer. `boxed`: beside a bar that a
    #: corner ends. `line`: behind a prompt, with nothing below.
    composer: Literal["ruled", "marked", "boxed", "line"]
    #: The mark or prompt before the words, at the start of a row.
    prompt: str = ""
    #: What each further row of a `line` composer begins with.
    continuation: str | None = None
    #: What stands in an empty composer, in full; only with the cursor before it.
    placeholders: tuple[str, ...] = ()
    #: Whether it draws placeholders, and nothing that was typed, in faint letters.
    placeholder_faint: bool = False
    #: Whether the terminal's own cursor is shown while it reads words.
    cursor_shown: bool = False
    #: While it works: in the title, or in a row.
    busy_title: str | None = None
    busy_rows: tuple[str, ...] = ()
    #: What must stand near an idle composer, if anything does.
    idle_row: str | None = None
    #: Questions and menus beside the general ones.
    dialog_title: str | None = None
    dialogs: tuple[str, ...] = ()
    #: How many rows above the composer are looked at, for work going on and for questions.
    busy_above: int = 8
    dialogs_above: int = 0
    #: From how many pasted characters on it shows something else in their place, and what.
    folds: tuple[int, str] | None = None
    #: Keys that empty a line of the composer, from its end; backspaces if there are none.
    clear: tuple[str, ...] = ()
    #: Keys that interrupt it, one after the other for as long as it works.
    interrupt: tuple[str, ...] = ("Escape",)


@dataclass(frozen=True)
class Composer:
    """The input box that holds the cursor: what stands in it, and between which rows it was found."""

    text: str
    #: Column at which its first row of words begins.
    column: int
    first_row: int
    last_row: int

    @property
    def bare(self) -> str:
        """The words without any white space: where rows were broken can't be told."""
        return "".join(self.text.split())


@dataclass(frozen=True)
class Reading:
    """What a look came to."""

    state: State
    #: For people: why.
    detail: str = ""
    #: What stands in the composer; empty where that is a placeholder. None if there is no composer.
    words: str | None = None

    @property
    def bare(self) -> str | None:
        return None if self.words is None else "".join(self.words.split())


_DIALOGS = (
    r"^[\s│┃|]*[❯›●▸▶→>◉]\s*\d+[.)]\s+\S",
    r"(?i)\b(?:enter|return|esc|escape)\b[^.]{0,20}\bto (?:cancel|confirm|select|continue|submit|go back|accept)\b",
    r"(?i)\b(?:enter|return) (?:select|confirm)\b",
    r"(?i)[(\[]\s*y(?:es)?\s*/\s*n(?:o)?\s*(?:/[^)\]]*)?[)\]]",
    r"\(Y\)es/\(N\)o",
    r"(?i)^[\s│┃|]*[●○◉◯]\s*(?:yes|no)\b",
    r"(?i)\b(?:password|passphrase)\b.{0,60}:\s*$",
    r"(?i)\bdo you (?:trust|want to (?:proceed|allow|run|make|create))\b",
    r"(?i)\bpress (?:any key|enter|return)\b",
)


def read(capture: Capture, look: Look) -> Reading:
    """What the session is."""
    around = _around(capture, look)
    if around is not None:
        return around
    composer = find_composer(capture, look)
    if composer is None:
        return _without_composer(capture, look)
    above, below = composer.first_row, composer.last_row + 1
    words = "" if _is_placeholder(capture, look, composer) else composer.text
    question = _dialog(capture, look, max(0, above - look.dialogs_above), above)
    # What stands in the composer can be a menu, for programs that draw menus there.
    question = question or _dialog(capture, look, above if words else below, len(capture.rows))
    if question:
        return Reading(State.DIALOG, question, words)
    working = _busy(capture, look, max(0, above - look.busy_above), len(capture.rows), skip=(above, below))
    if working:
        return Reading(State.BUSY, working, words)
    if words.strip():
        return Reading(State.DRAFT, "words stand in its input box", words)
    nearby = (row.text for row in capture.rows[max(0, above - look.busy_above) :])
    if look.idle_row is not None and not any(re.search(look.idle_row, text) for text in nearby):
        return Reading(State.UNKNOWN, "its status line does not say that it is idle", words)
    return Reading(State.IDLE, "", words)


def _around(capture: Capture, look: Look) -> Reading | None:
    """What can be told without the program's own words."""
    if capture.dead:
        return Reading(State.GONE, "the pane is dead")
    if capture.command in SHELLS:
        return Reading(State.GONE, f"{capture.command} runs there, not {look.name}")
    if capture.in_mode:
        return Reading(State.COPY_MODE, "the pane is in copy mode")
    if not re.fullmatch(look.commands, capture.command):
        return Reading(State.UNKNOWN, f"{capture.command or 'nothing known'} runs there, not {look.name}")
    return None


def _without_composer(capture: Capture, look: Look) -> Reading:
    written = [row for row, content in enumerate(capture.rows) if content.text]
    end = (written[-1] + 1) if written else 0
    first = max(0, end - _LAST_ROWS)
    if question := _dialog(capture, look, first, end):
        return Reading(State.DIALOG, question)
    if working := _busy(capture, look, max(first, capture.cursor[1] - look.busy_above), end):
        return Reading(State.BUSY, working)
    return Reading(State.UNKNOWN, "no input box holds the cursor")


def _dialog(capture: Capture, look: Look, first: int, end: int) -> str:
    if look.dialog_title and re.search(look.dialog_title, capture.title):
        return "its title asks for somebody"
    for row in capture.rows[first:end]:
        if any(re.search(pattern, row.text) for pattern in (*_DIALOGS, *look.dialogs)):
            return f"it asks: {row.text.strip()[:80]}"
    return ""


def _busy(capture: Capture, look: Look, first: int, end: int, skip: tuple[int, int] = (0, 0)) -> str:
    if look.busy_title and re.search(look.busy_title, capture.title):
        return "its title shows that it works"
    for number in range(first, end):
        text = capture.rows[number].text
        if not skip[0] <= number < skip[1] and any(re.search(pattern, text) for pattern in look.busy_rows):
            return f"it works: {text.strip()[:80]}"
    return ""


def _is_placeholder(capture: Capture, look: Look, composer: Composer) -> bool:
    x, y = capture.cursor
    if not composer.text.strip() or y != composer.first_row or x > composer.column:
        return False
    if any(re.fullmatch(pattern, composer.text.strip()) for pattern in look.placeholders):
        return True
    return look.placeholder_faint and all(
        row.is_faint(composer.column) for row in capture.rows[y : composer.last_row + 1] if row.text
    )


# -- composers


def find_composer(capture: Capture, look: Look) -> Composer | None:
    """The input box that holds the cursor, if there is one."""
    if look.cursor_shown and not capture.cursor_shown:
        return None
    if not 0 <= capture.cursor[1] < len(capture.rows):
        return None
    match look.composer:
        case "ruled":
            return _ruled(capture, look)
        case "marked":
            return _marked(capture, look)
        case "boxed":
            return _boxed(capture)
        case "line":
            return _line(capture, look)


def _is_rule(text: str) -> bool:
    stripped = text.strip()
    return len(stripped) >= 8 and stripped.startswith("──") and stripped.count("─") * 2 > len(stripped)


def _ruled(capture: Capture, look: Look) -> Composer | None:
    texts, y = [row.text for row in capture.rows], capture.cursor[1]
    if _is_rule(texts[y]):
        return None
    above = [number for number in range(y - 1, max(-1, y - _COMPOSER_ROWS_MAX), -1) if _is_rule(texts[number])]
    below = [number for number in range(y + 1, min(len(texts), y + _COMPOSER_ROWS_MAX)) if _is_rule(texts[number])]
    if not above or not below:
        return None
    if len(texts[above[0]]) != len(texts[below[0]]):  # a line that somebody drew in their words
        return None
    first, last = above[0] + 1, below[0] - 1
    mark = re.match(look.prompt, texts[first])
    return _composed(texts, mark, first, last)


def _marked(capture: Capture, look: Look) -> Composer | None:
    texts, y = [row.text for row in capture.rows], capture.cursor[1]
    first = _prompt_row(texts, y, look, lambda text: not text or text.startswith("  "))
    if first is None:
        return None
    end = max((number + 1 for number, text in enumerate(texts) if text), default=0)
    footer = end
    while footer > first and texts[footer - 1]:
        footer -= 1
    # All that is written hangs together from the composer on: there is no footer.
    last = (footer if footer > first else end) - 1
    while last > first and not texts[last]:
        last -= 1
    if y > (footer if footer > first else end):
        return None
    return _composed(texts, re.match(look.prompt, texts[first]), first, last)


def _line(capture: Capture, look: Look) -> Composer | None:
    texts, y = [row.text for row in capture.rows], capture.cursor[1]
    first = _prompt_row(texts, y, look, bool)
    if first is None:
        return None
    last = max(first, max((number for number, text in enumerate(texts) if text), default=0))
    if y > last:  # the program has gone on to a new row: what stands above was submitted
        return None
    if look.continuation is not None:
        while first > 0 and re.match(look.continuation, texts[first]) and re.match(look.prompt, texts[first - 1]):
            first -= 1
        texts[first + 1 : last + 1] = [re.sub(look.continuation, "", text) for text in texts[first + 1 : last + 1]]
    return _composed(texts, re.match(look.prompt, texts[first]), first, last)


def _prompt_row(texts: list[str], y: int, look: Look, continues: Callable[[str], object]) -> int | None:
    """The nearest row at or above the cursor that begins with the prompt, all between being its continuation."""
    for number in range(y, max(-1, y - _COMPOSER_ROWS_MAX), -1):
        if re.match(look.prompt, texts[number]):
            return number
        if not (continues(texts[number]) or number == y):
            return None
    return None


def _boxed(capture: Capture) -> Composer | None:
    texts, y = [row.text for row in capture.rows], capture.cursor[1]
    column = texts[y].find("┃")
    if column < 0:
        return None

    def bar(number: int, mark: str) -> bool:
        return 0 <= number < len(texts) and texts[number][column : column + 1] == mark

    first = last = y
    while bar(first - 1, "┃"):
        first -= 1
    while bar(last + 1, "┃"):
        last += 1
    # A blank row, the words, a blank row, and which model it is; then the corner, as wide as the box.
    corner = re.match("╹(▀*)", texts[last + 1][column:]) if bar(last + 1, "╹") else None
    if corner is None or not first + 1 <= y <= last - 2:
        return None
    inner = [text[column + 1 : column + 1 + len(corner.group(1))].rstrip() for text in texts[first + 1 : last - 1]]
    words = [text[2:] for text in inner]
    return Composer("\n".join(words).rstrip(), column + 3, first + 1, last - 2)


def _composed(texts: list[str], mark: re.Match[str] | None, first: int, last: int) -> Composer | None:
    if mark is None:
        return None
    words = [texts[first][mark.end() :], *texts[first + 1 : last + 1]]
    return Composer("\n".join(words).rstrip(), mark.end(), first, last)
