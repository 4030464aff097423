"""Reading what CLIs print: JSON lines among noise, half-written ends, and the few facts that are taken from them.

What a CLI prints is data from outside. Nothing here raises on any text, and nothing is trusted to be of a type.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from mesh.models.running import Usage

Json = dict[str, Any]
#: A line longer than this is no event that we need (a whole file in a tool's result).
LINE_CHARACTERS_MAX = 4_000_000
DETAIL_CHARACTERS_MAX = 600
DOING_CHARACTERS_MAX = 100
_TOKENS_MAX = 10**12
_TRIES_A_LINE = 4
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|github_pat|xox[abp]|AIza)[-_]?[A-Za-z0-9_-]{16,}|(?i:\bbearer\s+)[A-Za-z0-9._~+/-]{16,}=*"
)
_SESSION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DECODER = json.JSONDecoder()


def plain(text: str) -> str:
    """The text without terminal sequences, control characters and half characters."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return _CONTROL.sub("", _ANSI.sub("", whole).replace("\r\n", "\n").replace("\r", "\n"))


def shown(text: str, characters_max: int = DETAIL_CHARACTERS_MAX) -> str:
    """Words of a CLI for people and logs: no secrets, one line, the middle left out where it is long."""
    line = " ".join(_SECRET.sub("[secret]", plain(text)).split())
    if len(line) <= characters_max:
        return line
    half = (characters_max - 3) // 2
    return f"{line[:half]} … {line[-half:]}"


def tail(text: str, lines: int = 8) -> str:
    """The last lines that aren't empty, for people."""
    kept = [line for line in plain(text[-20_000:]).splitlines() if line.strip()]
    return shown(" | ".join(line.strip() for line in kept[-lines:]))


def objects(text: str | Iterable[str]) -> Iterator[Json]:
    """Every JSON object that stands on a line of the output, in order, whatever else stands there."""
    # Not `splitlines`: JSON may hold U+2028 and its like as they are.
    for line in text.split("\n") if isinstance(text, str) else text:
        if "{" in line and len(line) <= LINE_CHARACTERS_MAX:
            yield from _on_line(line)


def _on_line(line: str) -> Iterator[Json]:
    at, tries = 0, 0
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    while tries < _TRIES_A_LINE and (at := line.find("{", at)) >= 0:
        try:
            found, at = _DECODER.raw_decode(line, at)
        except (ValueError, RecursionError):
            at, tries = at + 1, tries + 1
            continue
        yield found


def document(text: str) -> Json | None:
    """The last JSON object that may span lines, with noise before and after it; None if there is none."""
    clean = _ANSI.sub("", text)
    starts = [match.start() for match in re.finditer(r"^\{", clean, re.M)]
    for start in reversed(starts[-_TRIES_A_LINE:]):
        try:
            found: Json = _DECODER.raw_decode(clean, start)[0]
        except (ValueError, RecursionError):
            continue
        return found
    return None


# -- taking facts


def inner(value: Any, *keys: str) -> Any:
    """`value[key][key]…`, or None where there is no such thing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def words(value: Any) -> str:
    """A text as it may lie in a file, or an empty one where there is none."""
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")


def items(value: Any) -> list[Json]:
    """The objects of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def texts(value: Any, kind: str = "text") -> str:
    """The text of a message's content: a string, or parts of which those of the kind are taken."""
    if isinstance(value, str):
        return words(value)
    return "\n".join(filter(None, (words(part.get("text")) for part in items(value) if part.get("type") == kind)))


def session_id(value: Any) -> str | None:
    """The id of a session, if it may stand in a command line and name a file."""
    return value if isinstance(value, str) and _SESSION.fullmatch(value) else None


def count(value: Any) -> int | None:
    """A number of tokens, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and 0 <= value < _TOKENS_MAX else None


def money(value: Any) -> float | None:
    """An amount in US dollars, if it is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and 0 <= amount < 1e9 else None


def doing(name: Any, arguments: Any = None) -> str:
    """What it does, in a few words: the tool's name and the first of its arguments that is a text."""
    first = ""
    if isinstance(arguments, dict):
        first = next((words(value) for value in arguments.values() if isinstance(value, str) and value), "")
    elif isinstance(arguments, str):
        first = words(arguments)
    title = words(name) or "works"
    return shown(f"{title}: {first}" if first else title, DOING_CHARACTERS_MAX)


# -- usage


_SUMMED = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "cost_usd")


def added(one: Usage | None, other: Usage | None) -> Usage | None:
    """Both together; what only one of them tells counts as it is."""
    if one is None or other is None:
        return one or other
    total = one.model_copy(update={"model": other.model or one.model})
    for name in _SUMMED:
        amounts = [amount for amount in (getattr(one, name), getattr(other, name)) if amount is not None]
        setattr(total, name, sum(amounts) if amounts else None)
    return total


def since(now: Usage | None, before: Usage | None, *, resumed: bool) -> Usage | None:
    """What one call used, where a CLI tells sums over the session; None if the sum before it isn't known."""
    if now is None or not resumed:
        return now
    if before is None:
        return None
    rest = now.model_copy()
    for name in _SUMMED:
        total, earlier = getattr(now, name), getattr(before, name)
        if total is not None and earlier is not None:
            setattr(rest, name, max(total - earlier, 0))
    return rest
