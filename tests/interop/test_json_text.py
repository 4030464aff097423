"""JSON that people keep: what a change leaves of their text, and what the way back brings."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.interop.cli_settings import json_text
from mesh.interop.cli_settings.edited_file import Draft, SettingsRefused, undone

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)
STYLES = st.sampled_from([None, 0, 1, 2, 4, "\t", "crlf"])


def written(value: Any, style: Any) -> str:
    if style == "crlf":
        return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\r\n") + "\r\n"
    return json.dumps(value, indent=style, ensure_ascii=style == 4)


def commented(text: str, value: Any) -> str:
    """The text with a comment behind each line that ends in a comma or a bracket, where it has lines."""
    lines = text.split("\n")
    return "\n".join(
        f"{line} // note {number}" if re.search(r"[,\[{]$", line) else line for number, line in enumerate(lines)
    )


def plain(text: str, *, comments: bool = False) -> Any:
    return json_text.parse("a.json", text, comments=comments).value


@given(VALUES, STYLES)
def test_reads_as_json_does(value: Any, style: Any) -> None:
    assert plain(written(value, style)) == value


@given(OBJECTS, STYLES, VALUES)
def test_a_member_comes_and_goes(document: dict[str, Any], style: Any, value: Any) -> None:
    document.pop("ours", None)
    before = written(document, style)
    draft = Draft(before)
    json_text.add_member(draft, json_text.parse("a.json", draft.text), "ours", value)
    assert plain(draft.text) == {**document, "ours": value}
    assert list(plain(draft.text)) == [*document, "ours"]
    assert undone(draft.text, draft.steps) == before
    again = Draft(draft.text)
    root = json_text.parse("a.json", again.text)
    json_text.remove(again, root, root.members["ours"])
    assert plain(again.text) == document and list(plain(again.text)) == list(document)
    if document:
        assert again.text == before


@given(st.lists(VALUES, max_size=5), STYLES, VALUES, st.integers(0, 5))
def test_an_item_comes_and_any_goes(items: list[Any], style: Any, value: Any, gone: int) -> None:
    draft = Draft(written({"list": items}, style))
    json_text.add_item(draft, json_text.parse("a.json", draft.text).members["list"], value)
    assert plain(draft.text) == {"list": [*items, value]}
    gone = min(gone, len(items))
    parent = json_text.parse("a.json", draft.text).members["list"]
    json_text.remove(draft, parent, parent.items[gone])
    left = [*items, value]
    del left[gone]
    assert plain(draft.text) == {"list": left}
    assert undone(draft.text, draft.steps) == written({"list": items}, style)


@given(OBJECTS, st.sampled_from([1, 2, 4, "\t"]), VALUES)
def test_comments_stay(document: dict[str, Any], style: Any, value: Any) -> None:
    document.pop("ours", None)
    before = commented(written(document, style), document)
    notes = re.findall(r"// note \d+", before)
    draft = Draft(before)
    json_text.add_member(draft, json_text.parse("a.json", draft.text, comments=True), "ours", value)
    assert plain(draft.text, comments=True) == {**document, "ours": value}
    root = json_text.parse("a.json", draft.text, comments=True)
    json_text.remove(draft, root, root.members["ours"])
    assert plain(draft.text, comments=True) == document
    assert re.findall(r"// note \d+", draft.text) == notes


def test_a_comma_too_many_and_comments_around() -> None:
    before = '{\n  // first\n  "a": [1, 2,], /* mid */\n  "b": 1, // last\n}\n'
    draft = Draft(before)
    json_text.add_member(draft, json_text.parse("a.json", before, comments=True), "c", {"x": []})
    assert plain(draft.text, comments=True) == {"a": [1, 2], "b": 1, "c": {"x": []}}
    assert draft.text.startswith(before[:-2])
    assert undone(draft.text, draft.steps) == before


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('{\n "a": 1\n "b": 2}', 3, "comma"),
        ('{"a": 1,\n}', 2, "double quotes"),
        ("", 1, "missing"),
        ('{"a":\n\n}', 3, "not expected"),
        ('{"a": 1}\n{', 2, "follows"),
        ('{"a": "x\n"}', 1, "control character"),
        ('{"a": 1,\n"a": 2}', 2, "twice"),
        ('{"a": 1, // no\n"b": 2}', 1, "double quotes"),
        ("[" * 200, 1, "deep"),
        ('{"a"\n1}', 2, "colon"),
        ('{"a": [1, 2', 1, "comma or"),
    ],
)
def test_what_is_broken_is_named_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(SettingsRefused, match=what) as refused:
        json_text.parse("/home/x/settings.json", text)
    assert refused.value.facts["line"] == line and f"/home/x/settings.json, line {line}:" in refused.value.detail


def test_the_way_back_refuses_another_text() -> None:
    draft = Draft('{"a": 1}')
    json_text.add_member(draft, json_text.parse("a", draft.text), "b", 2)
    with pytest.raises(ValueError, match="another text"):
        undone('{"a": 1, "c": 2}', draft.steps)
