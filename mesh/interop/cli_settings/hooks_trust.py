"""Codex runs a hook only once a person trusts it, and skips it silently until then.

Who installs a hook of the mesh trusts it: so the mark that Codex's own dialog leaves is set beside, in `config.toml`,
for the mesh's hooks alone.

The mark names the hook by file, event and place, and what it runs by a digest: a hook that is changed is no longer
trusted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from mesh.interop.cli_settings.edited_file import Draft, SettingsRefused, parse_toml
from mesh.interop.cli_settings.hooks_json import Place

_BREAK = re.compile(r"^\s*\[", re.MULTILINE)


def marks(hooks_file: str, places: Sequence[Place]) -> dict[str, str]:
    """Key → digest, as Codex reckons them, for hooks that stand in this file."""
    return {_key(hooks_file, place): _digest(place) for place in places}


def trusted(config: dict[str, Any]) -> dict[str, str]:
    """The marks in a configuration that was read: key → digest."""
    hooks = config.get("hooks")
    state = hooks.get("state") if isinstance(hooks, dict) else None
    entries = state.items() if isinstance(state, dict) else ()
    return {
        key: str(entry["trusted_hash"])
        for key, entry in entries
        if isinstance(entry, dict) and "trusted_hash" in entry and entry.get("enabled", True) is not False
    }


def set_marks(path: str, draft: Draft, wanted: dict[str, str], gone: Sequence[str] = ()) -> None:
    """Set these marks and take away those of keys that are gone. Raises SettingsRefused where the file writes them in a
    way that can't be edited without touching the rest."""
    before = parse_toml(path, draft.text)
    known = trusted(before)
    for key in [*gone, *(key for key, digest in wanted.items() if known.get(key, digest) != digest)]:
        _remove(draft, key)
    known = trusted(parse_toml(path, draft.text))
    for key, digest in wanted.items():
        if key not in known:
            space = (
                "" if not draft.text or draft.text.endswith("\n\n") else "\n" if draft.text.endswith("\n") else "\n\n"
            )
            block = f"{space}[hooks.state.{_quoted(key)}]\ntrusted_hash = {_quoted(digest)}\n"
            draft.replace(len(draft.text), len(draft.text), block)
    after = parse_toml(path, draft.text)
    ours = {*wanted, *gone}
    done = {key: digest for key, digest in trusted(after).items() if key in ours}
    if done != wanted or _without(before, ours) != _without(after, ours):
        raise SettingsRefused(f"{path} keeps its marks of trust in a way that can't be edited here.", file=path)


def _remove(draft: Draft, key: str) -> None:
    """Remove the table of a mark, where it stands as a table of its own."""
    header = f"[hooks.state.{_quoted(key)}]"
    found = re.search(rf"^{re.escape(header)}[ \t]*\r?\n", draft.text, re.MULTILINE)
    if found is None:
        return
    following = _BREAK.search(draft.text, found.end())
    end = following.start() if following else len(draft.text)
    body = draft.text[found.end() : end]
    if re.search(r"^\s*#", body, re.MULTILINE):  # a person's comments stay, wherever they belong to
        end = found.end() + re.search(r"^\s*#", body, re.MULTILINE).start()  # type: ignore[union-attr]
    start = found.start()
    if draft.text[end:].strip() == "":
        start = len(draft.text[:start].rstrip("\n"))
        start += 1 if start else 0
    draft.replace(start, end, "")


def _key(hooks_file: str, place: Place) -> str:
    return f"{hooks_file}:{_snake(place.event)}:{place.group}:{place.number}"


def _digest(place: Place) -> str:
    handler = {"async": False, "command": place.command, "timeout": place.timeout, "type": "command"}
    identity = {"event_name": _snake(place.event), "hooks": [handler]}
    written = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(written.encode()).hexdigest()}"


def _snake(event: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _without(config: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    """The configuration without these marks, and without what is empty then."""
    hooks = config.get("hooks")
    if not isinstance(hooks, dict) or not isinstance(hooks.get("state"), dict):
        return config
    state = {key: entry for key, entry in hooks["state"].items() if key not in keys}
    rest = {**hooks, "state": state} if state else {key: value for key, value in hooks.items() if key != "state"}
    return {**config, "hooks": rest} if rest else {key: value for key, value in config.items() if key != "hooks"}
