"""Where damaged files go, each with a reason beside it, and never into anybody's way again."""

from __future__ import annotations

import json
from collections.abc import Callable

from mesh import clock
from mesh.store.files import Files
from mesh.store.layout import Layout


class Quarantine:
    """`system/quarantine/`. `on_kept(file, reason, kept_as)` is called for each, so that an alert is raised."""

    def __init__(self, files: Files, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._layout = layout
        self._time = time
        self.on_kept: Callable[[str, str, str], None] = lambda file, reason, kept_as: None

    def keep(self, path: str, reason: str) -> str:
        """Keep what `path` holds now; the file itself stays for the caller to replace or remove. Returns the
        name in quarantine."""
        data = self._files.read(path) or b""
        return self.keep_data(path, data, reason)

    def keep_data(self, path: str, data: bytes, reason: str) -> str:
        """Keep some bytes that stood in `path`."""
        now = clock.iso(self._time.wall())
        slug = self._layout.relative(path).replace("/", ".")
        name = f"{now.replace(':', '')}-{slug}"
        number = 1
        while not self._files.create(f"{self._layout.quarantine}/{name}", data):
            number += 1
            name = f"{now.replace(':', '')}-{number}-{slug}"
        note = {"file": self._layout.relative(path), "at": now, "reason": reason, "schemaVersion": 1}
        self._files.create(f"{self._layout.quarantine}/{name}.reason.json", json.dumps(note, indent=1).encode() + b"\n")
        self.on_kept(self._layout.relative(path), reason, name)
        return name
