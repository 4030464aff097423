"""JSON as people keep it: changed where it must be, every other character left as it stands.

The parts of a text are found with their places, so that a change is a few insertions; comments (where a CLI allows
them), order and spacing survive. Read a text with `parse` again after each change: places move.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from mesh.interop.cli_settings.edited_file import Draft, SettingsRefused

_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_DEPTH_MAX = 100
_INDENT = "  "


@dataclass
class Node:
    """A value and where it stands: `text[start:end]`."""

    start: int
    end: int
    value: Any = None
    #: Of an object: key → value, and where the key starts.
    members: dict[str, Node] = field(default_factory=dict)
    key_start: int = 0
    #: Of a list.
    items: list[Node] = field(default_factory=list)
    #: Where the comma behind it stands, if there is one.
    comma: int | None = None

    def children(self) -> list[Node]:
        return list(self.members.values()) or self.items

    @property
    def whole_start(self) -> int:
        """Where it starts, its key included."""
        return self.key_start or self.start


def parse(path: str, text: str, *, comments: bool = False) -> Node:
    """The JSON in a text of the file `path`; with `comments` those and a comma too many are allowed. Raises
    SettingsRefused, which names the line, also for a key that stands twice in one object."""
    return _Reader(path, text, comments).document()


def at(node: Node, keys: Sequence[str | int]) -> Node | None:
    """The value at these keys, or None."""
    found: Node | None = node
    for key in keys:
        if found is None:
            return None
        if isinstance(key, int):
            found = found.items[key] if isinstance(found.value, list) and -1 < key < len(found.items) else None
        else:
            found = found.members.get(key) if isinstance(found.value, dict) else None
    return found


def add_member(draft: Draft, parent: Node, key: str, value: Any) -> None:
    """Add a member at the end of an object that has no such key."""
    _insert(draft, parent, lambda indent: f"{json.dumps(key, ensure_ascii=False)}: {_dumped(draft, value, indent)}")


def add_item(draft: Draft, parent: Node, value: Any) -> None:
    """Add an item at the end of a list."""
    _insert(draft, parent, lambda indent: _dumped(draft, value, indent))


def put(draft: Draft, node: Node, value: Any) -> None:
    """Write another value in the place of one."""
    draft.replace(node.start, node.end, _dumped(draft, value, _indent_of(draft.text, node.whole_start)))


def remove(draft: Draft, parent: Node, child: Node) -> None:
    """Take a member or an item away, with its comma and its line; comments beside it stay."""
    text, children = draft.text, parent.children()
    index = next(number for number, other in enumerate(children) if other is child)
    last = index == len(children) - 1
    end = child.end if child.comma is None else child.comma + 1
    if child.comma is not None and text[child.end : child.comma].strip():
        end = child.end  # a comment stands before the comma
        draft.replace(child.comma, child.comma + 1, "")
    start = child.whole_start
    if last and _SPACE.match(text, end).end() == parent.end - 1:  # type: ignore[union-attr]
        start = len(text[:start].rstrip(" \t\r\n"))
        if start == parent.start + 1:
            end = parent.end - 1
    else:
        end = _SPACE.match(text, end).end() if not _breaks(text, end) else end  # type: ignore[union-attr]
        if _breaks(text, end):
            start = len(text[:start].rstrip(" \t"))
            start = len(text[:start].removesuffix("\n").removesuffix("\r"))
    draft.replace(start, end, "")
    before = children[index - 1] if index else None
    if last and before is not None and before.comma is not None:
        draft.replace(before.comma, before.comma + 1, "")


def _breaks(text: str, place: int) -> bool:
    """Whether the line ends there."""
    rest = text[place : place + 200].lstrip(" \t")
    return rest.startswith(("\n", "\r\n"))


# -- writing


def _insert(draft: Draft, parent: Node, written: Any) -> None:
    text, children = draft.text, parent.children()
    close = parent.end - 1
    if not children:
        inside = text[parent.start + 1 : close]
        place = parent.start + 1 + len(inside.rstrip())  # behind comments, if there are any
        outer = _indent_of(text, parent.start)
        indent = outer + _unit(text)
        draft.replace(place, close, f"{_line(text)}{indent}{written(indent)}{_line(text)}{outer}")
        return
    last = children[-1]
    compact = "\n" not in text[parent.start : children[0].whole_start]
    indent = _indent_of(text, children[0].whole_start)
    before = " " if compact else f"{_line(text)}{indent}"
    place = len(text[:close].rstrip(" \t\r\n"))
    new = before + written(indent)
    if last.comma is not None:
        draft.replace(place, place, new)
    elif place == last.end:
        draft.replace(place, place, "," + new)
    else:
        draft.replace(place, place, new)
        draft.replace(last.end, last.end, ",")


def _dumped(draft: Draft, value: Any, indent: str) -> str:
    line = _line(draft.text)
    lines = json.dumps(value, indent=_unit(draft.text), ensure_ascii=False).split("\n")
    return f"{line}{indent}".join(lines)


def _line(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of(text: str, place: int) -> str:
    """What the line of that place begins with."""
    start = text.rfind("\n", 0, place) + 1
    found = re.compile(r"[ \t]*").match(text, start)
    assert found is not None
    return found[0]


def _unit(text: str) -> str:
    """One step of indentation, as the text has it."""
    found = re.search(r"\n([ \t]+)[^ \t\r\n]", text)
    return found[1] if found else _INDENT


# -- reading


class _Reader:
    def __init__(self, path: str, text: str, comments: bool) -> None:
        self._path = path
        self._text = text
        self._comments = comments

    def document(self) -> Node:
        node = self._value(self._skip(0), 0)
        end = self._skip(node.end)
        if end != len(self._text):
            raise self._broken(end, "something follows the end")
        return node

    def _value(self, place: int, depth: int) -> Node:
        if depth > _DEPTH_MAX:
            raise self._broken(place, f"nested more than {_DEPTH_MAX} deep")
        sign = self._text[place : place + 1]
        if sign == "{":
            return self._object(place, depth)
        if sign == "[":
            return self._list(place, depth)
        if sign == '"':
            value, end = self._string(place)
            return Node(place, end, value)
        found = _SCALAR.match(self._text, place)
        if found is None:
            raise self._broken(place, "a value is missing" if not sign else f"{sign!r} is not expected")
        return Node(place, found.end(), json.loads(found[0]))

    def _object(self, start: int, depth: int) -> Node:
        node = Node(start, start, {})
        for place in self._parts(node, "}"):
            if self._text[place : place + 1] != '"':
                raise self._broken(place, "a key in double quotes is missing")
            key, end = self._string(place)
            colon = self._skip(end)
            if self._text[colon : colon + 1] != ":":
                raise self._broken(colon, f"a colon is missing after {key!r}")
            if key in node.members:
                raise self._broken(place, f"{key!r} stands twice in one object")
            child = self._value(self._skip(colon + 1), depth + 1)
            child.key_start = place
            node.members[key], node.value[key] = child, child.value
        return node

    def _list(self, start: int, depth: int) -> Node:
        node = Node(start, start, [])
        for place in self._parts(node, "]"):
            child = self._value(place, depth + 1)
            node.items.append(child)
            node.value.append(child.value)
        return node

    def _parts(self, node: Node, closing: str) -> Iterator[int]:
        """Where each part starts; whoever takes one adds it to the node before it asks for the next."""
        place, first = self._skip(node.start + 1), True
        while self._text[place : place + 1] != closing:
            if not first:
                last = node.children()[-1]
                if self._text[place : place + 1] != ",":
                    raise self._broken(place, f"a comma or {closing!r} is missing")
                last.comma = place
                place = self._skip(place + 1)
                if self._text[place : place + 1] == closing and self._comments:
                    break
            yield place
            place, first = self._skip(node.children()[-1].end), False
        node.end = place + 1

    def _string(self, place: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self._text, place + 1, True)
        except json.JSONDecodeError as error:
            raise self._broken(error.pos, error.msg) from None
        return str(value), int(end)

    def _skip(self, place: int) -> int:
        while True:
            found = _SPACE.match(self._text, place)
            assert found is not None
            place = found.end()
            comment = _COMMENT.match(self._text, place) if self._comments else None
            if comment is None:
                return place
            place = comment.end()

    def _broken(self, place: int, what: str) -> SettingsRefused:
        line = self._text.count("\n", 0, place) + 1
        return SettingsRefused(f"{self._path}, line {line}: {what}; mend that first.", file=self._path, line=line)
