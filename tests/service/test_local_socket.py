"""The Unix socket of an agent: who may come through it as whom, and whose file it is."""

from __future__ import annotations

import asyncio
import shutil
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from mesh.errors import StoreUnavailable
from mesh.service import ports
from mesh.service.server import AgentServer
from mesh.store.socket_file import SocketFile, short_path
from mesh.store.store import Store
from tests.service.sockets import free_port, free_ports, listening
from tests.service.stage import TIMEOUT_S, Mesh, assert_problem, until


def _path(mesh: Mesh, agent: str = "ada") -> Path:
    return mesh.root / "agents" / agent / "agent.sock"


@asynccontextmanager
async def _through(path: Path, secret: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """A client of the socket, with a secret or without."""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    with short_path(str(path)) as address:
        transport = httpx.AsyncHTTPTransport(uds=address)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers, timeout=TIMEOUT_S
        ) as client:
            yield client


async def _incarnation(path: Path) -> int:
    """Who answers there."""
    async with _through(path) as client:
        return int((await client.get("/health")).json()["incarnation"])


# -- who may


async def test_who_needs_no_secret(mesh: Mesh) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"), _through(_path(mesh)) as client:
        assert (await client.get("/status")).json()["agentId"] == "ada"
        answer = await client.post("/wake", json={"from": "bob", "reason": "doorbell"})
        assert (answer.status_code, answer.json()["awake"]) == (200, True)
        await until(lambda: mesh.events("woken", "ada"))
        assert mesh.events("woken", "ada")[0]["by"] == "bob"
        given = await client.post("/task", json={"title": "Echo", "from": "dee"})
        assert given.status_code == 202
        task = mesh.task(given.json()["taskId"])
        assert (task["from"], task["via"]) == ("dee", "local")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/wake", {}),
        ("/task", {"title": "Echo"}),
        ("/buddy/ping", {}),
        ("/buddy/review", {"checkResults": {}}),
    ],
)
async def test_without_a_secret_one_says_who_one_is(mesh: Mesh, path: str, body: dict[str, Any]) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"), _through(_path(mesh)) as client:
        found = assert_problem(await client.post(path, json=body), 422, "invalid")
        assert "'from'" in found["detail"] and found["errors"][0]["field"] == "from"
        found = assert_problem(await client.post(path, json={**body, "from": "human"}), 403, "forbidden")
        assert "operator.header" in found["detail"]
        for name in ("zoe", "local", "operator"):
            assert_problem(await client.post(path, json={**body, "from": name}), 404, "unknown-agent")
        assert (await client.post(path, json={**body, "from": "dee"})).status_code < 300


async def test_without_a_secret_nothing_is_cancelled(mesh: Mesh) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"), _through(_path(mesh)) as client:
        given = await client.post("/task", json={"title": "Echo", "from": "dee", "approval": True})
        path = f"/task/{given.json()['taskId']}"
        found = assert_problem(await client.delete(path), 403, "forbidden")
        assert "secret" in found["detail"]
        async with _through(_path(mesh), mesh.secret("dee")) as dee:
            assert (await dee.delete(path)).json() == {"cancelled": True}


async def test_a_policy_holds_there_too(mesh: Mesh) -> None:
    mesh.edit(lambda document: document.update(policy="peers"))
    free_ports(mesh)
    async with listening(mesh, "ada"), _through(_path(mesh)) as client:
        assert_problem(await client.post("/task", json={"title": "Echo", "from": "bob"}), 403, "forbidden")
        assert (await client.post("/task", json={"title": "Echo", "from": "cyd"})).status_code == 202


async def test_with_a_secret_one_is_whose_it_is(mesh: Mesh) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"):
        async with _through(_path(mesh), mesh.secret("operator")) as client:
            given = await client.post("/task", json={"title": "Echo", "from": "human"})
            task = mesh.task(given.json()["taskId"])
            assert (task["from"], task["via"]) == ("human", "operator")
            assert (await client.post("/wake", json={})).status_code == 200
        async with _through(_path(mesh), mesh.secret("bob")) as client:
            assert (await client.post("/wake", json={"from": "bob"})).status_code == 200
            assert_problem(await client.post("/wake", json={"from": "dee"}), 403, "forbidden")


async def test_a_wrong_secret_is_no_missing_one(mesh: Mesh) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"):
        async with _through(_path(mesh)) as client:
            for sent in ("Bearer wrong", "Bearer", "Basic dXNlcjpwYXNz", ""):
                answer = await client.get("/status", headers={"Authorization": sent})
                assert_problem(answer, 401, "unauthenticated")


async def test_nobody_becomes_local_through_the_port(mesh: Mesh) -> None:
    """Not by what is sent either, nor after somebody came through the socket."""
    free_ports(mesh)
    forged = {"mesh.local": "true", "State": "mesh.local", "X-Forwarded-For": "unix:", "Forwarded": "for=unix"}
    async with listening(mesh, "ada") as server, _through(_path(mesh)) as local:
        port = server.service.core.registry.entry("ada").port
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            for _ in range(2):
                assert_problem(await client.get("/status", headers=forged), 401, "unauthenticated")
                assert_problem(await client.post("/wake", json={"from": "bob"}), 401, "unauthenticated")
                assert (await local.get("/status")).status_code == 200


