"""The runner without a model: which skill does a task."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.models import Task
from mesh.runners.base import Report
from mesh.runners.skills import SkillsRunner

AT = "2026-02-16T20:45:00.000Z"


def a_task(title: str, skill: str | None = None) -> Task:
    given = {"id": "t", "title": title, "owner": "ada", "from": "human", "createdAt": AT, "updatedAt": AT}
    return Task.model_validate({**given, "skill": skill})


def runner() -> SkillsRunner[str]:
    async def review(context: str) -> Report:
        return Report(f"reviewed for {context}")

    async def scan(context: str) -> Report:
        return Report(f"scanned for {context}")

    return SkillsRunner({"Code Review Queue": review, "Straße": scan})


@pytest.mark.parametrize(
    ("task", "expected", "why"),
    [
        (a_task("Code Review Queue"), "reviewed for ada", "by its title"),
        (a_task("  code review QUEUE "), "reviewed for ada", "case and space around it don't matter"),
        (a_task("STRASSE"), "scanned for ada", "nor does how a letter is written in capitals"),
        (a_task("Monday's look", "Code Review Queue"), "reviewed for ada", "by the skill that it names"),
        (a_task("Code Review Queue", "Straße"), "scanned for ada", "the named skill comes before the title"),
        (a_task("Code Review Queue", "Nothing"), None, "and is not made up for by the title"),
        (a_task("Code Review"), None, "part of a title is another title"),
        (a_task("Anything"), None, "no skill, no model"),
    ],
)
async def test_which_skill_runs(task: Task, expected: str | None, why: str) -> None:
    found = runner()
    assert found.can_run(task) is (expected is not None), why
    if expected is not None:
        assert (await found.run(task, "ada")).text == expected, why


async def test_what_a_skill_raises_comes_out() -> None:
    async def broken(context: Any) -> Report:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        await SkillsRunner({"Broken": broken}).run(a_task("Broken"), None)


def test_a_report_is_text_alone_unless_it_says_more() -> None:
    report = Report("text")
    assert (report.files, report.evidence, report.remember) == ([], [], {})
    report.files.append("a")
    assert Report("other").files == [], "each has lists of its own"
