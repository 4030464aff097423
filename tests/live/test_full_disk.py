"""A real full disk: a small file system of the test's own, filled to the last block, then freed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.harness import EIGHT, LiveMesh, exists, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LiveMesh]:
    """A mesh on a file system of 24 MB."""
    where = tmp_path / "small"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", where], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    mesh = LiveMesh(where / "root")
    try:
        mesh.init()
        mesh.edit_registry(lambda registry: registry["limits"].update(diskFreeMinMb=4))
        yield mesh
    finally:
        mesh.end()
        subprocess.run(["umount", "-l", where], check=True)


def fill(path: Path) -> None:
    """Write until nothing fits any more."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_nothing_new_starts_on_a_full_disk_nothing_is_damaged_and_it_recovers(small: LiveMesh) -> None:
    small.up()
    done = small.give("devops", title="System Health Check")
    assert small.ended(done)["status"] == "completed"
    ballast = small.root.parent / "ballast"
    fill(ballast)

    def degraded() -> bool:
        code, health = small.call("finance", "GET", "/health")
        return code == 200 and health["status"] == "degraded" and "disk" in health["reasons"][0]

    until(degraded, 10, "/health says so")
    code, problem = small.call("finance", "POST", "/task", {"title": "Grant Deadline Check", "id": "later"})
    assert code == 507 and problem["accepted"] is False
    assert small.call("finance", "GET", "/task/later")[0] == 404, "refused is refused"
    shown = small.run("status", check=False)
    assert shown.returncode == 0, shown.stderr
    assert all(small.healthy(agent) for agent in EIGHT), "every agent lives on"
    beats = [(small.root / "agents" / agent / "beat").read_bytes() for agent in EIGHT]
    until(
        lambda: all((small.root / "agents" / a / "beat").read_bytes() != b for a, b in zip(EIGHT, beats, strict=True)),
        4,
        "and beats",
    )

    os.unlink(ballast)
    until(lambda: small.call("finance", "GET", "/health")[1]["status"] == "healthy", 10, "recovered by itself")
    task_id = small.give("finance", title="Grant Deadline Check", id="later")
    assert small.ended(task_id)["status"] == "completed"
    assert small.task(done)["status"] == "completed"
    assert not list((small.root / "system/quarantine").iterdir()), "nothing was damaged"


@pytest.mark.parametrize("flags", [(), ("--one-process",)], ids=["processes", "one-process"])
def test_a_detached_mesh_outlives_a_full_disk_and_who_dies_meanwhile_comes_back(
    small: LiveMesh, flags: tuple[str, ...]
) -> None:
    """Its own output lies on the full disk, too."""
    small.run("up", "-d", *flags)
    by = small.json("status")["supervisor"]["pid"]
    ballast = small.root.parent / "ballast"
    fill(ballast)
    with contextlib.suppress(OSError), (small.root / "system/mesh.log").open("ab", buffering=0) as log:
        log.write(b"x" * 8192)
    if flags:
        small.run("restart", "sales", check=False)  # one process: only this agent's service can begin anew
    else:
        os.kill(small.pid("sales"), signal.SIGKILL)
    time.sleep(4)
    assert exists(by), "the supervisor lives"
    assert all(small.healthy(agent) for agent in EIGHT if agent != "sales")
    os.unlink(ballast)
    until(lambda: small.healthy("sales"), 20, "sales is back by itself")
    until(lambda: all(small.call(a, "GET", "/health")[1]["status"] == "healthy" for a in EIGHT), 10, "all well")
    small.run("down")
