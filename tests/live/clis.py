"""Real agent CLIs for tests: pinned, installed once per machine, each test with an empty home that knows only the stub.

    cli = installed("codex")                         # skips where it can't be had and may be missing
    with stub() as llm:
        environment = home_for(cli, tmp_path, llm.url)
        subprocess.run([cli.program, ...], env=environment)

Nothing is installed below the checkout: `MESH_TEST_CLIS` names the folder, by default `~/.cache/agent-mesh-clis`.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

INSTALL_TIMEOUT_S = 600
#: What the stub is called in every CLI's configuration, and the key that it is sent: it looks like one and is none.
MODEL, KEY, WINDOW = "stub-model", "sk-not-a-key-0000000000000000", 64_000
_ARCH = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True)
class Package:
    """Where a CLI comes from."""

    #: npm (`name@version`) or pip (`name==version`) requirement.
    requirement: str
    #: Its program: candidates below the folder, the first that is there is taken.
    programs: tuple[str, ...]
    #: Whether it needs a newer Node than Debian's.
    node24: bool = False
    #: Whether tests go without it where it can't be installed: no free licence.
    optional: bool = False


_BIN = "node_modules/.bin"
PACKAGES = {
    "claude": Package(
        "@anthropic-ai/claude-code@2.1.332",
        (f"node_modules/@anthropic-ai/claude-code-linux-{_ARCH}/claude", f"{_BIN}/claude"),
        optional=True,
    ),
    "codex": Package("@openai/codex@0.171.0", (f"{_BIN}/codex",)),
    "pi": Package("@earendil-works/pi-coding-agent@1.6.0", (f"{_BIN}/pi",), node24=True),
    "openclaw": Package("openclaw@2026.9.6", (f"{_BIN}/openclaw",), node24=True),
    "opencode": Package(
        "opencode-ai@1.18.33", (f"node_modules/opencode-linux-{_ARCH}/bin/opencode", f"{_BIN}/opencode")
    ),
    "gemini": Package("@google/gemini-cli@0.61.0", (f"{_BIN}/gemini",)),
    "goose": Package(
        f"@aaif/goose-binary-linux-{_ARCH}@1.52.0",
        (f"node_modules/@aaif/goose-binary-linux-{_ARCH}/bin/goose", f"{_BIN}/goose"),
    ),
    "aider": Package("aider-chat==0.86.2", ("venv/bin/aider",)),
    "node24": Package(f"node-linux-{_ARCH}@24.22.3", (f"node_modules/node-linux-{_ARCH}/bin/node",)),
}


@dataclass(frozen=True)
class Cli:
    """An installed CLI."""

    name: str
    version: str
    #: The program, callable by this path with nothing else in the environment.
    program: Path
    #: A folder with the program by its usual name, to put in front of PATH.
    path: Path


def installed(name: str) -> Cli:
    """The CLI, installed if it isn't yet. Where that fails, an optional one skips the test, another fails it."""
    try:
        return _installed(name)
    except (OSError, subprocess.SubprocessError, LookupError) as error:
        told = getattr(error, "stderr", None) or str(error)
        reason = f"{PACKAGES[name].requirement} can't be installed here: {told.strip()[-400:]}"
        if PACKAGES[name].optional:
            pytest.skip(reason)
        raise AssertionError(reason) from error


def _installed(name: str) -> Cli:
    package = PACKAGES[name]
    version = package.requirement.replace("==", "@").rpartition("@")[2]
    cache = Path(os.environ.get("MESH_TEST_CLIS") or Path.home() / ".cache" / "agent-mesh-clis")
    folder = cache / f"{name}-{version}"
    cli = Cli(name, version, folder / "bin" / name, folder / "bin")
    ready = folder / "ready"
    if ready.exists():
        return cli
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            cli.path.mkdir(parents=True)
            _fetch(package, folder)
            _link(package, folder, cli.program)
            ready.touch()
    return cli


def _fetch(package: Package, folder: Path) -> None:
    if "==" in package.requirement:
        _run(sys.executable, "-m", "venv", str(folder / "venv"))
        _run(str(folder / "venv/bin/pip"), "install", "--quiet", "--no-input", package.requirement)
    else:
        flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        _run("npm", "install", "--prefix", str(folder), *flags, package.requirement, **_engine(package))


def _engine(package: Package) -> dict[str, str]:
    """npm chooses what fits the Node that runs it."""
    return {"PATH": f"{installed('node24').path}:{os.environ['PATH']}"} if package.node24 else {}


def _run(*argv: str, **environment: str) -> None:
    subprocess.run(
        argv,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=True,
    )


def _link(package: Package, folder: Path, program: Path) -> None:
    found = next((folder / name for name in package.programs if (folder / name).exists()), None)
    if found is None:
        raise LookupError(f"none of {', '.join(package.programs)} is in {folder}")
    if package.node24:
        node = _installed("node24").program.resolve()
        program.write_text(f'#!/bin/sh\nexec "{node}" "{found.resolve()}" "$@"\n')
        program.chmod(0o755)
        (program.parent / "node").symlink_to(node)
    else:
        program.symlink_to(found.resolve())


