"""An agent behind its socket: start, move to another port, a port that is taken."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import httpx
import psutil
import pytest

from mesh.errors import NewerSchema, PortTaken, RegistryInvalid, UnknownAgent
from mesh.policy.healing import EXIT_PORT_TAKEN, EXIT_REFUSED
from mesh.service import ports
from mesh.service.server import exit_status, open_agent
from tests.service.sockets import free_port, free_ports, listening
from tests.service.stage import Gate, Mesh, until


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


async def _health(port: int) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://127.0.0.1:{port}/health")


async def test_an_agent_serves_until_it_is_told_to_end(mesh: Mesh) -> None:
    free_ports(mesh)
    port = mesh.store.registry.check().entry("ada").port
    async with listening(mesh, "ada"):
        assert (await _health(port)).json()["agentId"] == "ada"
    assert not _answers(port)
    assert mesh.json("agents/ada/state.json")["reason"] == "stopped"


async def test_an_edit_moves_an_agent_to_another_port(mesh: Mesh) -> None:
    free_ports(mesh)
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    old, new = mesh.store.registry.check().entry("ada").port, free_port()
    async with listening(mesh, "ada") as server:
        headers = {"Authorization": f"Bearer {mesh.secret('operator')}"}
        async with httpx.AsyncClient(headers=headers) as client:
            given = await client.post(f"http://127.0.0.1:{old}/task", json={"title": "Hold"})
        await until(lambda: gate.begun)
        mesh.edit(lambda document: document["agents"]["ada"].update(port=new))
        await until(lambda: _answers(new) and not _answers(old))
        assert (await _health(new)).json()["incarnation"] == 1, "it is the same incarnation, its work goes on"
        gate.opened.set()
        await until(lambda: mesh.task(given.json()["taskId"])["status"] == "completed")
        assert (gate.begun, server.service.core.fatal) == (1, None)
    assert not _answers(new)
    assert mesh.events("moved", "ada")[0]["port"] == new


async def test_a_move_to_a_port_that_is_taken_changes_nothing(mesh: Mesh) -> None:
    free_ports(mesh)
    old = mesh.store.registry.check().entry("ada").port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with listening(mesh, "ada"):
            mesh.edit(lambda document: document["agents"]["ada"].update(port=port))
            await until(lambda: mesh.events("move_failed", "ada"))
            assert (await _health(old)).status_code == 200
            assert str(os.getpid()) in mesh.events("move_failed", "ada")[0]["reason"]
            back = free_port()
            mesh.edit(lambda document: document["agents"]["ada"].update(port=back))
            await until(lambda: _answers(back))


def test_a_port_that_is_taken_names_the_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            ports.bind("127.0.0.1", port, "ada")
    program = psutil.Process().name()
    assert caught.value.facts == {"agentId": "ada", "port": port, "pid": os.getpid(), "program": program}
    assert f"port {port} is taken by pid {os.getpid()} ({program})" in caught.value.detail
    assert "--base-port" in caught.value.detail, "and it says what to do"
    assert exit_status(caught.value) == EXIT_PORT_TAKEN == 3


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(PortTaken, match="can't be bound"):
        ports.bind("192.0.2.1", 18801, "ada")


def test_nobody_holds_a_free_port() -> None:
    assert ports.holder(free_port()) is None


async def test_who_cannot_bind_locks_nobody_out(mesh: Mesh) -> None:
    """A second start of an agent that runs must fail before it becomes an incarnation."""
    free_ports(mesh)
    async with listening(mesh, "ada") as server:
        with pytest.raises(PortTaken):
            open_agent("ada", str(mesh.root), 60.0)
        assert mesh.store.beat("ada").incarnation == 1  # type: ignore[union-attr]
        await server.service.core.save()
        assert server.service.core.fatal is None


async def test_an_agent_without_a_module_has_a_role_file_and_no_skills(mesh: Mesh) -> None:
    free_ports(mesh)
    (mesh.root / "agents" / "dee" / "role.md").write_text("# Dee\nYou are dee.\n", encoding="utf-8")
    server = open_agent("dee", str(mesh.root), 60.0)
    assert server.service.core.role.persona == "# Dee\nYou are dee.\n"
    assert server.service.core.state.skills == []
    running = asyncio.ensure_future(server.run_until_ended())
    await until(lambda: server.started)
    server.end()
    await running


def test_an_unknown_agent_is_not_started(mesh: Mesh) -> None:
    with pytest.raises(UnknownAgent, match="'zoe'"):
        open_agent("zoe", str(mesh.root), 60.0)


async def test_what_keeps_an_agent_from_starting_is_told(mesh: Mesh) -> None:
    free_ports(mesh)
    (mesh.root / "system" / "clock.json").write_text('{"schemaVersion": 99, "tick": 5}', encoding="utf-8")
    with pytest.raises(NewerSchema, match=r"clock\.json"):
        async with listening(mesh, "ada"):
            raise AssertionError("it must not start")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PortTaken("x"), 3),
        (RegistryInvalid("x"), EXIT_REFUSED),
        (NewerSchema("x"), EXIT_REFUSED),
        (UnknownAgent("x"), 1),
    ],
)
def test_exit_statuses_tell_a_supervisor_whether_to_retry(error: Any, status: int) -> None:
    assert exit_status(error) == status


async def test_an_agent_that_was_fenced_stops_serving(mesh: Mesh) -> None:
    free_ports(mesh)
    old_port = mesh.store.registry.check().entry("ada").port
    async with listening(mesh, "ada", tick_seconds=0.2) as old:
        async with mesh.running("ada", tick_seconds=0.2):
            await until(lambda: not _answers(old_port))
            assert "newer incarnation" in str(old.service.core.fatal)
