"""`system/places.json`: who runs a CLI program on this host, and who waits for a place.

An entry belongs to a process and goes with it, so nothing has to be given back after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from mesh import clock
from mesh.models.running import Place
from mesh.store.documents import PLACES, Document, Documents
from mesh.store.incarnations import process_started
from mesh.store.layout import Layout

#: Says why the first can't start beside those that run and those that have waited longer; None if it can.
Decide = Callable[[Place, list[Place], list[Place]], str | None]
_SAME_START_S = 0.05


class Places:
    def __init__(self, documents: Documents, layout: Layout, time: clock.Clock) -> None:
        self._documents = documents
        self._layout = layout
        self._time = time

    def taken(self) -> list[Place]:
        return self._read("taken", self._document())

    def waiting(self) -> list[Place]:
        """Who waits, the longest first."""
        return self._read("waiting", self._document())

    def take(self, ask: Place, decide: Decide) -> str | None:
        """Take a place, or wait in line for one: None, or why not now. To be asked again until it is None."""
        why: str | None = None

        def edit(document: Document) -> None:
            nonlocal why
            taken = [place for place in self._read("taken", document) if place.run != ask.run]
            line = self._read("waiting", document)
            ahead = [place.run for place in line]
            earlier = line[: ahead.index(ask.run)] if ask.run in ahead else line
            why = decide(ask, taken, earlier)
            if why is None:
                taken.append(ask)
                line = [place for place in line if place.run != ask.run]
            elif ask.run not in ahead:
                line.append(ask)
            document["taken"] = [place.dump() for place in taken]
            document["waiting"] = [place.dump() for place in line]

        self._documents.update(self._layout.places, PLACES, edit)
        return why

    def hold(self, run: str, pid: int, started: float) -> None:
        """From now on the place is held by this process, the program itself."""

        def edit(document: Document) -> None:
            places = self._read("taken", document)
            held = [p.model_copy(update={"pid": pid, "started": started}) if p.run == run else p for p in places]
            document["taken"] = [place.dump() for place in held]

        self._documents.update(self._layout.places, PLACES, edit)

    def leave(self, run: str) -> None:
        """Give the place back, or the place in the line."""

        def edit(document: Document) -> None:
            for key in ("taken", "waiting"):
                document[key] = [place.dump() for place in self._read(key, document) if place.run != run]

        self._documents.update(self._layout.places, PLACES, edit)

    def _document(self) -> Document:
        return self._documents.read(self._layout.places, PLACES) or PLACES.empty()

    def _read(self, key: str, document: dict[str, Any]) -> list[Place]:
        found = []
        for entry in document[key]:
            with suppress(ValidationError):  # a hand edit broke it: nobody holds that place
                place = Place.model_validate(entry)
                if self._is_alive(place):
                    found.append(place)
        return found

    def _is_alive(self, place: Place) -> bool:
        started = process_started(place.pid) if place.boot_id == self._time.boot_id() else None
        return started is not None and abs(started - place.started) < _SAME_START_S
