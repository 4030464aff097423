"""join and leave, with the mesh down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import Mesh, refused


def test_join_and_leave(mesh: Mesh, tmp_path: Path) -> None:
    done = mesh("join", "ada", "--cli", "claude", "--session", "s-1", "--cwd", str(tmp_path))
    assert done.status == 0 and "speaks for ada" in done.out and "mesh hook install claude --agent ada" in done.out
    session = mesh.json("agents/ada/session.json")
    assert (session["cli"], session["id"], session["cwd"], session["joined"]) == ("claude", "s-1", str(tmp_path), True)
    assert session["since"].endswith("Z")
    line = next(agent for agent in mesh("status", "--json").json["agents"] if agent["agent"] == "ada")
    assert line["session"] == {
        "cli": "claude", "id": "s-1", "joined": True, "busy": False, "seenFor": None, "seenAgeS": None
    }  # fmt: skip
    assert "claude session joined, not heard yet" in mesh("status").out
    left = mesh("leave", "ada", "--json").json
    assert left["session"]["id"] == "s-1" and not (mesh.root / "agents/ada/session.json").exists()
    assert "No session was joined" in mesh("leave", "ada").out


def test_again_is_harmless(mesh: Mesh) -> None:
    for _ in range(2):
        assert mesh("join", "ada", "--cli", "codex", "--session", "s-1", "--json").json["session"]["joined"] is True


def test_one_session_speaks_for_one_agent(mesh: Mesh) -> None:
    mesh("join", "ada", "--cli", "claude", "--session", "s-1")
    told = refused(mesh("join", "bob", "--cli", "claude", "--session", "s-1"), 1)
    assert "is ada's already" in told and "mesh leave ada" in told
    assert not (mesh.root / "agents/bob/session.json").exists()
    told = refused(mesh("join", "ada", "--cli", "claude", "--session", "s-2"), 1)
    assert "bound to claude session s-1 already" in told and "mesh leave ada" in told
    assert mesh("join", "bob", "--cli", "codex", "--session", "s-1").status == 0, "another CLI's ids are its own"


def test_the_hooks_are_there(mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    mesh("hook", "install", "claude", "--agent", "ada")
    assert mesh("join", "ada", "--cli", "claude", "--session", "s", "--json").json["notes"] == []
    mesh("leave", "ada")
    (tmp_path / "project").mkdir()
    mesh("hook", "uninstall", "claude", "--agent", "ada")
    mesh("hook", "install", "claude", "--agent", "ada", "--project", str(tmp_path / "project"))
    joined = mesh("join", "ada", "--cli", "claude", "--session", "s", "--cwd", str(tmp_path / "project"), "--json")
    assert joined.json["notes"] == []


def test_what_is_no_session(mesh: Mesh) -> None:
    told = refused(mesh("join", "zoe", "--cli", "claude", "--session", "s"))
    assert "'zoe'" in told and "ada, bob, cyd" in told
    assert "'zoe'" in refused(mesh("leave", "zoe"))
    assert "--session ID" in refused(mesh("join", "ada", "--cli", "claude"))
    assert "no session's id" in refused(mesh("join", "ada", "--cli", "claude", "--session", "a\nb"))
    assert "no session's id" in refused(mesh("join", "ada", "--cli", "claude", "--session", ""))
    assert "vim" in refused(mesh("join", "ada", "--cli", "vim", "--session", "s"))
    assert "--cli" in refused(mesh("join", "ada", "--session", "s"))
