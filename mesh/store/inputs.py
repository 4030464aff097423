"""What people put into `knowledge/<agent>/` for the agent's skills: tables, calendars, texts.

Missing or malformed input raises SkillInputError with file and line, so that a report is never silently empty.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from mesh.errors import SkillInputError
from mesh.store.files import Files
from mesh.store.layout import Layout

_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?")


@dataclass(frozen=True)
class Row:
    """One line of a table. `where` names file and line for messages."""

    values: dict[str, str]
    file: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.file} line {self.line}"

    def text(self, column: str) -> str:
        return self.values.get(column, "")

    def needed(self, column: str) -> str:
        """The cell, which must not be empty."""
        value = self.text(column)
        if not value:
            raise self.wrong(column, "is empty")
        return value

    def date(self, column: str) -> date:
        """The cell as a date, `YYYY-MM-DD`."""
        value = self.needed(column)
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise self.wrong(column, f"is {value!r}, not a date such as 2026-02-17") from None

    def number(self, column: str) -> float:
        """The cell as a number; thousands may be set off by commas."""
        value = self.needed(column)
        if not _NUMBER.fullmatch(value):  # float() would read 1.234,56 as something else, and take nan
            raise self.wrong(column, f"is {value!r}, not a number such as 1234.56")
        return float(value.replace(",", ""))

    def one_of(self, column: str, allowed: Sequence[str]) -> str:
        """The cell, lower case, which must be one of these words."""
        value = self.needed(column).lower()
        if value not in allowed:
            raise self.wrong(column, f"is {value!r}, not one of {', '.join(allowed)}")
        return value

    def wrong(self, column: str, what: str) -> SkillInputError:
        return SkillInputError(f"{self.where}: {column} {what}.", file=self.file, line=self.line)


class Inputs:
    """The inputs of one agent."""

    def __init__(self, files: Files, layout: Layout, agent: str) -> None:
        self._files = files
        self._layout = layout
        self.folder = layout.inputs(agent)

    def name(self, file: str) -> str:
        """The path as messages name it: relative to the root."""
        return self._layout.relative(self.path(file))

    def path(self, file: str) -> str:
        """A file of the folder, or an absolute path as it stands."""
        return file if os.path.isabs(file) else os.path.join(self.folder, file)

    def files(self, suffix: str = "") -> list[str]:
        """The names of the files in the folder that end so."""
        return [name for name in self._files.names(self.folder) if name.endswith(suffix)]

    def has(self, file: str) -> bool:
        return self._files.exists(self.path(file))

    def text(self, file: str) -> str:
        """The content as text. A file that is missing or not UTF-8 is an error that says so."""
        data = self._files.read(self.path(file))
        if data is None:
            raise SkillInputError(f"{self.name(file)} is missing.", file=self.name(file))
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise SkillInputError(
                f"{self.name(file)} line {line}: not UTF-8 text.", file=self.name(file), line=line
            ) from None

    def table(self, file: str, columns: Sequence[str]) -> list[Row]:
        """The rows of a CSV file whose first line names at least these columns."""
        name = self.name(file)
        reader = csv.reader(io.StringIO(self.text(file), newline=""), strict=True)
        rows: list[Row] = []
        header: list[str] | None = None
        try:
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if header is None:
                    header = _checked_header(cells, columns, name, reader.line_num)
                    continue
                if len(cells) != len(header):
                    reason = f"{len(cells)} cells, but the header names {len(header)} columns"
                    raise SkillInputError(f"{name} line {reader.line_num}: {reason}.", file=name, line=reader.line_num)
                values = {column: cell.strip() for column, cell in zip(header, cells, strict=True)}
                rows.append(Row(values, name, reader.line_num))
        except csv.Error as error:
            raise SkillInputError(f"{name} line {reader.line_num}: {error}.", file=name, line=reader.line_num) from None
        if header is None:
            raise SkillInputError(
                f"{name} line 1: the file is empty; it needs the columns {', '.join(columns)}.", file=name
            )
        return rows


def _checked_header(cells: list[str], columns: Sequence[str], name: str, line: int) -> list[str]:
    header = [cell.strip().lower() for cell in cells]
    missing = [column for column in columns if column not in header]
    if missing:
        raise SkillInputError(
            f"{name} line {line}: the column{'s' * (len(missing) > 1)} {', '.join(missing)} "
            f"{'are' if len(missing) > 1 else 'is'} missing; the line names: {', '.join(header)}.",
            file=name,
            line=line,
        )
    return header
