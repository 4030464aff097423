"""Tells a CLI of the mesh's MCP server, takes that back, and looks whether it works."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.errors import BadUse
from mesh.interop.cli_settings import json_text, mcp_toml
from mesh.interop.cli_settings.edited_file import Draft, SettingsRefused, parse_toml, read, without_empty
from mesh.interop.cli_settings.json_text import Node
from mesh.interop.cli_settings.mcp_entries import (
    HOMES,
    NAME_PATTERN,
    SECRET_ENV,
    file_of,
    is_ours,
    on_stdio,
    over_http,
)
from mesh.interop.cli_settings.noted_edit import NotedEdit
from mesh.store import Store


@dataclass
class Told:
    """What came of it: the file, whether it was changed, and what a person should know."""

    path: str
    changed: bool
    notes: list[str] = field(default_factory=list)


class McpInstaller:
    """The entry of one CLI, in a home."""

    def __init__(
        self, store: Store, cli: str, home: str | None, environment: Mapping[str, str], name: str = "mesh"
    ) -> None:
        """Raises BadUse."""
        if home is not None and not os.path.isdir(home):
            raise BadUse(f"{home} is no folder.")
        if NAME_PATTERN.match(name) is None:
            raise BadUse(f"--name {name!r} is no name: it is small letters, digits, - and _.")
        self.cli = cli
        self.name = name
        self.path = file_of(cli, home, environment)
        self._store = store
        self._environment = environment
        self._home = HOMES[cli]

    def install(self, agent: str, url: str, *, stdio: bool = False) -> Told:
        """Write the entry, or bring it up to date. Raises SettingsRefused for one of that name which isn't the
        mesh's."""
        entry = self._wanted(agent, url, stdio)
        edit = NotedEdit(self._store, self.path, "" if self._is_toml else "{}\n")
        known = self._entry(edit.draft.text)
        if known is not None and not is_ours(known):
            raise SettingsRefused(
                f"{self.path} has another server called {self.name!r}: choose a name of your own with --name.",
                file=self.path,
            )
        if known != entry:
            self._put(edit.draft, entry)
            if self._entry(edit.draft.text) != entry:
                raise SettingsRefused(f"{self.path} can't be edited as it is; edit it by hand.", file=self.path)
        changed = edit.write() if known != entry else False
        return Told(self.path, changed, [] if stdio else self._notes(agent))

    def uninstall(self) -> Told:
        """Take the entry out: byte for byte what it was before, if nobody else has edited the file since. Raises
        SettingsRefused."""
        edit = NotedEdit(self._store, self.path)
        text = edit.draft.text
        if not text.strip() or not is_ours(self._entry(text)):
            return Told(self.path, False)
        self._remove(edit.draft)
        left = without_empty(self._document(edit.draft.text))

        def fits(before: str) -> bool:
            # Other edits of ours are noted in the same place: they must not be taken back with this one.
            return bool(without_empty(self._document(before)) == left)

        return Told(self.path, edit.take_back(fits))

    def problems(self, agent: str, url: str) -> list[str]:
        """What is wrong with the entry; nothing if it is as `install` writes it, in one of its two forms."""
        text = read(self.path).content
        entry = self._entry(text) if text.strip() else None
        if entry is None or not is_ours(entry):
            return [f"no server of the mesh called {self.name!r} is there; `mesh mcp install {self.cli}` adds it"]
        if entry == self._wanted(agent, url, stdio=True):
            gone = not os.access(_program(entry), os.X_OK)
            return [f"{_program(entry)} is there no more; `mesh mcp install {self.cli} --stdio` again"] if gone else []
        if entry != self._wanted(agent, url, stdio=False):
            return [
                f"it is for another agent, address or root; `mesh mcp install {self.cli} --agent {agent}` mends that"
            ]
        held = self._environment.get(SECRET_ENV)
        if held is not None and held != self._store.secrets.of(agent):
            return [f"{SECRET_ENV} here isn't {agent}'s secret"]
        return []

    def is_stdio(self) -> bool:
        """Whether the entry starts a server of its own."""
        text = read(self.path).content
        entry = self._entry(text) if text.strip() else None
        return entry is not None and is_ours(entry) and "command" in entry

    # -- inside

    @property
    def _is_toml(self) -> bool:
        return not self._home.keys

    def _wanted(self, agent: str, url: str, stdio: bool) -> dict[str, Any]:
        return on_stdio(self.cli, agent, self._store.layout.root) if stdio else over_http(self.cli, url)

    def _notes(self, agent: str) -> list[str]:
        secret = self._store.layout.secret(agent)
        if self._environment.get(SECRET_ENV) == self._store.secrets.of(agent):
            return []
        return [
            f'Sessions that you start yourself need: export {SECRET_ENV}="$(cat {secret})". '
            "Those that the mesh starts have it."
        ]

    def _entry(self, text: str) -> Any:
        if self._is_toml:
            return mcp_toml.entry_in(self.path, text, self.name)
        node = json_text.at(self._parse(text), (*self._home.keys, self.name))
        return None if node is None else node.value

    def _document(self, text: str) -> Any:
        if self._is_toml:
            return parse_toml(self.path, text)
        return self._parse(text).value if text.strip() else {}

    def _parse(self, text: str) -> Node:
        node = json_text.parse(self.path, text, comments=self._home.comments)
        found: Node | None = node
        for key in ("", *self._home.keys):
            found = found.members.get(key) if found is not None and key else found
            if found is not None and not isinstance(found.value, dict):
                raise SettingsRefused(
                    f"{self.path}: {key or 'the whole'} is no JSON object; mend that first.", file=self.path
                )
        return node

    def _put(self, draft: Draft, entry: dict[str, Any]) -> None:
        if self._is_toml:
            mcp_toml.put(self.path, draft, self.name, entry)
            return
        root = self._parse(draft.text)
        keys = (*self._home.keys, self.name)
        known = json_text.at(root, keys)
        if known is not None:
            json_text.put(draft, known, entry)
            return
        depth = next(depth for depth in range(len(keys) - 1, -1, -1) if json_text.at(root, keys[:depth]) is not None)
        value: Any = entry
        for key in reversed(keys[depth + 1 :]):
            value = {key: value}
        parent = json_text.at(root, keys[:depth])
        assert parent is not None
        json_text.add_member(draft, parent, keys[depth], value)

    def _remove(self, draft: Draft) -> None:
        if self._is_toml:
            mcp_toml.remove(self.path, draft, self.name)
            return
        root = self._parse(draft.text)
        parent = json_text.at(root, self._home.keys)
        assert parent is not None
        json_text.remove(draft, parent, parent.members[self.name])


def _program(entry: dict[str, Any]) -> str:
    command = entry["command"]
    return str(command[0] if isinstance(command, list) else command)
