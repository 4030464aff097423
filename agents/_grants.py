"""Grants and their deadlines: rows and a day in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from agents._markdown import count, report, table
from agents._money import amount, show, show_totals
from agents._tables import Section
from mesh.store.inputs import Row

COLUMNS = ("grant", "deadline", "status", "amount")
STATUSES = ("open", "applied", "won", "lost", "closed")


@dataclass(frozen=True)
class Grant:
    """One row. An open grant always has a deadline; `amount` is None where the cell is empty."""

    name: str
    deadline: date | None
    status: str
    amount: float | None
    currency: str
    contact: str
    line: int

    def days_left(self, today: date) -> int:
        """Days until the deadline, negative once it has passed."""
        assert self.deadline, f"{self.name} has no deadline"
        return (self.deadline - today).days


@dataclass(frozen=True)
class Deadlines:
    """The open grants by their deadline, each list with the earliest first."""

    overdue: list[Grant]
    due: list[Grant]
    later: list[Grant]

    @property
    def reported(self) -> list[Grant]:
        return [*self.overdue, *self.due, *self.later[:1]]


def read_grant(row: Row) -> Grant:
    status = row.one_of("status", STATUSES)
    return Grant(
        name=row.needed("grant"),
        # Of a grant that is done with, the deadline no longer matters.
        deadline=row.date("deadline") if status == "open" or row.text("deadline") else None,
        status=status,
        amount=amount(row, "amount") if row.text("amount") else None,
        currency=row.text("currency").upper(),
        contact=row.text("contact"),
        line=row.line,
    )


def find_deadlines(grants: Iterable[Grant], today: date, horizon_days: int) -> Deadlines:
    """Sort the open grants into overdue, due today or within the horizon, and later."""
    found = Deadlines([], [], [])
    for grant in sorted((g for g in grants if g.status == "open"), key=lambda g: (g.days_left(today), g.name)):
        days = grant.days_left(today)
        (found.overdue if days < 0 else found.due if days <= horizon_days else found.later).append(grant)
    return found


def describe(grants: Sequence[Grant], found: Deadlines, today: date, horizon_days: int, more: Sequence[Section]) -> str:
    """The report as Markdown."""
    return report(
        _summary(found, horizon_days),
        ("Overdue, still open", _listed(found.overdue, today, "No open grant is past its deadline.")),
        (f"Next {count(horizon_days, 'day')}", _listed(found.due, today, "No deadline in this time.")),
        ("Later", _later(found.later)),
        ("Sums", _sums(grants)),
        *more,
    )


def _summary(found: Deadlines, horizon_days: int) -> str:
    within = f"in the next {count(horizon_days, 'day')}"
    parts = [f"{count(len(found.due), 'grant deadline')} {within} ({_sum(found.due)})" if found.due else ""]
    parts.append(f"{count(len(found.overdue), 'open grant')} past the deadline" if found.overdue else "")
    said = "; ".join(part for part in parts if part)
    return f"{said or f'No open grant has a deadline {within}'}. {_next(found)}".strip()


def _next(found: Deadlines) -> str:
    following = [*found.due, *found.later]
    return f"Next: {following[0].name} on {following[0].deadline}." if following else ""


def _listed(grants: Sequence[Grant], today: date, none: str) -> str:
    if not grants:
        return none
    cells = [(g.name, g.deadline, g.days_left(today), _amount(g), g.contact or "–", g.line) for g in grants]
    return table(("Grant", "Deadline", "Days left", "Amount", "Contact", "Line"), cells)


def _later(grants: Sequence[Grant]) -> str:
    return f"{count(len(grants), 'open grant')} with a later deadline ({_sum(grants)})." if grants else "None."


def _sums(grants: Sequence[Grant]) -> str:
    by_status = [(status, [g for g in grants if g.status == status]) for status in STATUSES]
    return table(("Status", "Grants", "Amount"), [(status, len(of), _sum(of)) for status, of in by_status if of])


def _sum(grants: Iterable[Grant]) -> str:
    return show_totals((g.currency, g.amount) for g in grants if g.amount is not None)


def _amount(grant: Grant) -> str:
    return "–" if grant.amount is None else show(grant.amount, grant.currency)
