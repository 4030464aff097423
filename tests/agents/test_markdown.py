"""Text from outside stays within its cell and line, and reads as it is spelled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents._markdown import bullets, clip, count, escape, report, table
from agents._spans import between, say


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        (r"a\|b", r"a\\\|b"),
        ("a\r\nb\u2028c", "a b c"),
        ("a\x1b[31mb\x85", r"a \[31mb"),
        ("[x](http://y) <b>", r"\[x\](http://y) \<b\>"),
        ("*a* _b_ `c` ~~d~~", r"\*a\* \_b\_ \`c\` \~\~d\~\~"),
        ("main\u202egnp", "main gnp"),
        ("task_stuck_min", "task_stuck_min"),
        ("__init__", r"\_\_init\_\_"),
        (7, "7"),
        ("–5%", "–5%"),
    ],
)
def test_escape(text: object, shown: str) -> None:
    assert escape(text) == shown


def test_a_table_has_one_line_a_row_whatever_is_in_it() -> None:
    text = table(["A", "B"], [["x|y\nz", 1], ["| --- |", ""]])
    assert text.split("\n") == ["| A | B |", "| --- | --- |", r"| x\|y z | 1 |", r"| \| --- \| |  |"]


def test_a_row_that_does_not_fit_its_headers_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        table(["A", "B"], [["only one"]])


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ("# x", r"- \# x"),
        ("- x", r"- \- x"),
        ("1. x", r"- 1\. x"),
        ("2) x", r"- 2\) x"),
        ("12 x", "- 12 x"),
        ("a # b", "- a # b"),
    ],
)
def test_a_bullet_stays_a_bullet(item: str, line: str) -> None:
    assert bullets([item]) == line


def test_an_empty_list_says_so() -> None:
    assert bullets([]) == "None."
    assert bullets([], none="All well.") == "All well."


def test_report_begins_with_its_summary() -> None:
    assert report("All | well", ("Part", "body")) == "All \\| well\n\n## Part\n\nbody\n"


def test_clip() -> None:
    assert [clip("abcdef", 6), clip("abc def", 6), clip("abcdefg", 5)] == ["abcdef", "abc d…", "abcd…"]


def test_count() -> None:
    assert [count(1, "task"), count(0, "task"), count(2, "branch", "branches")] == ["1 task", "0 tasks", "2 branches"]


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (timedelta(seconds=0), "0 s"),
        (timedelta(seconds=59.9), "59 s"),
        (timedelta(minutes=1), "1 min"),
        (timedelta(minutes=60), "1 h"),
        (timedelta(hours=23, minutes=59), "23 h 59 min"),
        (timedelta(days=1), "1 d"),
        (timedelta(days=3, hours=4, minutes=59), "3 d 4 h"),
        (None, "–"),
    ],
)
def test_say(span: timedelta | None, said: str) -> None:
    assert say(span) == said


@pytest.mark.parametrize(
    ("start", "end", "span"),
    [
        ("2026-02-17T09:00:00.000Z", "2026-02-17T10:30:00+01:00", timedelta(minutes=30)),
        ("2026-02-17T09:00:00Z", "2026-02-17T08:00:00Z", timedelta(0)),
        (None, "2026-02-17T08:00:00Z", None),
        ("yesterday", "2026-02-17T08:00:00Z", None),
    ],
)
def test_between(start: str | None, end: str | None, span: timedelta | None) -> None:
    assert between(start, end) == span
