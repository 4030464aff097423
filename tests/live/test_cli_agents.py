"""Real CLIs as the workers of a real mesh: a task in a worktree, cancelled, gone on with, logged out, limited, told.

The model is the stub on loopback; each CLI has an empty home.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.live.clis import SHELLS, Cli, home_for, installed
from tests.live.harness import LiveMesh, until
from tests.live.stub_llm import Stub, stub

pytestmark = pytest.mark.timeout(900)

ALL = [
    *(pytest.param(name, marks=pytest.mark.live) for name in ("codex", "claude", "pi", "opencode")),
    *(pytest.param(name, marks=pytest.mark.soak) for name in ("openclaw", "aider", "goose", "gemini")),
]
WAIT_S = 240.0
KEPT = ("PATH", "LANG", "TERM", "TZ", "USER", "HOME", "TMPDIR")


@dataclass
class Team:
    mesh: LiveMesh
    cli: Cli
    llm: Stub
    home: Path

    def ended(self, task: str, wait_s: float = WAIT_S) -> dict[str, Any]:
        return self.mesh.ended(task, wait_s, by="chief")

    def runs(self) -> list[dict[str, Any]]:
        paths = sorted((self.mesh.root / "agents/coder/runs").glob("*/run.json"))
        found = []
        for path in paths:
            with contextlib.suppress(ValueError):
                found.append(json.loads(path.read_text()))
        return found

    def left(self) -> list[str]:
        """What still runs in the CLI's home."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                environment = process.environ()
                if (
                    process.status() != "zombie"
                    and environment.get("HOME") == str(self.home)
                    and "MESH_RUN" in environment
                ):
                    found.append(" ".join(process.cmdline())[:80])
        return found


def repository(folder: Path) -> Path:
    folder.mkdir()
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    (folder / "a.txt").write_text("one\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True, capture_output=True)
    for name, value in (("user.name", "T"), ("user.email", "t@example.org")):
        subprocess.run(["git", "config", name, value], cwd=folder, check=True)
    return folder


@contextlib.contextmanager
def team(mesh: LiveMesh, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """coder works with the CLI in a repository; the rest of the mesh is as shipped."""
    cli = installed(name)
    with stub() as llm:
        environment: Mapping[str, str] = home_for(cli, folder, llm.url)
        own = {key: value for key, value in environment.items() if key not in KEPT}
        for key, value in own.items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("PATH", environment["PATH"])
        home = folder / "home"
        runner = {"kind": "command", "cli": name, "binary": str(cli.program), "home": str(home), "env": sorted(own)}
        repo = str(repository(folder / "repo"))
        mesh.edit_registry(lambda document: document["agents"]["coder"].update(runner=runner, repo=repo))
        mesh.up()
        yield Team(mesh, cli, llm, home)


@pytest.mark.parametrize("name", ALL)
def test_a_cli_works_for_the_mesh(mesh: LiveMesh, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with team(mesh, name, tmp_path, monkeypatch) as staff:
        _works_in_a_worktree(staff)
        _is_told(staff)
        _is_interrupted_and_goes_on(staff)
        _is_cancelled(staff)
        _is_limited(staff)


def _works_in_a_worktree(staff: Team) -> None:
    if staff.cli.name in SHELLS:
        tool, argument = SHELLS[staff.cli.name]
        command = json.dumps({argument: "echo made > made.txt && git add . && git commit -qm made"})
        ask = f"[[tool {tool} {command}]]"
    else:
        ask = "[[say looked at it]]"
    task = staff.mesh.give("coder", title="Make a file", description=ask)
    found = staff.ended(task)
    assert found["status"] == "completed", found
    [run] = staff.runs()
    if staff.cli.name in SHELLS and staff.cli.name != "openclaw":  # that one works in a workspace of its own
        assert found["result"]["branch"] == f"mesh/coder/{task}", found
        assert len(found["result"]["commits"]) == 1
        assert (Path(run["checkout"]["path"]) / "made.txt").read_text() == "made\n"
    assert found["result"]["usage"] is not None or staff.cli.name == "aider"
    assert staff.left() == []


def _is_told(staff: Team) -> None:
    """Idle: the message is shown in a turn of its own."""
    began_s = time.monotonic()
    code, answer = staff.mesh.call("coder", "POST", "/message", {"type": "note", "payload": {"text": "the fair is on"}})
    assert code == 202
    id_ = answer["id"]
    processed = staff.mesh.root / "agents/coder/processed"
    until(lambda: list(processed.glob(f"*{id_}*")), WAIT_S, "the message to be shown")
    print(f"{staff.cli.name}: sent to shown in {time.monotonic() - began_s:.1f} s")
    assert staff.llm.asked("the fair is on"), "the model really got the text"


def _is_interrupted_and_goes_on(staff: Team) -> None:
    before = len(staff.runs())
    task = staff.mesh.give("coder", title="Long work", description="[[sleep 15]] a long thing")
    until(lambda: staff.llm.asked("a long thing"), WAIT_S, "it to work")
    staff.mesh.run("pause", "coder")
    until(lambda: staff.mesh.task(task, by="chief")["status"] == "queued", 20, "it to be put back")
    until(lambda: staff.left() == [], 10, "no process to be left")
    staff.mesh.run("resume", "coder")
    # Resumed, the newest words count, and the stub's sleep is in the older ones.
    found = staff.ended(task)
    assert (found["status"], found["attempts"]) == ("completed", 1), found
    first, second = staff.runs()[before:][:2]
    if first["begun"]:
        assert (second["resumed"], second["session"]) == (True, first["session"])


def _is_cancelled(staff: Team) -> None:
    task = staff.mesh.give("coder", title="Endless", description="[[sleep 60]] an endless thing")
    until(lambda: staff.llm.asked("an endless thing"), WAIT_S, "it to work")
    assert staff.mesh.call("coder", "DELETE", f"/task/{task}")[0] == 200
    assert staff.ended(task, 30)["status"] == "cancelled"
    until(lambda: staff.left() == [], 10, "no process to be left")


def _is_limited(staff: Team) -> None:
    """A refused key parks the agent with one alert; the task waits and costs no attempt."""
    task = staff.mesh.give("coder", title="Refused", description="[[status 401]] a refused thing")
    until(lambda: "parked" in (staff.mesh.status("coder").get("reason") or ""), WAIT_S, "it to be parked")
    found = staff.mesh.task(task, by="chief")
    assert (found["status"], found["attempts"]) == ("queued", 0)
    alerts = [alert for alert in staff.mesh.status("coder")["alerts"] if alert["type"] == "runner_unfit"]
    assert [alert["count"] for alert in alerts] == [1]
    assert staff.mesh.healthy("coder"), "its daemon is fine"
