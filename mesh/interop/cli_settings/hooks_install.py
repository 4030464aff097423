"""Installs the mesh's hooks with a CLI, takes them out again, and looks whether they work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from mesh.errors import BadUse
from mesh.interop.cli_settings import hooks_plugin, hooks_trust, json_text
from mesh.interop.cli_settings.edited_file import SettingsRefused, parse_toml, read, remove_folders, without_empty
from mesh.interop.cli_settings.hooks_command import Hook, hook_of_argv, missing
from mesh.interop.cli_settings.hooks_json import EVENTS, HookSettings, Place
from mesh.interop.cli_settings.noted_edit import NotedEdit
from mesh.models.runner_choice import Cli
from mesh.store import Store

#: CLI → the variable that names its folder, that folder below the home, the one below a project, the file in it.
_FOLDERS = {
    "claude": ("CLAUDE_CONFIG_DIR", ".claude", ".claude", "settings.json"),
    "codex": ("CODEX_HOME", ".codex", ".codex", "hooks.json"),
    "gemini": (None, ".gemini", ".gemini", "settings.json"),
    "opencode": ("OPENCODE_CONFIG_DIR", ".config/opencode", ".opencode", "plugins"),
    "pi": ("PI_CODING_AGENT_DIR", ".pi/agent", ".pi", "extensions"),
}
CLIS = tuple(_FOLDERS)
assert set(CLIS) <= set(get_args(Cli))


@dataclass
class Done:
    """What came of it: the file, whether it was changed, and what a person should know."""

    path: str
    changed: bool = False
    notes: list[str] = field(default_factory=list)


@dataclass
class Checked:
    """What there is in a file of the hooks of one agent."""

    path: str
    agent: str | None
    #: What is wrong; nothing if they work.
    problems: list[str] = field(default_factory=list)


class HookInstaller:
    """The hooks of one CLI, in a home or in a project."""

    def __init__(
        self, store: Store, cli: str, home: str | None, project: str | None, environment: Mapping[str, str]
    ) -> None:
        """Raises BadUse."""
        self.cli = cli
        self._store = store
        variable, in_home, in_project, name = _FOLDERS[cli]
        if home is not None and project is not None:
            raise BadUse("Say --home or --project, not both.")
        for folder in (home, project):
            if folder is not None and not os.path.isdir(folder):
                raise BadUse(f"{folder} is no folder.")
        own = environment.get(variable) if variable and home is None else None
        base = os.path.abspath(own or os.path.join(home or os.path.expanduser("~"), in_home))
        #: The CLI's own folder, which has its configuration also where hooks are a project's.
        self._base = base
        self._project = project
        self.place = os.path.join(os.path.abspath(os.path.join(project, in_project)) if project else base, name)

    def hook(self, agent: str) -> Hook:
        return Hook(self.cli, agent, self._store.layout.socket(agent))

    # -- doing

    def install(self, agent: str) -> Done:
        """Install the agent's hooks, or bring them up to date. Raises SettingsRefused."""
        hook = self.hook(agent)
        if self.cli not in EVENTS:
            return self._install_plugin(hook)
        settings = HookSettings(self.cli, self.place)
        edit = NotedEdit(self._store, self.place, "{}\n")
        settings.install(edit.draft, hook)
        done = Done(self.place, edit.write())
        if self.cli == "codex":
            self._trust(settings, done)
        if self._project and self.cli != "claude":
            done.notes.append(f"{self.cli} must trust the folder {self._project}, or it skips a project's hooks.")
        return done

    def uninstall(self, agent: str | None) -> Done:
        """Take out the agent's hooks, or without one all of this root's. Raises SettingsRefused."""
        if self.cli not in EVENTS:
            return self._uninstall_plugins(agent)
        if not read(self.place).content.strip():
            return Done(self.place)
        settings = HookSettings(self.cli, self.place)
        edit = NotedEdit(self._store, self.place)
        before = settings.places(edit.draft.text)
        settings.uninstall(edit.draft, lambda hook: self._whose(hook, agent))

        def rest(text: str) -> Any:
            # Other edits of ours are noted in the same place: they must not be taken back with this one.
            return without_empty(json_text.parse(self.place, text, comments=True).value) if text.strip() else {}

        left = rest(edit.draft.text)

        def fits(text: str) -> bool:
            return bool(rest(text) == left)

        done = Done(self.place, edit.take_back(fits))
        if self.cli == "codex":
            self._distrust(settings, before, done)
            remove_folders(edit.made)  # its configuration was the last thing there
        return done

    def check(self, agent: str | None) -> list[Checked]:
        """Look at the agent's hooks, or at all of this root's: one entry an agent, one without an agent for none."""
        found = self._check_json(agent) if self.cli in EVENTS else self._check_plugins(agent)
        return found or [Checked(self.place, agent, ["no hook of this mesh is installed here"])]

    # -- settings in JSON

    def _whose(self, hook: Hook, agent: str | None) -> bool:
        if agent is not None:
            return hook == self.hook(agent)
        return hook.cli == self.cli and hook.socket.startswith(f"{self._store.layout.agents}/")

    def _check_json(self, agent: str | None) -> list[Checked]:
        text = read(self.place).text
        settings = HookSettings(self.cli, self.place)
        places = settings.places(text) if text and text.strip() else []
        mine = [place for place in places if self._whose(place.hook, agent)]
        found = []
        for hook in dict.fromkeys(place.hook for place in mine):
            own = [place for place in mine if place.hook == hook]
            checked = Checked(self.place, hook.agent)
            lacking = [event for event in EVENTS[self.cli] if event not in {place.event for place in own}]
            checked.problems += [f"no hook for {', '.join(lacking)}"] if lacking else []
            commands = {place.command for place in own}
            checked.problems += self._problems_of(hook, commands == {hook.command()}, own[0].command)
            if self.cli == "codex":
                checked.problems += self._not_trusted(own)
            found.append(checked)
        return found

    def _problems_of(self, hook: Hook, present: bool, command: str) -> list[str]:
        import shlex

        problems = []
        gone = missing(shlex.split(command))
        if gone is not None:
            problems.append(gone)
        elif not present:
            problems.append("it was installed by another version or copy of the mesh")
        if hook.agent not in self._store.registry.current.agents:
            problems.append(f"the registry has no agent {hook.agent!r}")
        return problems

    # -- Codex' trust

    @property
    def _config(self) -> str:
        return os.path.join(self._base, "config.toml")

    def _trust(self, settings: HookSettings, done: Done) -> None:
        places = settings.places(read(self.place).content)
        wanted = hooks_trust.marks(self.place, [place for place in places if self._whose(place.hook, None)])
        try:
            edit = NotedEdit(self._store, self._config)
            hooks_trust.set_marks(self._config, edit.draft, wanted)
            done.changed |= edit.write() if edit.draft.text else False
        except SettingsRefused as error:
            done.notes.append(f"Codex skips hooks that aren't trusted: start it once and trust them ({error.detail}).")

    def _distrust(self, settings: HookSettings, before: list[Place], done: Done) -> None:
        """Take away the marks of hooks that went; those that moved up get theirs anew."""
        left = settings.places(read(self.place).content) if read(self.place).content.strip() else []
        wanted = hooks_trust.marks(self.place, left)
        gone = [key for key in hooks_trust.marks(self.place, before) if key not in wanted]
        try:
            edit = NotedEdit(self._store, self._config)
            if edit.file.text is None:
                return
            hooks_trust.set_marks(self._config, edit.draft, wanted, gone)

            left_there = without_empty(parse_toml(self._config, edit.draft.text))

            def fits(text: str) -> bool:
                return bool(without_empty(parse_toml(self._config, text)) == left_there)

            done.changed |= edit.take_back(fits)
        except SettingsRefused as error:
            done.notes.append(f"Marks of trust stay behind, which do no harm: {error.detail}")

    def _not_trusted(self, places: list[Place]) -> list[str]:
        known = hooks_trust.trusted(parse_toml(self._config, read(self._config).content))
        wanted = hooks_trust.marks(self.place, places)
        if all(known.get(key) == digest for key, digest in wanted.items()):
            return []
        return ["Codex doesn't trust it and skips it: `mesh hook install codex` again, or trust it in Codex"]

    # -- plugins

    def _install_plugin(self, hook: Hook) -> Done:
        path = os.path.join(self.place, hooks_plugin.file_name(self.cli, hook.agent))
        edit = NotedEdit(self._store, path)
        if edit.file.text is not None:
            hooks_plugin.hook_in(path, edit.file.text)  # nobody else's file is written over
        edit.draft.replace(0, len(edit.draft.text), hooks_plugin.plugin_text(hook))
        fetches = "OpenCode fetches its library for plugins from the npm registry when it starts next."
        changed = edit.draft.text != edit.file.text and edit.write()
        return Done(path, changed, [fetches] if changed and self.cli == "opencode" else [])

    def _uninstall_plugins(self, agent: str | None) -> Done:
        done = Done(self.place)
        for path, hook in self._plugins(agent):
            edit = NotedEdit(self._store, path)
            hooks_plugin.hook_in(path, edit.file.text or "")
            edit.draft.replace(0, len(edit.draft.text), "")
            done = Done(path, edit.take_back(lambda text: text == ""))
            if os.path.exists(path) and hook is not None:
                read(path).write(None)  # its note was lost
        return done

    def _plugins(self, agent: str | None) -> list[tuple[str, Hook | None]]:
        """Files of ours, and whose they are."""
        names = sorted(os.listdir(self.place)) if os.path.isdir(self.place) else []
        wanted = {hooks_plugin.file_name(self.cli, name): name for name in self._store.registry.current.agents}
        if agent is not None:
            wanted = {hooks_plugin.file_name(self.cli, agent): agent}
        found = []
        for name in names:
            path = os.path.join(self.place, name)
            if name in wanted:
                hook = hook_of_argv(hooks_plugin.argv_in(read(path).text or ""))
                found.append((path, hook))
        return [(path, hook) for path, hook in found if hook is None or self._whose(hook, agent)]

    def _check_plugins(self, agent: str | None) -> list[Checked]:
        found = []
        for path, _ in self._plugins(agent):
            checked = Checked(path, agent)
            text = read(path).text or ""
            try:
                hook = hooks_plugin.hook_in(path, text)
                checked.agent = hook.agent
                gone = missing(hooks_plugin.argv_in(text))
                old = text != hooks_plugin.plugin_text(hook)
                checked.problems += (
                    [gone] if gone else ["it was installed by another version of the mesh"] if old else []
                )
            except SettingsRefused as error:
                checked.problems.append(error.detail)
            found.append(checked)
        return found
