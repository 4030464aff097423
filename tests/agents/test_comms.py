"""Comms' skill: the content calendar, over tables of cases and real CSV and iCalendar files."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from agents import _calendar, comms
from agents._calendar import Entry, Plan
from mesh import Report
from mesh.errors import SkillInputError
from mesh.service.skill_context import SkillContext
from mesh.store import Store
from tests.agents.inputs import vcalendar, vevent
from tests.agents.stage import ContextMaker, section
from tests.fakes import FakeClock

Put = Callable[[str, str | bytes | None], None]
TODAY = date(2026, 2, 17)  # a Tuesday
HEADER = "date,channel,title,status,owner"


@pytest.fixture
def put(store: Store, tmp_path: pathlib.Path) -> Put:
    """Put a file into `knowledge/comms/`, from which the samples are gone; None takes it away."""
    folder = tmp_path / "shared" / "knowledge" / "comms"
    for sample in folder.iterdir():
        sample.unlink()

    def write(file: str, content: str | bytes | None) -> None:
        (folder / file).unlink(missing_ok=True)
        if content is not None:
            (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)

    return write


async def run(context: SkillContext) -> Report:
    return await comms.agent.skills["Content Calendar Review"](context)


def entry(ahead: int, status: str = "scheduled", *channels: str) -> Entry:
    return Entry(TODAY + timedelta(days=ahead), "", channels or ("blog",), "T", status, "", "calendar.csv", 2)


@pytest.mark.parametrize(
    ("ahead", "status", "planned", "draft", "overdue"),
    [
        (0, "draft", True, True, False),
        (7, "idea", True, True, False),
        (8, "draft", True, False, False),
        (13, "scheduled", True, False, False),
        (14, "draft", False, False, False),
        (-1, "scheduled", False, False, True),
        (-400, "idea", False, False, True),
        (-1, "published", False, False, False),
        (-1, "confirmed", False, False, False),
    ],
)
def test_when_an_entry_is_reported(ahead: int, status: str, planned: bool, draft: bool, overdue: bool) -> None:
    found = _calendar.review([entry(ahead, status)], TODAY, Plan())
    assert (bool(found.planned), bool(found.drafts), bool(found.overdue)) == (planned, draft, overdue)


@pytest.mark.parametrize(
    ("ahead", "gaps"),
    [
        ([], [(0, 13)]),
        (range(14), []),
        ([0, 3, 6, 9, 12], []),  # two empty days in a row are none
        ([0, 4, 6, 9, 12], [(1, 3)]),
        ([3, 6, 9, 10], [(0, 2), (11, 13)]),
        ([-1, 14], [(0, 13)]),
    ],
)
def test_gaps(ahead: list[int], gaps: list[tuple[int, int]]) -> None:
    found = _calendar.review([entry(day) for day in ahead], TODAY, Plan())
    assert [((a - TODAY).days, (b - TODAY).days) for a, b in found.gaps] == gaps


@pytest.mark.parametrize(
    ("entries", "channels", "silent"),
    [
        ([entry(1, "draft", "Blog"), entry(-60, "published", "social")], (), ["social"]),
        ([entry(1, "draft", "blog"), entry(-61, "published", "social")], (), []),  # given up long ago
        ([entry(20, "draft", "blog")], (), ["blog"]),
        ([entry(1, "draft", "BLOG", "news")], ("blog", "News", "podcast"), ["podcast"]),
        ([], ("blog",), ["blog"]),
    ],
)
def test_channels_without_anything(entries: list[Entry], channels: tuple[str, ...], silent: list[str]) -> None:
    assert _calendar.review(entries, TODAY, Plan(channels=channels)).silent == silent


async def test_a_report_over_both_files(put: Put, make_context: ContextMaker) -> None:
    put(
        "calendar.csv",
        f"{HEADER}\n"
        "2026-02-10,blog,Late post,draft,echo\n"
        "2026-02-19,blog,Next | post,draft,echo\n"
        "2026-02-11,social,Done,published,\n",
    )
    put(
        "calendar.ics",
        vcalendar(
            vevent(
                "DTSTART;TZID=America/New_York:20260105T200000",
                "RRULE:FREQ=WEEKLY",
                "CATEGORIES:newsletter",
                summary="Weekly",
            )
        ),
    )
    report = await run(make_context("comms"))
    assert report.text.splitlines()[0] == (
        "3 entries planned in the next 14 days; 3 gaps; 1 draft due soon; 1 overdue and not published."
    )
    # Monday 20:00 in New York is Tuesday 01:00 in UTC, the mesh's zone.
    assert section(report.text, "Next 14 days").splitlines()[2:] == [
        "| Tue 2026-02-17 01:00 | newsletter | Weekly | confirmed | – | calendar.ics line 3 |",
        "| Thu 2026-02-19 | blog | Next \\| post | draft | echo | calendar.csv line 3 |",
        "| Tue 2026-02-24 01:00 | newsletter | Weekly | confirmed | – | calendar.ics line 3 |",
    ]
    assert section(report.text, "Gaps").splitlines() == [
        "- Fri 2026-02-20 to Mon 2026-02-23: 4 days empty",
        "- Wed 2026-02-25 to Mon 2026-03-02: 6 days empty",
        "- social: nothing in the next 14 days",
    ]
    assert "| Tue 2026-02-10 | 7 | blog | Late post | draft | echo | calendar.csv line 2 |" in report.text
    assert report.evidence == [
        "knowledge/comms/calendar.csv: 3 rows; lines reported: 2, 3",
        "knowledge/comms/calendar.ics: 9 dates near today; lines reported: 3",
    ]


async def test_settings(put: Put, make_context: ContextMaker) -> None:
    put("calendar.csv", f"{HEADER}\n2026-02-18,blog,A,draft,\n")
    settings = {"horizonDays": 3, "gapDays": 1, "draftDays": 0, "channels": ["podcast"]}
    report = await run(make_context("comms", settings=settings))
    assert report.text.startswith("1 entry planned in the next 3 days; 3 gaps; 0 drafts due soon;")


@pytest.mark.parametrize(
    "settings", [{"gapDays": 0}, {"horizonDays": 1000}, {"channels": "blog"}, {"channels": [1]}, {"channels": [" "]}]
)
async def test_wrong_settings_are_errors(put: Put, make_context: ContextMaker, settings: dict[str, Any]) -> None:
    with pytest.raises(SkillInputError, match=rf"agents\.comms\.settings\.{next(iter(settings))} must be"):
        await run(make_context("comms", settings=settings))


async def test_no_calendar_at_all_says_what_to_do(put: Put, make_context: ContextMaker) -> None:
    with pytest.raises(SkillInputError, match=r"calendar\.csv is missing, and so is calendar\.ics beside it: list"):
        await run(make_context("comms"))


@pytest.mark.parametrize(
    ("file", "content"),
    [("calendar.csv", HEADER), ("calendar.ics", vcalendar()), ("calendar.ics", vcalendar() + "\n\n")],
)
async def test_an_empty_calendar_is_said(put: Put, make_context: ContextMaker, file: str, content: str) -> None:
    put(file, content)
    report = await run(make_context("comms"))
    assert report.text.startswith("Nothing planned in the next 14 days; 1 gap;")
    assert ("It has a header and no rows." in report.text) == (file == "calendar.csv")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("calendar.csv", f"{HEADER}\n2026-02-31,blog,A,draft,\n", "calendar.csv line 2: date is '2026-02-31'"),
        ("calendar.csv", f"{HEADER}\n2026-02-18,,A,draft,\n", "calendar.csv line 2: channel is empty"),
        ("calendar.csv", f"{HEADER}\n2026-02-18,blog,A,done,\n", "calendar.csv line 2: status is 'done'"),
        ("calendar.ics", vcalendar(vevent("DTSTART:20260217")).encode() + b"\xfc", "calendar.ics line 8: not UTF-8"),
    ],
)
async def test_bad_files_are_named_with_their_line(
    put: Put, make_context: ContextMaker, file: str, content: str | bytes, said: str
) -> None:
    put(file, content)
    with pytest.raises(SkillInputError) as error:
        await run(make_context("comms"))
    assert f"knowledge/comms/{said}" in error.value.detail


async def test_one_bad_file_of_two_is_an_error_not_half_a_report(put: Put, make_context: ContextMaker) -> None:
    put("calendar.csv", f"{HEADER}\n2026-02-18,blog,A,draft,\n")
    put("calendar.ics", "nonsense")
    with pytest.raises(SkillInputError, match=r"calendar\.ics line 1"):
        await run(make_context("comms"))


async def test_a_calendar_with_byte_order_mark_and_bare_line_feeds(put: Put, make_context: ContextMaker) -> None:
    put("calendar.ics", "\ufeff" + vcalendar(vevent("DTSTART:20260217", summary="a|b\\n# c")).replace("\r", ""))
    report = await run(make_context("comms"))
    assert "| Tue 2026-02-17 | – | a\\|b # c | confirmed | – | calendar.ics line 3 |" in report.text


@pytest.mark.parametrize("day", [date(2026, 1, 7), date(2028, 2, 29), date(2030, 12, 31)])
async def test_samples_work_on_any_day_and_say_what_they_are(
    time: FakeClock, make_context: ContextMaker, day: date
) -> None:
    time.jump((day - TODAY).total_seconds())
    report = await run(make_context("comms"))
    assert "Sample: post of the day (delete calendar.ics or put yours in its place)" in report.text
    assert "that are samples: 3 of 3. Replace them." in report.text
