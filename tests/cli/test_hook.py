"""hook install, uninstall and check: what they leave of a CLI's configuration, and what they refuse."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import Mesh, refused

JSON_CLIS = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
FILES = {
    **JSON_CLIS,
    "opencode": ".config/opencode/plugins/agent-mesh-ada.js",
    "pi": ".pi/agent/extensions/agent-mesh-ada.ts",
}
FOREIGN = {
    "env": {"KEY": "sk-secret"},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "mine.sh"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "say done", "timeout": 3}]}],
    },
    "model": "opus",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_CONFIG_DIR", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def commands(document: dict[str, Any]) -> list[str]:
    return [entry["command"] for groups in document["hooks"].values() for group in groups for entry in group["hooks"]]


@pytest.mark.parametrize("cli", FILES)
def test_into_an_empty_home_and_out_again(mesh: Mesh, home: Path, cli: str) -> None:
    where = ("--agent", "ada", "--home", str(home))
    assert mesh("hook", "check", cli, *where).status == 1
    assert mesh("hook", "install", cli, *where, "--json").json["changed"] is True
    assert (home / FILES[cli]).is_file()
    once = tree(home)
    assert mesh("hook", "install", cli, *where, "--json").json["changed"] is False
    assert tree(home) == once
    (found,) = mesh("hook", "check", cli, *where, "--json").json
    assert found["agent"] == "ada" and len(found["problems"]) == 1 and "ada doesn't answer" in found["problems"][0]
    assert mesh("hook", "uninstall", cli, *where, "--json").json["changed"] is True
    assert tree(home) == {}, "as it was, folders too"
    assert "No hooks" in mesh("hook", "uninstall", cli, *where).out


@pytest.mark.parametrize("cli", JSON_CLIS)
@pytest.mark.parametrize(
    "style", ["indent", "tabs", "compact", "crlf", "bom", "no newline", "empty", "blank", "braces"]
)
def test_a_persons_file_comes_back_byte_for_byte(mesh: Mesh, home: Path, cli: str, style: str) -> None:
    text = {
        "indent": json.dumps(FOREIGN, indent=4) + "\n",
        "tabs": json.dumps(FOREIGN, indent="\t") + "\n",
        "compact": json.dumps(FOREIGN, separators=(",", ":")),
        "crlf": json.dumps(FOREIGN, indent=2).replace("\n", "\r\n"),
        "bom": "\ufeff" + json.dumps(FOREIGN, indent=2),
        "no newline": json.dumps({"hooks": {"Stop": [], "SessionStart": []}, "a": []}, indent=2),
        "empty": "",
        "blank": " \n\n",
        "braces": "{ }",
    }[style]
    path = write(home / JSON_CLIS[cli], text)
    path.chmod(0o640)
    where = ("--home", str(home))
    assert mesh("hook", "install", cli, "--agent", "ada", *where).status == 0
    installed = path.read_text(encoding="utf-8-sig")
    document = json.loads(installed)
    assert len([c for c in commands(document) if c.startswith(f"{sys.executable} -I -S ")]) == 5
    assert ("\r\n" in path.read_bytes().decode()) == (style == "crlf")
    assert mesh("hook", "install", cli, "--agent", "bob", *where).status == 0
    assert mesh("hook", "uninstall", cli, "--agent", "ada", *where).status == 0
    assert len([c for c in commands(json.loads(path.read_text(encoding="utf-8-sig"))) if " bob " in c]) == 5
    assert mesh("hook", "uninstall", cli, *where).status == 0
    assert path.read_bytes() == text.encode() and stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("cli", JSON_CLIS)
def test_who_edited_it_meanwhile_keeps_the_edit(mesh: Mesh, home: Path, cli: str) -> None:
    path = write(home / JSON_CLIS[cli], json.dumps(FOREIGN, indent=2))
    where = ("--agent", "ada", "--home", str(home))
    mesh("hook", "install", cli, *where)
    document = json.loads(path.read_text())
    document["added"] = {"by": "hand"}
    document["hooks"]["Stop"].insert(0, {"hooks": [{"type": "command", "command": "another"}]})
    stop = "AfterAgent" if cli == "gemini" else "Stop"
    ours = document["hooks"][stop][-1]["hooks"]
    ours.insert(0, {"type": "command", "command": "beside ours"})
    path.write_text(json.dumps(document, indent=3))
    assert mesh("hook", "uninstall", cli, *where).status == 0
    left = json.loads(path.read_text())
    assert left["added"] == {"by": "hand"} and left["env"] == FOREIGN["env"]
    assert commands(left) == ["mine.sh", "another", "say done", "beside ours"]
    assert set(left["hooks"]) == {"PreToolUse", "Stop", stop}


def test_comments_stay_where_the_cli_allows_them(mesh: Mesh, home: Path) -> None:
    text = '{\n  // mine\n  "theme": "dark", /* yes */\n  "hooks": {\n    // none yet\n  },\n}\n'
    path = write(home / JSON_CLIS["gemini"], text)
    where = ("--agent", "ada", "--home", str(home))
    assert mesh("hook", "install", "gemini", *where).status == 0
    assert all(note in path.read_text() for note in ("// mine", "/* yes */", "// none yet"))
    assert mesh("hook", "uninstall", "gemini", *where).status == 0
    assert path.read_text() == text
    assert "line 2" in refused(
        mesh("hook", "install", "claude", "--home", _with(home, "claude", text), "--agent", "ada"), 1
    )


def _with(home: Path, cli: str, text: str) -> str:
    write(home / JSON_CLIS[cli], text)
    return str(home)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1,\n"b" 2}', 2),
        ('{\n"hooks": []}', 2),
        ('{"hooks": {\n\n"SessionStart": {}}}', 3),
        ('{"a": 1,\n"a": 2}', 2),
        ("[]", 1),
        ("{}\n}", 2),
    ],
)
@pytest.mark.parametrize("cli", JSON_CLIS)
def test_a_broken_file_is_left_alone(mesh: Mesh, home: Path, cli: str, text: str, line: int) -> None:
    path = write(home / JSON_CLIS[cli], text)
    for verb in ("install", "uninstall"):
        told = refused(mesh("hook", verb, cli, "--agent", "ada", "--home", str(home)), 1)
        assert f"{path}, line {line}:" in told
    assert path.read_text() == text and tree(home).keys() == {str(p.relative_to(home)) for p in home.rglob("*")}


def test_what_can_t_be_read(mesh: Mesh, home: Path) -> None:
    path = home / JSON_CLIS["claude"]
    path.parent.mkdir()
    path.write_bytes(b'{\n"a": "\xff"}')
    where = ("--agent", "ada", "--home", str(home))
    assert "line 2: not UTF-8" in refused(mesh("hook", "install", "claude", *where), 1)
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in refused(mesh("hook", "install", "claude", *where), 1)
    path.unlink()
    path.mkdir()
    assert "no regular file" in refused(mesh("hook", "install", "claude", *where), 1)


def test_a_link_is_followed_and_stays(mesh: Mesh, home: Path, tmp_path: Path) -> None:
    real = write(tmp_path / "dotfiles" / "claude.json", "{}")
    link = home / JSON_CLIS["claude"]
    link.parent.mkdir()
    link.symlink_to(real)
    where = ("--agent", "ada", "--home", str(home))
    assert mesh("hook", "install", "claude", *where).status == 0
    assert link.is_symlink() and "hooks" in json.loads(real.read_text())
    assert mesh("hook", "uninstall", "claude", *where).status == 0
    assert link.is_symlink() and real.read_text() == "{}"


def test_another_copy_s_hooks_are_brought_up_to_date_in_place(mesh: Mesh, home: Path) -> None:
    where = ("--agent", "ada", "--home", str(home))
    mesh("hook", "install", "claude", *where)
    path = home / JSON_CLIS["claude"]
    path.write_text(path.read_text().replace(sys.executable, "/gone/venv/bin/python"))
    (found,) = mesh("hook", "check", "claude", *where, "--json").json
    assert "/gone/venv/bin/python is gone" in found["problems"]
    assert mesh("hook", "install", "claude", *where, "--json").json["changed"] is True
    assert "/gone/" not in path.read_text() and len(commands(json.loads(path.read_text()))) == 5


def test_one_event_missing_shows_and_is_mended(mesh: Mesh, home: Path) -> None:
    where = ("--agent", "ada", "--home", str(home))
    mesh("hook", "install", "claude", *where)
    path = home / JSON_CLIS["claude"]
    document = json.loads(path.read_text())
    del document["hooks"]["Stop"]
    path.write_text(json.dumps(document))
    (found,) = mesh("hook", "check", "claude", *where, "--json").json
    assert "no hook for Stop" in found["problems"]
    mesh("hook", "install", "claude", *where)
    assert len(commands(json.loads(path.read_text()))) == 5


def test_secrets_of_the_file_stay_in_it(mesh: Mesh, home: Path) -> None:
    write(home / JSON_CLIS["claude"], json.dumps(FOREIGN, indent=2))
    mesh("hook", "install", "claude", "--agent", "ada", "--home", str(home))
    notes = [path for path in (mesh.root / "system").rglob("*") if path.is_file()]
    assert any("edits" in str(path) for path in notes)
    assert not any(b"sk-secret" in path.read_bytes() for path in notes)


def test_whose(mesh: Mesh, home: Path) -> None:
    assert "--agent ID (no agent's runner is claude" in refused(mesh("hook", "install", "claude", "--home", str(home)))
    assert "'zoe'" in refused(mesh("hook", "install", "claude", "--agent", "zoe", "--home", str(home)))
    told = refused(mesh("hook", "install", "claude", "--agent", "ada", "--home", str(home), "--project", str(home)))
    assert "not both" in told
    assert "no folder" in refused(mesh("hook", "install", "claude", "--agent", "ada", "--home", "/nowhere/x"))
    assert "aider" in refused(mesh("hook", "install", "aider", "--agent", "ada"))
    registry = mesh.json("agents/registry.json")
    registry["agents"]["bob"]["runner"] = {"kind": "command", "cli": "claude"}
    mesh.registry_file.write_text(json.dumps(registry))
    assert mesh("hook", "install", "claude", "--home", str(home), "--json").json["agent"] == "bob"


def test_of_a_project(mesh: Mesh, home: Path) -> None:
    done = mesh("hook", "install", "codex", "--agent", "ada", "--project", str(home), "--json")
    assert done.json["file"] == str(home / ".codex/hooks.json") and "must trust" in done.json["notes"][0]


CONFIG = """model = "x" # mine

