"""What every model shares: key style, what happens to unknown keys, and the forms of ids."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

SCHEMA_VERSION = 1

AGENT_ID_PATTERN = r"^[a-z][a-z0-9-]{0,31}$"
ID_PATTERN = r"^[A-Za-z0-9._-]{1,128}$"
HUMAN = "human"
RESERVED_IDS = frozenset({HUMAN, "operator", "local", "any", "all", "mesh", "registry", "health"})

AgentId = Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]


def is_id(text: str) -> bool:
    """Whether the text may name a task or a message. `.` and `..` can't: ids become file names."""
    return re.fullmatch(ID_PATTERN, text) is not None and not text.startswith(".")


class Filed(BaseModel):
    """A shape that lies in a file: keys that a newer version added survive a rewrite."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    def dump(self) -> dict[str, Any]:
        """As it is written: camelCase keys, plain JSON values."""
        return self.model_dump(mode="json", by_alias=True)


class Asked(BaseModel):
    """A shape that somebody sends or edits by hand: unknown keys are mistakes and refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")
