"""Screens of real sessions, recorded with the versions that `looks.py` names, and what is read in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mesh.runners.tmux.looks import LOOKS
from mesh.runners.tmux.pane import captured
from mesh.runners.tmux.screens import Capture, Reading, State, find_composer, read
from mesh.runners.tmux.styles import rows

SCREENS = sorted((Path(__file__).parent / "screens").glob("*.screen"))
LINE = (
    "[mesh] urgent message (fix_ci_failure) from ops. Read it with: mesh mail show 0197a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b"
)
EXPECTED = {
    "first-question": State.DIALOG,
    "question": State.DIALOG,
    "menu": State.DIALOG,
    "idle": State.IDLE,
    "cleared": State.IDLE,
    "after-turn": State.IDLE,
    "after-question": State.IDLE,
    "draft": State.DRAFT,
    "draft-home": State.DRAFT,
    "command": State.DRAFT,
    "line": State.DRAFT,
    "busy": State.BUSY,
    "busy-draft": State.BUSY,
}
#: A menu with nothing in it that says so: not recognised is as good.
UNRECOGNISED = {"opencode-menu"}


def load(name: str) -> Capture:
    text = (Path(__file__).parent / "screens" / f"{name}.screen").read_text(encoding="utf-8")
    return captured(text)[0]


def reading(name: str, **changed: object) -> Reading:
    return read(replace(load(name), **changed), LOOKS[name.partition("-")[0]])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [path.stem for path in SCREENS])
def test_a_real_screen(name: str) -> None:
    what = name.partition("-")[2]
    found = reading(name)
    assert found.state is (State.UNKNOWN if name in UNRECOGNISED else EXPECTED[what]), found
    if what in ("idle", "cleared", "after-turn", "after-question"):
        assert found.words == ""
    if what in ("draft", "draft-home"):
        assert found.words == "half typed words"
    if what == "busy-draft":
        assert found.words == "more words"
    if what == "line":
        assert found.bare == "".join(LINE.split())


def test_every_cli_was_recorded() -> None:
    recorded = {path.stem.partition("-")[0] for path in SCREENS}
    assert recorded == set(LOOKS) - {"generic"}
    for cli in recorded:
        whats = {path.stem.partition("-")[2] for path in SCREENS if path.stem.startswith(f"{cli}-")}
        assert {"idle", "draft", "draft-home", "line", "cleared", "busy"} <= whats


@pytest.mark.parametrize("cli", sorted(set(LOOKS) - {"generic"}))
def test_an_idle_screen_in_other_circumstances(cli: str) -> None:
    name = f"{cli}-idle"
    assert reading(name, dead=True).state is State.GONE
    assert reading(name, command="bash").state is State.GONE
    assert reading(name, command="vim").state is State.UNKNOWN
    assert reading(name, in_mode=True).state is State.COPY_MODE
    capture = load(name)
    composer = find_composer(capture, LOOKS[cli])
    assert composer is not None
    elsewhere = [row for row in range(-1, len(capture.rows) + 1) if not composer.first_row <= row <= composer.last_row]
    states = {reading(name, cursor=(capture.cursor[0], row)).state for row in elsewhere}
    assert State.IDLE not in states


@pytest.mark.parametrize("cli", ["codex", "opencode", "goose", "aider"])
def test_without_its_cursor_it_does_not_read(cli: str) -> None:
    assert reading(f"{cli}-idle", cursor_shown=False).state is not State.IDLE


def test_a_placeholder_that_somebody_typed_is_a_draft() -> None:
    capture = load("codex-idle")
    x, y = capture.cursor
    assert reading("codex-idle", cursor=(x + 5, y)).state is State.DRAFT
    typed = rows([row.text for row in capture.rows])  # as typed words are drawn: not faint
    assert reading("codex-idle", rows=typed).state is State.DRAFT


def test_an_unknown_placeholder_is_a_draft_unless_it_is_drawn_faint() -> None:
    for cli, faint_is_enough in (("codex", True), ("claude", True), ("opencode", False)):
        capture = load(f"{cli}-idle")
        x, y = capture.cursor
        texts = [row.text for row in capture.rows]
        before = texts[y][:x].ljust(x)
        words = f"{before}\x1b[2mWhat shall it be?\x1b[0m"
        changed = rows([*texts[:y], words, *texts[y + 1 :]])
        expected = State.IDLE if faint_is_enough else State.DRAFT
        assert reading(f"{cli}-idle", rows=changed).state is expected


def test_words_of_an_earlier_turn_are_no_question() -> None:
    """What a session says about questions must not keep it from being rung for ever."""
    capture = load("claude-after-turn")
    y = capture.cursor[1]
    texts = [row.text for row in capture.rows]
    assert find_composer(capture, LOOKS["claude"]) is not None
    texts[y - 3] = "● It says: Do you want to proceed? (y/n) Press enter to confirm"
    assert reading("claude-after-turn", rows=rows(texts)).state is State.IDLE


def test_a_line_that_somebody_drew_does_not_end_their_draft() -> None:
    capture = load("pi-draft")
    x, y = capture.cursor
    texts = [row.text for row in capture.rows]
    drawn = rows([*texts[1 : y + 1], "─" * 20, "", *texts[y + 1 :]])  # the composer grows upwards
    assert reading("pi-draft", rows=drawn, cursor=(0, y + 1)).state is not State.IDLE
    assert reading("pi-draft", rows=drawn, cursor=(x, y - 1)).state is not State.IDLE


def test_a_title_is_somebody_elses_words() -> None:
    assert reading("codex-idle", title="Action Required: mend the build | project").state is State.IDLE
    assert reading("codex-idle", title="[ . ] Action Required | project").state is State.DIALOG


def test_a_status_line_must_say_idle_where_it_is_what_tells() -> None:
    texts = [row.text.replace("| idle", "| disconnected") for row in load("openclaw-idle").rows]
    assert reading("openclaw-idle", rows=rows(texts)).state is State.UNKNOWN


GENERIC = [
    (["hello", "> "], (2, 1), State.IDLE),
    (["hello", "❯"], (2, 1), State.IDLE),
    (["hello", "> half"], (6, 1), State.DRAFT),
    (["hello", "> "], (2, 0), State.UNKNOWN),
    (["⠙ thinking", "> "], (2, 1), State.BUSY),
    (["press esc to interrupt", "> "], (2, 1), State.BUSY),
    (["Overwrite it? [y/N]", "> "], (2, 1), State.DIALOG),
    (["Overwrite it? (yes/no)"], (22, 0), State.DIALOG),
    (["Password for you:"], (18, 0), State.DIALOG),
    (["> 1. Yes", "  2. No", "Enter to select"], (0, 0), State.DIALOG),
    (["> ", "a line below"], (2, 0), State.DRAFT),
    ([""], (0, 0), State.UNKNOWN),
]


@pytest.mark.parametrize(("lines", "cursor", "state"), GENERIC)
def test_any_program_that_reads_lines(lines: list[str], cursor: tuple[int, int], state: State) -> None:
    assert read(Capture(rows(lines), cursor, command="agent"), LOOKS["generic"]).state is state


def test_a_shell_is_never_taken_for_an_agent() -> None:
    for shell in ("bash", "zsh", "fish", "sh"):
        assert read(Capture(rows(["❯ "]), (2, 0), command=shell), LOOKS["generic"]).state is State.GONE
