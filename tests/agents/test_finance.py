"""Finance's skills: over tables of cases, over real files, and over files as people really write them."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from datetime import date, timedelta

import pytest

from agents import _grants, _invoices, _money, finance
from mesh import Report
from mesh.errors import SkillInputError
from mesh.service.skill_context import SkillContext
from mesh.store import Store
from mesh.store.inputs import Row
from tests.agents.stage import ContextMaker
from tests.fakes import FakeClock

Put = Callable[[str, str | bytes | None], None]
TODAY = date(2026, 2, 17)
GRANTS, INVOICES = "Grant Deadline Check", "Invoice Follow-up"
GRANT_HEADER = "grant,deadline,status,amount,currency,contact"
INVOICE_HEADER = "invoice,customer,amount,currency,due,status"


@pytest.fixture
def put(store: Store, tmp_path: pathlib.Path) -> Put:
    """Put a file into `knowledge/finance/` in place of the sample; None takes it away."""

    def write(file: str, content: str | bytes | None) -> None:
        path = tmp_path / "shared" / "knowledge" / "finance" / file
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


async def run(title: str, context: SkillContext) -> Report:
    return await finance.agent.skills[title](context)


def row(line: int = 2, /, **cells: str) -> Row:
    return Row(cells, "t.csv", line)


def invoice(number: str = "1", amount: float = 10.0, currency: str = "EUR", late: int = 0) -> _invoices.Invoice:
    return _invoices.Invoice(number, "Customer", amount, currency, TODAY - timedelta(days=late), 2)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0.0), ("1200", 1200.0), ("1,234.56", 1234.56), ("-5.5", -5.5), ("12,345,678", 12345678.0)],
)
def test_amounts_are_read(text: str, number: float) -> None:
    assert _money.amount(row(amount=text), "amount") == number


@pytest.mark.parametrize(
    "text",
    ["1.234,56", "1234,56", "12,34", "1_000", "nan", "inf", "1e5", "€5", "--1", "9" * 400, "1," + "000," * 5 + "000"],
)
def test_what_could_be_misread_by_a_factor_is_refused(text: str) -> None:
    with pytest.raises(SkillInputError, match=r"t\.csv line 7: amount is"):
        _money.amount(row(7, amount=text), "amount")


def test_currencies_are_never_added_up() -> None:
    assert _money.totals([("USD", 1.0), ("EUR", 0.1), ("EUR", 0.2)]) == {"EUR": pytest.approx(0.3), "USD": 1.0}
    assert _money.show_totals([("USD", 1.0), ("EUR", 2000.0)]) == "2,000.00 EUR, 1.00 USD"
    assert _money.show_totals([]) == "–"


@pytest.mark.parametrize(
    ("days", "group"),
    [
        (-1, "overdue"),
        (0, "due"),  # the deadline is today: there is still time
        (60, "due"),
        (61, "later"),
        (-3000, "overdue"),
    ],
)
def test_open_grants_by_deadline(days: int, group: str) -> None:
    grant = _grants.Grant("G", TODAY + timedelta(days=days), "open", None, "", "", 2)
    found = _grants.find_deadlines([grant], TODAY, 60)
    assert {name: getattr(found, name) for name in ("overdue", "due", "later")} == {
        "overdue": [],
        "due": [],
        "later": [],
        group: [grant],
    }


@pytest.mark.parametrize("status", ["applied", "won", "lost", "closed"])
def test_grants_that_are_not_open_have_no_deadline_left(status: str) -> None:
    grant = _grants.Grant("G", TODAY, status, 5.0, "", "", 2)
    assert _grants.find_deadlines([grant], TODAY, 60).reported == []


def test_of_a_grant_done_with_the_deadline_may_be_empty_but_not_of_an_open_one() -> None:
    cells = {"grant": "G", "deadline": "", "amount": ""}
    assert _grants.read_grant(row(status="lost", **cells)).deadline is None
    with pytest.raises(SkillInputError, match="line 2: deadline is empty"):
        _grants.read_grant(row(status="open", **cells))


@pytest.mark.parametrize(
    ("age", "bucket"),
    [
        (1, "1–30 days"),
        (30, "1–30 days"),
        (31, "31–60 days"),
        (60, "31–60 days"),
        (61, "61–90 days"),
        (90, "61–90 days"),
        (91, "over 90 days"),
        (5000, "over 90 days"),
    ],
)
def test_age_buckets(age: int, bucket: str) -> None:
    [late] = _invoices.find_overdue([invoice(late=age)], TODAY)
    assert (late.age, late.bucket.title, late.step) == (age, bucket, late.bucket.step)


@pytest.mark.parametrize("late", [0, -1])
def test_an_invoice_is_not_overdue_on_its_day(late: int) -> None:
    assert _invoices.find_overdue([invoice(late=late)], TODAY) == []


def test_steps_are_sorted_by_amount_then_age_within_a_currency() -> None:
    found = _invoices.find_overdue(
        [
            invoice("small", 5.0, late=100),
            invoice("young", 10.0, late=1),
            invoice("old", 10.0, late=2),
            invoice("usd", 9000.0, "USD", late=1),
            invoice("credit", -3.0, late=1),
        ],
        TODAY,
    )
    assert [late.invoice.number for late in found] == ["old", "young", "small", "credit", "usd"]
    assert found[3].step == "Settle the credit with the customer"


async def test_a_grant_report(put: Put, make_context: ContextMaker) -> None:
    put(
        "grants.csv",
        f"{GRANT_HEADER}\n"
        "Late,2026-02-10,open,1000,EUR,a@example.org\n"
        'Soon,2026-03-01,open,"2,000",EUR,b@example.org\n'
        "Dollars,2026-03-02,open,300,USD,\n"
        "Far,2027-01-01,open,,EUR,\n"
        "Sent,2026-02-01,applied,400,EUR,\n",
    )
    report = await run(GRANTS, make_context("finance"))
    first, *_ = report.text.splitlines()
    assert first == (
        "2 grant deadlines in the next 60 days (2,000.00 EUR, 300.00 USD); 1 open grant past the deadline. "
        "Next: Soon on 2026-03-01."
    )
    assert "| Late | 2026-02-10 | -7 | 1,000.00 EUR | a@example.org | 2 |" in report.text
    assert "| applied | 1 | 400.00 EUR |" in report.text
    assert "1 open grant with a later deadline (–)." in report.text
    assert report.evidence == ["knowledge/finance/grants.csv: 5 rows; lines reported: 2, 3, 4, 5"]


async def test_the_horizon_is_a_setting(put: Put, make_context: ContextMaker) -> None:
    put("grants.csv", f"{GRANT_HEADER}\nG,2026-02-20,open,1,EUR,\n")
    near = await run(GRANTS, make_context("finance", settings={"horizonDays": 2}))
    assert near.text.startswith("No open grant has a deadline in the next 2 days. Next: G on 2026-02-20.")
    task = await run(GRANTS, make_context("finance", settings={"horizonDays": 2}, task_input={"horizonDays": 3}))
    assert task.text.startswith("1 grant deadline in the next 3 days (1.00 EUR).")


@pytest.mark.parametrize("value", [0, -5, True, "60", 1.5, None, 10**9])
async def test_a_wrong_horizon_is_an_error(value: object, make_context: ContextMaker) -> None:
    with pytest.raises(SkillInputError, match="horizonDays must be a"):
        await run(GRANTS, make_context("finance", settings={"horizonDays": value}))


async def test_an_invoice_report(put: Put, make_context: ContextMaker) -> None:
    put(
        "invoices.csv",
        f"{INVOICE_HEADER}\n"
        "A-1,Acme,100.50,eur,2026-02-16,open\n"
        "A-2,Beta,200,EUR,2025-10-01,OPEN\n"
        "A-3,Gamma,50,USD,2026-03-01,open\n"
        "A-4,Delta,,,,void\n"
        "A-5,Acme,999,EUR,2020-01-01,paid\n",
    )
    report = await run(INVOICES, make_context("finance"))
    assert report.text.splitlines()[0] == (
        "2 invoices overdue (300.50 EUR), the oldest by 139 days; 3 invoices open (300.50 EUR, 50.00 USD)."
    )
    steps = [line for line in report.text.splitlines() if line.startswith("| A-")]
    assert steps == [
        "| A-2 | Beta | 200.00 EUR | 2025-10-01 | 139 | Decide: payment plan, collection or write-off | 3 |",
        "| A-1 | Acme | 100.50 EUR | 2026-02-16 | 1 | Send a friendly reminder | 2 |",
    ]
    assert "| 1–30 days | 1 | 100.50 EUR |" in report.text
    assert "| USD | 50.00 | 0.00 | 50.00 |" in report.text
    assert report.evidence == ["knowledge/finance/invoices.csv: 5 rows; lines reported: 2, 3"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("A,C,1,EUR,2026-02-17,open", "No invoice is overdue; 1 invoice open (1.00 EUR)."),
        ("A,C,1,EUR,2026-01-17,paid", "No invoice is open."),
        ("", "No invoice is listed: knowledge/finance/invoices.csv has a header and no rows."),
    ],
)
async def test_nothing_to_do_is_said(put: Put, make_context: ContextMaker, rows: str, said: str) -> None:
    put("invoices.csv", f"{INVOICE_HEADER}\n{rows}\n")
    assert (await run(INVOICES, make_context("finance"))).text.splitlines()[0] == said


async def test_no_grants_is_said(put: Put, make_context: ContextMaker) -> None:
    put("grants.csv", GRANT_HEADER)
    report = await run(GRANTS, make_context("finance"))
    assert report.text == "No grant is listed: knowledge/finance/grants.csv has a header and no rows.\n"
    assert report.evidence == ["knowledge/finance/grants.csv: 0 rows; lines reported: none"]


@pytest.mark.parametrize(
    ("title", "content", "said"),
    [
        (GRANTS, None, "knowledge/finance/grants.csv is missing"),
        (GRANTS, b"", "grants.csv line 1: the file is empty"),
        (GRANTS, b"grant,deadline\nG,2026-01-01\n", "grants.csv line 1: the columns status, amount are missing"),
        (GRANTS, f"{GRANT_HEADER}\nG,soon,open,1,EUR,\n".encode(), "grants.csv line 2: deadline is 'soon'"),
        (GRANTS, f"{GRANT_HEADER}\nG,2026-02-30,open,1,EUR,\n".encode(), "line 2: deadline is '2026-02-30'"),
        (GRANTS, f"{GRANT_HEADER}\nG,2026-01-01,maybe,1,EUR,\n".encode(), "line 2: status is 'maybe', not one of open"),
        (GRANTS, f"{GRANT_HEADER}\nG,2026-01-01,open,1\n".encode(), "line 2: 4 cells, but the header names 6"),
        (GRANTS, f"{GRANT_HEADER}\nG\xe9,2026-01-01,open,1,EUR,\n".encode("latin-1"), "line 2: not UTF-8"),
        (GRANTS, f"{GRANT_HEADER}\n{'x' * 200_000},2026-01-01,open,1,EUR,\n".encode(), "line 2: field larger than"),
        (
            INVOICES,
            f"{INVOICE_HEADER}\nA,C,1,EUR,2026-01-01,open\nA,C,1,EUR,2026-01-01,paid\n".encode(),
            "line 3: invoice is 'A', which line 2 has already",
        ),
        (INVOICES, f"{INVOICE_HEADER}\nA,C,1,,2026-01-01,open\n".encode(), "line 2: currency is empty"),
        (INVOICES, f'{INVOICE_HEADER}\nA,"C,1,EUR,2026-01-01,open\n'.encode(), "line 2: unexpected end of data"),
    ],
)
async def test_bad_files_are_named_with_their_line(
    put: Put, make_context: ContextMaker, title: str, content: bytes | None, said: str
) -> None:
    put("grants.csv" if title == GRANTS else "invoices.csv", content)
    with pytest.raises(SkillInputError) as error:
        await run(title, make_context("finance"))
    assert said in error.value.detail


async def test_files_as_spreadsheets_write_them(put: Put, make_context: ContextMaker) -> None:
    """A byte order mark, CRLF, and cells that would break out of a table."""
    rows = f'{GRANT_HEADER}\r\n"A|B\r\n# <b>*x*",2026-02-20,open,1,EUR,[x](javascript:y)\r\n'
    put("grants.csv", b"\xef\xbb\xbf" + rows.encode())
    report = await run(GRANTS, make_context("finance"))
    assert "| A\\|B # \\<b\\>\\*x\\* | 2026-02-20 | 3 | 1.00 EUR | \\[x\\](javascript:y) | 3 |" in report.text


@pytest.mark.parametrize("day", [date(2026, 1, 1), date(2028, 2, 29), date(2030, 12, 31)])
@pytest.mark.parametrize("title", [GRANTS, INVOICES])
async def test_samples_work_on_any_day_and_say_what_they_are(
    time: FakeClock, make_context: ContextMaker, title: str, day: date
) -> None:
    time.jump((day - TODAY).total_seconds())
    report = await run(title, make_context("finance"))
    assert "that are samples: 3 of 3. Replace them." in report.text
