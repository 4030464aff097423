"""Incarnations: each start of an agent's process is a new one, and it locks the one before out (I8).

Incarnation N writes its temporaries into `run/N/`. A successor makes `run/N+1/`, then renames `run/N` away:
whatever the old process still tries, its next temporary, rename or link meets a path that isn't there any more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mesh import clock
from mesh.errors import MeshError
from mesh.store.codec import decode
from mesh.store.disk import Disk
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.locks import Locks

_RETIRED = ".retired-"


@dataclass(frozen=True)
class Process:
    """Who runs an incarnation. The start time tells the process from a later one with the same pid."""

    agent: str
    incarnation: int
    pid: int
    started: float
    boot_id: str

    def alive(self, boot_id: str) -> bool:
        """Whether this very process still exists (it may be stopped)."""
        if boot_id != self.boot_id:
            return False
        found = process_started(self.pid)
        return found is not None and abs(found - self.started) < 0.05


def process_started(pid: int) -> float | None:
    """When the process began, in seconds since boot, or None if there is none (a zombie is none).

    From /proc, in the kernel's own clock: what is derived from wall time moves when that is set.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def begin(
    disk: Disk,
    layout: Layout,
    locks: Locks,
    agent: str,
    known: int,
    time: clock.Clock,
    recover: Callable[[str], None] = lambda folder: None,
) -> int:
    """Make the next incarnation of the agent and lock the ones before out; returns its number.

    `known` is the highest number that any other record (state.json) knows, should the folder be lost. `recover` is
    called for the scratch folder of each earlier one, before it is deleted.
    """
    shared = Files(disk, layout.scratch)
    folder = layout.run(agent)
    shared.make_folders(folder)
    with locks.hold(f"agents/{agent}/run"):
        names = [name for name in shared.names(folder) if name.isdigit()]
        number = max([known, *map(int, names)]) + 1
        shared.make_folders(f"{folder}/{number}")
        for name in names:
            shared.rename(f"{folder}/{name}", f"{folder}/{_RETIRED}{name}")
        with suppress(OSError, MeshError):  # tried again at the next start; it is in nobody's way
            _delete_retired(disk, folder, recover)
    pid = os.getpid()
    record = {
        "schemaVersion": 1,
        "agent": agent,
        "incarnation": number,
        "pid": pid,
        "started": process_started(pid),
        "bootId": time.boot_id(),
        "at": clock.iso(time.wall()),
    }
    path = f"{folder}/{number}/process.json"
    shared.replace(path, json.dumps(record, indent=1).encode() + b"\n")
    return number


def current(disk: Disk, layout: Layout, agent: str) -> Process | None:
    """The present incarnation's process as recorded, whether it still runs or not."""
    folder = layout.run(agent)
    try:
        numbers = [int(name) for name in disk.names(folder) if name.isdigit()]
        data: dict[str, Any] = decode(disk.read(f"{folder}/{max(numbers)}/process.json"))
        return Process(agent, data["incarnation"], data["pid"], data["started"] or 0.0, data["bootId"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _delete_retired(disk: Disk, folder: str, recover: Callable[[str], None]) -> None:
    for name in disk.names(folder):
        if name.startswith(_RETIRED):
            recover(f"{folder}/{name}")
            for left_over in disk.names(f"{folder}/{name}"):
                disk.unlink(f"{folder}/{name}/{left_over}")
            disk.remove_folder(f"{folder}/{name}")
