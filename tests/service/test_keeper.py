"""Real processes: what the keeper starts outlives us, says how it ended, and leaves nobody behind when it is ended."""

from __future__ import annotations

import os
import pathlib
import secrets
import sys
import time

import psutil
import pytest

from mesh.errors import RunnerUnfit
from mesh.service import keeper
from mesh.store.incarnations import process_started
from tests.service.stage import until

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Kept:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.run = f"run-{secrets.token_hex(4)}"
        self.pid, self.started = 0, 0.0

    def start(self, *argv: str, stdin: str = "/dev/null", **environment: str) -> None:
        marked = {**ENVIRONMENT, "MESH_RUN": self.run, **environment}
        self.pid, self.started = keeper.start(str(self.folder), str(self.folder), argv, marked, stdin)

    def alive(self) -> bool:
        keeper.reap(self.pid)
        return process_started(self.pid) == self.started

    def text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def left(self) -> list[int]:
        """Pids of all that carries the run's mark."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != "zombie" and process.environ().get("MESH_RUN") == self.run:
                    found.append(process.pid)
            except (psutil.Error, OSError):
                continue
        return found

    async def end(self, grace_s: float = 2.0) -> None:
        await keeper.end(self.pid, self.started, self.run, grace_s)


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> Kept:
    return Kept(tmp_path)


async def test_output_and_exit_status_lie_in_files(kept: Kept) -> None:
    (kept.folder / "prompt").write_text("do it\n")
    kept.start("sh", "-c", "cat; echo oops >&2; exit 7", stdin=str(kept.folder / "prompt"))
    await until(lambda: not kept.alive())
    assert (kept.text("stdout"), kept.text("stderr"), kept.text("status")) == ("do it\n", "oops\n", "7\n")


async def test_arguments_arrive_as_they_are(kept: Kept) -> None:
    strange = ["a b", "$HOME", "`id`", "'", '"', "", "*", "new\nline", "ü"]
    kept.start(sys.executable, "-c", "import sys; print(sys.argv[1:])", *strange)
    await until(lambda: not kept.alive())
    assert kept.text("stdout").strip() == str(strange)


async def test_it_sees_only_the_environment_that_it_is_given(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHERS_API_KEY", "sk-secret")
    kept.start("env", OWN_API_KEY="mine")
    await until(lambda: not kept.alive())
    names = {line.partition("=")[0] for line in kept.text("stdout").splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH", "MESH_RUN", "OWN_API_KEY"}


async def test_it_is_a_session_of_its_own_with_no_open_input(kept: Kept) -> None:
    kept.start(sys.executable, "-c", "import os, sys; print(os.getsid(0), os.getpgid(0), repr(sys.stdin.read()))")
    await until(lambda: not kept.alive())
    assert kept.text("stdout").split() == [str(kept.pid), str(kept.pid), "''"]
    assert kept.pid != os.getsid(0)


async def test_ending_it_ends_all_of_it(kept: Kept) -> None:
    """A child in the group, one that ignores SIGTERM, and one that made itself a daemon."""
    script = """
import os, signal, subprocess, time
subprocess.Popen(["sleep", "300"])
subprocess.Popen(["setsid", "sleep", "300"])
subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
print("ready", flush=True)
time.sleep(300)
"""
    kept.start(sys.executable, "-c", script)
    await until(lambda: "ready" in kept.text("stdout"))
    assert len(kept.left()) >= 5
    began_s = time.monotonic()
    await kept.end(grace_s=0.5)
    assert kept.left() == []
    assert time.monotonic() - began_s < 5


async def test_what_left_its_group_ends_though_the_program_itself_is_gone(kept: Kept) -> None:
    kept.start("sh", "-c", "setsid sleep 300 & echo ready")
    await until(lambda: not kept.alive())
    assert kept.left()
    await kept.end()
    assert kept.left() == []
    assert kept.text("status") == "0\n", "how it ended stands"


async def test_another_process_with_the_pid_is_left_alone(kept: Kept) -> None:
    kept.start("sleep", "300")
    other = Kept(kept.folder)
    other.pid, other.started, other.run = kept.pid, kept.started - 100, "run-long-ago"
    await other.end(grace_s=0.2)
    assert kept.alive()
    await kept.end()


async def test_a_program_that_can_not_start_says_so_in_its_status(kept: Kept) -> None:
    kept.start(str(kept.folder / "nothing-here"))
    await until(lambda: not kept.alive())
    assert kept.text("status") == "127\n"
    assert "nothing-here" in kept.text("stderr")


async def test_a_scope_that_is_not_there_is_refused(kept: Kept) -> None:
    with pytest.raises(RunnerUnfit, match="can't be started"):
        keeper.start(str(kept.folder), "/", ["true"], ENVIRONMENT, "/dev/null", ["no-such-systemd-run"])
