"""The commands as people run them: each as a process of its own, with the mesh down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.stage import TIMEOUT_S, Mesh, refused

GOOD: list[tuple[str, ...]] = [
    ("init",),
    ("status", "--json"),
    ("doctor", "--json"),
    ("limits", "--json"),
    ("limits", "ada", "--json"),
    ("events", "--json"),
    ("registry", "check", "--json"),
    ("task", "list", "--json"),
    ("pause", "ada"),
    ("pause", "--all"),
    ("resume", "--all"),
    ("stop", "ada"),
    ("down",),
    ("remove", "ada"),
]


@pytest.mark.parametrize("arguments", GOOD, ids=" ".join)
def test_a_command_that_works(mesh: Mesh, arguments: tuple[str, ...]) -> None:
    done = mesh.process(*arguments)
    assert (done.status, done.err) == (0, "")
    if arguments[-1] == "--json" and arguments[0] != "events":
        assert isinstance(done.json, dict | list)


BAD: list[tuple[tuple[str, ...], int]] = [
    (("fly",), 2),
    (("status", "--root", "/nowhere"), 2),
    (("limits", "zoe"), 2),
    (("events", "-n", "x"), 2),
    (("pause",), 2),
    (("resume", "zoe"), 2),
    (("add", "Zoe", "--role", "x.md"), 2),
    (("remove", "zoe"), 2),
    (("task", "add", "Echo"), 2),
    (("task", "show", "nothing"), 2),
    (("up", "--tick-seconds", "0"), 2),
    (("wake", "ada"), 1),
    (("restart", "ada"), 1),
]


@pytest.mark.parametrize(("arguments", "status"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_a_command_that_does_not(mesh: Mesh, arguments: tuple[str, ...], status: int) -> None:
    refused(mesh.process(*arguments), status)


def test_a_life_of_commands(mesh: Mesh, tmp_path: Path) -> None:
    role = tmp_path / "heron.md"
    role.write_text("# Heron\n\nResponsibilities: weather\n", encoding="utf-8")
    mesh.ran_once("ada", "Echo")
    assert mesh.process("add", "heron", "--role", str(role)).status == 0
    added = mesh.process("task", "add", "Echo", "--to", "ada", "--json")
    assert added.status == 0 and added.json["accepted"] is True
    assert [task["id"] for task in mesh.process("task", "list", "--json").json] == [added.json["taskId"]]
    assert mesh.process("task", "cancel", added.json["taskId"]).status == 0
    shown = mesh.process("status", "--json").json
    assert [row["agent"] for row in shown["agents"]] == ["ada", "bob", "cyd", "heron"]


def test_one_agent_that_is_to_stay_stopped_is_not_started(mesh: Mesh) -> None:
    assert mesh("stop", "ada").status == 0
    done = mesh.process("ada", module="agents")
    assert done.status == 0 and "mesh start ada" in done.err
    assert "'zoe'" in refused(mesh.process("zoe", module="agents"))


def test_a_reader_that_leaves_early_is_no_failure(mesh: Mesh) -> None:
    env = {**os.environ, "MESH_ROOT": str(mesh.root)}
    command = f"{sys.executable} -m mesh limits | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_not_text_in_the_language_of_the_terminal(mesh: Mesh) -> None:
    """Reasons and titles may be in any language, terminals needn't be."""
    assert mesh.process("pause", "ada", "--reason", "Frühstück ☕", env={"LC_ALL": "C", "PYTHONUTF8": "0"}).status == 0
    done = mesh.process("status", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    assert done.status == 0, done.err
