"""Invoices that are overdue, and what to do about each: rows and a day in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from agents._markdown import count, report, table
from agents._money import amount, show, show_totals, totals
from agents._tables import Section
from mesh.store.inputs import Row

COLUMNS = ("invoice", "customer", "amount", "currency", "due", "status")
STATUSES = ("open", "paid", "void")


@dataclass(frozen=True)
class Bucket:
    """Invoices up to so many days overdue, and the step that is due then."""

    title: str
    days_max: float
    step: str


BUCKETS = (
    Bucket("1–30 days", 30, "Send a friendly reminder"),
    Bucket("31–60 days", 60, "Call the customer and agree on a date"),
    Bucket("61–90 days", 90, "Send a final notice with a last date"),
    Bucket("over 90 days", float("inf"), "Decide: payment plan, collection or write-off"),
)


@dataclass(frozen=True)
class Invoice:
    """One open invoice; a credit note has a negative amount."""

    number: str
    customer: str
    amount: float
    currency: str
    due: date
    line: int


@dataclass(frozen=True)
class Overdue:
    """An invoice past its due day; `age` in days, from 1."""

    invoice: Invoice
    age: int

    @property
    def bucket(self) -> Bucket:
        return next(bucket for bucket in BUCKETS if self.age <= bucket.days_max)

    @property
    def amount(self) -> str:
        return show(self.invoice.amount, self.invoice.currency)

    @property
    def step(self) -> str:
        return self.bucket.step if self.invoice.amount >= 0 else "Settle the credit with the customer"


def read_open(rows: Iterable[Row]) -> list[Invoice]:
    """The open invoices. A number that stands twice is an error: its amount would count twice."""
    lines: dict[str, int] = {}
    found = []
    for row in rows:
        number = row.needed("invoice")
        if number in lines:
            raise row.wrong("invoice", f"is {number!r}, which line {lines[number]} has already")
        lines[number] = row.line
        if row.one_of("status", STATUSES) == "open":
            found.append(_read(row))
    return found


def _read(row: Row) -> Invoice:
    return Invoice(
        number=row.needed("invoice"),
        customer=row.needed("customer"),
        amount=amount(row, "amount"),
        currency=row.needed("currency").upper(),
        due=row.date("due"),
        line=row.line,
    )


def find_overdue(invoices: Iterable[Invoice], today: date) -> list[Overdue]:
    """Those past their due day, in the order to act: by currency, the largest first, then the oldest."""
    found = [Overdue(invoice, (today - invoice.due).days) for invoice in invoices if invoice.due < today]
    return sorted(found, key=lambda o: (o.invoice.currency, -o.invoice.amount, -o.age, o.invoice.number))


def describe(invoices: Sequence[Invoice], overdue: Sequence[Overdue], more: Sequence[Section]) -> str:
    """The report as Markdown."""
    return report(
        _summary(invoices, overdue),
        ("Next steps", _steps(overdue)),
        ("Overdue by age", _by_age(overdue)),
        ("Totals per currency", _totals(invoices, overdue)),
        *more,
    )


def _summary(invoices: Sequence[Invoice], overdue: Sequence[Overdue]) -> str:
    if not invoices:
        return "No invoice is open."
    of_open = f"{count(len(invoices), 'invoice')} open ({_sum(invoices)})"
    if not overdue:
        return f"No invoice is overdue; {of_open}."
    oldest = max(late.age for late in overdue)
    late_sum = _sum(late.invoice for late in overdue)
    return f"{count(len(overdue), 'invoice')} overdue ({late_sum}), the oldest by {count(oldest, 'day')}; {of_open}."


def _steps(overdue: Sequence[Overdue]) -> str:
    if not overdue:
        return "None."
    cells = [
        (o.invoice.number, o.invoice.customer, o.amount, o.invoice.due, o.age, o.step, o.invoice.line) for o in overdue
    ]
    return table(("Invoice", "Customer", "Amount", "Due", "Days overdue", "Next step", "Line"), cells)


def _by_age(overdue: Sequence[Overdue]) -> str:
    if not overdue:
        return "Nothing is overdue."
    groups = [(bucket.title, [late.invoice for late in overdue if late.bucket is bucket]) for bucket in BUCKETS]
    return table(("Overdue by", "Invoices", "Amount"), [(title, len(of), _sum(of)) for title, of in groups])


def _totals(invoices: Sequence[Invoice], overdue: Sequence[Overdue]) -> str:
    if not invoices:
        return "None."
    late = totals((o.invoice.currency, o.invoice.amount) for o in overdue)
    everything = totals((invoice.currency, invoice.amount) for invoice in invoices)
    cells = [
        (currency, show(total), show(late.get(currency, 0.0)), show(total - late.get(currency, 0.0)))
        for currency, total in everything.items()
    ]
    return table(("Currency", "Open", "Overdue", "Not yet due"), cells)


def _sum(invoices: Iterable[Invoice]) -> str:
    return show_totals((invoice.currency, invoice.amount) for invoice in invoices)
