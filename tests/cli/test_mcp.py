"""`mesh mcp`: serving, and the entries in the CLIs' own configuration."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import TIMEOUT_S, Mesh, refused

CLIS = ("claude", "codex", "gemini", "opencode", "pi", "openclaw")
FILES = {
    "claude": ".claude.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "opencode": ".config/opencode/opencode.json",
    "pi": ".pi/agent/mcp.json",
    "openclaw": ".openclaw/openclaw.json",
}
#: What somebody has there already: comments where the CLI allows them, other servers, odd spacing.
OTHERS = {
    "claude": '{\n    "hasCompletedOnboarding":true,\n    "mcpServers": {"other": {"command": "x"}}\n}\n',
    "codex": '# mine\nmodel = "m"\n\n[mcp_servers.other]\ncommand = "x" # keep\n\n[features]\na = true\n',
    "gemini": '{\n  // mine\n  "ui": {"a": 1},\n  "mcpServers": {\n    "other": {"command": "x"}, // keep\n  },\n}\n',
    "opencode": '{ "$schema": "https://opencode.ai/config.json", "mcp": { "other": {"type": "local"} } }',
    "pi": '{"mcpServers":{}}',
    "openclaw": '{\n\t"agents": {"list": []}\n}\n',
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def given(home: Path, cli: str, text: str) -> Path:
    path = home / FILES[cli]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def document(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    bare = re.sub(r",(\s*[}\]])", r"\1", re.sub(r"(?<!:)//[^\n]*", "", text))
    found: dict[str, Any] = json.loads(bare)
    return found


def entry(path: Path, cli: str, name: str = "mesh") -> Any:
    found = document(path)
    keys = {"codex": ["mcp_servers"], "opencode": ["mcp"], "openclaw": ["mcp", "servers"]}.get(cli, ["mcpServers"])
    for key in (*keys, name):
        found = found.get(key, {})
    return found


def install(mesh: Mesh, cli: str, home: Path, *more: str) -> Any:
    return mesh("mcp", "install", cli, "--agent", "ada", "--home", str(home), *more)


@pytest.mark.parametrize("cli", CLIS)
def test_an_entry_in_an_empty_home_and_back(mesh: Mesh, home: Path, cli: str) -> None:
    done = install(mesh, cli, home)
    assert done.status == 0, done.err
    path = home / FILES[cli]
    written = entry(path, cli)
    assert written.get("url") or written.get("httpUrl") == "http://127.0.0.1:18799/mcp"
    assert "MESH_AGENT_SECRET" in json.dumps(written)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = (mesh.root / "agents/ada/secret").read_text().strip()
    assert secret not in path.read_text() and secret not in done.out
    assert "export MESH_AGENT_SECRET=" in done.out
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).status == 0
    assert list(home.rglob("*")) == []


@pytest.mark.parametrize("cli", CLIS)
def test_what_others_wrote_stays_byte_for_byte(mesh: Mesh, home: Path, cli: str) -> None:
    path = given(home, cli, OTHERS[cli])
    path.chmod(0o640)
    before = document(path)
    assert install(mesh, cli, home).status == 0
    once = path.read_text()
    assert install(mesh, cli, home).out.startswith("Nothing to do")
    assert path.read_text() == once
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    for line in OTHERS[cli].splitlines():
        for word in ("// mine", "// keep", "# mine", "# keep"):
            assert word not in line or word in once
    assert entry(path, cli, "other") == (before and _other(before, cli))
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).out.startswith("Took")
    assert path.read_text() == OTHERS[cli]
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).out.startswith("No mesh")


def _other(found: dict[str, Any], cli: str) -> Any:
    keys = {"codex": ["mcp_servers"], "opencode": ["mcp"], "openclaw": ["mcp", "servers"]}.get(cli, ["mcpServers"])
    for key in (*keys, "other"):
        found = found.get(key, {})
    return found


@pytest.mark.parametrize("cli", CLIS)
def test_after_other_edits_only_the_entry_goes(mesh: Mesh, home: Path, cli: str) -> None:
    path = given(home, cli, OTHERS[cli])
    install(mesh, cli, home)
    text = path.read_text()
    new = f"{text}\n[later]\nb = 1\n" if cli == "codex" else text.replace("{", '{"later": 1,', 1)
    path.write_text(new)
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).status == 0
    assert entry(path, cli) == {} and "later" in document(path)
    assert {**document(path), "later": 0} == {**document(path), "later": 0}
    assert _other(document(path), cli) == _other(tomllib.loads(OTHERS[cli]) if cli == "codex" else document(path), cli)


@pytest.mark.parametrize("cli", CLIS)
def test_another_port_another_form_and_another_name(mesh: Mesh, home: Path, cli: str) -> None:
    path = given(home, cli, OTHERS[cli])
    install(mesh, cli, home)
    assert install(mesh, cli, home, "--port", "18800").out.startswith("Installed")
    assert "18800" in path.read_text() and "18799" not in path.read_text()
    assert install(mesh, cli, home, "--stdio").status == 0
    assert "--agent" in path.read_text() and "MESH_AGENT_SECRET" not in path.read_text()
    assert install(mesh, cli, home, "--name", "second").status == 0
    assert entry(path, cli, "second") and entry(path, cli)
    assert mesh("mcp", "uninstall", cli, "--home", str(home), "--name", "second").out.startswith("Took")
    assert entry(path, cli, "second") == {} and entry(path, cli)
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).out.startswith("Took")
    assert path.read_text() == OTHERS[cli]


@pytest.mark.parametrize("cli", CLIS)
def test_somebody_elses_server_of_that_name_is_left_alone(mesh: Mesh, home: Path, cli: str) -> None:
    theirs = {
        "codex": '[mcp_servers.mesh]\ncommand = "theirs"\n',
        "opencode": '{"mcp": {"mesh": {"type": "local", "command": ["theirs"]}}}',
        "openclaw": '{"mcp": {"servers": {"mesh": {"command": "theirs"}}}}',
    }.get(cli, '{"mcpServers": {"mesh": {"command": "theirs"}}}')
    path = given(home, cli, theirs)
    assert "--name" in refused(install(mesh, cli, home), 1)
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).out.startswith("No mesh")
    assert path.read_text() == theirs
    assert install(mesh, cli, home, "--name", "agents").status == 0


@pytest.mark.parametrize(
    ("cli", "text", "told"),
    [
        ("claude", "{", "line 1"),
        ("claude", "[]", "no JSON object"),
        ("claude", '{"mcpServers": []}', "mcpServers is no JSON object"),
        ("openclaw", '{"mcp": {"servers": 3}}', "servers is no JSON object"),
        ("pi", '{"mcpServers": {}, "mcpServers": {}}', "twice"),
        ("codex", "a = ", "not valid TOML"),
        ("codex", "mcp_servers = 3\n", "no table"),
        ("codex", 'mcp_servers = {other = {command = "x"}}\n', "edit it by hand"),
    ],
)
def test_files_that_cannot_be_edited_are_left_alone(mesh: Mesh, home: Path, cli: str, text: str, told: str) -> None:
    path = given(home, cli, text)
    assert told in refused(install(mesh, cli, home), 1)
    assert path.read_text() == text


def test_codex_tables_in_all_sorts_of_places(mesh: Mesh, home: Path) -> None:
    mine = '[mcp_servers.mesh]\nurl = "http://127.0.0.1:1/mcp"\nbearer_token_env_var = "MESH_AGENT_SECRET"\n'
    below = '[mcp_servers.mesh.tools]\nx = "y"\n'
    around = '[[profiles]]\nname = "a"\n\n# about the next\n[other]\nlist = [\n  "[not.a.header]",\n]\n'
    path = given(home, "codex", f'model = "m"\n\n{mine}\n{below}\n{around}')
    assert install(mesh, "codex", home).status == 0
    found = tomllib.loads(path.read_text())
    assert found["mcp_servers"] == {
        "mesh": {"url": "http://127.0.0.1:18799/mcp", "bearer_token_env_var": "MESH_AGENT_SECRET"}
    }
    assert "# about the next\n[other]" in path.read_text()
    assert mesh("mcp", "uninstall", "codex", "--home", str(home)).status == 0
    found = tomllib.loads(path.read_text())
    assert found == {
        "model": "m",
        "profiles": [{"name": "a"}],
        "other": {"list": ["[not.a.header]"]},
        "mcp_servers": {},
    } or ("mesh" not in found.get("mcp_servers", {}))


def test_the_clis_own_variables_name_the_folder(mesh: Mesh, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    for cli, variable, name in (
        ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("opencode", "OPENCODE_CONFIG_DIR", "opencode.json"),
        ("pi", "PI_CODING_AGENT_DIR", "mcp.json"),
        ("openclaw", "OPENCLAW_STATE_DIR", "openclaw.json"),
    ):
        monkeypatch.setenv(variable, str(home / cli))
        assert mesh("mcp", "install", cli, "--agent", "ada").status == 0
        assert (home / cli / name).is_file()
    assert mesh("mcp", "install", "gemini", "--agent", "ada").status == 0
    assert (home / ".gemini/settings.json").is_file()


def test_opencode_keeps_its_commented_file(mesh: Mesh, home: Path) -> None:
    folder = home / ".config/opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_text('{\n  // mine\n  "model": "m",\n}\n')
    assert install(mesh, "opencode", home).status == 0
    assert not (folder / "opencode.json").exists()
    assert "// mine" in (folder / "opencode.jsonc").read_text() and "mesh" in (folder / "opencode.jsonc").read_text()


def test_bad_use(mesh: Mesh, home: Path) -> None:
    assert "--agent" in refused(mesh("mcp", "install", "codex", "--home", str(home)))
    assert "eve" in refused(mesh("mcp", "install", "codex", "--home", str(home), "--agent", "eve"))
    assert "emacs" in refused(mesh("mcp", "install", "emacs", "--agent", "ada"))
    assert "no folder" in refused(mesh("mcp", "install", "codex", "--agent", "ada", "--home", str(home / "none")))
    assert "--name" in refused(install(mesh, "codex", home, "--name", "a.b"))
    assert "--agent" in refused(mesh("mcp", "stdio"))
    assert "eve" in refused(mesh("mcp", "stdio", "--agent", "eve"))


def test_without_the_sdk_it_says_how_to_get_it(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mesh.interop.mcp.extra._NAME", "no_such_sdk")
    for command in (("serve",), ("stdio", "--agent", "ada")):
        assert "pip install 'agent-mesh[mcp]'" in refused(mesh("mcp", *command), 1)


@contextmanager
def serving(mesh: Mesh) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    environment = {**os.environ, "MESH_ROOT": str(mesh.root)}
    process = subprocess.Popen(
        [sys.executable, "-m", "mesh", "mcp", "serve", "--port", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        assert found is not None, (line, process.stderr and process.stderr.read())
        yield int(found[1]), process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.live
def test_serve_install_check_and_stop(mesh: Mesh, home: Path) -> None:
    with serving(mesh) as (port, process):
        where = ("codex", "--agent", "ada", "--home", str(home), "--port", str(port))
        missing = mesh("mcp", "check", *where)
        assert missing.status == 1 and "mesh mcp install codex" in missing.out
        assert mesh("mcp", "install", *where).status == 0
        fine = mesh("mcp", "check", *where, "--json")
        assert fine.status == 0 and fine.json["ok"] and fine.json["problems"] == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        down = mesh("mcp", "check", *where)
        assert down.status == 1 and "mesh mcp serve" in down.out
        moved = mesh("mcp", "check", *where[:-1], str(port + 1))
        assert moved.status == 1 and "another agent, address or root" in moved.out
        assert mesh("mcp", "install", *where, "--stdio").status == 0
        assert mesh("mcp", "check", *where).status == 0


def test_check_knows_a_wrong_secret(mesh: Mesh, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert install(mesh, "claude", home).status == 0
    monkeypatch.setenv("MESH_AGENT_SECRET", "bob's")
    told = mesh("mcp", "check", "claude", "--agent", "ada", "--home", str(home))
    assert told.status == 1 and "isn't ada's secret" in told.out
    monkeypatch.setenv("MESH_AGENT_SECRET", (mesh.root / "agents/ada/secret").read_text().strip())
    assert "export" not in install(mesh, "claude", home).out


@pytest.mark.live
def test_a_taken_port_is_told_in_a_line(mesh: Mesh) -> None:
    with serving(mesh) as (port, _):
        assert f"Port {port} is taken" in refused(mesh.process("mcp", "serve", "--port", str(port)), 1)


@pytest.mark.live
def test_stdio_ends_with_its_input_and_writes_nothing_of_its_own(mesh: Mesh) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mesh", "mcp", "stdio", "--agent", "ada", "--root", str(mesh.root)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("cli", ["gemini", "codex"])
def test_hooks_in_the_same_files_stay(mesh: Mesh, home: Path, cli: str) -> None:
    path = given(home, cli, OTHERS[cli])
    assert mesh("hook", "install", cli, "--agent", "ada", "--home", str(home)).status == 0
    hooked = path.read_text()
    assert install(mesh, cli, home).status == 0
    assert mesh("mcp", "uninstall", cli, "--home", str(home)).out.startswith("Took")
    assert document(path) == _parsed(path, hooked)
    assert mesh("hook", "uninstall", cli, "--home", str(home)).status == 0
    assert document(path) == _parsed(path, OTHERS[cli])


def _parsed(path: Path, text: str) -> dict[str, Any]:
    beside = path.with_name(f"beside{path.suffix}")
    beside.write_text(text, encoding="utf-8")
    return document(beside)
