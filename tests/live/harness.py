"""A real mesh for tests: the installed `mesh` command, real processes, files and sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
MESH = CHECKOUT / ".venv" / "bin" / "mesh"
PYTHON = CHECKOUT / ".venv" / "bin" / "python"
EIGHT = ("chief", "coder", "sales", "finance", "intel", "devops", "comms", "ops")


def until(condition: Callable[[], Any], wait_s: float, what: str) -> Any:
    """Wait for a condition; fail, saying what was waited for, when time is up. Returns what it returned."""
    deadline = time.monotonic() + wait_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {wait_s} s: {what}"
        time.sleep(0.03)


def free_base_port(count: int = 10) -> int:
    """A base port above which `count` ports are free."""
    start = 20_000 + (os.getpid() * 53) % 20_000
    for base in range(start, 60_000, 53):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base + 1, base + 1 + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise AssertionError("no free block of ports")


class LiveMesh:
    """One mesh on a root of its own. Everything it starts ends with the test."""

    def __init__(self, root: Path, base_port: int | None = None) -> None:
        self.root = root
        self.base = base_port or free_base_port()
        self.up_process: subprocess.Popen[str] | None = None

    # -- the command line

    def run(self, *arguments: str, check: bool = True, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """Run `mesh …` to its end."""
        found = subprocess.run(
            [MESH, *arguments], env=self.environment(), capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check:
            assert found.returncode == 0, (arguments, found.returncode, found.stdout, found.stderr)
        return found

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MESH_")}
        return {**kept, "MESH_ROOT": str(self.root)}

    # -- life

    def init(self) -> None:
        self.run("init", "--base-port", str(self.base))

    def up(self, *flags: str, wait_s: float = 15) -> None:
        """`mesh up` in a session of its own, until every agent is healthy."""
        self.start(*flags)
        until(lambda: all(self.healthy(agent) for agent in self.agents()), wait_s, "every agent healthy")

    def start(self, *flags: str) -> subprocess.Popen[str]:
        assert self.up_process is None or self.up_process.poll() is not None
        out = open(self.root.parent / "up.out", "a")
        self.up_process = subprocess.Popen(
            [MESH, "up", *flags],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            text=True,
            start_new_session=True,
        )
        out.close()
        return self.up_process

    def interrupt(self, wait_s: float = 15) -> int:
        """Ctrl-C, and wait for the end; returns the exit status."""
        assert self.up_process is not None
        self.up_process.send_signal(signal.SIGINT)
        return self.up_process.wait(wait_s)

    def output(self) -> str:
        return (self.root.parent / "up.out").read_text()

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        pids = [process["pid"] for process in self.processes().values() if process]
        if self.up_process is not None and self.up_process.poll() is None:
            self.up_process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.up_process.wait(12)
            self.up_process.kill()
        else:
            self.run("down", check=False)
        for pid in pids:
            if title(pid).startswith("mesh: "):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # -- looking

    def registry(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "agents/registry.json").read_text())
        return found

    def edit_registry(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Edit it as an editor does: a new file in its place."""
        document = self.registry()
        change(document)
        new = self.root / "agents/registry.json.new"
        new.write_text(json.dumps(document, indent=2))
        new.rename(self.root / "agents/registry.json")

    def agents(self) -> list[str]:
        return list(self.registry()["agents"])

    def port(self, agent: str) -> int:
        return int(self.registry()["agents"][agent]["port"])

    def processes(self) -> dict[str, dict[str, Any] | None]:
        """Each agent's present incarnation as recorded."""
        return {agent: self.process(agent) for agent in self.agents()}

    def process(self, agent: str) -> dict[str, Any] | None:
        runs = [path for path in (self.root / "agents" / agent / "run").glob("*") if path.name.isdigit()]
        try:
            newest = max(runs, key=lambda path: int(path.name))
            found: dict[str, Any] = json.loads((newest / "process.json").read_text())
        except (OSError, ValueError):
            return None
        return found

    def pid(self, agent: str) -> int:
        # An incarnation's folder is there a moment before the file that names its process.
        found = until(lambda: self.process(agent), 5, f"{agent}'s process")
        return int(found["pid"])

    def healthy(self, agent: str) -> bool:
        try:
            return self.call(agent, "GET", "/health", secret=None)[0] == 200
        except OSError:
            return False

    def call(
        self, agent: str, method: str, path: str, body: Any = None, secret: str | None = "operator"
    ) -> tuple[int, Any]:
        """One HTTP call; returns status and JSON."""
        headers = {"Content-Type": "application/json"}
        if secret == "operator":
            header = (self.root / "operator.header").read_text().splitlines()[0]
            headers["Authorization"] = header.partition(": ")[2]
        elif secret is not None:
            own = (self.root / "agents" / secret / "secret").read_text().strip()
            headers["Authorization"] = f"Bearer {own}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port(agent), timeout=10)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def status(self, agent: str) -> dict[str, Any]:
        code, found = self.call(agent, "GET", "/status")
        assert code == 200
        return dict(found)

    def give(self, agent: str, **body: Any) -> str:
        code, answer = self.call(agent, "POST", "/task", body)
        assert code == 202, answer
        return str(answer["taskId"])

    def task(self, task_id: str, by: str | None = None) -> dict[str, Any]:
        code, found = self.call(by or self.agents()[0], "GET", f"/task/{task_id}")
        assert code == 200, found
        return dict(found)

    def ended(self, task_id: str, wait_s: float = 20, by: str | None = None) -> dict[str, Any]:
        """The task, once it has ended."""
        waiting = ("queued", "working", "blocked")
        return dict(
            until(
                lambda: (found := self.task(task_id, by))["status"] not in waiting and found,
                wait_s,
                f"the end of {task_id}",
            )
        )

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.root / "system/events.log").read_text().splitlines()]

    def bodies(self, task_id: str) -> list[str]:
        """The files in which the task's body lies."""
        found = [f"{folder}/{task_id}" for folder in ("completed", "failed")]
        places = [place for place in found if (self.root / "tasks" / f"{place}.json").exists()]
        for path in (
            self.root / "tasks/queue.json",
            self.root / "tasks/active.json",
            *self.root.glob("agents/*/inbox.json"),
        ):
            if path.exists() and any(task["id"] == task_id for task in json.loads(path.read_text())["tasks"]):
                places.append(str(path.relative_to(self.root)))
        return places


def title(pid: int) -> str:
    """How the process calls itself in `ps`."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def exists(pid: int) -> bool:
    """Whether the process runs (a zombie doesn't)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextlib.contextmanager
def live_mesh() -> Iterator[LiveMesh]:
    """An initialised mesh on a root beside the checkout's own files, where disks are real."""
    folder = Path(tempfile.mkdtemp(prefix=".live-", dir=CHECKOUT))
    mesh = LiveMesh(folder / "root")
    try:
        mesh.init()
        yield mesh
    finally:
        try:
            mesh.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
