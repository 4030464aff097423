"""Real processes for tests: each runs a piece of Python, says `ready` on its output, and is ended for certain."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mesh.store import Store
from tests.faults.world import AGENTS

TOP = Path(__file__).resolve().parents[2]
WAIT_S = 20.0


class Worker:
    """A running piece of Python, with its output line by line."""

    def __init__(self, code: str, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(TOP)}
        command = [sys.executable, "-c", code, *arguments]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line; fails if none comes in time."""
        while b"\n" not in self._rest:
            data = self._read(WAIT_S)
            assert data, "the process ended, or said nothing in time"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def lines(self) -> list[str]:
        """Every whole line up to the end of the process; one that was cut off is left out."""
        while data := self._read(WAIT_S):
            self._rest += data
        return self._rest.decode().split("\n")[:-1]

    def expect(self, text: str) -> None:
        assert (line := self.line()) == text, line

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP, and wait until it stands still."""
        self.send(signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)

    def _read(self, wait_s: float) -> bytes:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], wait_s)
        return os.read(self.process.stdout.fileno(), 1 << 16) if readable else b""


@contextmanager
def running(code: str, *arguments: str) -> Iterator[Worker]:
    """A worker that has said `ready`; killed in the end, stopped or not."""
    worker = Worker(code, *arguments)
    try:
        worker.expect("ready")
        yield worker
    finally:
        worker.kill()
        assert worker.process.stdout is not None
        worker.process.stdout.close()


def real_root(folder: Path) -> str:
    """The folders of a root with three agents on the real disk."""
    root = str(folder / "root")
    store = Store(root)
    mail = [folder for agent in AGENTS for folder in store.layout.mail(agent).folders()]
    for path in [*store.layout.folders(), *mail]:
        store.files.make_folders(path)
    return root
