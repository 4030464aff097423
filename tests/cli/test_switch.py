"""ping, wake, pause, resume, with the mesh down."""

from __future__ import annotations

import pytest

from tests.cli.stage import Mesh, refused


def test_pause_and_resume_one(mesh: Mesh) -> None:
    assert mesh("pause", "ada", "--reason", "lunch").status == 0
    note = mesh("status", "--json").json["paused"]["ada"]
    assert (note["by"], note["reason"]) == ("human", "lunch")
    assert mesh.json("system/paused")["agents"].keys() == {"ada"}
    assert "ada" in mesh("resume", "ada").out
    assert not (mesh.root / "system" / "paused").exists()
    assert "Nothing was paused" in mesh("resume", "ada").out


def test_pause_all(mesh: Mesh) -> None:
    assert mesh("pause", "--all").status == 0
    assert mesh("pause", "bob").status == 0
    assert "--all" in refused(mesh("resume", "bob")), "one can't be resumed while all are paused together"
    assert mesh("status", "--json").json["paused"].keys() == {"*", "bob"}
    assert mesh("resume", "--all").status == 0
    assert mesh("status", "--json").json["paused"] == {}


def test_a_pause_file_made_by_hand_pauses_everybody(mesh: Mesh) -> None:
    (mesh.root / "system" / "paused").touch()
    assert mesh("status", "--json").json["paused"].keys() == {"*"}
    assert mesh("resume", "--all").status == 0
    assert not (mesh.root / "system" / "paused").exists()


@pytest.mark.parametrize("arguments", [("pause",), ("pause", "ada", "--all"), ("resume", "ada", "--all")])
def test_whom(mesh: Mesh, arguments: tuple[str, ...]) -> None:
    assert "one agent" in refused(mesh(*arguments))


@pytest.mark.parametrize("command", ["pause", "resume", "wake", "ping"])
def test_an_agent_that_is_none(mesh: Mesh, command: str) -> None:
    line = refused(mesh(command, "zoe"))
    assert "'zoe'" in line and "ada, bob, cyd" in line
    assert not (mesh.root / "system" / "paused").exists()


def test_ping_when_all_are_down(mesh: Mesh) -> None:
    done = mesh("ping", "--json")
    assert done.status == 1
    assert [(found["agentId"], found["status"]) for found in done.json] == [
        ("ada", "silent"),
        ("bob", "silent"),
        ("cyd", "silent"),
    ]
    assert mesh("ping", "ada").status == 1


def test_wake_who_is_down(mesh: Mesh) -> None:
    assert "ada can't be reached" in refused(mesh("wake", "ada"), 1)
