"""What a transcript tells of a session, whichever CLI wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from mesh.models.running import Occupancy, Usage

#: Of English and of code, about: what Pi estimates with too.
CHARS_PER_TOKEN = 3.5


@dataclass(frozen=True)
class Turn:
    """Where the session stands: its turn is over, it works, it waits for a tool, or nobody can tell."""

    state: Literal["ended", "working", "tool", "unknown"] = "unknown"
    #: The tool that has been called and has not answered; of several, the one that was called first.
    tool: str | None = None
    #: Since when it stands so (ISO 8601 UTC), if the transcript says.
    since: str | None = None


@dataclass(frozen=True)
class Reading:
    """What the transcript says now. What it doesn't say is None, never 0."""

    occupancy: Occupancy | None = None
    turn: Turn = Turn()
    #: As `provider/model`, or the model alone where the CLI doesn't name its provider.
    model: str | None = None
    #: Of the last call alone.
    usage: Usage | None = None
    #: By which rule the occupancy was found, in a sentence for people.
    rule: str = ""
    #: Who says how large the window is.
    window_source: str = ""
    #: Why nothing, or nothing new, could be read.
    problem: str | None = None


class Transcript(Protocol):
    """One session's transcript. Kept by whoever asks again: it remembers how far it has read."""

    @property
    def path(self) -> str: ...

    def read(self) -> Reading:
        """What stands there now, at the cost of what is new. Never raises: what is damaged or missing is skipped,
        and `problem` says so where nothing is left. Reads files: not to be called in an event loop's thread."""
        ...


def estimate_tokens(text: str | int) -> int:
    """About how many tokens the text is, or so many characters are. Costs nothing, and is off by a third at times."""
    chars = text if isinstance(text, int) else len(text)
    return int(-(-chars // CHARS_PER_TOKEN))
