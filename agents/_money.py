"""Amounts of money as tables hold them and reports show them. Currencies are never added to one another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from mesh.store.inputs import Row

#: Commas only between groups of three: `1.234,56` or `1234,56` must be refused, not read a hundred times too large.
_AMOUNT = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d{1,15})(\.\d+)?", re.ASCII)
_AMOUNT_MAX = 1e15


def amount(row: Row, column: str) -> float:
    """The cell as an amount such as `1,234.56`. Raises SkillInputError with file and line."""
    value = row.needed(column)
    if not _AMOUNT.fullmatch(value):
        raise row.wrong(column, f"is {value[:40]!r}, not an amount such as 1,234.56")
    number = float(value.replace(",", ""))
    if abs(number) > _AMOUNT_MAX:
        raise row.wrong(column, f"is {value[:40]!r}, larger than any amount here can be")
    return number


def show(number: float, currency: str = "") -> str:
    """`1,234.56 EUR`."""
    return f"{number:,.2f} {currency}".rstrip()


def totals(amounts: Iterable[tuple[str, float]]) -> dict[str, float]:
    """The sum for each currency, in alphabetical order, from pairs of currency and amount."""
    parts: dict[str, list[float]] = {}
    for currency, number in amounts:
        parts.setdefault(currency, []).append(number)
    return {currency: math.fsum(parts[currency]) for currency in sorted(parts)}


def show_totals(amounts: Iterable[tuple[str, float]]) -> str:
    """`1,234.56 EUR, 300.00 USD`; an en dash where there is no amount."""
    return ", ".join(show(number, currency) for currency, number in totals(amounts).items()) or "–"
