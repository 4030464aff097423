"""What the fold of a transcript carries from line to line, and how it takes values that may be anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from mesh import clock
from mesh.models.running import Occupancy, Usage
from mesh.models.windows import find_window
from mesh.runners.transcripts.reading import Reading, Turn, estimate_tokens

Entry = Mapping[str, Any]
#: One step of a format: the state before, one line's JSON object, the state after. Pure; never raises.
Fold = Callable[["State", Entry], "State"]

_TOKENS_MAX = 10**10
_TEXT_MAX = 200
#: More calls at once than any CLI makes: a file that is nothing but calls stays small in memory.
_CALLS_MAX = 64
#: How the names of models begin that only one provider has.
_PROVIDERS = {"claude-": "anthropic", "gemini-": "google", "gpt-": "openai", "codex-": "openai"}


@dataclass(frozen=True)
class Call:
    """A tool call that has not been answered yet."""

    id: str
    name: str
    since: str | None


@dataclass(frozen=True)
class State:
    """All that is known after some lines. None is unknown."""

    #: What the last call saw, and what it answered.
    tokens: int | None = None
    estimated: bool = False
    rule: str = ""
    at: str | None = None
    #: Characters that came after the last call, for the formats whose rule counts them.
    later_chars: int = 0
    window: int | None = None
    model: str | None = None
    usage: Usage | None = None
    stands: Literal["ended", "working", "unknown"] = "unknown"
    since: str | None = None
    calls: tuple[Call, ...] = ()
    #: The answer that the last lines belong to, in formats that split one over several lines.
    answer: str | None = None
    #: What a format has to remember beside.
    mark: Any = None

    @property
    def settled(self) -> bool:
        """Whether nothing that stands further up could add to it."""
        return self.tokens is not None and self.stands != "unknown"

    def but(self, **changes: Any) -> State:
        """The state with some fields changed. `dataclasses.replace` takes seven times as long, and a first look at a
        large file would spend half its time there."""
        new = object.__new__(State)
        new.__dict__.update(self.__dict__, **changes)
        return new

    def saw(self, tokens: int, rule: str, at: str | None, *, estimated: bool = False) -> State:
        """A call's figure: it replaces what was known. None is seen by 0: a CLI writes that when it doesn't know."""
        if tokens <= 0:
            return self
        return self.but(tokens=tokens, rule=rule, at=at, estimated=estimated, later_chars=0)

    def forgot(self, rule: str) -> State:
        """The context was cut: what the last call saw says nothing about the next one."""
        return self.but(tokens=None, rule=rule, at=None, estimated=False, later_chars=0)

    def works(self, at: str | None) -> State:
        """A turn goes on, or has begun."""
        same = self.stands == "working" and self.since is not None
        return self.but(stands="working", since=self.since if same else at)

    def begins(self, at: str | None) -> State:
        """Somebody has asked for something: no tool that was called before will answer now."""
        return self.but(stands="working", since=at, calls=())

    def ends(self, at: str | None) -> State:
        return self.but(stands="ended", since=at, calls=())

    def calls_tool(self, id_: str, name: str, at: str | None) -> State:
        kept = tuple(call for call in self.calls if call.id != id_)[-_CALLS_MAX + 1 :]
        return self.works(at).but(calls=(*kept, Call(id_, name or "a tool", at)))

    def answered(self, id_: str, at: str | None) -> State:
        if self.stands == "ended":  # late: the turn was broken off
            return self
        return self.works(at).but(calls=tuple(call for call in self.calls if call.id != id_))

    def turn(self) -> Turn:
        if self.stands == "working" and self.calls:
            first = self.calls[0]
            return Turn("tool", first.name, first.since)
        return Turn(self.stands, None, self.since)

    def reading(self, cli: str, windows: Mapping[str, int], at: str | None = None) -> Reading:
        """The state as a reading; `at` dates a figure that carries no time itself."""
        later = estimate_tokens(self.later_chars)
        tokens = None if self.tokens is None else self.tokens + later
        named = find_window(self.model, windows, tokens or 0)
        window = self.window or (named.tokens if named else None)
        source = "the transcript" if self.window else named.source if named else ""
        return Reading(
            occupancy=None if tokens is None else self._occupancy(cli, tokens, window, at),
            turn=self.turn(),
            model=self.model,
            usage=self.usage,
            rule=self.rule + (f", and an estimate of the {self.later_chars:,} characters since" if later else ""),
            window_source=source,
        )

    def _occupancy(self, cli: str, tokens: int, window: int | None, at: str | None) -> Occupancy:
        source = f"{cli} transcript"
        if self.later_chars:
            source += f", with an estimate of {self.later_chars:,} characters"
        estimated = self.estimated or self.later_chars > 0
        return Occupancy(tokens=tokens, window=window, source=source, at=self.at or at, estimated=estimated)


def parse(line: bytes | bytearray | str) -> Entry | None:
    """The JSON object that a line is, or None if it is none. Takes NUL bytes that a crash left around it, and
    replaces what is no UTF-8."""
    text = line if isinstance(line, str) else line.strip(b"\0 \t\r\n").decode("utf-8", "replace")
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def mapping(value: Any) -> Entry:
    """The value, if it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> Iterator[Entry]:
    """The objects in a list; nothing where it is none."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def count(value: Any) -> int:
    """A number of tokens; 0 for all that can't be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= _TOKENS_MAX else 0


def text(value: Any) -> str:
    """A short text for people, safe to write anywhere; empty for what is none."""
    if not isinstance(value, str):
        return ""
    return value[:_TEXT_MAX].encode("utf-8", "replace").decode()


def moment(value: Any) -> str | None:
    """The time of a line, as ISO 8601 UTC: from ISO text, or from milliseconds (or seconds) since 1970."""
    try:
        if isinstance(value, str):
            return clock.iso(clock.parse(value))
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return clock.iso(datetime.fromtimestamp(value / 1000 if value > 10**11 else value, UTC))
    except (ValueError, OverflowError, OSError):
        return None
    return None


def model_name(provider: Any, model: Any) -> str | None:
    """`provider/model`, or the model alone."""
    named, by = text(model), text(provider)
    return (f"{by}/{named}" if by else named) if named else None


def full_name(model: Any) -> str | None:
    """The name of a model whose provider the CLI doesn't write, with the provider that the name gives away."""
    named = text(model)
    return model_name(next((by for start, by in _PROVIDERS.items() if named.startswith(start)), None), named)


def chars_of(content: Any, image_chars: int = 0) -> int:
    """How many characters of text a message's content holds: a text, or a list of parts."""
    if isinstance(content, str):
        return len(content)
    return sum(_part_chars(part, image_chars) for part in listed(content))


def _part_chars(part: Entry, image_chars: int) -> int:
    kind = part.get("type")
    if kind in ("image", "input_image"):
        return image_chars
    if kind in ("toolCall", "tool_use"):
        return len(text(part.get("name"))) + _json_chars(part.get("arguments", part.get("input")))
    inner = part.get("content")
    shown = next((part[key] for key in ("text", "thinking") if isinstance(part.get(key), str)), inner)
    if isinstance(shown, str):
        return len(shown)
    return sum(len(item["text"]) for item in listed(inner) if isinstance(item.get("text"), str))


def _json_chars(value: Any) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False))
    except (ValueError, RecursionError):  # nested as deep as no tool's arguments are
        return 0
