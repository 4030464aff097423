"""The health check: the verdict by table, the measuring on this very machine and with programs put in its way."""

from __future__ import annotations

import os
import pathlib
import shutil
from dataclasses import replace
from typing import Any

import psutil
import pytest

from agents import _health, _machine, devops
from agents._health import DiskFacts, Level, Machine, Thresholds
from mesh import Report
from mesh.errors import SkillInputError
from mesh.service.skill_context import Output
from mesh.store import Store
from tests.agents.stage import ContextMaker, section

TITLE = "System Health Check"


async def check(make_context: ContextMaker, **settings: object) -> Report:
    return await devops.agent.skills[TITLE](make_context("devops", settings=dict(settings), title=TITLE))


@pytest.fixture
def programs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty folder that is all of PATH: what a test doesn't put there isn't installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: pathlib.Path, name: str, *, out: str = "", err: str = "", status: int = 0) -> None:
    """Put a program there that prints so and ends so."""
    script = f"#!/bin/sh\nprintf %s '{out}'\nprintf %s '{err}' >&2\nexit {status}\n"
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def test_the_role_does_what_its_template_is_called() -> None:
    assert list(devops.agent.skills) == [TITLE]
    assert devops.agent.id == "devops" and "infrastructure" in devops.agent.persona


# -- this machine


async def test_this_machine_as_it_is(make_context: ContextMaker) -> None:
    report = await check(make_context)
    verdict = report.text.split("\n", 1)[0]
    assert verdict.startswith(("System health: ok –", "System health: attention –", "System health: critical –"))
    usage = shutil.disk_usage("/")
    root_line = next(line for line in section(report.text, "Disks").splitlines() if line.startswith("| / |"))
    shown = float(root_line.split(" | ")[1].rstrip("%"))
    assert abs(shown - 100 * usage.used / (usage.used + usage.free)) <= 2
    assert f"on {os.cpu_count()} core" in section(report.text, "Load and memory")
    total_gb = psutil.virtual_memory().total / 1e9
    assert f" of {total_gb:.1f} GB" in section(report.text, "Load and memory")
    assert report.evidence[0].startswith("/: ")
    assert report.remember["checkedAt"] == "2026-02-17T09:00:00.000Z"


def test_the_largest_processes_come_first(tmp_path: pathlib.Path) -> None:
    found = _machine._numbers(str(tmp_path)).processes
    sizes = [process.memory_bytes for process in found]
    assert 1 <= len(found) <= 8 and sizes == sorted(sizes, reverse=True)
    # Others may end or grow meanwhile; we ourselves stand in the list, or all in it are larger.
    own = psutil.Process()
    listed = [process for process in found if process.pid == own.pid]
    assert [process.name for process in listed] == [own.name()] if listed else sizes[-1] > own.memory_info().rss / 2


async def test_each_file_system_is_shown_once(tmp_path: pathlib.Path) -> None:
    disks = _machine._disks(str(tmp_path))
    assert disks[0].mount == "/"
    devices = [os.stat(disk.mount).st_dev for disk in disks]
    assert len(set(devices)) == len(devices)
    assert os.stat(tmp_path).st_dev in devices


async def test_a_threshold_in_the_settings_changes_the_verdict(make_context: ContextMaker) -> None:
    everything = {"memoryAvailablePercentAttention": 100, "memoryAvailablePercentCritical": 100}
    report = await check(make_context, thresholds=everything)
    assert report.text.startswith("System health: critical – only")


# -- what a host may lack


async def test_a_host_without_systemd_journal_and_syslog_says_so(
    make_context: ContextMaker, programs: pathlib.Path
) -> None:
    report = await check(make_context)
    assert section(report.text, "Failed units").startswith("systemd does not run here, or can't be asked: Can't run")
    assert section(report.text, "Recent errors").startswith("Neither is readable, the journal (Can't run journalctl")
    assert "The kernel does not say how many" in section(report.text, "Load and memory")
    assert not any("systemctl" in line or "journalctl" in line for line in report.evidence)


async def test_systemd_that_does_not_run_is_a_fact_in_its_own_words(
    make_context: ContextMaker, programs: pathlib.Path
) -> None:
    program(programs, "systemctl", err="Failed to connect to bus: Host is down", status=1)
    units = section((await check(make_context)).text, "Failed units")
    assert units == "systemd does not run here, or can't be asked: Failed to connect to bus: Host is down"


