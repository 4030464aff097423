"""context: who is how full, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mesh.models.running import Session
from mesh.store import Store
from tests.cli.stage import Mesh, refused

AT = "2026-02-16T20:45:00.000Z"


def _answer(tokens: int, model: str = "claude-opus-4-5", stop: str = "end_turn", **part: Any) -> str:
    usage = {"input_tokens": 4, "cache_read_input_tokens": tokens - 104, "output_tokens": 100}
    message = {"id": "m", "model": model, "content": [part] if part else [], "stop_reason": stop, "usage": usage}
    return json.dumps({"type": "assistant", "timestamp": AT, "message": message}) + "\n"


def _bind(mesh: Mesh, agent: str, **session: Any) -> None:
    Store(str(mesh.root)).sessions.bind(agent, Session(**{"cli": "claude", "id": "s-1", "cwd": "/srv/app", **session}))


def _state(mesh: Mesh, agent: str, **more: Any) -> None:
    mesh.ran_once(agent)
    path = mesh.root / "agents" / agent / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def _registry(mesh: Mesh, **more: Any) -> None:
    document = mesh.json("agents/registry.json")
    mesh.registry_file.write_text(json.dumps({**document, **more}), encoding="utf-8")


def test_unknown_says_unknown(mesh: Mesh) -> None:
    shown = mesh("context")
    assert shown.status == 0 and shown.err == ""
    assert [line.split()[:4] for line in shown.lines()[1:]] == [
        [agent, "unknown", "-", "-"] for agent in ("ada", "bob", "cyd")
    ]
    assert "skills use no model" in shown.out
    for row in mesh("context", "--json").json:
        assert (row["tokens"], row["window"], row["percent"], row["level"]) == (None, None, None, "unknown")
    _state(mesh, "ada", contextTokens=0)
    assert mesh("context", "ada", "--json").json["tokens"] is None, "a state that knows nothing holds a 0"
    assert "ada: unknown" in mesh("context", "ada").out


@pytest.mark.parametrize(
    ("tokens", "level", "percent"),
    [(139_000, "ok", 69.5), (140_000, "warn", 70), (170_000, "compress", 85), (190_000, "critical", 95)],
)
def test_levels(mesh: Mesh, tmp_path: Path, tokens: int, level: str, percent: float) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(_answer(tokens))
    _bind(mesh, "ada", transcript=str(path))
    found = mesh("context", "ada", "--json").json
    assert (found["tokens"], found["window"], found["level"], found["percent"]) == (tokens, 200_000, level, percent)
    assert found["thresholds"] == {"warn": 0.7, "compress": 0.85, "critical": 0.95}


def test_the_explanation(mesh: Mesh, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(_answer(150_000, stop="tool_use", type="tool_use", id="t", name="Bash"))
    _bind(mesh, "ada", transcript=str(path), joined=True)
    shown = mesh("context", "ada")
    assert shown.status == 0
    assert shown.lines()[0] == "ada: 150,000 of 200,000 tokens, 75.0 %: warn"
    told = dict(
        line.strip().split(maxsplit=1) for line in shown.lines()[1:] if not line.startswith(("  as of", "  last"))
    )
    assert told["session"] == "claude s-1 (joined) in /srv/app"
    assert told["transcript"] == str(path)
    assert told["source"] == "claude transcript"
    assert "last answer in the main conversation" in told["rule"]
    assert told["window"] == "200,000, by the table of models, for anthropic/claude-opus-4-5"
    assert told["turn"] == f"waits for Bash since {AT}"
    assert told["thresholds"] == "70% warn (140,000), 85% compress (170,000), 95% critical (190,000)"
    assert "last call   input 4, cache read 149,896, cache write 0, output 100" in shown.out
    assert f"as of       {AT} (" in shown.out
    row = next(line for line in mesh("context").lines() if line.startswith("ada"))
    assert row.split()[:6] == ["ada", "150,000", "200,000", "75", "%", "warn"] and "claude s-1" in row


def test_the_registry_tells_windows_and_limits(mesh: Mesh, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(_answer(150_000, model="my-model"))
    _bind(mesh, "ada", transcript=str(path))
    found = mesh("context", "ada", "--json").json
    assert (found["tokens"], found["window"], found["percent"], found["level"]) == (150_000, None, None, "unknown")
    assert "name it in the registry's windows" in mesh("context", "ada").out
    _registry(mesh, windows={"own/my-model": 300_000}, limits={"contextWarnRatio": 0.5})
    found = mesh("context", "ada", "--json").json
    assert (found["window"], found["percent"], found["level"]) == (300_000, 50, "warn")
    assert found["windowSource"] == "the registry's windows, own/my-model"


def test_the_transcript_is_found_in_the_home(mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = tmp_path / "home/.claude/projects/-srv-app/s-1.jsonl"
    _bind(mesh, "ada")
    assert "keeps no transcript of session s-1" in mesh("context", "ada").out
    path.parent.mkdir(parents=True)
    path.write_text(_answer(1_000))
    found = mesh("context", "ada", "--json").json
    assert (found["tokens"], found["transcript"]) == (1_000, str(path))

    other = tmp_path / "other/.claude/projects/-srv-app/s-1.jsonl"
    other.parent.mkdir(parents=True)
    other.write_text(_answer(2_000))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home/.claude"))
    document = mesh.json("agents/registry.json")
    document["agents"]["ada"]["runner"] = {"kind": "command", "cli": "claude", "home": str(tmp_path / "other")}
    _registry(mesh, agents=document["agents"])
    assert mesh("context", "ada", "--json").json["tokens"] == 2_000, "a home of its own, whatever our variables say"


def test_without_a_transcript_the_state_tells(mesh: Mesh, tmp_path: Path) -> None:
    _state(mesh, "ada", contextTokens=90_000)
    found = mesh("context", "ada", "--json").json
    assert (found["tokens"], found["window"], found["percent"], found["source"]) == (90_000, 180_000, 50, "state.json")
    told = {"tokens": 120_000, "window": 150_000, "source": "model runner, last call", "at": AT, "estimated": True}
    _state(mesh, "ada", contextTokens=90_000, context=told)
    found = mesh("context", "ada", "--json").json
    assert (found["tokens"], found["window"], found["source"]) == (120_000, 150_000, "model runner, last call")
    assert found["ageS"] > 0 and found["estimated"] is True
    assert "~120,000" in mesh("context").out and "about 120,000 of 150,000" in mesh("context", "ada").out
    _bind(mesh, "ada", transcript=str(tmp_path / "gone.jsonl"))
    found = mesh("context", "ada", "--json").json
    assert found["tokens"] == 120_000 and "No such file" in found["note"]
    _state(mesh, "ada", context={"tokens": "many"})
    assert mesh("context", "ada", "--json").json["tokens"] is None


def test_a_cli_without_transcripts(mesh: Mesh) -> None:
    _bind(mesh, "ada", cli="aider", transcript="/srv/app/.aider.chat.history.md")
    assert "aider writes no transcript that tells it" in mesh("context", "ada").out


def test_what_a_transcript_says_cannot_steer_the_terminal(mesh: Mesh, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(_answer(9_000, stop="tool_use", type="tool_use", id="t", name="\x1b[2Jrm\n-rf", model="m"))
    _bind(mesh, "ada", transcript=str(path), id="s\x1b]0;x\x07")
    for done in (mesh("context"), mesh("context", "ada"), mesh("context", "--json")):
        assert done.status == 0 and "\x1b" not in done.out and "\x07" not in done.out
    assert "waits for rm -rf" in mesh("context", "ada").out


def test_bad_use(mesh: Mesh, tmp_path: Path) -> None:
    assert "'zoe'" in refused(mesh("context", "zoe"))
    assert "not a mesh's folder" in refused(mesh("context", "--root", str(tmp_path / "none")))
