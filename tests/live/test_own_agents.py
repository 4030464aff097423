"""Somebody else's mesh: three agents with names of their own and another orchestrator, edited while it runs."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.live.harness import LiveMesh, exists, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def three_agents(base: int) -> dict:
    """A ring of three; the second leads. One borrows the role of `devops` by its id."""
    names = ("anna", "boss", "devops")
    return {
        "agents": {
            name: {
                "name": name.title(),
                "port": base + number,
                "responsibilities": ["monitoring"] if name == "devops" else [name],
                "buddy": names[number % 3],
            }
            for number, name in enumerate(names, start=1)
        },
        "orchestrator": "boss",
    }


@pytest.fixture
def three(mesh: LiveMesh) -> LiveMesh:
    (mesh.root / "agents/registry.json").write_text(json.dumps(three_agents(mesh.base)))
    return mesh


@pytest.mark.parametrize("flags", [(), ("--one-process",)], ids=["processes", "one-process"])
def test_three_agents_with_another_orchestrator(three: LiveMesh, flags: tuple[str, ...]) -> None:
    three.up("--tick-seconds", "0.1", *flags)
    assert {agent: three.status(agent)["watchedBy"] for agent in three.agents()} == {
        "anna": "devops",
        "boss": "anna",
        "devops": "boss",
    }
    # Policy `peers`: to the orchestrator and to one's buddy, nothing else.
    assert three.call("devops", "POST", "/task", {"title": "System Health Check"}, secret="boss")[0] == 202
    code, problem = three.call("devops", "POST", "/task", {"title": "System Health Check"}, secret="anna")
    assert code == 403 and "boss" in problem["detail"]
    until(lambda: len(list((three.root / "system/syncs").glob("*.json"))) >= 3, 30, "all three sync")


def test_adding_and_removing_an_agent_while_the_mesh_runs(three: LiveMesh, tmp_path: Path) -> None:
    three.up()
    before = {agent: three.pid(agent) for agent in three.agents()}
    role = tmp_path / "scribe.md"
    role.write_text("# The Scribe\n\nYou write things down.\n\nResponsibilities: notes, minutes\n")
    three.run("add", "scribe", "--role", str(role), "--buddy", "boss")
    until(lambda: three.healthy("scribe"), 5, "the new agent runs")
    entry = three.registry()["agents"]["scribe"]
    assert entry["name"] == "The Scribe" and entry["responsibilities"] == ["notes", "minutes"]
    until(lambda: three.status("boss")["watchedBy"] == "scribe", 2, "it watches boss")
    assert three.status("scribe")["watchedBy"] == "anna"
    three.run("pause", "scribe")

    waiting = three.run("task", "add", "System Health Check", "--to", "devops", "--blocked-by", "nothing", check=False)
    assert waiting.returncode == 1 and "nothing" in waiting.stderr
    pid = three.pid("scribe")
    three.run("remove", "scribe")
    until(lambda: not exists(pid), 8, "the removed agent ended")
    until(lambda: three.status("boss")["watchedBy"] == "anna", 2, "the ring closed")
    assert {agent: three.pid(agent) for agent in three.agents()} == before, "nobody else was restarted"
    assert "valid" in three.run("registry", "check").stdout


def test_wrong_edits_by_command_say_why_and_change_nothing(three: LiveMesh, tmp_path: Path) -> None:
    before = three.registry()
    role = tmp_path / "role.md"
    role.write_text("nothing of use\n")
    for arguments, words in (
        (("add", "Bad_Id", "--role", str(role)), "small letters"),
        (("add", "anna", "--role", str(role)), "already"),
        (("add", "new", "--role", str(tmp_path / "missing.md")), "does not exist"),
        (("add", "new", "--role", str(role)), "responsible"),
        (("add", "new", "--role", str(role), "--responsibilities", "a", "--buddy", "nobody"), "nobody"),
        (("remove", "boss"), "orchestrator"),
        (("remove", "nobody"), "nobody"),
    ):
        found = three.run(*arguments, check=False)
        assert found.returncode == 2 and words in found.stderr, (arguments, found.stderr)
        assert len(found.stderr.splitlines()) == 1
    wrong = three.run("add", "new", "--role", str(role), "--responsibilities", "a", "--runner", "crystal", check=False)
    assert wrong.returncode == 1 and "agents.new.runner.kind" in wrong.stderr
    taken = three.run(
        "add", "new", "--role", str(role), "--responsibilities", "a", "--port", str(three.base + 1), check=False
    )
    assert taken.returncode == 1 and "already the port" in taken.stderr
    assert three.registry() == before


def test_an_agent_moves_to_another_port_by_an_edit(three: LiveMesh) -> None:
    three.up()
    pid, old = three.pid("anna"), three.port("anna")
    three.edit_registry(lambda registry: registry["agents"]["anna"].update(port=three.base + 9))
    until(lambda: three.healthy("anna"), 2.5, "anna answers on the new port")
    assert three.pid("anna") == pid, "without a restart"
    refused = subprocess.run(["curl", "-s", f"localhost:{old}/health"], capture_output=True, check=False)
    assert refused.returncode == 7, "nobody listens on the old one"
    assert three.call("boss", "POST", "/wake", {"reason": "x"})[0] == 200


def test_two_agents_swap_their_ports_in_one_edit(three: LiveMesh) -> None:
    three.up()
    ports = {agent: three.port(agent) for agent in ("anna", "boss")}

    def swap(registry: dict) -> None:
        registry["agents"]["anna"]["port"], registry["agents"]["boss"]["port"] = ports["boss"], ports["anna"]

    three.edit_registry(swap)

    def swapped() -> bool:
        try:
            return all(three.call(agent, "GET", "/health")[1]["agentId"] == agent for agent in ("anna", "boss"))
        except OSError:
            return False

    until(swapped, 5, "each answers on the other's old port")


def test_a_move_to_a_taken_port_changes_nothing_but_shows(three: LiveMesh) -> None:
    three.up()
    old = three.port("anna")
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", three.base + 9))
        taken.listen()
        three.edit_registry(lambda registry: registry["agents"]["anna"].update(port=three.base + 9))

        def shown() -> bool:
            answer = subprocess.run(
                ["curl", "-s", f"localhost:{old}/health"], capture_output=True, text=True, check=False
            )
            return f"port {three.base + 9} is taken by pid" in answer.stdout and '"degraded"' in answer.stdout

        until(shown, 5, "anna still answers on the old port and says why")
