"""add, remove, registry check, with the mesh down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import Mesh, refused


@pytest.fixture
def role(tmp_path: Path) -> Path:
    file = tmp_path / "heron.md"
    file.write_text("# The Heron\n\nResponsibilities: weather, *tides*\n\nYou watch the water.\n", encoding="utf-8")
    return file


def assert_everybody_is_watched(pairs: dict[str, str]) -> None:
    assert sorted(pairs) == sorted(pairs.values()) and all(agent != buddy for agent, buddy in pairs.items())


def test_add(mesh: Mesh, role: Path) -> None:
    highest = max(entry["port"] for entry in mesh.json("agents/registry.json")["agents"].values())
    done = mesh("add", "heron", "--role", str(role))
    assert done.status == 0, done.err
    entry = mesh.json("agents/registry.json")["agents"]["heron"]
    assert (entry["name"], entry["port"]) == ("The Heron", highest + 1)
    assert entry["responsibilities"] == ["weather", "tides"]
    assert_everybody_is_watched(mesh.pairs())
    assert (mesh.root / "agents/heron/role.md").read_text(encoding="utf-8") == role.read_text(encoding="utf-8")
    assert (mesh.root / "agents/heron/secret").is_file()
    assert mesh("registry", "check").status == 0
    assert "already" in refused(mesh("add", "heron", "--role", str(role)))


def test_add_with_everything_said(mesh: Mesh, role: Path) -> None:
    options = ("--name", "H", "--responsibilities", "a,b", "--port", "23999", "--buddy", "bob", "--runner", "skills")
    assert mesh("add", "heron", "--role", str(role), *options).status == 0
    entry = mesh.json("agents/registry.json")["agents"]["heron"]
    assert (entry["name"], entry["responsibilities"], entry["port"], entry["buddy"]) == ("H", ["a", "b"], 23999, "bob")
    assert mesh.pairs() == {"ada": "heron", "heron": "bob", "bob": "cyd", "cyd": "ada"}


REFUSED: list[tuple[list[str], str]] = [
    (["Heron"], "can't be an agent's id"),
    (["../up"], "can't be an agent's id"),
    (["human"], "reserved"),
    (["heron", "--buddy", "zoe"], "'zoe'"),
    (["heron", "--runner", "magic"], "skills"),
    (["heron", "--port", "70000"], "70000"),
    (["heron", "--port", "taken"], "port"),
]


@pytest.mark.parametrize(("arguments", "reason"), REFUSED)
def test_what_is_refused_leaves_nothing_behind(mesh: Mesh, role: Path, arguments: list[str], reason: str) -> None:
    taken = str(mesh.json("agents/registry.json")["agents"]["ada"]["port"])
    before = mesh.registry_file.read_bytes()
    folders = sorted(path.name for path in (mesh.root / "agents").iterdir())
    said = [taken if word == "taken" else word for word in arguments]
    done = mesh("add", *said, "--role", str(role))
    assert done.status in (1, 2) and reason in done.err
    assert "Traceback" not in done.err and len(done.err.strip().splitlines()) == 1
    assert mesh.registry_file.read_bytes() == before
    assert sorted(path.name for path in (mesh.root / "agents").iterdir()) == folders


def test_a_role_file_that_says_too_little(mesh: Mesh, tmp_path: Path) -> None:
    bare = tmp_path / "bare.md"
    bare.write_text("You watch the water.\n", encoding="utf-8")
    assert "--responsibilities" in refused(mesh("add", "heron", "--role", str(bare)))
    assert mesh("add", "heron", "--role", str(bare), "--responsibilities", "water").status == 0
    assert mesh.json("agents/registry.json")["agents"]["heron"]["name"] == "heron"


def test_a_role_file_that_is_none(mesh: Mesh, tmp_path: Path) -> None:
    assert "does not exist" in refused(mesh("add", "heron", "--role", str(tmp_path / "no.md")))
    assert "--role" in refused(mesh("add", "heron"))
    refused(mesh("add", "heron", "--role", str(tmp_path)), 1)


def test_remove(mesh: Mesh, role: Path) -> None:
    document = mesh.json("agents/registry.json")
    document["agents"]["bob"]["canDelegate"] = ["ada", "cyd"]
    mesh.registry_file.write_text(json.dumps(document), encoding="utf-8")
    waiting = {"id": "t1", "title": "Echo", "owner": "ada", "from": "human", "createdAt": "x", "updatedAt": "x"}
    tasks = {"schemaVersion": 1, "tasks": [{**waiting, "status": "queued"}]}
    (mesh.root / "agents/ada/inbox.json").write_text(json.dumps(tasks), encoding="utf-8")
    done = mesh("remove", "ada")
    assert done.status == 0 and "1 waiting task" in done.out, done.err
    registry = mesh.json("agents/registry.json")
    assert mesh.pairs() == {"bob": "cyd", "cyd": "bob"}
    assert registry["agents"]["bob"]["canDelegate"] == ["cyd"]
    assert [task["owner"] for task in mesh.json("tasks/queue.json")["tasks"]] == ["any"]
    assert (mesh.root / "agents" / "ada").is_dir(), "its files stay"
    assert "two agents" in refused(mesh("remove", "bob"))
    assert mesh("add", "ada", "--role", str(role)).status == 0, "it may come back"


def test_what_cannot_be_removed(mesh: Mesh) -> None:
    before = mesh.registry_file.read_bytes()
    assert "orchestrator" in refused(mesh("remove", "cyd"))
    assert "'zoe'" in refused(mesh("remove", "zoe"))
    assert mesh.registry_file.read_bytes() == before


def test_an_edit_by_command_needs_a_good_registry(mesh: Mesh, role: Path) -> None:
    mesh.registry_file.write_text("{", encoding="utf-8")
    for arguments in (("add", "heron", "--role", str(role)), ("remove", "ada")):
        assert "not valid JSON" in refused(mesh(*arguments), 1)
    assert mesh.registry_file.read_text(encoding="utf-8") == "{"


def test_registry_check_says_it_before_saving(mesh: Mesh, tmp_path: Path) -> None:
    good = mesh("registry", "check")
    assert good.status == 0 and "3 agents" in good.out and "orchestrator cyd" in good.out
    assert mesh("registry", "check", "--json").json["ok"] is True

    document: dict[str, Any] = mesh.json("agents/registry.json")
    document["agents"]["ada"]["buddy"] = "bobb"
    document["agents"]["bob"]["port"] = document["agents"]["ada"]["port"]
    draft = tmp_path / "draft.json"
    draft.write_text(json.dumps(document), encoding="utf-8")
    done = mesh("registry", "check", str(draft))
    assert done.status == 1 and done.out == "" and "Traceback" not in done.err
    lines = done.err.splitlines()
    assert any("agents.ada.buddy: no agent is called 'bobb'; did you mean 'bob'?" in line for line in lines)
    assert any("agents.bob.port" in line for line in lines)
    assert all(str(draft) in line for line in lines)
    found = mesh("registry", "check", str(draft), "--json")
    assert found.status == 1 and found.json["ok"] is False
    assert {problem["key"] for problem in found.json["problems"]} >= {"agents.ada.buddy", "agents.bob.port"}


@pytest.mark.parametrize("text", ["{", '{"schemaVersion": 99}', None])
def test_registry_check_of_what_is_no_registry(mesh: Mesh, tmp_path: Path, text: str | None) -> None:
    draft = tmp_path / "draft.json"
    if text is not None:
        draft.write_text(text, encoding="utf-8")
    done = mesh("registry", "check", str(draft))
    assert done.status in (1, 2) and str(draft) in done.err and "Traceback" not in done.err
    found = mesh("registry", "check", str(draft), "--json")
    assert found.status in (1, 2)
    assert found.json["ok"] is False, "--json prints JSON whatever comes out"
