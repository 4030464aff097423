"""Codex' `[mcp_servers.NAME]` tables: added and taken out as text, all other lines left as they stand."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from mesh.interop.cli_settings.edited_file import Draft, SettingsRefused, parse_toml

_TABLE = "mcp_servers"
_HEADER = re.compile(r"^[ \t]*\[\[?([^\[\]\n]+)\]\]?[ \t]*(?:#[^\n]*)?$", re.MULTILINE)


def entry_in(path: str, text: str, name: str) -> Any:
    """The entry, or None. Raises SettingsRefused."""
    return _servers(path, parse_toml(path, text)).get(name)


def put(path: str, draft: Draft, name: str, entry: dict[str, Any]) -> None:
    """Write the entry, in the place of one of that name. Raises SettingsRefused."""
    before = _others(path, draft.text, name)
    _cut(draft, name)
    text = draft.text
    line = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text.strip() else line if text.endswith("\n") else line * 2
    lines = [
        f"[{_TABLE}.{name}]",
        *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()),
    ]
    draft.replace(len(text), len(text), gap + line.join(lines) + line)
    _check(path, draft.text, name, before, entry)


def remove(path: str, draft: Draft, name: str) -> None:
    """Take the entry out, with tables below it. Raises SettingsRefused."""
    before = _others(path, draft.text, name)
    _cut(draft, name)
    _check(path, draft.text, name, before, None)


def _servers(path: str, document: dict[str, Any]) -> dict[str, Any]:
    servers = document.get(_TABLE, {})
    if not isinstance(servers, dict):
        raise SettingsRefused(f"{path}: {_TABLE} is no table; mend that first.", file=path)
    return servers


def _others(path: str, text: str, name: str) -> dict[str, Any]:
    """All that the file says beside the entry."""
    document = parse_toml(path, text)
    others = {key: value for key, value in _servers(path, document).items() if key != name}
    return {**document, _TABLE: others}


def _check(path: str, text: str, name: str, before: dict[str, Any], entry: dict[str, Any] | None) -> None:
    """Raise SettingsRefused unless the edit did what it was for, and nothing else."""
    try:
        fine = _others(path, text, name) == before and entry_in(path, text, name) == entry
    except SettingsRefused:
        fine = False
    if not fine:
        raise SettingsRefused(
            f"{path} has {_TABLE} in a form that can't be edited here (inline, or dotted keys): edit it by hand.",
            file=path,
        )


def _cut(draft: Draft, name: str) -> None:
    """Take out the tables of the entry, each with the blank line before it; comments after it stay."""
    headers = list(_HEADER.finditer(draft.text))
    ends = [*(header.start() for header in headers[1:]), len(draft.text)]
    for header, end in reversed(list(zip(headers, ends, strict=False))):
        if _path_of(header[1])[:2] != [_TABLE, name]:
            continue
        body = draft.text[header.end() : end]
        kept = re.search(r"(?:\n[ \t]*(?:#[^\n]*)?\r?)*\n?\Z", body)
        last = header.end() + (kept.start() if kept else len(body))
        start = header.start()
        while draft.text[:start].endswith(("\n\n", "\n\r\n")):
            start -= 2 if draft.text[:start].endswith("\r\n") else 1
        after = re.match(r"\r?\n", draft.text[last:])
        draft.replace(start, last + (after.end() if after else 0), "")


def _path_of(header: str) -> list[str]:
    """The keys of a table's header."""
    try:
        found: Any = tomllib.loads(f"[{header}]")
    except tomllib.TOMLDecodeError:
        return []
    keys = []
    while isinstance(found, dict) and found:
        keys.append(next(iter(found)))
        found = found[keys[-1]]
    return keys
