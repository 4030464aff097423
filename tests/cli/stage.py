"""The command line on a root of its own, with the mesh down: as a process, or quicker, inside this one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mesh.cli import _run
from mesh.cli.app import add_commands, cli

PAIRS = {"ada": "bob", "bob": "cyd", "cyd": "ada"}
TIMEOUT_S = 30


@dataclass
class Done:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[str]:
        return self.out.splitlines()


def refused(done: Done, status: int = 2) -> str:
    """That a command was refused as bad use (2), or failed (1): one line on stderr, and nothing else."""
    assert done.status == status, (done.out, done.err)
    assert "Traceback" not in done.err and "a bug in the mesh" not in done.err, done.err
    lines = done.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("mesh: "), done.err
    assert done.out == ""
    return lines[0]


class Mesh:
    """A root of three agents, and `mesh` for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry_file = root / "agents" / "registry.json"

    def __call__(self, *arguments: str) -> Done:
        """Run `mesh` with these arguments in this process: the same entry, without the start of an interpreter."""
        out, err = io.StringIO(), io.StringIO()
        before = os.environ.get("MESH_ROOT")
        os.environ["MESH_ROOT"] = str(self.root)
        try:
            add_commands()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = _run(cli, list(arguments))
        finally:
            os.environ.pop("MESH_ROOT")
            if before is not None:
                os.environ["MESH_ROOT"] = before
        return Done(status, out.getvalue(), err.getvalue())

    def process(self, *arguments: str, module: str = "mesh", env: dict[str, str] | None = None) -> Done:
        """Run it as people do, as a process of its own; the root comes from the environment."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MESH_")}
        environment |= {"MESH_ROOT": str(self.root), **(env or {})}
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.root.parent,
            timeout=TIMEOUT_S,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def json(self, path: str) -> Any:
        return json.loads((self.root / path).read_text(encoding="utf-8"))

    def pairs(self) -> dict[str, str]:
        return {agent: entry["buddy"] for agent, entry in self.json("agents/registry.json")["agents"].items()}

    def ran_once(self, agent: str, *skills: str) -> None:
        """Leave the state that the agent writes when it starts, with these skills."""
        at = "2026-02-16T20:45:00.000Z"
        state = {"schemaVersion": 1, "agentId": agent, "lastActivity": at, "lastHeartbeat": at, "contextLimit": 180_000}
        state |= {"sessionId": f"{agent}-1", "incarnation": 1, "skills": list(skills)}
        state |= {"stamps": {"bootId": "another-boot", "activityS": 0.0}}
        (self.root / "agents" / agent / "state.json").write_text(json.dumps(state), encoding="utf-8")


def a_registry(base_port: int) -> dict[str, Any]:
    agents = {
        agent: {"name": agent.title(), "port": base_port + number, "responsibilities": ["chores"], "buddy": buddy}
        for number, (agent, buddy) in enumerate(PAIRS.items())
    }
    return {"schemaVersion": 1, "agents": agents, "orchestrator": "cyd"}
