"""Markdown for reports. Text from outside goes through `escape`, so that it can't break out of its cell or line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Characters that start a construct inside a line; a title or branch name must read as it is spelled. An underscore
#: inside a word starts none, and ids should stay legible in a terminal.
_SPECIAL = re.compile(r"([\\`*~\[\]<>|]|_(?![^\W_])|(?<![^\W_])_)")
#: What would make a line a heading, a list or a rule.
_LEADING = re.compile(r"^(?=[#+=-])|^(\d+)(?=[.)])")
#: Unicode line separators break lines in some viewers, control characters move terminals' cursors, and marks of
#: writing direction make one text look like another.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def escape(text: object) -> str:
    """One line of plain text that Markdown shows as it is: breaks and control characters become a space."""
    return _SPECIAL.sub(r"\\\1", _CONTROL.sub(" ", str(text)).strip())


def clip(text: str, characters_max: int) -> str:
    """Plain text, shortened with an ellipsis where it is longer. Clip before escaping, never after."""
    return text if len(text) <= characters_max else text[: characters_max - 1].rstrip() + "…"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table. Cells are escaped here: pass them plain, one for each header."""
    lines = [_row(headers), _row(["---"] * len(headers))]
    for row in rows:
        assert len(row) == len(headers), (row, headers)
        lines.append(_row([escape(cell) for cell in row]))
    return "\n".join(lines)


def bullets(items: Iterable[object], *, none: str = "None.") -> str:
    """A list of escaped lines, or the sentence `none`: an empty section must say that it is empty."""
    return "\n".join(f"- {_LEADING.sub(_escape_leading, escape(item))}" for item in items) or none


def report(summary: str, *sections: tuple[str, str]) -> str:
    """A report: the summary line first, then a heading and a body each. The summary is escaped here."""
    return "\n\n".join([escape(summary), *(f"## {title}\n\n{body}" for title, body in sections)]) + "\n"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 task`, `2 tasks`; `plural` where it isn't made with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_leading(found: re.Match[str]) -> str:
    return f"{found[1] or ''}\\"
