"""`system/edits/`: what the mesh changed in files that aren't its own, so that it can take that back exactly.

One note a file, named after its path. It holds the way back in single steps, never the file's content: there may be
keys in it.
"""

from __future__ import annotations

import hashlib

from pydantic import ValidationError

from mesh.models.base import SCHEMA_VERSION, Filed
from mesh.store.codec import decode, encode
from mesh.store.files import Files
from mesh.store.layout import Layout


class TextStep(Filed):
    """At `at` (characters), `drop` was replaced by `put`."""

    at: int
    drop: str
    put: str


class EditNote(Filed):
    """How a file was changed."""

    schema_version: int = SCHEMA_VERSION
    path: str
    #: Whether it was there before.
    existed: bool
    #: SHA-256 of its text after the last step.
    digest: str
    steps: list[TextStep] = []
    #: Folders that were made for it, outermost first.
    made: list[str] = []


class Edits:
    def __init__(self, files: Files, layout: Layout) -> None:
        self._files = files
        self._layout = layout

    def find(self, path: str) -> EditNote | None:
        """The note of a file; None where there is none that can be read, and then nothing can be taken back exactly."""
        data = self._files.read(self._place(path))
        try:
            return None if data is None else EditNote.model_validate(decode(data))
        except (ValueError, ValidationError):
            return None

    def keep(self, note: EditNote) -> None:
        self._files.make_folders(f"{self._layout.system}/edits")
        self._files.replace(self._place(note.path), encode(note.dump()))

    def forget(self, path: str) -> None:
        self._files.remove(self._place(path))

    def _place(self, path: str) -> str:
        return (
            f"{self._layout.system}/edits/{hashlib.sha256(path.encode(errors='surrogateescape')).hexdigest()[:32]}.json"
        )