async def test_failed_units_and_errors(make_context: ContextMaker, programs: pathlib.Path) -> None:
    program(programs, "systemctl", out="nginx.service loaded failed failed A web server\n")
    program(programs, "journalctl", out="2026-02-17T08:00:00+0000 h app[1]: a|b <c>\n")
    report = await check(make_context)
    assert "failed units: nginx.service" in report.text.split("\n", 1)[0]
    assert section(report.text, "Failed units") == "- nginx.service loaded failed failed A web server"
    assert section(report.text, "Recent errors") == r"- 2026-02-17T08:00:00+0000 h app\[1\]: a\|b \<c\>"
    assert "systemctl --failed --no-legend --plain --no-pager: 1 unit" in report.evidence
    assert any(line.startswith("journalctl -p err") and line.endswith(": 1 line") for line in report.evidence)


async def test_no_failed_units_and_no_errors(make_context: ContextMaker, programs: pathlib.Path) -> None:
    program(programs, "systemctl")
    program(programs, "journalctl", out="-- No entries --\n")
    text = (await check(make_context)).text
    assert section(text, "Failed units") == "None."
    assert section(text, "Recent errors") == "None."


async def test_a_journal_that_hides_the_system_says_so(make_context: ContextMaker, programs: pathlib.Path) -> None:
    program(programs, "journalctl", err="Hint: You are currently not seeing messages from other users and the system.")
    errors = section((await check(make_context)).text, "Recent errors")
    assert errors == "The journal of the system and of other users is hidden from this user.\n\nNone."


async def test_without_a_journal_the_syslog_is_searched(make_context: ContextMaker, programs: pathlib.Path) -> None:
    program(programs, "journalctl", out="-- No entries --", err="No journal files were found.")
    program(programs, "tail", out="Feb 17 app: Failed to start\nFeb 17 app: well\nFeb 17 kernel: terror\n")
    report = await check(make_context)
    errors = section(report.text, "Recent errors")
    assert "The journal is not readable (No journal files were found.)" in errors
    assert errors.endswith("\n\n- Feb 17 app: Failed to start")
    assert "tail -n 2000 /var/log/syslog: 1 line" in report.evidence


async def test_kills_for_memory_are_remembered_and_reported_once(
    store: Store, make_context: ContextMaker, programs: pathlib.Path
) -> None:
    program(programs, "grep", out="oom_kill 3")
    first = await check(make_context)
    assert "3 killed for memory since the last check" in first.text.split("\n", 1)[0]
    assert "/proc/vmstat oom_kill 3" in first.evidence
    store.remember("devops", first.remember)
    second = await check(make_context)
    assert "killed for memory" not in second.text.split("\n", 1)[0]
    assert "3 since boot, 0 since the last check" in second.text


@pytest.mark.parametrize(
    ("thresholds", "words"),
    [
        ({"diskPrecent": 3}, "settings.thresholds: diskPrecent Extra inputs are not permitted; known are:"),
        ({"diskPercentAttention": "full"}, "diskPercentAttention Input should be a valid number"),
        ({"diskPercentAttention": float("nan")}, "diskPercentAttention"),
        ({"diskPercentAttention": 99}, "attention of disk_percent must not lie above"),
        ({"memoryAvailablePercentAttention": 1}, "memory_available_percent must not lie below"),
        ([], "settings.thresholds must be an object"),
    ],
)
async def test_wrong_thresholds_are_named(make_context: ContextMaker, thresholds: Any, words: str) -> None:
    with pytest.raises(SkillInputError, match=r"registry\.json") as caught:
        await check(make_context, thresholds=thresholds)
    assert words in str(caught.value)


# -- the verdict

HEALTHY = Machine(
    cores=4,
    load=(1.0, 1.0, 1.0),
    uptime_s=5000,
    memory_total=1000,
    memory_available=500,
    swap_total=0,
    swap_used=0,
    disks=[DiskFacts("/", 1000, 500, 50.0, 10.0)],
    processes=[],
    zombies=0,
    failed_units=[],
    errors=[],
)


