"""A CLI session as its hooks see it: the real hook program, called as a CLI calls it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mesh.interop.hooks import run
from mesh.models.running import Session
from tests.service.stage import Mesh

PROGRAM = Path(run.__file__)


@dataclass(frozen=True)
class Heard:
    """What came of one call of the program."""

    status: int
    out: bytes
    err: bytes

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def context(self) -> str:
        return str(self.document["hookSpecificOutput"]["additionalContext"])

    @property
    def is_silent(self) -> bool:
        return (self.status, self.out, self.err) == (0, b"", b"")


async def call_program(
    path: Path, said: bytes, *, cli: str = "claude", agent: str = "ada", env: dict[str, str] | None = None
) -> Heard:
    """Run the hook program with this standard input."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(PROGRAM), cli, agent, str(path),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **(env or {})},
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(said), 20)
    assert process.returncode is not None
    return Heard(process.returncode, out, err)


@dataclass
class CliSession:
    """One session of a CLI, with hooks for an agent."""

    mesh: Mesh
    cli: str = "claude"
    id: str = "5e55-1"
    agent: str = "ada"
    cwd: str = "/somewhere"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def socket(self) -> Path:
        return self.mesh.root / "agents" / self.agent / "agent.sock"

    async def hook(self, event: str, **more: Any) -> Heard:
        said = {"session_id": self.id, "cwd": self.cwd, "hook_event_name": event, **more}
        return await call_program(self.socket, json.dumps(said).encode(), cli=self.cli, agent=self.agent, env=self.env)

    def join(self) -> None:
        session = Session(cli=self.cli, id=self.id, cwd=self.cwd)
        self.mesh.store.sessions.join(self.agent, session, list(self.mesh.roles))
