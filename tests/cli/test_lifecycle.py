"""init, up, down, start, stop, restart, with the mesh down."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.stage import Mesh, refused


def test_init_makes_a_root_and_doing_it_again_changes_nothing(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path / "fresh")
    done = mesh("init", "--base-port", "24000")
    assert done.status == 0 and str(mesh.root) in done.out
    registry = mesh.json("agents/registry.json")
    assert [entry["port"] for entry in registry["agents"].values()] == list(range(24001, 24009))
    for folder in ("tasks/completed", "tasks/failed", "knowledge", "system/locks", "system/human", "system/quarantine"):
        assert (mesh.root / folder).is_dir()
    assert (mesh.root / "tasks" / "templates.yaml").is_file()
    secrets = [
        mesh.root / "operator.header",
        *(mesh.root / "agents" / agent / "secret" for agent in registry["agents"]),
    ]
    for secret in secrets:
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600, secret
    assert len({secret.read_text(encoding="utf-8") for secret in secrets}) == len(secrets)
    assert stat.S_IMODE(mesh.root.stat().st_mode) == 0o700

    before = {path: path.read_bytes() for path in mesh.root.rglob("*") if path.is_file()}
    again = mesh("init")
    assert again.status == 0 and "everything was there" in again.out
    after = {path: path.read_bytes() for path in mesh.root.rglob("*") if path.is_file()}
    # What is locked is labelled with the time; nothing else may differ.
    assert {p: d for p, d in before.items() if "locks" not in p.parts} == {
        p: d for p, d in after.items() if "locks" not in p.parts
    }


def test_init_in_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    line = refused(Mesh(tmp_path / "x")("init", "--root", str(tmp_path / "file" / "root")), 1)
    assert str(tmp_path / "file" / "root") in line and "--root" in line


@pytest.mark.parametrize("port", ["0", "65530", "-5", "many"])
def test_init_with_ports_that_cannot_be(tmp_path: Path, port: str) -> None:
    line = refused(Mesh(tmp_path / "root")("init", "--base-port", port))
    assert "--base-port" in line


def test_init_keeps_a_registry_that_is_there(mesh: Mesh) -> None:
    before = mesh.json("agents/registry.json")
    assert mesh("init").status == 0
    assert mesh.json("agents/registry.json") == before
    assert mesh("init", "--base-port", "23000").status == 0
    moved = mesh.json("agents/registry.json")
    assert [entry.pop("port") for entry in moved["agents"].values()] == [23001, 23002, 23003]
    for entry in before["agents"].values():
        del entry["port"]
    assert moved == before, "only the ports were moved"


def test_a_root_that_is_none(tmp_path: Path) -> None:
    for arguments in (("status",), ("up",), ("task", "list"), ("doctor",), ("events",)):
        line = refused(Mesh(tmp_path / "nowhere")(*arguments))
        assert str(tmp_path / "nowhere") in line and "mesh init" in line


def test_the_option_comes_before_the_environment(mesh: Mesh, tmp_path: Path) -> None:
    found = Mesh(tmp_path / "nowhere")("status", "--root", str(mesh.root), "--json")
    assert found.json["root"] == str(mesh.root)


def test_down_when_nothing_is_up(mesh: Mesh) -> None:
    done = mesh("down")
    assert (done.status, done.err) == (0, "") and "not up" in done.out


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_what_needs_a_supervisor_says_so(mesh: Mesh, verb: str) -> None:
    assert "mesh up" in refused(mesh(verb, "ada"), 1)


def test_stop_keeps_an_agent_stopped(mesh: Mesh) -> None:
    assert mesh("stop", "ada", "--reason", "too loud").status == 0
    assert mesh.json("agents/ada/stopped")["reason"] == "too loud"
    [ada] = [row for row in mesh("status", "--json").json["agents"] if row["agent"] == "ada"]
    assert "stopped" in ada["note"]


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_an_agent_that_is_none(mesh: Mesh, verb: str) -> None:
    assert "'zoe'" in refused(mesh(verb, "zoe"))
    assert "AGENT" in refused(mesh(verb))


@pytest.mark.parametrize("tick", ["0", "61", "fast", "-1", "nan", "inf"])
def test_a_tick_that_cannot_be(mesh: Mesh, tick: str) -> None:
    assert "0.05 to 60 seconds" in refused(mesh("up", "--tick-seconds", tick))


def test_up_without_any_good_registry(mesh: Mesh) -> None:
    mesh.registry_file.write_text("{", encoding="utf-8")
    for good in mesh.root.rglob("*last-good*"):
        good.unlink()
    assert "not valid JSON" in refused(mesh("up"), 1)


@pytest.mark.parametrize("arguments", [("fly",), ("status", "--colour"), ("task", "fly"), ("events", "-n", "many")])
def test_bad_use(mesh: Mesh, arguments: tuple[str, ...]) -> None:
    assert "--help" in refused(mesh(*arguments))


def test_help_and_version(mesh: Mesh) -> None:
    commands = (
        "init up down start stop restart status task ping wake pause resume add remove registry limits events doctor"
    )
    shown = mesh("--help").out
    assert all(f"  {command} " in shown for command in commands.split())
    assert mesh("--version").out.startswith("mesh, version ")


def test_a_registry_that_says_nothing_is_not_emptied(mesh: Mesh) -> None:
    mesh.registry_file.write_text("", encoding="utf-8")
    done = mesh("init")
    assert done.status == 1 and "Traceback" not in done.err
    assert mesh.registry_file.read_text(encoding="utf-8") == ""
    assert json.loads(mesh("registry", "check", "--json").out)["ok"] is False