def disk(used: float, inodes: float | None = 1.0) -> list[DiskFacts]:
    return [DiskFacts("/d", 1000, 500, used, inodes)]


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({}, Level.OK, ""),
        # Nothing known is not something wrong.
        ({"failed_units": None, "errors": None, "oom_kills": None}, Level.OK, ""),
        ({"load": (99.0, 7.9, 99.0)}, Level.OK, ""),
        ({"load": (0.0, 8.0, 0.0)}, Level.ATTENTION, "load 2.0 per core"),
        ({"load": (0.0, 24.0, 0.0)}, Level.CRITICAL, "load 6.0 per core"),
        ({"memory_available": 151}, Level.OK, ""),
        ({"memory_available": 150}, Level.ATTENTION, "only 15% of memory available"),
        ({"memory_available": 50}, Level.CRITICAL, "only 5% of memory available"),
        ({"swap_total": 100, "swap_used": 49}, Level.OK, ""),
        ({"swap_total": 100, "swap_used": 50}, Level.ATTENTION, "swap 50% full"),
        ({"swap_total": 100, "swap_used": 90}, Level.CRITICAL, "swap 90% full"),
        ({"disks": disk(84.9)}, Level.OK, ""),
        ({"disks": disk(85)}, Level.ATTENTION, "/d 85% full"),
        ({"disks": disk(95)}, Level.CRITICAL, "/d 95% full"),
        ({"disks": disk(1, 85)}, Level.ATTENTION, "/d has 85% of its inodes in use"),
        ({"disks": disk(1, 95)}, Level.CRITICAL, "/d has 95% of its inodes in use"),
        ({"disks": disk(1, None)}, Level.OK, ""),
        ({"failed_units": ["a.service loaded failed failed A"]}, Level.ATTENTION, "failed units: a.service"),
        ({"oom_kills": 5, "oom_kills_new": 0}, Level.OK, ""),
        ({"oom_kills": 5, "oom_kills_new": 1}, Level.ATTENTION, "1 killed for memory since the last check"),
        ({"zombies": 19}, Level.OK, ""),
        ({"zombies": 20}, Level.ATTENTION, "20 zombie processes"),
        ({"errors": ["e"] * 19}, Level.OK, ""),
        ({"errors": ["e"] * 20}, Level.ATTENTION, "20 recent errors in the log"),
    ],
)
def test_verdict(changed: dict[str, Any], level: Level, words: str) -> None:
    found = _health.assess(replace(HEALTHY, **changed), Thresholds())
    assert _health.verdict(found) is level
    assert [finding.text for finding in found] == ([words] if words else [])


def test_the_worst_comes_first() -> None:
    found = _health.assess(replace(HEALTHY, zombies=50, disks=disk(99)), Thresholds())
    assert [finding.level for finding in found] == [Level.CRITICAL, Level.ATTENTION]
    assert devops.summary(found) == "System health: critical – /d 99% full; 50 zombie processes."


def test_all_well_is_said_in_words() -> None:
    assert devops.summary([]) == "System health: ok – all measures within their bounds."


@pytest.mark.parametrize(
    ("now", "last", "uptime_s", "since_last_s", "new", "reason"),
    [
        (None, 3, 100, 10, 0, "the kernel does not say"),
        (3, None, 100, None, 3, "a first check"),
        (3, 1, 100, 10, 2, "the same boot"),
        (3, 3, 100, 10, 0, "nothing new"),
        (2, 1, 100, 200, 2, "the host started since: the counter too"),
        (1, 3, 100, 10, 0, "a counter never goes back"),
        (3, "x", 100, 10, 3, "a memory that somebody edited"),
    ],
)
def test_new_kills(
    now: int | None, last: Any, uptime_s: float, since_last_s: float | None, new: int, reason: str
) -> None:
    assert _health.new_kills(now, last, uptime_s, since_last_s) == new, reason


@pytest.mark.parametrize(
    ("output", "readable"),
    [
        (Output(0, "line\n", ""), True),
        (Output(0, "-- No entries --\n", ""), True),
        (Output(0, "", "Hint: You are currently not seeing messages from other users and the system."), True),
        (Output(0, "-- No entries --\n", "No journal files were found."), False),
        (Output(1, "", "No journal files were opened due to insufficient permissions."), False),
    ],
)
def test_journal_readable(output: Output, readable: bool) -> None:
    assert _machine.journal_readable(output) is readable


def test_sizes() -> None:
    assert [devops._size(number) for number in (0, 999, 1500, 2_000_000, 25_276_510_208)] == [
        "0 B",
        "999 B",
        "2 kB",
        "2 MB",
        "25.3 GB",
    ]