async def test_hosts_and_bodies_are_checked_there_too(mesh: Mesh) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"), _through(_path(mesh)) as client:
        assert_problem(await client.get("/status", headers={"Host": "evil.example"}), 403, "foreign-host")
        assert_problem(await client.post("/wake", content=b"{}"), 415, "wrong-content-type")


# -- whose file it is


async def test_only_the_owner_can_open_it(mesh: Mesh) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"):
        mode = _path(mesh).lstat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    assert not _path(mesh).exists(), "a clean end leaves none"


def test_it_is_the_owners_alone_from_the_first_moment(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at between its making and its listening, which is before anybody could connect."""
    store, _ = Store.become(str(mesh.root), "ada")
    modes = []

    class Watched(socket.socket):
        def listen(self, *backlog: int) -> None:
            modes.append(stat.S_IMODE((Path(store.files.scratch) / "agent.sock.new").lstat().st_mode))
            super().listen(*backlog)

    monkeypatch.setattr(socket, "socket", Watched)
    made = SocketFile(store.files, str(_path(mesh)), 5)
    made.sock.close()
    assert modes == [0o600]


async def test_what_a_crash_left_is_replaced(mesh: Mesh) -> None:
    free_ports(mesh)
    for left_over in ("socket", "file"):
        if left_over == "socket":
            with socket.socket(socket.AF_UNIX) as sock, short_path(str(_path(mesh))) as address:
                sock.bind(address)
        else:
            _path(mesh).write_text("no socket at all", encoding="utf-8")
        async with listening(mesh, "ada") as server:
            assert await _incarnation(_path(mesh)) == server.service.core.incarnation
        assert not _path(mesh).exists()


async def test_a_deep_root(blank: Path, tmp_path: Path) -> None:
    """The address of a socket holds 107 bytes; a path may be longer."""
    root = tmp_path / "deeper" / ("x" * 120) / "root"
    shutil.copytree(blank, root)
    mesh = Mesh(root)
    free_ports(mesh)
    assert len(str(_path(mesh))) > 107
    async with listening(mesh, "ada"):
        assert await _incarnation(_path(mesh)) == 1


async def test_a_move_to_another_port_keeps_it(mesh: Mesh) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada") as server, _through(_path(mesh)) as client:
        inode = _path(mesh).lstat().st_ino
        assert (await client.get("/status")).status_code == 200
        mesh.edit(lambda document: document["agents"]["ada"].update(port=free_port()))
        await until(lambda: mesh.events("moved", "ada"))
        assert (await client.get("/status")).status_code == 200
        assert await _incarnation(_path(mesh)) == server.service.core.incarnation
        assert _path(mesh).lstat().st_ino == inode


@asynccontextmanager
async def _successor(mesh: Mesh) -> AsyncIterator[AgentServer]:
    """Another incarnation of ada, at a port of its own."""
    server = AgentServer(mesh.service("ada"), ports.bind("127.0.0.1", free_port(), "ada"))
    running = asyncio.ensure_future(server.run_until_ended())
    await until(lambda: server.started or running.done())
    yield server
    server.end()
    await running


async def test_the_newest_incarnation_owns_it(mesh: Mesh) -> None:
    free_ports(mesh)
    async with AsyncExitStack() as old:
        await old.enter_async_context(listening(mesh, "ada"))
        assert await _incarnation(_path(mesh)) == 1
        async with _successor(mesh):
            assert await _incarnation(_path(mesh)) == 2
            await old.aclose()
            assert await _incarnation(_path(mesh)) == 2, "its predecessor's end left it alone"
        assert not _path(mesh).exists()


def test_who_was_locked_out_can_neither_take_nor_remove_it(mesh: Mesh) -> None:
    """Whenever it tries: also between looking whose file it is and taking it away."""
    path = str(_path(mesh))
    old_store, _ = Store.become(str(mesh.root), "ada")
    old = SocketFile(old_store.files, path, 5)
    new_store, _ = Store.become(str(mesh.root), "ada")
    new = SocketFile(new_store.files, path, 5)
    inode = _path(mesh).lstat().st_ino
    old._inode = inode  # as if it had looked before its successor came
    old.remove()
    with pytest.raises(StoreUnavailable, match=r"agent\.sock"):
        SocketFile(old_store.files, path, 5)
    assert _path(mesh).lstat().st_ino == inode
    new.remove()
    assert not _path(mesh).exists()
    old.sock.close()
    new.sock.close()


def test_somebody_elses_file_in_its_place_stays(mesh: Mesh) -> None:
    store, _ = Store.become(str(mesh.root), "ada")
    made = SocketFile(store.files, str(_path(mesh)), 5)
    _path(mesh).unlink()
    _path(mesh).write_text("put here by hand", encoding="utf-8")
    made.remove()
    assert _path(mesh).read_text(encoding="utf-8") == "put here by hand"
    made.sock.close()


async def test_an_agent_goes_on_without(mesh: Mesh) -> None:
    """Here a folder stands in its place; it could be a file system that has no sockets."""
    free_ports(mesh)
    _path(mesh).mkdir()
    async with listening(mesh, "ada") as server:
        port = server.service.core.registry.entry("ada").port
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
        await until(lambda: mesh.events("socket_unavailable", "ada"))
        assert "agent.sock" in mesh.events("socket_unavailable", "ada")[0]["reason"]
    assert _path(mesh).is_dir()
