"""Sales' skill: whom to contact, over tables of cases and real files."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from datetime import date, timedelta

import pytest

from agents import _leads, sales
from agents._leads import Lead
from mesh import Report
from mesh.errors import SkillInputError
from mesh.service.skill_context import SkillContext
from mesh.store import Store
from mesh.store.inputs import Row
from tests.agents.stage import ContextMaker
from tests.fakes import FakeClock

Put = Callable[[str, str | bytes | None], None]
TODAY = date(2026, 2, 17)
HEADER = "lead,company,stage,last_contact,next_contact,value,owner,note"


@pytest.fixture
def put(store: Store, tmp_path: pathlib.Path) -> Put:
    """Put a file into `knowledge/sales/` in place of the sample; None takes it away."""

    def write(file: str, content: str | bytes | None) -> None:
        path = tmp_path / "shared" / "knowledge" / "sales" / file
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


async def run(context: SkillContext) -> Report:
    return await sales.agent.skills["Lead Follow-up"](context)


def lead(name: str, stage: str = "warm", late: int | None = 0, value: float | None = 1.0, line: int = 2) -> Lead:
    when = None if late is None else TODAY - timedelta(days=late)
    return Lead(name, "", stage, when, False, value, "", "", line)


def row(**cells: str) -> Row:
    return Row({"lead": "L", "stage": "warm", **cells}, "leads.csv", 4)


@pytest.mark.parametrize(
    ("stage", "last", "planned", "expected", "computed"),
    [
        ("new", "2026-02-10", "", date(2026, 2, 12), True),
        ("contacted", "2026-02-10", "", date(2026, 2, 15), True),
        ("warm", "2026-02-27", "2026-03-05", None, None),  # last contact in the future
        ("warm", "2024-02-27", "", date(2024, 3, 1), True),  # a leap year's end of February
        ("hot", "2025-12-31", "", date(2026, 1, 1), True),
        ("hot", "2026-02-01", "2026-03-01", date(2026, 3, 1), False),  # what is planned goes before the cadence
        ("hot", "2026-02-18", "", date(2026, 2, 19), True),  # tomorrow, as another time zone may write
        ("warm", "", "", None, False),
        ("won", "2026-02-10", "", None, False),
    ],
)
def test_the_next_contact(stage: str, last: str, planned: str, expected: date | None, computed: bool | None) -> None:
    given = row(stage=stage, last_contact=last, next_contact=planned)
    if computed is None:
        with pytest.raises(SkillInputError, match=r"leads\.csv line 4: last_contact is .*in the future"):
            _leads.read_lead(given, TODAY)
    else:
        read = _leads.read_lead(given, TODAY)
        assert (read.next_contact, read.computed) == (expected, computed)


def test_ranked_by_stage_then_value_then_days_overdue() -> None:
    ranked = [
        lead("hot", "hot", value=1.0),
        lead("warm, large", value=900.0),
        lead("warm, long overdue", value=5.0, late=9),
        lead("warm, today", value=5.0, late=0),
        lead("warm, no value", value=None, late=50),
        lead("contacted", "contacted", value=10_000.0),
        lead("new", "new", value=10_000.0),
    ]
    assert _leads.find_follow_ups(reversed(ranked), TODAY).due == ranked


@pytest.mark.parametrize(
    ("given", "group"),
    [
        (lead("today", late=0), "due"),
        (lead("tomorrow", late=-1), "later"),
        (lead("no step", late=None), "without_step"),
        (lead("won", "won", late=5), None),
        (lead("lost", "lost", late=None), None),
    ],
)
def test_groups(given: Lead, group: str | None) -> None:
    found = _leads.find_follow_ups([given], TODAY)
    assert [name for name in ("due", "later", "without_step") if getattr(found, name)] == ([group] if group else [])


async def test_a_report(put: Put, make_context: ContextMaker) -> None:
    put(
        "leads.csv",
        f"{HEADER}\n"
        'Ann,Acme,warm,2026-02-01,,"1,500.00",susan,call\n'
        "Bob,Beta,hot,2026-02-01,2026-02-17,10,susan,\n"
        "Cid,,new,,,,,\n"
        "Dan,Delta,won,2026-01-01,,700,,\n"
        "Eve,Eps,warm,2026-02-16,2026-03-01,40,,\n"
        "ann,ACME,contacted,2026-02-16,2026-03-02,,,\n",
    )
    report = await run(make_context("sales"))
    assert report.text.splitlines()[0] == (
        "2 leads to contact, 1 of them overdue; 1 lead without a next step; 1,550.00 in the open pipeline."
    )
    due = [line for line in report.text.splitlines() if line.startswith(("| Ann", "| Bob"))]
    assert due == [
        "| Bob, Beta | hot | 10.00 | 2026-02-17 | 0 | susan |  | 3 |",
        "| Ann, Acme | warm | 1,500.00 | 2026-02-04 (by cadence) | 13 | susan | call | 2 |",
    ]
    assert "| Cid | new | – |  | 4 |" in report.text
    assert "| won | 1 | 700.00 |" in report.text
    assert "| warm | 2 | 1,540.00 |" in report.text
    assert "- ann, ACME: lines 2, 7" in report.text
    assert report.evidence == ["knowledge/sales/leads.csv: 6 rows; lines reported: 2, 3, 4"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", "No lead is listed: knowledge/sales/leads.csv has a header and no rows."),
        ("A,B,warm,2026-02-16,2026-02-18,5,,", "No lead is due; next is A on 2026-02-18; 5.00 in the open pipeline."),
        ("A,B,won,,,5,,", "No lead is due; 0.00 in the open pipeline."),
    ],
)
async def test_nothing_to_do_is_said(put: Put, make_context: ContextMaker, rows: str, said: str) -> None:
    put("leads.csv", f"{HEADER}\n{rows}\n")
    assert (await run(make_context("sales"))).text.splitlines()[0] == said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "knowledge/sales/leads.csv is missing"),
        ("lead,company\nA,B\n", "leads.csv line 1: the columns stage, last_contact, next_contact, value, owner, note"),
        (f"{HEADER}\nA,B,cold,,,,,\n", "leads.csv line 2: stage is 'cold', not one of new, contacted"),
        (f"{HEADER}\nA,B,warm,,17.2.2026,,,\n", "leads.csv line 2: next_contact is '17.2.2026'"),
        (f"{HEADER}\nA,B,warm,,,a lot,,\n", "leads.csv line 2: value is 'a lot'"),
        (f"{HEADER}\n\n,B,warm,,,,,\n", "leads.csv line 3: lead is empty"),
    ],
)
async def test_bad_files_are_named_with_their_line(
    put: Put, make_context: ContextMaker, content: str | None, said: str
) -> None:
    put("leads.csv", content)
    with pytest.raises(SkillInputError) as error:
        await run(make_context("sales"))
    assert said in error.value.detail


async def test_hostile_cells_stay_in_their_cells(put: Put, make_context: ContextMaker) -> None:
    put("leads.csv", f'{HEADER}\n"A | B\n## C","<script>",hot,,2026-02-17,1,"o`w`","a\u2028| b"\n')
    report = await run(make_context("sales"))
    assert "| A \\| B ## C, \\<script\\> | hot | 1.00 | 2026-02-17 | 0 | o\\`w\\` | a \\| b | 3 |" in report.text


@pytest.mark.parametrize("day", [date(2026, 1, 1), date(2028, 2, 29), date(2030, 12, 31)])
async def test_samples_work_on_any_day_and_say_what_they_are(
    time: FakeClock, make_context: ContextMaker, day: date
) -> None:
    time.jump((day - TODAY).total_seconds())
    report = await run(make_context("sales"))
    assert report.text.startswith("1 lead to contact, 1 of them overdue; 1 lead without a next step")
    assert "that are samples: 3 of 3. Replace them." in report.text
