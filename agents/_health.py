"""The verdict on a machine. Pure: facts and thresholds go in, findings come out.

A measure has two bounds: from the first on somebody should look, from the second on something is about to break.
Events of which one is one too many (a unit that failed, a process that was killed for memory) call for attention.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from mesh.errors import SkillInputError
from mesh.models.base import Asked


class Level(IntEnum):
    OK = 0
    ATTENTION = 1
    CRITICAL = 2


@dataclass(frozen=True)
class DiskFacts:
    mount: str
    total_bytes: int
    free_bytes: int
    used_percent: float
    #: None where the file system has no fixed number of inodes.
    inodes_percent: float | None


@dataclass(frozen=True)
class ProcessFacts:
    pid: int
    name: str
    user: str
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """What was measured. Lists that are None could not be read; `notes` say why."""

    cores: int
    #: Load averages over 1, 5 and 15 minutes.
    load: tuple[float, float, float]
    uptime_s: float
    memory_total: int
    memory_available: int
    swap_total: int
    swap_used: int
    disks: list[DiskFacts]
    processes: list[ProcessFacts]
    zombies: int
    failed_units: list[str] | None = None
    #: Lines that speak of errors, newest last, and where they come from.
    errors: list[str] | None = None
    errors_source: str = ""
    #: Processes that the kernel killed for memory: since boot, and since the last check.
    oom_kills: int | None = None
    oom_kills_new: int = 0
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def available_percent(self) -> float:
        return 100 * self.memory_available / self.memory_total if self.memory_total else 100.0

    @property
    def swap_percent(self) -> float:
        return 100 * self.swap_used / self.swap_total if self.swap_total else 0.0


class Thresholds(Asked):
    """Bounds of each measure. Override them in the registry under `settings.thresholds`, keys in camelCase."""

    #: Runnable processes per core over 5 minutes: beyond 2 work queues up, beyond 6 beats and probes suffer.
    load_per_core_attention: float = Field(default=2.0, gt=0)
    load_per_core_critical: float = Field(default=6.0, gt=0)
    #: Below a twentieth the kernel soon kills; one agent's CLI session takes 1–2 GB.
    memory_available_percent_attention: float = Field(default=15.0, ge=0, le=100)
    memory_available_percent_critical: float = Field(default=5.0, ge=0, le=100)
    swap_percent_attention: float = Field(default=50.0, ge=0, le=100)
    swap_percent_critical: float = Field(default=90.0, ge=0, le=100)
    disk_percent_attention: float = Field(default=85.0, ge=0, le=100)
    disk_percent_critical: float = Field(default=95.0, ge=0, le=100)
    inodes_percent_attention: float = Field(default=85.0, ge=0, le=100)
    inodes_percent_critical: float = Field(default=95.0, ge=0, le=100)
    #: Each zombie is a parent that doesn't collect its children; a few are normal.
    zombies_attention: int = Field(default=20, ge=1)
    #: Lines in the log of the last day. Some errors stand in every log; more than 50 are not read.
    errors_attention: int = Field(default=20, ge=1, le=50)

    @model_validator(mode="after")
    def _critical_is_worse(self) -> Self:
        for name in ("load_per_core", "swap_percent", "disk_percent", "inodes_percent"):
            if getattr(self, f"{name}_attention") > getattr(self, f"{name}_critical"):
                raise ValueError(f"the bound for attention of {name} must not lie above the one for critical")
        if self.memory_available_percent_attention < self.memory_available_percent_critical:
            raise ValueError("the bound for attention of memory_available_percent must not lie below the critical one")
        return self

    @classmethod
    def from_settings(cls, given: dict[str, Any], where: str) -> Self:
        """The thresholds with some replaced. `where` names the setting in errors.

        Raises SkillInputError for an unknown name or a wrong value.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            known = ", ".join(field.alias or name for name, field in cls.model_fields.items())
            problems = "; ".join(f"{'.'.join(map(str, item['loc']))} {item['msg']}".strip() for item in error.errors())
            reason = f"registry.json: {where}: {problems}; known are: {known}."
            raise SkillInputError(reason, file="registry.json") from None


@dataclass(frozen=True)
class Finding:
    level: Level
    text: str


def assess(machine: Machine, bounds: Thresholds) -> list[Finding]:
    """What is wrong with the machine, worst first. Empty if nothing is."""
    load = machine.load[1] / max(machine.cores, 1)
    measures = [
        (_above(load, bounds.load_per_core_attention, bounds.load_per_core_critical), f"load {load:.1f} per core"),
        (
            _above(
                -machine.available_percent,
                -bounds.memory_available_percent_attention,
                -bounds.memory_available_percent_critical,
            ),
            f"only {machine.available_percent:.0f}% of memory available",
        ),
        (
            _above(machine.swap_percent, bounds.swap_percent_attention, bounds.swap_percent_critical),
            f"swap {machine.swap_percent:.0f}% full",
        ),
    ]
    for disk in machine.disks:
        level = _above(disk.used_percent, bounds.disk_percent_attention, bounds.disk_percent_critical)
        measures.append((level, f"{disk.mount} {disk.used_percent:.0f}% full"))
        if disk.inodes_percent is not None:
            level = _above(disk.inodes_percent, bounds.inodes_percent_attention, bounds.inodes_percent_critical)
            measures.append((level, f"{disk.mount} has {disk.inodes_percent:.0f}% of its inodes in use"))
    measures += _events(machine, bounds)
    found = [Finding(level, text) for level, text in measures if level > Level.OK]
    return sorted(found, key=lambda finding: -finding.level)


def verdict(findings: list[Finding]) -> Level:
    """The worst level found."""
    return max((finding.level for finding in findings), default=Level.OK)


def _above(value: float, attention: float, critical: float) -> Level:
    if value >= critical:
        return Level.CRITICAL
    return Level.ATTENTION if value >= attention else Level.OK


def _events(machine: Machine, bounds: Thresholds) -> list[tuple[Level, str]]:
    units, errors = machine.failed_units or [], machine.errors or []
    events = [
        (len(units) >= 1, f"failed units: {', '.join(unit.split(' ')[0] for unit in units)}"),
        (machine.oom_kills_new >= 1, f"{machine.oom_kills_new} killed for memory since the last check"),
        (machine.zombies >= bounds.zombies_attention, f"{machine.zombies} zombie processes"),
        (len(errors) >= bounds.errors_attention, f"{len(errors)} recent errors in the log"),
    ]
    return [(Level.ATTENTION if happened else Level.OK, text) for happened, text in events]


def new_kills(now: int | None, last: Any, uptime_s: float, since_last_s: float | None) -> int:
    """How many kills for memory are new: the kernel's counter starts anew with each boot.

    `last` is what the last check counted, `since_last_s` how long ago that was; None for a first check.
    """
    if now is None:
        return 0
    same_boot = since_last_s is not None and since_last_s <= uptime_s
    return max(now - last, 0) if same_boot and isinstance(last, int) else now