[hooks.state."/elsewhere/hooks.json:stop:0:0"]
trusted_hash = "sha256:aa"

# about projects
[projects."/p"]
trust_level = "trusted"
"""


def test_codex_trusts_what_is_installed_and_nothing_else(mesh: Mesh, home: Path) -> None:
    import tomllib

    config = write(home / ".codex/config.toml", CONFIG)
    hooks = write(home / JSON_CLIS["codex"], json.dumps({"hooks": FOREIGN["hooks"]}, indent=2))
    where = ("--agent", "ada", "--home", str(home))
    assert mesh("hook", "install", "codex", *where).status == 0
    assert config.read_text().startswith(CONFIG)
    state = tomllib.loads(config.read_text())["hooks"]["state"]
    events = ("session_start", "user_prompt_submit", "post_tool_use", "session_end")
    assert state.keys() == {
        "/elsewhere/hooks.json:stop:0:0", f"{hooks}:stop:1:0", *(f"{hooks}:{event}:0:0" for event in events)
    }  # fmt: skip
    (found,) = mesh("hook", "check", "codex", *where, "--json").json
    assert not any("doesn't trust" in problem for problem in found["problems"])
    config.write_text(config.read_text().replace("sha256:", "sha256:0"))
    (found,) = mesh("hook", "check", "codex", *where, "--json").json
    assert any("doesn't trust" in problem for problem in found["problems"])
    assert mesh("hook", "install", "codex", *where).status == 0
    (found,) = mesh("hook", "check", "codex", *where, "--json").json
    assert not any("doesn't trust" in problem for problem in found["problems"])
    assert mesh("hook", "uninstall", "codex", *where).status == 0
    assert config.read_text() == CONFIG.replace("sha256:aa", "sha256:0aa")
    assert json.loads(hooks.read_text()) == {"hooks": FOREIGN["hooks"]}


def test_codex_config_comes_back_byte_for_byte(mesh: Mesh, home: Path) -> None:
    for text in (CONFIG, "", "a = 1", CONFIG.replace("\n", "\r\n")):
        config = write(home / ".codex/config.toml", text)
        where = ("--agent", "ada", "--home", str(home))
        assert mesh("hook", "install", "codex", *where).status == 0
        assert config.read_text() != text
        assert mesh("hook", "uninstall", "codex", *where).status == 0
        assert config.read_bytes() == text.encode()
        config.unlink()


def test_codex_config_that_is_broken(mesh: Mesh, home: Path) -> None:
    config = write(home / ".codex/config.toml", "a = \n")
    done = mesh("hook", "install", "codex", "--agent", "ada", "--home", str(home), "--json").json
    assert "start it once and trust them" in done["notes"][0] and "line 1" in done["notes"][0]
    assert config.read_text() == "a = \n"


@pytest.mark.parametrize("cli", ["opencode", "pi"])
def test_a_plugin_that_is_somebody_else_s_or_was_edited(mesh: Mesh, home: Path, cli: str) -> None:
    path = write(home / FILES[cli], "export default 1\n")
    where = ("--agent", "ada", "--home", str(home))
    assert "is not the mesh's" in refused(mesh("hook", "install", cli, *where), 1)
    path.unlink()
    mesh("hook", "install", cli, *where)
    path.write_text(path.read_text() + "// by hand\n")
    assert "was edited" in refused(mesh("hook", "install", cli, *where), 1)
    assert "was edited" in refused(mesh("hook", "uninstall", cli, *where), 1)
    assert path.read_text().endswith("// by hand\n")
    (found,) = mesh("hook", "check", cli, *where, "--json").json
    assert "was edited" in found["problems"][0]


@pytest.mark.parametrize("cli", ["opencode", "pi"])
def test_a_plugin_whose_note_was_lost_goes_all_the_same(mesh: Mesh, home: Path, cli: str) -> None:
    where = ("--agent", "ada", "--home", str(home))
    mesh("hook", "install", cli, *where)
    for note in (mesh.root / "system" / "edits").iterdir():
        note.unlink()
    assert mesh("hook", "uninstall", cli, *where).status == 0
    assert not (home / FILES[cli]).exists()


def test_run_is_the_same_program(mesh: Mesh) -> None:
    done = mesh.process("hook", "run", "claude", "ada")
    assert (done.status, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize("cli", ["codex", "gemini"])
def test_the_mesh_s_server_stays_when_its_hooks_go(mesh: Mesh, home: Path, cli: str) -> None:
    """Both are noted edits of one file: taking the one back must not take the other along."""
    where = ("--agent", "ada", "--home", str(home))
    assert mesh("hook", "install", cli, *where).status == 0
    assert mesh("mcp", "install", cli, *where).status == 0
    assert mesh("hook", "uninstall", cli, "--home", str(home)).status == 0
    text = "".join(path.read_text() for path in home.rglob("*") if path.is_file())
    assert "MESH_AGENT_SECRET" in text and "hooks/run.py" not in text
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).status == 0
    assert not any("MESH_AGENT_SECRET" in path.read_text() for path in home.rglob("*") if path.is_file())
