"""What a skill gets to work with: settings, the others' states, programs and pages."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from mesh.errors import SkillInputError
from mesh.models import Task
from mesh.service.skill_context import SkillContext
from tests.service.stage import Mesh, until

AT = "2026-02-16T20:45:00.000Z"
PYTHON = sys.executable


def context_of(mesh: Mesh, progress: list[float] | None = None, **task: Any) -> SkillContext:
    given = {"id": "t", "title": "x", "owner": "ada", "from": "human", "createdAt": AT, "updatedAt": AT}
    noted = progress if progress is not None else []
    registry = mesh.store.registry.check()
    return SkillContext(mesh.store, registry, "ada", Task.model_validate({**given, **task}), noted.append)


def test_settings_come_from_the_task_then_the_registry(mesh: Mesh) -> None:
    mesh.edit(lambda document: document["agents"]["ada"].update(settings={"days": 7, "feeds": ["a"]}))
    context = context_of(mesh, input={"days": 3})
    assert (context.setting("days", int, 1), context.setting("feeds", list, [])) == (3, ["a"])
    assert context.setting("other", str, "default") == "default"
    with pytest.raises(SkillInputError, match=r"days must be a text, not 3"):
        context.setting("days", str, "")


def test_now_is_in_the_registrys_time_zone(mesh: Mesh) -> None:
    mesh.edit(lambda document: document.update(timezone="Asia/Kolkata"))
    assert str(context_of(mesh).now.utcoffset()) == "5:30:00"


def test_progress_stays_between_0_and_1(mesh: Mesh) -> None:
    noted: list[float] = []
    context = context_of(mesh, noted)
    for share in (-1, 0.5, 7):
        context.progress(share)
    assert noted == [0.0, 0.5, 1.0]


def test_a_state_that_is_missing_or_damaged_is_none(mesh: Mesh) -> None:
    context = context_of(mesh)
    assert context.state("bob") is None and context.beat_age_s("bob") is None
    (mesh.root / "agents/bob/state.json").write_text('{"schemaVersion": 99}', encoding="utf-8")
    assert context.state("bob") is None


async def test_a_program_and_what_it_printed(mesh: Mesh, monkeypatch: Any) -> None:
    monkeypatch.setenv("MESH_TEST_SECRET", "hidden")
    code = "import os,sys; print(sys.stdin.read()); print('MESH_TEST_SECRET' in os.environ); sys.exit(3)"
    found = await context_of(mesh).run([PYTHON, "-c", code], stdin=b"in", cwd="/")
    assert (found.status, found.stdout, found.stderr) == (3, "in\nFalse\n", "")


async def test_a_program_that_is_not_there(mesh: Mesh) -> None:
    with pytest.raises(SkillInputError, match="no-such-program"):
        await context_of(mesh).run(["no-such-program"])


#: A program that starts another, tells its pid, and waits.
PARENT = (
    "import subprocess,sys,time; c=subprocess.Popen([sys.executable,'-c','import time; time.sleep(600)']); "
    "print(c.pid, file=open(sys.argv[1],'w'), flush=True); time.sleep(600)"
)


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _written(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


async def _child(file: Path) -> int:
    return int(await until(lambda: _written(file)))


@pytest.mark.parametrize("how", ["time-out", "cancelled"])
async def test_no_program_outlives_its_skill(mesh: Mesh, tmp_path: Path, how: str) -> None:
    file = tmp_path / "pid"
    argv = [PYTHON, "-c", PARENT, str(file)]
    running = asyncio.ensure_future(context_of(mesh).run(argv, timeout_s=1.0 if how == "time-out" else 60.0))
    child = await _child(file)
    if how == "cancelled":
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        with pytest.raises(TimeoutError, match="longer than 1 s"):
            await running
    await until(lambda: _gone(child))
    await until(lambda: not psutil.Process().children())  # the program itself was seen off, too


async def test_a_page(mesh: Mesh) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        status, body = (404, b"no") if path == b"/missing" else (200, b"x" * 1000)
        head = f"HTTP/1.1 {status} S\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        context = context_of(mesh)
        assert await context.fetch(f"{base}/page") == b"x" * 1000
        with pytest.raises(SkillInputError, match="the server answered 404"):
            await context.fetch(f"{base}/missing")
        with pytest.raises(SkillInputError, match="larger than 10 bytes"):
            await context.fetch(f"{base}/page", bytes_max=10)
    with pytest.raises(SkillInputError, match=r"127\.0\.0\.1"):
        await context.fetch(f"{base}/page")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "/etc/passwd", "", "gopher://x", "http//a"])
async def test_what_is_no_page(mesh: Mesh, url: str) -> None:
    with pytest.raises(SkillInputError, match="not an http or https address"):
        await context_of(mesh).fetch(url)


async def test_a_page_that_never_comes(mesh: Mesh) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with pytest.raises(SkillInputError, match="Timeout"):
            await context_of(mesh).fetch(f"http://127.0.0.1:{mute.getsockname()[1]}/", timeout_s=0.2)


@pytest.mark.parametrize("url", ["http://[::1", "http://a:99999999/", "http://", "http://exa mple/"])
async def test_an_address_that_cannot_be_read(mesh: Mesh, url: str) -> None:
    """It is the input that is wrong: told as such, not tried three times."""
    with pytest.raises(SkillInputError):
        await context_of(mesh).fetch(url, timeout_s=1.0)
