"""What every report over a CSV file says about it: what it rests on, that it is empty, that rows are samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agents._markdown import count, escape
from mesh.store.inputs import Row

_SAMPLE = "sample row"

Section = tuple[str, str]


def evidence(file: str, rows: Sequence[Row], lines: Iterable[int]) -> list[str]:
    """The fact that a report rests on: file, number of rows, lines of those that it names."""
    listed = ", ".join(map(str, sorted(set(lines)))) or "none"
    return [f"{file}: {count(len(rows), 'row')}; lines reported: {listed}"]


def nothing_listed(file: str, noun: str) -> str:
    """The summary for a table without rows: nothing there is an answer too, if it is said plainly."""
    return f"No {noun} is listed: {file} has a header and no rows."


def sample_note(file: str, rows: Sequence[Row]) -> list[Section]:
    """A section that warns of rows still as `mesh init` wrote them, lest they be taken for facts."""
    samples = sum(row.text("note").casefold().startswith(_SAMPLE) for row in rows)
    if not samples:
        return []
    return [("Sample data", f"Rows in {escape(file)} that are samples: {samples} of {len(rows)}. Replace them.")]