# -- homes


#: The tool that runs a command, and the name of its argument. Aider has none.
SHELLS = {
    "codex": ("exec_command", "cmd"),
    "pi": ("bash", "command"),
    "opencode": ("bash", "command"),
    "claude": ("Bash", "command"),
    "openclaw": ("exec", "command"),
    "goose": ("shell", "command"),
    "gemini": ("run_shell_command", "command"),
}


def home_for(cli: Cli, folder: Path, stub_url: str, key: str = KEY) -> dict[str, str]:
    """Make an empty home `folder/home` in which the CLI knows the stub and nothing else; returns the whole
    environment to start it with. `stub_url` is without `/v1`."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    temporary = folder / "tmp"  # several leave files there
    temporary.mkdir(exist_ok=True)
    system = "/usr/local/bin:/usr/bin:/bin"
    environment = {
        "HOME": str(home),
        "PATH": f"{cli.path}:{system}",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "TZ": "UTC",
        "USER": "tester",
        "NO_PROXY": "127.0.0.1,localhost",
        "TMPDIR": str(temporary),
    }
    return {**environment, **_HOMES[cli.name](home, stub_url, key)}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))


def _claude(home: Path, url: str, key: str) -> dict[str, str]:
    _write_json(
        home / ".claude.json",
        {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []}},
    )
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": MODEL,
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }


def _codex(home: Path, url: str, key: str) -> dict[str, str]:
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(
        f"""model = "{MODEL}"
model_provider = "stub"
model_context_window = {WINDOW}
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
daemon_auto_start = false
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
    )
    return {"OPENAI_API_KEY": key}


def _pi(home: Path, url: str, key: str) -> dict[str, str]:
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    model = {"id": MODEL, "contextWindow": WINDOW, "maxTokens": 4096, "cost": cost}
    stub = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "$STUB_KEY", "models": [model]}
    _write_json(home / ".pi/agent/models.json", {"providers": {"stub": stub}})
    _write_json(
        home / ".pi/agent/settings.json",
        {"defaultProvider": "stub", "defaultModel": MODEL, "retry": {"enabled": False}},
    )
    return {"STUB_KEY": key}


def _openclaw(home: Path, url: str, key: str) -> dict[str, str]:
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    model = {
        "id": MODEL,
        "name": MODEL,
        "contextWindow": WINDOW,
        "maxTokens": 4096,
        "cost": cost,
        "reasoning": False,
        "input": ["text"],
    }
    stub = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "${STUB_KEY}", "models": [model]}
    _write_json(
        home / ".openclaw/openclaw.json",
        {
            "models": {"mode": "merge", "providers": {"stub": stub}},
            "agents": {"defaults": {"model": {"primary": f"stub/{MODEL}"}, "workspace": str(home / "workspace")}},
        },
    )
    return {"STUB_KEY": key}


def _opencode(home: Path, url: str, key: str) -> dict[str, str]:
    stub = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stub",
        "options": {"baseURL": f"{url}/v1", "apiKey": "{env:STUB_KEY}"},
        "models": {MODEL: {"name": MODEL, "limit": {"context": WINDOW, "output": 4096}}},
    }
    model = f"stub/{MODEL}"
    _write_json(
        home / ".config/opencode/opencode.json",
        {"provider": {"stub": stub}, "model": model, "small_model": model, "share": "disabled"},
    )
    return {"STUB_KEY": key, "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _aider(home: Path, url: str, key: str) -> dict[str, str]:
    limits = {"max_tokens": 4096, "max_input_tokens": WINDOW, "max_output_tokens": 4096}
    _write_json(
        home / ".aider.model.metadata.json",
        {
            f"openai/{MODEL}": {
                **limits,
                "input_cost_per_token": 0,
                "output_cost_per_token": 0,
                "litellm_provider": "openai",
                "mode": "chat",
            }
        },
    )
    return {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": key, "AIDER_MODEL": f"openai/{MODEL}"}


def _gemini(home: Path, url: str, key: str) -> dict[str, str]:
    _write_json(
        home / ".gemini/settings.json",
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True},
        },
    )
    return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": key, "GEMINI_MODEL": MODEL}


def _goose(home: Path, url: str, key: str) -> dict[str, str]:
    return {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": MODEL,
        "GOOSE_CONTEXT_LIMIT": str(WINDOW),
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_PROVIDER_SKIP_BACKOFF": "true",
        "OPENAI_HOST": url,
        "OPENAI_API_KEY": key,
    }


_HOMES: dict[str, Callable[[Path, str, str], dict[str, str]]] = {
    "claude": _claude,
    "codex": _codex,
    "pi": _pi,
    "openclaw": _openclaw,
    "opencode": _opencode,
    "aider": _aider,
    "gemini": _gemini,
    "goose": _goose,
}
