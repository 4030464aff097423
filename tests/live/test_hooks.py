"""Real CLIs with the mesh's hooks installed, against a scripted model: a person's session that has joined gets its mail
while it is busy, when it stops, and with its next prompt."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from mesh.interop.cli_settings.hooks_install import HookInstaller
from mesh.models.running import Session
from tests.live.clis import Cli, home_for, installed
from tests.live.stub_llm import Stub, stub
from tests.service.mail_stage import QUICK, names, send
from tests.service.sockets import free_port, free_ports, listening
from tests.service.stage import Mesh, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
#: Starting a CLI on a busy machine takes a while.
WITHIN_S = 120.0
TOOLS = {
    "claude": ("Bash", "command"),
    "codex": ("exec_command", "cmd"),
    "gemini": ("run_shell_command", "command"),
    "opencode": ("bash", "command"),
    "pi": ("bash", "command"),
}
#: Gemini asks whether it may work in a folder; OpenCode fetches a library for whoever has plugins, and does without.
ALONE = {
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "NPM_CONFIG_REGISTRY": "http://127.0.0.1:9",
    "NPM_CONFIG_FETCH_RETRIES": "0",
}
#: What a message says that arrived, as the model sees it: a directive for the stub would steer it.
NEWS = "the-build-is-red"


def every_cli() -> list[Any]:
    slow = [pytest.param(name, marks=pytest.mark.soak) for name in ("gemini", "opencode")]
    return ["claude", "codex", "pi", *slow]


@dataclass
class Person:
    """Somebody's CLI in their own home, with hooks for ada."""

    mesh: Mesh
    cli: Cli
    llm: Stub
    folder: Path
    environment: dict[str, str]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    fresh: bool = True

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def _argv(self, prompt: str) -> list[str]:
        program = str(self.cli.program)
        match self.cli.name:
            case "claude":
                which = ["--session-id", self.id] if self.fresh else ["--resume", self.id]
                return [program, "-p", prompt, "--output-format", "json", "--allowedTools", "Bash", *which]
            case "codex":
                which = [] if self.fresh else ["resume", self.id]
                free = ["-c", 'approval_policy="never"', "-c", 'sandbox_mode="danger-full-access"']
                return [program, "exec", *which, *free, "--json", "--skip-git-repo-check", prompt]
            case "pi":
                return [program, "--mode", "json", "--session-id", self.id, "-p", prompt]
            case "gemini":
                which = ["--session-id", self.id] if self.fresh else ["-r", self.id]
                return [program, "-p", prompt, "-o", "json", "--yolo", *which]
            case _:
                return [program, "run", "--format", "json", *([] if self.fresh else ["-s", self.id])]

    async def begin(self, prompt: str) -> asyncio.subprocess.Process:
        """Give it a prompt; the process that answers it."""
        by_stdin = self.cli.name == "opencode"
        process = await asyncio.create_subprocess_exec(
            *self._argv(prompt), cwd=self.work, env=self.environment, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        if by_stdin:
            process.stdin.write(prompt.encode())
        process.stdin.close()
        self.fresh = False
        return process

    async def ask(self, prompt: str) -> str:
        """Give it a prompt and wait for the end; what it printed."""
        return await finished(await self.begin(prompt))

    def join(self) -> None:
        session = Session(cli=self.cli.name, id=self.id, cwd=str(self.work))
        self.mesh.store.sessions.join("ada", session, list(self.mesh.roles))

    def joined(self) -> Session:
        found = self.mesh.store.sessions.find("ada")
        assert found is not None
        return found


async def finished(process: asyncio.subprocess.Process) -> str:
    out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    assert process.returncode == 0, (out[-2000:], err[-2000:])
    return out.decode()


@asynccontextmanager
async def person(mesh: Mesh, name: str, folder: Path) -> AsyncIterator[Person]:
    """A person whose session has had one turn and is joined, and ada, who runs."""
    cli = installed(name)
    mesh.limit(messagesPerMinute=None, **QUICK)
    free_ports(mesh)
    with stub() as llm:
        environment = {**home_for(cli, folder, llm.url), **ALONE}
        (folder / "work").mkdir()
        done = HookInstaller(mesh.store, name, environment["HOME"], None, {}).install("ada")
        assert done.changed
        somebody = Person(mesh, cli, llm, folder, environment)
        async with listening(mesh, "ada"):
            if name in ("codex", "opencode"):  # they choose the id themselves
                lines = [json.loads(line) for line in (await somebody.ask("hello")).splitlines() if line[:1] == "{"]
                found = [line.get("thread_id") or line.get("sessionID") for line in lines]
                somebody.id = next(id_ for id_ in found if id_)
            somebody.join()
            yield somebody


@pytest.fixture
def root_mesh(tmp_path: Path) -> Mesh:
    made = Mesh(tmp_path / "root")
    made.initialise()
    return made


@pytest.mark.parametrize("name", every_cli())
async def test_busy_then_stopping_then_idle(root_mesh: Mesh, tmp_path: Path, name: str) -> None:
    mesh = root_mesh
    async with person(mesh, name, tmp_path) as somebody:
        llm = somebody.llm
        tool, argument = TOOLS[name]
        call = {argument: "touch began; while [ ! -e news ]; do sleep 0.1; done; echo worked"}
        call |= {"description": "wait"} if name == "opencode" else {}
        process = await somebody.begin(f"work [[tool {tool} {json.dumps(call)}]]")
        await until((somebody.work / "began").exists, WITHIN_S)

        # Busy: what is urgent comes with the result of the tool, the rest when it is about to stop.
        text = {"text": f"{NEWS} while it works"}
        urgent = await send(mesh, "bob", "ada", "note", payload=text, priority="urgent")
        await send(mesh, "bob", "ada", "note", payload={"text": f"{NEWS} before it stops"})
        await until(lambda: len(mesh.events("mail_delivered", "ada")) == 2, WITHIN_S)
        assert somebody.joined().busy and somebody.joined().seen_at
        (somebody.work / "news").touch()
        if name != "opencode":  # its one-prompt mode ends with the answer, whatever a plugin still wants to say
            await finished(process)
            await until(lambda: not names(mesh, "ada"))
            (first, *_), (last, *_) = llm.asked(f"{NEWS} while it works"), llm.asked(f"{NEWS} before it stops")
            assert llm.requests.index(first) < llm.requests.index(last), "two turns of the model"
        else:
            await finished(process)
            await until(lambda: mesh.events("mail_shown", "ada"))
        (asked, *_) = llm.asked(f"{NEWS} while it works")
        told = next(text for role, text in asked.conversation if f"{NEWS} while it works" in text)
        assert "<mesh-message " in told.replace("&lt;", "<") and f"id: {urgent}" in told
        assert not somebody.joined().busy

        # Idle: it comes with the next prompt.
        await send(mesh, "bob", "ada", "note", payload={"text": f"{NEWS} meanwhile"}, priority="urgent")
        await until(lambda: len(mesh.events("mail_delivered", "ada")) == 3, WITHIN_S)
        await somebody.ask("what is new?")
        assert llm.asked(f"{NEWS} meanwhile")
        shown = [event["messageId"] for event in mesh.events("mail_shown", "ada")]
        assert len(shown) == len(set(shown)) and mesh.events("mail_uncertain", "ada") == []


@pytest.mark.parametrize("name", every_cli())
async def test_a_session_starts_with_what_went_before(root_mesh: Mesh, tmp_path: Path, name: str) -> None:
    (root_mesh.root / "agents/ada/context-summary.md").write_text("I was mending the parser-of-numbers.")
    async with person(root_mesh, name, tmp_path) as somebody:
        if name in ("codex", "opencode"):
            pytest.skip("its first turn had to be before the joining")
        await somebody.ask("good morning")
        asked = somebody.llm.asked("mending the parser-of-numbers")
        assert asked and any("agent `ada`" in text for _, text in asked[0].conversation)
        assert somebody.joined().transcript if name != "opencode" else True
        state = root_mesh.store.state("ada")
        assert state is not None and state.context_tokens > 0


@pytest.mark.parametrize("name", every_cli())
async def test_a_session_goes_on_without_the_mesh(root_mesh: Mesh, tmp_path: Path, name: str) -> None:
    async with person(root_mesh, name, tmp_path) as somebody:
        pass
    with stub() as llm:
        environment = somebody.environment = {**home_for(somebody.cli, tmp_path, llm.url), **ALONE}
        HookInstaller(root_mesh.store, name, environment["HOME"], None, {}).install("ada")
        somebody.fresh = True
        tool, argument = TOOLS[name]
        call = {argument: "echo worked", **({"description": "say"} if name == "opencode" else {})}
        out = await somebody.ask(f"go on [[tool {tool} {json.dumps(call)}]]")
        assert "tool said" in out and "hook" not in out.lower().replace("hooks.json", "")


@pytest.mark.soak
async def test_opencode_served_goes_on_at_a_stop(root_mesh: Mesh, tmp_path: Path) -> None:
    """Its server, as its TUI has one, stays: there mail at a stop becomes the next prompt."""
    async with person(root_mesh, "opencode", tmp_path) as somebody:
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            str(somebody.cli.program), "serve", "--port", str(port), cwd=somebody.work, env=somebody.environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WITHIN_S) as client:
                await _until_served(client)
                prompt = {"parts": [{"type": "text", "text": "work [[sleep 3]]"}]}
                asked = await client.post(f"/session/{somebody.id}/prompt_async", json=prompt)
                assert asked.status_code == 204
                await until(lambda: somebody.joined().busy, WITHIN_S)
                id_ = await send(root_mesh, "bob", "ada", "note", payload={"text": f"{NEWS} at the stop"})
                await until(lambda: somebody.llm.asked(f"{NEWS} at the stop"), WITHIN_S)
                await until(lambda: not names(root_mesh, "ada"), WITHIN_S)
                await until(lambda: not somebody.joined().busy, WITHIN_S)
                shown = [event["messageId"] for event in root_mesh.events("mail_shown", "ada")]
                assert shown == [id_]
        finally:
            process.terminate()
            await process.wait()


async def _until_served(client: httpx.AsyncClient) -> None:
    for _ in range(int(WITHIN_S * 5)):
        with contextlib.suppress(httpx.TransportError):
            if (await client.get("/session/status")).status_code == 200:
                return
        await asyncio.sleep(0.2)
    raise AssertionError("opencode serve does not answer")
