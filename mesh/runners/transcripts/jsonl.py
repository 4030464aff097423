"""A transcript that is a file of JSON lines: the tail of the file, folded by the format's rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mesh.runners.transcripts.reading import Reading
from mesh.runners.transcripts.state import Fold
from mesh.runners.transcripts.tail import TailReader


class JsonlTranscript:
    def __init__(self, cli: str, path: str, fold: Fold, windows: Mapping[str, int]) -> None:
        self.path = path
        self._cli = cli
        self._windows = windows
        self._tail = TailReader(path, fold)

    def read(self) -> Reading:
        """What the file's lines say; reads what is new only."""
        state = self._tail.look()
        found = state.reading(self._cli, self._windows, self._tail.written_at)
        return replace(found, problem=self._tail.problem)
