"""The whole of it, as an operator lives through it: one mesh, over real processes and sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.live.harness import CHECKOUT, EIGHT, LiveMesh, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

#: What each role is asked for, and what its report must show that only real work can know.
TITLES = {
    "chief": "Morning Standup Summary",
    "coder": "Code Review Queue",
    "sales": "Lead Follow-up",
    "finance": "Grant Deadline Check",
    "intel": "News Scan",
    "devops": "System Health Check",
    "comms": "Content Calendar Review",
    "ops": "Process Audit",
}


def test_a_mesh_lives(mesh: LiveMesh, tmp_path: Path) -> None:
    repository = clone_with_branch(tmp_path / "clone")
    mesh.edit_registry(
        lambda registry: registry["agents"]["coder"].update(settings={"repositories": [str(repository)]})
    )
    mesh.up()

    tasks_to_all_eight(mesh)
    two_killed(mesh)
    repaired(mesh)
    broken_edit(mesh)
    paused_and_resumed(mesh)
    restarted_and_nothing_lost(mesh)

    assert mesh.interrupt() == 0
    assert not any(mesh.healthy(agent) for agent in EIGHT)


def clone_with_branch(path: Path) -> Path:
    """This repository, with a branch that is not merged."""
    subprocess.run(["git", "clone", "-q", CHECKOUT, path], check=True)
    git = ["git", "-C", path, "-c", "user.name=Test", "-c", "user.email=test@localhost"]
    subprocess.run([*git, "checkout", "-q", "-b", "feature/open"], check=True)
    (path / "new-file.txt").write_text("three\nlines\nmore\n")
    subprocess.run([*git, "add", "new-file.txt"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "A change to review"], check=True)
    subprocess.run([*git, "checkout", "-q", "-"], check=True)
    return path


def tasks_to_all_eight(mesh: LiveMesh) -> None:
    given = {}
    for agent, title in TITLES.items():
        body = json.dumps({"title": title, "id": f"first-{agent}"})
        curl = ["curl", "-s", "-H", f"@{mesh.root}/operator.header", "-d", body, f"localhost:{mesh.port(agent)}/task"]
        answer = json.loads(subprocess.run(curl, capture_output=True, text=True, check=True).stdout)
        assert answer == {"accepted": True, "taskId": f"first-{agent}"}
        given[agent] = answer["taskId"]
    for agent, task_id in given.items():
        task = mesh.ended(task_id, by="ops")
        assert task["status"] == "completed", (agent, task["error"])
        assert task["result"]["evidence"], agent
        until(lambda t=task_id: mesh.bodies(t) == [f"completed/{t}"], 2, f"the body of {task_id} in one place")
    reports = {agent: mesh.task(task_id)["result"]["text"] for agent, task_id in given.items()}
    assert "feature/open" in reports["coder"] and "3" in reports["coder"]
    assert f"on {os.cpu_count()} cores" in reports["devops"]
    assert all(agent in reports["chief"] for agent in EIGHT)
    notices = list((mesh.root / "system/human/inbox").glob("*-task_complete.json"))
    assert len(notices) == 8, "the giver is told each end"


def two_killed(mesh: LiveMesh) -> None:
    before = {agent: mesh.pid(agent) for agent in EIGHT}
    for agent in ("intel", "ops"):
        os.kill(before[agent], signal.SIGKILL)
    for agent in ("intel", "ops"):
        until(lambda a=agent: mesh.pid(a) != before[a] and mesh.healthy(a), 5, f"{agent} back after kill -9")
    untouched = [agent for agent in EIGHT if agent not in ("intel", "ops")]
    assert {agent: mesh.pid(agent) for agent in untouched} == {agent: before[agent] for agent in untouched}
    assert mesh.ended(mesh.give("intel", title="News Scan"))["status"] == "completed"


def repaired(mesh: LiveMesh) -> None:
    """Chief and coder swap buddies; every agent goes by the new pairing within 2 s."""

    def change(registry: dict) -> None:
        registry["agents"]["chief"]["buddy"] = "devops"
        registry["agents"]["coder"]["buddy"] = "ops"

    mesh.edit_registry(change)
    edited = time.monotonic()
    wanted = {"chief": "devops", "coder": "ops"}
    until(lambda: all(mesh.status(a)["buddy"] == b for a, b in wanted.items()), 2.0, "the new pairing in force")
    until(lambda: mesh.status("ops")["watchedBy"] == "coder", max(0.1, 2.0 - (time.monotonic() - edited)), "watchedBy")


def broken_edit(mesh: LiveMesh) -> None:
    good = (mesh.root / "agents/registry.json").read_text()
    (mesh.root / "agents/registry.json").write_text(good.replace('"buddy": "ops"', '"buddy": "nobody"'))
    until(lambda: all(not mesh.status(a)["registry"]["ok"] for a in EIGHT), 2.0, "every agent refuses the edit")
    status = mesh.status("chief")
    problems = status["registry"]["error"]["problems"]
    assert {"agents.coder.buddy", "agents.ops"} <= {problem["key"] for problem in problems}
    assert status["buddy"] == "devops", "the last good pairing stays"
    assert "no agent is called 'nobody'" in mesh.run("status").stdout
    checked = mesh.run("registry", "check", check=False)
    assert checked.returncode == 1 and "agents.coder.buddy" in checked.stderr
    (mesh.root / "agents/registry.json").write_text(good)
    until(lambda: all(mesh.status(a)["registry"]["ok"] for a in EIGHT), 2.0, "the mended file in force")


def paused_and_resumed(mesh: LiveMesh) -> None:
    mesh.run("pause", "--all", "--reason", "test")
    until(lambda: all(mesh.status(a)["status"] == "blocked" for a in EIGHT), 2.0, "every agent paused")
    waiting = mesh.give("finance", title="Grant Deadline Check")
    mesh.call("finance", "POST", "/wake", {"reason": "test"})
    time.sleep(1.0)
    assert mesh.task(waiting)["status"] == "queued"
    mesh.run("resume", "--all")
    assert mesh.ended(waiting)["status"] == "completed"


def restarted_and_nothing_lost(mesh: LiveMesh) -> None:
    mesh.run("pause", "--all")
    until(lambda: all(mesh.status(a)["status"] == "blocked" for a in EIGHT), 2.0, "every agent paused")
    given = [mesh.give(agent, title=title) for agent, title in TITLES.items()]
    tick = json.loads((mesh.root / "system/clock.json").read_text())["tick"]
    assert mesh.interrupt() == 0
    mesh.up()
    assert all(mesh.task(task_id)["status"] == "queued" for task_id in given), "paused beyond the restart"
    mesh.run("resume")
    for task_id in given:
        assert mesh.ended(task_id)["status"] == "completed"
        until(lambda t=task_id: len(mesh.bodies(t)) == 1, 2, f"the body of {task_id} in one place")
    for agent in EIGHT:
        assert mesh.task(f"first-{agent}")["status"] == "completed"
    assert json.loads((mesh.root / "system/clock.json").read_text())["tick"] >= tick
