"""The infrastructure's keeper: knows how the machine does before anybody has to ask."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agents import _health, _machine
from agents._health import Finding, Machine, Thresholds
from agents._markdown import bullets, clip, count, report, table
from agents._spans import say
from mesh import Agent, Report, clock

if TYPE_CHECKING:
    from mesh.service.skill_context import SkillContext

_LINE_CHARACTERS_MAX = 300

agent = Agent(
    "devops",
    persona=(
        "You keep the infrastructure of a team of agents: servers, monitoring, security, deploys. You look at the "
        "numbers before you touch anything, and prefer the change that can be undone. You say what is broken, what "
        "is about to break and what is merely unusual, and never mix the three. Before you restart, delete or "
        "deploy you know what depends on it; what only a person may do, you prepare and ask for."
    ),
)


@agent.skill("System Health Check")
async def system_health_check(context: SkillContext) -> Report:
    """How the machine does: a verdict, and the numbers that it rests on."""
    where = f"agents.{context.agent}.settings.thresholds"
    bounds = Thresholds.from_settings(context.setting("thresholds", dict, {}), where)
    machine = await _machine.measure(context)
    remember = {"oomKills": machine.oom_kills, "checkedAt": clock.iso(context.now)}
    return Report(render(machine, _health.assess(machine, bounds)), evidence=evidence(machine), remember=remember)


def render(machine: Machine, findings: list[Finding]) -> str:
    """The page: the verdict first, then what it rests on."""
    return report(
        summary(findings),
        ("Findings", bullets(f"{found.level.name.lower()}: {found.text}" for found in findings)),
        ("Load and memory", _load_and_memory(machine)),
        ("Disks", _disks(machine)),
        ("Failed units", machine.notes.get("units") or bullets(machine.failed_units or [])),
        ("Recent errors", _errors(machine)),
        ("Processes", _processes(machine)),
    )


def summary(findings: list[Finding]) -> str:
    """The verdict line."""
    reasons = "; ".join(found.text for found in findings) or "all measures within their bounds"
    return f"System health: {_health.verdict(findings).name.lower()} – {reasons}."


def _load_and_memory(machine: Machine) -> str:
    load = ", ".join(f"{average:.2f}" for average in machine.load)
    kills = machine.notes.get("oom") or f"{machine.oom_kills} since boot, {machine.oom_kills_new} since the last check"
    swap = f"{_size(machine.swap_used)} of {_size(machine.swap_total)} ({machine.swap_percent:.0f}%)"
    available = f"{_size(machine.memory_available)} of {_size(machine.memory_total)} ({machine.available_percent:.0f}%)"
    rows = [
        ["Uptime", say(timedelta(seconds=machine.uptime_s))],
        ["Load (1, 5, 15 min)", f"{load} on {count(machine.cores, 'core')}"],
        ["Memory available", available],
        ["Swap used", swap if machine.swap_total else "no swap"],
        ["Killed for memory", kills],
    ]
    return table(["What", "Value"], rows)


def _disks(machine: Machine) -> str:
    rows = []
    for disk in machine.disks:
        inodes = "–" if disk.inodes_percent is None else f"{disk.inodes_percent:.0f}%"
        rows.append([disk.mount, f"{disk.used_percent:.0f}%", _size(disk.free_bytes), _size(disk.total_bytes), inodes])
    return table(["Mount", "Used", "Free", "Size", "Inodes used"], rows)


def _errors(machine: Machine) -> str:
    note = machine.notes.get("errors", "")
    if machine.errors is None:
        return note
    lines = bullets(clip(line, _LINE_CHARACTERS_MAX) for line in machine.errors)
    return f"{note}\n\n{lines}" if note else lines


def _processes(machine: Machine) -> str:
    rows = [[process.name, process.pid, process.user, _size(process.memory_bytes)] for process in machine.processes]
    zombies = f"{count(machine.zombies, 'zombie process', 'zombie processes')}."
    return f"{table(['By memory', 'Pid', 'User', 'Resident'], rows)}\n\n{zombies}"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def evidence(machine: Machine) -> list[str]:
    """The commands run and the counters read."""
    lines = [f"{disk.mount}: {disk.used_percent:.0f}% used" for disk in machine.disks]
    lines.append(f"load {machine.load[0]:.2f} {machine.load[1]:.2f} {machine.load[2]:.2f} on {machine.cores} cores")
    lines.append(f"memory available {machine.memory_available} of {machine.memory_total} bytes")
    if machine.failed_units is not None:
        lines.append(f"{' '.join(_machine.UNITS)}: {count(len(machine.failed_units), 'unit')}")
    if machine.errors is not None:
        lines.append(f"{machine.errors_source}: {count(len(machine.errors), 'line')}")
    if machine.oom_kills is not None:
        lines.append(f"/proc/vmstat oom_kill {machine.oom_kills}")
    return lines


def __getattr__(name: str) -> Any:
    # Built when uvicorn asks for it: importing a role must not start a web framework.
    if name == "app":
        return agent.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
