"""Hooks in the JSON settings of Claude Code, Codex and Gemini: `hooks.EVENT[].hooks[].command`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from mesh.interop.cli_settings import json_text
from mesh.interop.cli_settings.edited_file import Draft, SettingsRefused
from mesh.interop.cli_settings.hooks_command import Hook, hook_of
from mesh.interop.cli_settings.json_text import Node

_TURNS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
EVENTS = {
    "claude": _TURNS,
    "codex": _TURNS,
    "gemini": ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "SessionEnd"),
}
#: Longer than the program ever takes, and no longer than Codex lets the end of a session wait. Gemini counts in ms.
_TIMEOUTS = {"claude": 3, "codex": 3, "gemini": 3_000}
#: Whose settings may hold comments.
COMMENTS = frozenset({"gemini"})


@dataclass(frozen=True)
class Place:
    """A hook of ours in the file."""

    hook: Hook
    event: str
    #: Which entry of the event's list, and which of its hooks.
    group: int
    number: int
    command: str
    timeout: Any


class HookSettings:
    """The hooks in one file of one CLI."""

    def __init__(self, cli: str, path: str) -> None:
        self.cli = cli
        self.path = path

    def places(self, text: str) -> list[Place]:
        """Every hook of the mesh's. Raises SettingsRefused."""
        return [place for place, _ in self._ours(self._parse(text))]

    def install(self, draft: Draft, hook: Hook) -> None:
        """Put the hook in, once for each event; what is there already is brought up to date in its place."""
        before = self._foreign(draft.text)
        self._drop(draft, lambda place, seen: place.hook == hook and (place.event in seen or not self._wants(place)))
        for event in EVENTS[self.cli]:
            self._put(draft, hook, event)
        self._check(before, draft)

    def uninstall(self, draft: Draft, whose: Callable[[Hook], bool]) -> None:
        """Take these hooks out, and what is empty without them."""
        before = self._foreign(draft.text)
        self._drop(draft, lambda place, seen: whose(place.hook))
        self._check(before, draft)

    # -- inside

    def _wants(self, place: Place) -> bool:
        return place.event in EVENTS[self.cli]

    def _put(self, draft: Draft, hook: Hook, event: str) -> None:
        entry = {"type": "command", "command": hook.command(), "timeout": _TIMEOUTS[self.cli]}
        root = self._parse(draft.text)
        for place, node in self._ours(root):
            if (place.hook, place.event) == (hook, event):
                if node.value != entry:
                    json_text.put(draft, node, entry)
                return
        group = {"hooks": [entry]}
        hooks = root.members.get("hooks")
        if hooks is None:
            json_text.add_member(draft, root, "hooks", {event: [group]})
        elif event in hooks.members:
            json_text.add_item(draft, hooks.members[event], group)
        else:
            json_text.add_member(draft, hooks, event, [group])

    def _drop(self, draft: Draft, goes: Callable[[Place, set[str]], bool]) -> None:
        while True:
            root = self._parse(draft.text)
            seen: set[str] = set()
            for place, _ in self._ours(root):
                if goes(place, seen):
                    self._remove(draft, root, place)
                    break
                seen.add(place.event)
            else:
                return

    def _remove(self, draft: Draft, root: Node, place: Place) -> None:
        """Remove the hook, or the outermost thing that holds nothing else."""
        hooks = root.members["hooks"]
        event = hooks.members[place.event]
        group = event.items[place.group]
        handlers = group.members["hooks"]
        parent, child = handlers, handlers.items[place.number]
        for holder, outer in ((handlers, (event, group)), (event, (hooks, event)), (hooks, (root, hooks))):
            if len(holder.children()) != 1:
                break
            parent, child = outer
        json_text.remove(draft, parent, child)

    def _ours(self, root: Node) -> Iterator[tuple[Place, Node]]:
        hooks = root.members.get("hooks")
        for event, groups in hooks.members.items() if hooks is not None else ():
            for number, group in enumerate(groups.items):
                handlers = group.members.get("hooks")
                for index, node in enumerate(handlers.items if handlers is not None else ()):
                    entry = node.value if isinstance(node.value, dict) else {}
                    command = entry.get("command")
                    hook = hook_of(command)
                    if hook is not None:
                        yield Place(hook, event, number, index, str(command), entry.get("timeout")), node

    def _parse(self, text: str) -> Node:
        root = json_text.parse(self.path, text, comments=self.cli in COMMENTS)
        self._check_shape(text, root, dict, "the file")
        hooks = root.members.get("hooks")
        if hooks is not None:
            self._check_shape(text, hooks, dict, "'hooks'")
            for event in EVENTS[self.cli]:
                if event in hooks.members:
                    self._check_shape(text, hooks.members[event], list, f"'hooks.{event}'")
        return root

    def _check_shape(self, text: str, node: Node, shape: type, name: str) -> None:
        if not isinstance(node.value, shape):
            line = text.count("\n", 0, node.start) + 1
            what = "an object" if shape is dict else "a list"
            detail = f"{self.path}, line {line}: {name} is not {what}; mend that first."
            raise SettingsRefused(detail, file=self.path, line=line)

    def _foreign(self, text: str) -> Any:
        """All that isn't ours, for comparison."""
        document = dict(self._parse(text).value)
        hooks = document.pop("hooks", {})
        events = {}
        for event, groups in hooks.items():
            kept = [_without_ours(group) for group in groups] if isinstance(groups, list) else groups
            kept = [group for group in kept if group is not None] if isinstance(kept, list) else kept
            if kept != []:
                events[event] = kept
        return document, events

    def _check(self, before: Any, draft: Draft) -> None:
        """Nothing of anybody else's may have changed, or this is no edit to write."""
        if self._foreign(draft.text) != before:
            raise SettingsRefused(f"{self.path} can't be edited without touching what isn't ours.", file=self.path)


def _without_ours(group: Any) -> Any:
    """The group without hooks of ours; None if there was nothing else in it."""
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return group
    kept = [entry for entry in group["hooks"] if not (isinstance(entry, dict) and hook_of(entry.get("command")))]
    return None if not kept and group["hooks"] else {**group, "hooks": kept}
