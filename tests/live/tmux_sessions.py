"""Sessions in a tmux server of the test's own: the fake TUI, and real CLIs with a stub for a model.

Everything in a session that a test does as a person goes through tmux too, past what is tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from mesh.runners.profiles import profile
from mesh.runners.tmux.doorbell import Doorbell, Pace
from mesh.runners.tmux.looks import LOOKS
from mesh.runners.tmux.pane import Pane, Tmux, find
from mesh.runners.tmux.screens import Look, Reading, State, read
from tests.live import clis
from tests.live.stub_llm import Stub

FAKE = Path(__file__).with_name("fake_tui.py")
WIDTH, HEIGHT = 110, 36
LINE = "[mesh] urgent message (fix_ci_failure) from ops. Read it with: mesh mail show {}"
#: Less patient than in earnest: nobody else uses the machine meanwhile.
QUICK = Pace(poll_s=0.2, poll_max_s=0.5, stands_s=3, clears_up_s=1.5)


def line(number: int) -> str:
    """A doorbell that no other test rings."""
    return LINE.format(f"0197a1b2-c3d4-7e5f-8a6b-{number:0>12}")


class Host:
    """A tmux server on a private socket."""

    def __init__(self) -> None:
        self.socket = f"mesh-test-{uuid.uuid4().hex[:12]}"

    def tmux(self, *arguments: str, given: str = "") -> str:
        argv = ["tmux", "-u", "-L", self.socket, "-f", "/dev/null", *arguments]
        done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout

    def start(self, name: str, argv: list[str], environment: dict[str, str], cwd: Path) -> None:
        size = ("-x", str(WIDTH), "-y", str(HEIGHT))
        variables = [f"{key}={value}" for key, value in environment.items()]
        command = shlex.join(["env", "-i", *variables, *argv])
        self.tmux("new-session", "-d", "-s", name, *size, "-c", str(cwd), f"exec {command}")

    def close(self) -> None:
        """End the server and all that runs in it, also what doesn't mind losing its terminal."""
        argv = ["tmux", "-L", self.socket]
        listed = subprocess.run(
            [*argv, "list-panes", "-a", "-F", "#{pane_pid}"], capture_output=True, text=True, timeout=20, check=False
        )
        processes = []
        for pid in map(int, listed.stdout.split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                leader = psutil.Process(pid)
                processes += [leader, *leader.children(recursive=True)]
        subprocess.run([*argv, "kill-server"], capture_output=True, timeout=20, check=False)
        _, left = psutil.wait_procs(processes, 2)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        folder = Path(os.environ.get("TMUX_TMPDIR", "/tmp")) / f"tmux-{os.getuid()}"
        (folder / self.socket).unlink(missing_ok=True)


@contextmanager
def tmux_host() -> Iterator[Host]:
    host = Host()
    try:
        yield host
    finally:
        host.close()


class Session:
    """A session that is rung; what a person does to it, and what it got."""

    def __init__(self, host: Host, name: str, look: Look) -> None:
        self.host, self.name, self.look = host, name, look

    async def doorbell(self, pace: Pace | None = None) -> Doorbell:
        return Doorbell(await self.pane(), self.look, pace=pace or QUICK)

    async def pane(self) -> Pane:
        return await find(Tmux(self.host.socket), self.name, self.look)

    async def reading(self) -> Reading:
        return read(await (await self.pane()).capture(), self.look)

    async def until(self, condition: Callable[[Reading], bool], wait_s: float = 20) -> Reading:
        """Until what is read fits, twice in a row."""
        deadline_s = asyncio.get_running_loop().time() + wait_s
        fitted = False
        while True:
            found = await self.reading()
            if fitted and condition(found):
                return found
            fitted = condition(found)
            screen = self.screen() if not fitted else ""
            assert asyncio.get_running_loop().time() < deadline_s, f"{self.name}: {found}\n{screen}"
            await asyncio.sleep(0.15)

    async def is_(self, state: State, wait_s: float = 20) -> Reading:
        return await self.until(lambda found: found.state is state, wait_s)

    def screen(self) -> str:
        """What it shows, without marks that blink."""
        return self.host.tmux("capture-pane", "-p", "-t", self.name).replace("●", " ")

    # -- as a person

    def types(self, words: str) -> None:
        self.host.tmux("send-keys", "-t", self.name, "-l", words)

    def presses(self, *keys: str) -> None:
        self.host.tmux("send-keys", "-t", self.name, *keys)

    async def clears(self) -> None:
        for _ in range(20):
            if not (await self.reading()).words:
                return
            self.presses("C-u")
            await asyncio.sleep(0.4)
        raise AssertionError(f"{self.name} holds words that can't be removed: {await self.reading()}")

    async def submits(self, words: str) -> None:
        self.host.tmux("load-buffer", "-b", "person", "-", given=words)
        self.host.tmux("paste-buffer", "-p", "-d", "-b", "person", "-t", self.name)
        await self.until(lambda found: bool(found.words))
        await asyncio.sleep(0.5)
        self.presses("Enter")

    def works(self, for_s: float) -> Awaitable[None]:
        """Make it busy."""
        return self.submits(f"[[sleep {for_s:g}]] [[say so]] work")

    async def asks(self) -> None:
        """Make it ask a person something."""
        raise NotImplementedError

    def got(self, line: str) -> int:
        """How often it was given the line as a prompt."""
        raise NotImplementedError

    async def gets(self, line: str, wait_s: float = 20) -> int:
        """How often, once it has begun with it."""
        deadline_s = asyncio.get_running_loop().time() + wait_s
        while asyncio.get_running_loop().time() < deadline_s:
            if self.got(line):
                break
            await asyncio.sleep(0.1)
        await self.rests()
        return self.got(line)

    async def rests(self) -> None:
        """Until it has been idle for a second: some look idle before they begin."""
        looks = 0
        while looks < 5:
            await self.is_(State.IDLE)
            looks += 1
            await asyncio.sleep(0.2)
            if (await self.reading()).state is not State.IDLE:
                looks = 0


class FakeSession(Session):
    def __init__(self, host: Host, name: str, look: str, folder: Path, *options: str) -> None:
        super().__init__(host, name, replace(LOOKS[look], commands=r"python[\d.]*"))
        folder.mkdir(parents=True, exist_ok=True)
        self.log, self._control = folder / f"{name}.jsonl", folder / f"{name}.sock"
        self.argv = [sys.executable, str(FAKE), "--log", str(self.log), "--control", str(self._control)]
        self.argv += ["--look", look, *options]
        self.environment = {"TERM": "screen-256color", "LANG": "C.UTF-8"}
        self.folder = folder

    def start(self) -> None:
        self.host.start(self.name, self.argv, self.environment, self.folder)

    def order(self, order: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(order.encode(), str(self._control))

    @property
    def record(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def events(self, event: str) -> list[dict[str, Any]]:
        return [fact for fact in self.record if fact["event"] == event]

    async def works(self, for_s: float) -> None:
        self.order(f"busy {for_s}")

    async def asks(self) -> None:
        self.order("ask 3")

    async def clears(self) -> None:
        self.order("clear")
        await self.until(lambda found: not found.words)

    def got(self, line: str) -> int:
        return sum(fact["text"] == line for fact in self.events("submitted"))


class RealSession(Session):
    """A real CLI in an empty home that knows only the stub."""

    QUESTIONS = {
        "codex": '[[tool exec_command {"cmd":"touch /etc/never",'
        '"sandbox_permissions":"require_escalated","justification":"test"}]]',
        "claude": '[[tool Bash {"command":"touch /etc/never","description":"test"}]]',
        "opencode": '[[tool bash {"command":"touch /etc/never","description":"test"}]]',
        "gemini": '[[tool run_shell_command {"command":"touch /etc/never","description":"test"}]]',
        "aider": "[[say never.txt\n```\nwords\n```\n]]",
    }
    ARGUMENTS = {
        "codex": ["-s", "read-only", "-a", "on-request"],
        "claude": ["--permission-mode", "default"],
        "goose": ["session"],
        "openclaw": ["tui", "--local"],
        "aider": "--no-check-update --no-show-release-notes --analytics-disable --map-tokens 0 --no-git".split(),
    }

    def __init__(self, host: Host, cli: str, folder: Path, llm: Stub) -> None:
        super().__init__(host, cli, LOOKS[cli])
        self.llm, self._cli, self._folder = llm, cli, folder

    async def start(self) -> None:
        program = clis.installed(self._cli)
        environment = clis.home_for(program, self._folder, self.llm.url)
        work = self._folder / "work"
        work.mkdir(parents=True, exist_ok=True)
        self._settings(Path(environment["HOME"]), work)
        quiet = {key: value for key, value in profile(self._cli).environment.items() if key != "NO_COLOR"}
        more = quiet | {"GEMINI_CLI_TRUST_WORKSPACE": "true", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        more.pop("COLUMNS", None)
        argv = [str(program.program), *self.ARGUMENTS.get(self._cli, [])]
        self.host.start(self.name, argv, environment | more, work)
        await self.is_(State.IDLE, 90)
        # Some show their input box before they take anything from it.
        await self.submits("[[say ready]] hello")
        deadline_s = asyncio.get_running_loop().time() + 60
        while not self.llm.asked("hello"):
            assert asyncio.get_running_loop().time() < deadline_s, "it never asked its model"
            await asyncio.sleep(1)
            if (await self.reading()).state is State.DRAFT:
                self.presses("Enter")
        await self.rests()

    def _settings(self, home: Path, work: Path) -> None:
        def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
            document = json.loads(path.read_text())
            change(document)
            path.write_text(json.dumps(document))

        if self._cli == "claude":
            trusted = {str(work): {"hasTrustDialogAccepted": True}}
            edit(home / ".claude.json", lambda document: document.update(projects=trusted))
        if self._cli == "opencode":
            path = home / ".config/opencode/opencode.json"
            edit(path, lambda document: document.update(permission={"bash": "ask"}))

    @property
    def can_ask(self) -> bool:
        return self._cli in self.QUESTIONS

    async def asks(self) -> None:
        await self.submits(self.QUESTIONS[self._cli])

    def got(self, line: str) -> int:
        texts = [[text for role, text in one.conversation if role == "user"] for one in self.llm.requests]
        return max((sum(line in text for text in user) for user in texts), default=0)
