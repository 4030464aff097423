"""The entry of the mesh's MCP server in the configuration of each CLI: where it stands, and what it says.

Over HTTP the entry names the environment variable that holds the agent's secret, never the secret itself: the file
holds nothing worth stealing, and sessions of several agents may share one home. Each form was tried with the CLI.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Holds the secret of the agent whose session it is.
SECRET_ENV = "MESH_AGENT_SECRET"
NAME_PATTERN = re.compile(r"^[a-z][a-z0-9_-]{0,31}$")


@dataclass(frozen=True)
class Home:
    """Where a CLI keeps its configuration."""

    #: The variable that names its folder, the folder below the home otherwise, the names that the file may have.
    variable: str | None
    folder: str
    names: tuple[str, ...]
    #: The keys that lead to the servers; none for TOML.
    keys: tuple[str, ...]
    comments: bool = False


HOMES = {
    "claude": Home("CLAUDE_CONFIG_DIR", "", (".claude.json",), ("mcpServers",)),
    "codex": Home("CODEX_HOME", ".codex", ("config.toml",), ()),
    "gemini": Home(None, ".gemini", ("settings.json",), ("mcpServers",), comments=True),
    "opencode": Home("OPENCODE_CONFIG_DIR", ".config/opencode", ("opencode.json", "opencode.jsonc"), ("mcp",), True),
    "pi": Home("PI_CODING_AGENT_DIR", ".pi/agent", ("mcp.json",), ("mcpServers",)),
    "openclaw": Home("OPENCLAW_STATE_DIR", ".openclaw", ("openclaw.json",), ("mcp", "servers"), comments=True),
}
CLIS = tuple(HOMES)


def file_of(cli: str, home: str | None, environment: Mapping[str, str]) -> str:
    """The CLI's configuration file: the one that is there, else the one that would be made."""
    place = HOMES[cli]
    own = environment.get(place.variable) if place.variable and home is None else None
    base = os.path.abspath(own or os.path.join(home or os.path.expanduser("~"), place.folder))
    paths = [os.path.join(base, name) for name in place.names]
    return next((path for path in paths if os.path.exists(path)), paths[0])


def over_http(cli: str, url: str) -> dict[str, Any]:
    """The entry for the server at that address."""
    if cli == "codex":
        return {"url": url, "bearer_token_env_var": SECRET_ENV}
    variable = f"{{env:{SECRET_ENV}}}" if cli == "opencode" else f"${{{SECRET_ENV}}}"
    headers = {"headers": {"Authorization": f"Bearer {variable}"}}
    forms: dict[str, dict[str, Any]] = {
        "claude": {"type": "http", "url": url, **headers},
        "gemini": {"httpUrl": url, **headers},
        "opencode": {"type": "remote", "url": url, "enabled": True, "oauth": False, **headers},
        "pi": {"url": url, "exposure": "direct", **headers},
        "openclaw": {"transport": "streamable-http", "url": url, **headers},
    }
    return forms[cli]


def on_stdio(cli: str, agent: str, root: str) -> dict[str, Any]:
    """The entry for a server of this agent alone, which the CLI starts."""
    command = [sys.executable, "-m", "mesh", "mcp", "stdio", "--agent", agent, "--root", root]
    parted: dict[str, Any] = {"command": command[0], "args": command[1:]}
    forms: dict[str, dict[str, Any]] = {
        "claude": {"type": "stdio", **parted},
        "opencode": {"type": "local", "enabled": True, "command": command},
        "pi": {**parted, "exposure": "direct"},
    }
    return forms.get(cli, parted)


def is_ours(entry: Any) -> bool:
    """Whether an entry was written here, by this version or another."""
    if not isinstance(entry, dict):
        return False
    headers = entry.get("headers")
    named = [entry.get("bearer_token_env_var"), *(headers.values() if isinstance(headers, dict) else ())]
    if any(isinstance(value, str) and SECRET_ENV in value for value in named):
        return True
    parts = [entry.get("command"), entry.get("args")]
    words = [word for part in parts for word in (part if isinstance(part, list) else [part])]
    return words[1:5] == ["-m", "mesh", "mcp", "stdio"]
