"""What the program says at its end: one JSON line on its standard output, nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote

from pydantic import ValidationError

from mesh.models.base import Filed
from mesh.models.running import Usage
from mesh.runners.profile import Problem

#: Shorter than any key; what a local model's server is given because its client insists on something.
_KEY_CHARS_MIN = 8


class Trouble(Filed):
    """Why there is no result; the kinds are those of `Problem`."""

    kind: Literal["failed", "logged_out", "limited", "broken"]
    detail: str
    until: str | None = None


class Reply(Filed):
    """The line. `text` may be there beside a problem: what the model had to say about it."""

    text: str = ""
    evidence: list[str] = []
    usage: Usage | None = None
    #: As the provider called it, with the provider's name in front.
    model: str | None = None
    #: The conversation that can be gone on with; None if it was not kept.
    session: str | None = None
    #: What the last call saw and said: how full the context is.
    context_tokens: int | None = None
    problem: Trouble | None = None

    def line(self, keys: Iterable[str] = ()) -> str:
        """The JSON line, without any of the keys."""
        return scrubbed(self.model_dump_json(by_alias=True, exclude_none=True), keys)


def reply_in(stdout: str) -> Reply | None:
    """The reply in what the program printed, or None if there is none."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("{"):
            try:
                return Reply.model_validate_json(line)
            except ValidationError:
                return None
    return None


def trouble(problem: Problem) -> Trouble:
    return Trouble(kind=problem.kind, detail=problem.detail, until=problem.until)


def scrubbed(text: str, keys: Iterable[str]) -> str:
    """The text with every key in it replaced, also as JSON and addresses spell it."""
    for key in keys:
        if len(key) >= _KEY_CHARS_MIN:
            for spelled in {key, json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1], quote(key, safe="")}:
                text = text.replace(spelled, "[key]")
    return text
