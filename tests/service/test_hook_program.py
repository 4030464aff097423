"""The hook program against real agents, slow ones, broken ones and none: what it says, and that nothing breaks it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from mesh.interop.hooks.run import INPUT_BYTES_MAX, PATIENCE_S
from mesh.models.running import Session
from mesh.store.socket_file import short_path
from tests.service.hook_stage import PROGRAM, CliSession, call_program
from tests.service.mail_stage import QUICK, names, processed, send
from tests.service.sockets import free_ports, listening
from tests.service.stage import Mesh, until

SAID = json.dumps({"session_id": "s", "cwd": "/", "hook_event_name": "PostToolUse"}).encode()
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def serving(path: Path, serve: Serve) -> AsyncIterator[None]:
    """Somebody else at the agent's socket."""
    path.parent.mkdir(parents=True, exist_ok=True)
    busy: set[asyncio.Task[Any]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy.add(task)
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    with short_path(str(path)) as address:
        server = await asyncio.start_unix_server(served, address)
        try:
            yield
        finally:
            server.close()
            await asyncio.wait_for(asyncio.gather(*busy, return_exceptions=True), 5)


async def test_a_message_is_said_once_and_counts_as_shown(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    free_ports(mesh)
    session = CliSession(mesh)
    session.join()
    async with listening(mesh, "ada"):
        assert (await session.hook("PostToolUse", tool_name="Bash")).is_silent
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hellö wörld"}, priority="urgent")
        await until(lambda: mesh.events("mail_delivered", "ada"))
        heard = await session.hook("PostToolUse", tool_name="Bash")
        assert heard.status == 0 and heard.err == b""
        assert heard.document["hookSpecificOutput"]["hookEventName"] == "PostToolUse"
        assert "hellö wörld" in heard.context and f"id: {id_}" in heard.context
        assert (await processed(mesh, "ada", id_))["handling"]["shownAt"]
        assert (await session.hook("PostToolUse", tool_name="Bash")).is_silent


async def test_who_started_the_session_says_whose_it_is(mesh: Mesh) -> None:
    """Hooks are installed for one agent of the home; the mesh's own runs name theirs."""
    mesh.limit(**QUICK)
    free_ports(mesh)
    session = CliSession(mesh, agent="ada", env={"MESH_AGENT": "bob"})
    mesh.store.sessions.join("bob", Session(cli=session.cli, id=session.id), ["bob"])
    async with listening(mesh, "bob"):
        await send(mesh, "ada", "bob", "note", payload={"text": "for bob"}, priority="urgent")
        await until(lambda: mesh.events("mail_delivered", "bob"))
        assert "for bob" in (await session.hook("UserPromptSubmit")).context


async def test_no_mesh(tmp_path: Path) -> None:
    assert (await call_program(tmp_path / "agents" / "ada" / "agent.sock", SAID)).is_silent
    left = tmp_path / "left.sock"
    async with serving(left, _never):
        pass
    assert left.exists() and (await call_program(left, SAID)).is_silent, "a socket that nobody listens at"
    plain = tmp_path / "file"
    plain.write_text("no socket")
    assert (await call_program(plain, SAID)).is_silent


async def _never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("serve", [_never, _drip])
async def test_a_slow_mesh(tmp_path: Path, serve: Serve) -> None:
    path = tmp_path / "agent.sock"
    async with serving(path, serve):
        began_s = time.monotonic()
        assert (await call_program(path, SAID)).is_silent
        assert PATIENCE_S <= time.monotonic() - began_s < PATIENCE_S + 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\n{}",
        b"\xff\xfe" * 1000,
    ],
)
async def test_a_broken_mesh(tmp_path: Path, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    path = tmp_path / "agent.sock"
    async with serving(path, serve):
        assert (await call_program(path, SAID)).is_silent


async def test_what_it_sends(tmp_path: Path) -> None:
    """The CLI's bytes as they are, and word of what it wrote, on one connection."""
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        got.append(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nMesh-Token: t0k\r\n\r\n\x00\xffbytes")
        got.append(await reader.read())

    path = tmp_path / ("long-" * 20) / "agent.sock"
    async with serving(path, serve):
        heard = await call_program(path, b'\xff{"not": json', env={"MESH_AGENT": "ada", "MESH_RUN": "r 1&x"})
        await until(lambda: len(got) == 2)
    assert heard.out == b"\x00\xffbytes" and heard.status == 0
    assert got[0].startswith(b"POST /hook?cli=claude&waitS=1.0&cut=0&run=r1x HTTP/1.1\r\nHost: localhost\r\n")
    assert got[0].endswith(b'\r\n\r\n\xff{"not": json')
    assert got[1].startswith(b"POST /hook/shown?token=t0k HTTP/1.1\r\n")


async def test_huge_input_is_taken_whole_and_sent_in_part(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    free_ports(mesh)
    session = CliSession(mesh)
    session.join()
    async with listening(mesh, "ada"):
        await send(mesh, "bob", "ada", "note", payload={"text": "found me"}, priority="urgent")
        await until(lambda: mesh.events("mail_delivered", "ada"))
        heard = await session.hook("PostToolUse", tool_response={"stdout": "x" * (20 * INPUT_BYTES_MAX)})
        assert "found me" in heard.context


@pytest.mark.parametrize(
    "said", [b"", b"garbage", b"[]", b'{"hook_event_name": 3}', b"\xff\xfe", b"[" * 100_000, b"null"]
)
async def test_garbage_input(mesh: Mesh, said: bytes) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"):
        assert (await call_program(CliSession(mesh).socket, said)).is_silent


async def test_input_that_never_ends(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            "python3", "-I", "-S", str(PROGRAM), "claude", "ada", str(tmp_path / "no.sock"),
            stdin=reading, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S + 3)
        assert (process.returncode, out, err) == (0, b"", b"")
    finally:
        os.close(reading)
        os.close(writing)


async def test_nobody_reads_what_it_writes(mesh: Mesh) -> None:
    """A CLI that was killed meanwhile: the mail isn't taken for shown."""
    mesh.limit(**QUICK)
    free_ports(mesh)
    session = CliSession(mesh)
    session.join()
    async with listening(mesh, "ada"):
        await send(mesh, "bob", "ada", "note", payload={"text": "lost"}, priority="urgent")
        await until(lambda: mesh.events("mail_delivered", "ada"))
        said = json.dumps({"session_id": session.id, "hook_event_name": "PostToolUse"}).encode()
        reading, writing = os.pipe()
        os.close(reading)
        process = await asyncio.create_subprocess_exec(
            "python3", "-I", "-S", str(PROGRAM), "claude", "ada", str(session.socket),
            stdin=asyncio.subprocess.PIPE, stdout=writing, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        os.close(writing)
        _, err = await asyncio.wait_for(process.communicate(said), 10)
        assert (process.returncode, err) == (0, b"")
        await until(lambda: mesh.events("mail_uncertain", "ada"), 10)
        assert not mesh.events("mail_shown", "ada") and len(names(mesh, "ada")) == 1
