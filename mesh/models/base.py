"""What every model shares: key style, what happens to unknown keys, and the forms of ids."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

SCHEMA_VERSION = 1

AGENT_ID_PATTERN = r"^[a-z][a-z0-9-]{0,31}$"
ID_PATTERN = r"^[A-Za-z0-9._-]{1,128}$"
HUMAN = "human"
RESERVED_IDS = frozenset({HUMAN, "operator", "local", "any", "all", "mesh", "registry", "health"})

AgentId = Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
#: An id that names a file: no path leads out of its folder.
FileId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
#: One line of text for people: no control characters, which would break tables and logs.
Line = Annotated[
    str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
_DEPTH_MAX = 32
_DERIVED_FROM_MAX = 90


def plain_json(value: Any) -> Any:
    """The value, if every reader of JSON can take it: nested 32 deep at most, no NaN or infinity, no text that is
    half of a character."""
    _check_plain(value, _DEPTH_MAX)
    return value


def _check_plain(value: Any, depth: int) -> None:
    if not isinstance(value, str | int | float | dict | list | None):
        raise ValueError(f"{type(value).__name__} is no JSON value")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    if isinstance(value, str) and not _is_text(value):
        raise ValueError("holds half of a character (a lone surrogate)")
    if isinstance(value, dict | list):
        if not depth:
            raise ValueError(f"nested more than {_DEPTH_MAX} deep")
        for inner in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_plain(inner, depth - 1)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


PlainJson = Annotated[dict[str, Any], AfterValidator(plain_json)]


def is_id(text: str) -> bool:
    """Whether the text may name a task or a message. `.` and `..` can't: ids become file names."""
    return re.fullmatch(ID_PATTERN, text) is not None and not text.startswith(".")


def derived_id(id_: str, *, prefix: str = "", suffix: str = "") -> str:
    """An id that follows from another, always the same. Where that is too long to be part of it, its hash is."""
    name = id_ if len(id_) <= _DERIVED_FROM_MAX else hashlib.sha256(id_.encode()).hexdigest()
    return f"{prefix}{name}{suffix}"


class Filed(BaseModel):
    """A shape that lies in a file: keys that a newer version added survive a rewrite."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    def dump(self) -> dict[str, Any]:
        """As it is written: camelCase keys, plain JSON values."""
        return self.model_dump(mode="json", by_alias=True)


class Asked(BaseModel):
    """A shape that somebody sends or edits by hand: unknown keys are mistakes and refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")
