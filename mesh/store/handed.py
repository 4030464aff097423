"""`agents/<id>/handed.json`: mail whose text was handed out and isn't known to have been shown.

Written before the text leaves, so that who comes after a crash knows that it may have been seen: it isn't handed out
the same way again. No flush: with the power the reader went too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

from pydantic import ValidationError

from mesh.models.base import Filed
from mesh.store.codec import encode
from mesh.store.documents import Documents, Kind
from mesh.store.files import Files
from mesh.store.layout import Layout

HANDED = Kind("handed", {"mail": list})


class Handed(Filed):
    """One message that was handed out."""

    id: str
    #: Its file in the inbox.
    name: str
    at: str
    #: To whom: a hook of the session, or the runner.
    by: Literal["hook", "runner", "both"]
    session: str | None = None


class HandedMail:
    """Written by the agent's own service alone."""

    def __init__(self, files: Files, documents: Documents, layout: Layout) -> None:
        self._files = files
        self._documents = documents
        self._layout = layout

    def all(self, agent: str) -> list[Handed]:
        """What was handed out; entries that a hand edit broke are left out."""
        document: dict[str, Any] = self._documents.read(self._path(agent), HANDED) or HANDED.empty()
        found = []
        for entry in document["mail"]:
            with suppress(ValidationError):
                found.append(Handed.model_validate(entry))
        return found

    def write(self, agent: str, handed: list[Handed]) -> None:
        """Record what is handed out by now."""
        path = self._path(agent)
        if handed or self._files.exists(path):
            document = {"schemaVersion": HANDED.version, "mail": [entry.dump() for entry in handed]}
            self._files.replace_quickly(path, encode(document), flushed=False)

    def _path(self, agent: str) -> str:
        return f"{self._layout.agent(agent)}/handed.json"
