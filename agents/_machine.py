"""Measuring the machine: psutil for numbers, the host's own programs for units, logs and the kernel's counter.

What a host doesn't have (systemd, a journal, a readable log) is a fact of the report, not a failure.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from agents._health import DiskFacts, Machine, ProcessFacts, new_kills
from agents._spans import since
from mesh import clock
from mesh.errors import SkillInputError

if TYPE_CHECKING:
    from mesh.service.skill_context import Output, SkillContext

UNITS = ("systemctl", "--failed", "--no-legend", "--plain", "--no-pager")
JOURNAL = ("journalctl", "-p", "err", "--since=-24h", "-n", "50", "--no-pager", "-o", "short-iso")
SYSLOG = ("tail", "-n", "2000", "/var/log/syslog")
KILLS = ("grep", "^oom_kill ", "/proc/vmstat")
_ERRORS_SHOWN_MAX = 50
_PROCESSES_SHOWN_MAX = 8
_RUN_MAX_S = 20.0
_SPEAKS_OF_ERRORS = re.compile(r"\b(error|err|fail(ed|ure)?|crit(ical)?|emerg(ency)?|panic|segfault)\b", re.IGNORECASE)
#: Images that are full by nature.
_READ_ONLY_KINDS = frozenset({"squashfs", "iso9660", "erofs"})


@dataclass(frozen=True)
class _Numbers:
    disks: list[DiskFacts]
    processes: list[ProcessFacts]
    zombies: int


async def measure(context: SkillContext) -> Machine:
    """Measure everything once."""
    notes: dict[str, str] = {}
    numbers = await asyncio.to_thread(_numbers, context.root)
    context.progress(0.3)
    units = await _failed_units(context, notes)
    context.progress(0.5)
    source, errors = await _errors(context, notes)
    kills = await _oom_kills(context, notes)
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    uptime_s = clock.SYSTEM.boottime()
    last_check = since(context.recall("checkedAt"), context.now)
    return Machine(
        cores=psutil.cpu_count() or 1,
        load=psutil.getloadavg(),
        uptime_s=uptime_s,
        memory_total=memory.total,
        memory_available=memory.available,
        swap_total=swap.total,
        swap_used=swap.used,
        disks=numbers.disks,
        processes=numbers.processes,
        zombies=numbers.zombies,
        failed_units=units,
        errors=errors,
        errors_source=source,
        oom_kills=kills,
        oom_kills_new=new_kills(
            kills, context.recall("oomKills"), uptime_s, None if last_check is None else last_check.total_seconds()
        ),
        notes=notes,
    )


def _numbers(root: str) -> _Numbers:
    processes, zombies = [], 0
    for process in psutil.process_iter(["pid", "name", "username", "memory_info", "status"]):
        found = process.info
        zombies += found["status"] == psutil.STATUS_ZOMBIE
        if found["memory_info"]:  # None where another user's process may not be looked at
            user = found["username"] or "?"
            processes.append(ProcessFacts(found["pid"], found["name"] or "?", user, found["memory_info"].rss))
    processes.sort(key=lambda process: -process.memory_bytes)
    return _Numbers(_disks(root), processes[:_PROCESSES_SHOWN_MAX], zombies)


def _disks(root: str) -> list[DiskFacts]:
    """Each real file system once, by its shortest mount point; always the one of `/` and the one of the root,
    which in a container have no device."""
    mounts = [part.mountpoint for part in psutil.disk_partitions() if part.fstype not in _READ_ONLY_KINDS]
    found: dict[int, DiskFacts] = {}
    for mount in [*sorted({"/", *mounts}, key=len), root]:
        try:
            device = os.stat(mount).st_dev
            if device not in found:
                found[device] = _disk(mount)
        except OSError:
            continue  # another user's mount: nothing that we could see or fill
    return list(found.values())


def _disk(mount: str) -> DiskFacts:
    usage, inodes = psutil.disk_usage(mount), os.statvfs(mount)
    used = 100 * (inodes.f_files - inodes.f_ffree) / inodes.f_files if inodes.f_files else None
    return DiskFacts(mount, usage.total, usage.free, usage.percent, used)


async def _run(context: SkillContext, argv: Sequence[str]) -> Output | str:
    """What the program did, or why it could not be asked."""
    try:
        return await context.run(argv, timeout_s=_RUN_MAX_S)
    except SkillInputError as error:
        return str(error)
    except TimeoutError as error:
        return f"{error}."


async def _failed_units(context: SkillContext, notes: dict[str, str]) -> list[str] | None:
    output = await _run(context, UNITS)
    if isinstance(output, str) or output.status != 0:
        notes["units"] = f"systemd does not run here, or can't be asked: {reason_in(output)}"
        return None
    return [line.strip() for line in output.stdout.splitlines() if line.strip()]


async def _errors(context: SkillContext, notes: dict[str, str]) -> tuple[str, list[str] | None]:
    """Where the lines come from, and the lines."""
    output = await _run(context, JOURNAL)
    if not isinstance(output, str) and journal_readable(output):
        if "not seeing messages from other users" in output.stderr:
            notes["errors"] = "The journal of the system and of other users is hidden from this user."
        return " ".join(JOURNAL), journal_lines(output.stdout)
    syslog = await _run(context, SYSLOG)
    if isinstance(syslog, str) or syslog.status != 0:
        notes["errors"] = f"Neither is readable, the journal ({reason_in(output)}) nor the syslog ({reason_in(syslog)})"
        return "", None
    notes["errors"] = f"The journal is not readable ({reason_in(output)}); from the syslog's last 2000 lines"
    lines = [line for line in syslog.stdout.splitlines() if _SPEAKS_OF_ERRORS.search(line)]
    return " ".join(SYSLOG), lines[-_ERRORS_SHOWN_MAX:]


def journal_readable(output: Output) -> bool:
    """Whether the journal could be read at all: journalctl also ends well where there is none."""
    missing = ("No journal files were found", "No journal files were opened")
    return output.status == 0 and not any(words in output.stderr for words in missing)


def journal_lines(text: str) -> list[str]:
    """The entries, without the journal's own remarks such as `-- No entries --`."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("-- ")]


async def _oom_kills(context: SkillContext, notes: dict[str, str]) -> int | None:
    output = await _run(context, KILLS)
    if isinstance(output, str) or output.status != 0:
        notes["oom"] = "The kernel does not say how many processes it killed for memory."
        return None
    return int(output.stdout.split()[1])


def reason_in(output: Output | str) -> str:
    """Why a program gave no facts, in its own last words."""
    if isinstance(output, str):
        return output
    lines = (output.stderr or output.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {output.status}"
