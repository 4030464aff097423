"""The daemon is not the work: a real program goes on while its agent's daemon is killed, restarted or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.live.harness import LiveMesh, exists, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

#: Does what its prompt says in lines that begin with `!`: a shell's commands.
SHELL = {"kind": "command", "cli": "generic", "command": ["sh", "-c", "grep '^!' | cut -c2- >cmds; . ./cmds"]}


@pytest.fixture
def shell_mesh(mesh: LiveMesh) -> Iterator[LiveMesh]:
    """coder and sales work through a shell."""
    for agent in ("coder", "sales"):
        mesh.edit_registry(lambda document, agent=agent: document["agents"][agent].update(runner=SHELL))
    mesh.edit_registry(lambda document: document["limits"].update(maxRunning=4))
    yield mesh
    for run in runs(mesh, "coder") + runs(mesh, "sales"):
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.killpg(run["pid"], signal.SIGKILL)


def runs(mesh: LiveMesh, agent: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted((mesh.root / "agents" / agent / "runs").glob("*/run.json")):
        with contextlib.suppress(ValueError):
            found.append(json.loads(path.read_text()))
    return found


def started(mesh: LiveMesh, agent: str = "coder") -> dict[str, Any]:
    return dict(until(lambda: [run for run in runs(mesh, agent) if run["pid"]], 15, "a run")[-1])


def test_killed_mid_task_the_work_finishes_with_one_result(shell_mesh: LiveMesh) -> None:
    mesh = shell_mesh
    mesh.up()
    task = mesh.give("coder", title="Long", description="!sleep 4; echo survived")
    run = started(mesh)
    for _ in range(2):
        old = mesh.pid("coder")
        os.kill(old, signal.SIGKILL)
        until(lambda old=old: mesh.pid("coder") != old and mesh.healthy("coder"), 15, "a new daemon")
        assert exists(run["pid"]), "the work goes on"
    found = mesh.ended(task)
    assert (found["status"], found["result"]["text"], found["attempts"]) == ("completed", "survived", 1)
    assert len(runs(mesh, "coder")) == 1
    ends = [event for event in mesh.events() if event["event"] == "task_completed" and event["taskId"] == task]
    assert len(ends) == 1


def test_restarted_mid_task_the_work_finishes(shell_mesh: LiveMesh) -> None:
    mesh = shell_mesh
    mesh.up()
    task = mesh.give("coder", title="Long", description="!sleep 3; echo survived")
    run = started(mesh)
    old = mesh.pid("coder")
    mesh.run("restart", "coder")
    until(lambda: mesh.pid("coder") != old and mesh.healthy("coder"), 15, "a new daemon")
    assert exists(run["pid"])
    assert mesh.ended(task)["result"]["text"] == "survived"
    assert len(runs(mesh, "coder")) == 1


@pytest.mark.parametrize("flags", [(), ("--one-process",)], ids=["eight processes", "one process"])
def test_taken_down_nothing_goes_on_and_it_resumes(shell_mesh: LiveMesh, flags: tuple[str, ...]) -> None:
    mesh = shell_mesh
    mesh.up(*flags)
    once = "!test -e marker && echo went on && return 0; touch marker; sleep 300"
    task = mesh.give("coder", title="Long", description=once)
    run = started(mesh)
    until(lambda: (mesh.root / "agents/coder/work/marker").exists(), 10, "it works")
    assert mesh.interrupt() == 0
    assert not exists(run["pid"]), "nothing of the mesh runs after it was taken down"
    assert runs(mesh, "coder")[0]["stopped"] == "the mesh was taken down"
    mesh.up(*flags)
    found = mesh.ended(task)
    assert (found["result"]["text"], found["attempts"]) == ("went on", 1)


def test_a_pause_holds_though_every_daemon_hangs(shell_mesh: LiveMesh) -> None:
    """Also where only the file is there: `touch system/paused`."""
    mesh = shell_mesh
    mesh.up()
    for agent in ("coder", "sales"):
        mesh.give(agent, title="Long", description="!sleep 300")
    first = [started(mesh, agent)["pid"] for agent in ("coder", "sales")]
    daemons = [mesh.pid(agent) for agent in mesh.agents()]
    try:
        for pid in daemons:
            os.kill(pid, signal.SIGSTOP)
        began_s = time.monotonic()
        (mesh.root / "system/paused").touch()
        until(lambda: not any(exists(pid) for pid in first), 5, "the work to end")
        assert time.monotonic() - began_s < 3
    finally:
        for pid in daemons:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    mesh.run("resume", "--all")
    second = [
        until(lambda a=a: [r for r in runs(mesh, a) if r["pid"]][1:], 20, "again")[-1] for a in ("coder", "sales")
    ]
    for pid in daemons:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        mesh.run("pause", "--all")
        assert time.monotonic() - began_s < 4
        assert not any(exists(run["pid"]) for run in second), "the command itself sees to it"
    finally:
        for pid in daemons:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_stopped_agent_s_work_stops_with_it(shell_mesh: LiveMesh) -> None:
    mesh = shell_mesh
    mesh.up()
    task = mesh.give("coder", title="Long", description="!sleep 300 & sleep 300")
    run = started(mesh)
    family = [run["pid"], *(child.pid for child in psutil.Process(run["pid"]).children(recursive=True))]
    mesh.run("stop", "coder")
    until(lambda: not any(exists(pid) for pid in family), 12, "its work to end")
    assert mesh.task(task, by="chief")["status"] == "queued"
