"""Rows from captured lines: escapes go, what was faint is known."""

from __future__ import annotations

import pytest

from mesh.runners.tmux.styles import rows


@pytest.mark.parametrize(
    ("line", "text", "faint"),
    [
        ("plain", "plain", "....."),
        ("ends in spaces   ", "ends in spaces", ".............."),
        ("\x1b[1m›\x1b[0m \x1b[2mAsk", "› Ask", "..fff"),
        ("\x1b[2ma\x1b[22mb", "ab", "f."),
        ("\x1b[1;2ma\x1b[0;1mb", "ab", "f."),
        # The 2 and the 5 of a colour are none of ours.
        ("\x1b[38;5;2ma\x1b[38;2;2;2;2mb\x1b[48;5;22mc", "abc", "..."),
        ("\x1b[38:2::2:2:2ma", "a", "."),
        ("\x1b[2;38;5;7ma\x1b[38;5;7;22mb", "ab", "f."),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x07", "link", "...."),
        ("\x1b(Ba\x1b[Kb", "ab", ".."),
        ("", "", ""),
    ],
)
def test_a_row(line: str, text: str, faint: str) -> None:
    (row,) = rows([line])
    assert row.text == text
    assert "".join("f" if mark else "." for mark in row.faint) == faint


def test_looks_hold_on_from_row_to_row() -> None:
    first, second, third = rows(["\x1b[2mfaint", "still", "\x1b[0mno more"])
    assert (first.is_faint(0), second.is_faint(0), third.is_faint(0)) == (True, True, False)


def test_nothing_written_is_not_faint() -> None:
    (row,) = rows(["\x1b[2m   "])
    assert not row.is_faint(0)
