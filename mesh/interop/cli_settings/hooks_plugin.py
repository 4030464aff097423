"""Hooks of OpenCode and Pi: a plugin file of our own in the folder that the CLI loads plugins from.

Its first line says what it is, whose, and what stands below, so that an edited one is known.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files

from mesh.interop.cli_settings.edited_file import SettingsRefused
from mesh.interop.cli_settings.hooks_command import Hook, hook_of_argv

_TEMPLATES = {"opencode": "opencode_plugin.js", "pi": "pi_extension.ts"}
_PROGRAM = "[/* the hook program and its arguments */]"
_HEAD = re.compile(r"// agent-mesh hook, written by `mesh hook install`, sha256 ([0-9a-f]{64})\n")
_ARGV = re.compile(r"^const PROGRAM\b[^=]*= (\[.*\])$", re.MULTILINE)


def file_name(cli: str, agent: str) -> str:
    return f"agent-mesh-{agent}{'.js' if cli == 'opencode' else '.ts'}"


def plugin_text(hook: Hook) -> str:
    """The whole file."""
    template = (files("mesh.interop.hooks") / _TEMPLATES[hook.cli]).read_text(encoding="utf-8")
    body = template.replace(_PROGRAM, json.dumps(hook.argv()))
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f"// agent-mesh hook, written by `mesh hook install`, sha256 {digest}\n{body}"


def hook_in(path: str, text: str) -> Hook:
    """Whose hook the file is. Raises SettingsRefused if it is none of ours, or was edited since."""
    argv = argv_in(text)
    head = _HEAD.match(text)
    hook = hook_of_argv(argv) if argv else None
    if head is None or hook is None:
        raise SettingsRefused(f"{path} is not the mesh's; move it away, or choose another folder.", file=path)
    if hashlib.sha256(text[head.end() :].encode()).hexdigest() != head[1]:
        raise SettingsRefused(
            f"{path} was edited after it was installed; if nothing in it is needed, delete it.", file=path
        )
    return hook


def argv_in(text: str) -> list[str]:
    """The program that the plugin runs; empty if it names none."""
    found = _ARGV.search(text)
    try:
        argv = json.loads(found[1]) if found else []
    except ValueError:
        return []
    return argv if isinstance(argv, list) and all(isinstance(word, str) for word in argv) else []
