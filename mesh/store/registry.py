"""The registry in force: read, watched for edits, kept when an edit is bad, edited by commands.

In a checkout `agents/registry.json` is a link to the top-level file; both are watched. An editor that replaces the
link by a file puts that file in force, and `replaced_link` says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from mesh.errors import MeshError, RegistryInvalid, StoreUnavailable
from mesh.models import Registry, parse_registry
from mesh.store.disk import Signature
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.locks import Locks

#: Written beside the registry by `mesh init` where it is a link, so that a replaced link is noticed.
LINK_NOTE = ".registry.link"


class RegistryStore:
    """The registry of one root."""

    def __init__(self, files: Files, locks: Locks, layout: Layout) -> None:
        self._files = files
        self._locks = locks
        self._layout = layout
        self._seen: Signature | None = None
        self._current: Registry | None = None
        #: What is wrong with the file as it stands, or None. The last good registry stays in force.
        self.error: MeshError | None = None

    @property
    def current(self) -> Registry:
        """The registry in force. Loads it at first use; raises RegistryInvalid if there never was a good one."""
        if self._current is None:
            self.refresh()
        if self._current is None:
            raise self.error or RegistryInvalid(f"{self._layout.registry} is missing; run `mesh init`.")
        return self._current

    def changed(self) -> bool:
        """Whether the file was edited since it was last looked at: one `stat`."""
        try:
            return self._files.disk.signature(self._layout.registry) != self._seen
        except OSError:
            return True

    def refresh(self) -> bool:
        """Look whether the file was edited; True if another registry is in force now. An invalid edit changes
        nothing but `error`."""
        try:
            seen = self._files.disk.signature(self._layout.registry)
        except OSError as error:
            self.error = StoreUnavailable(f"{self._layout.registry}: {error.strerror}.")
            return False
        if self._current is not None and seen == self._seen:
            return False
        before = self._current
        try:
            data = self._files.read(self._layout.registry)
            self._seen = seen  # only now: a file that couldn't be read is tried again
            if data is None:
                raise RegistryInvalid(
                    f"{self._layout.registry} is missing; run `mesh init`, or put the file back.",
                    file=self._layout.registry,
                    problems=[{"key": "", "reason": "the file is missing"}],
                )
            self._current = parse_registry(data, self._layout.registry)
            self.error = None
            self._keep_good(data)
        except MeshError as error:
            self.error = error
            if self._current is None:
                self._current = self._last_good()
        return self._current is not None and self._current != before

    def check(self, path: str | None = None) -> Registry:
        """Parse a registry file (by default the one in the root) without putting it in force."""
        path = path or self._layout.registry
        data = self._files.read(path)
        if data is None:
            raise RegistryInvalid(f"{path} does not exist.", file=path, problems=[])
        return parse_registry(data, path)

    def edit(
        self, change: Callable[[dict[str, Any]], None], before_saving: Callable[[], object] = lambda: None
    ) -> Registry:
        """Change the registry's JSON and save it if the result is valid; keeps a link a link. Returns the new
        registry. `before_saving` is called once it is known to be valid. Raises RegistryInvalid, and then nothing
        was changed."""
        path = self._layout.registry
        with self._locks.hold("agents/registry.json"):
            data = self._files.read(path)
            if data is None:
                raise RegistryInvalid(f"{path} does not exist; run `mesh init`.", file=path, problems=[])
            parse_registry(data, path)
            document = json.loads(data)
            change(document)
            text = json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"
            registry = parse_registry(text, path)
            before_saving()
            target = self._files.resolve(path)
            if target == path:
                self._files.replace(path, text, keep_last=True)
            else:
                # The target may lie on another file system, where our temporaries can't be renamed to.
                Files(self._files.disk, os.path.dirname(target)).replace(target, text)
        return registry

    def replaced_link(self) -> str | None:
        """The file that the registry was a link to, where an editor has put a file in the link's place."""
        noted = self._files.read(f"{self._layout.agents}/{LINK_NOTE}")
        if noted is None:
            return None
        target = noted.decode(errors="replace").strip()
        return None if self._files.resolve(self._layout.registry) == os.path.realpath(target) else target

    def _keep_good(self, data: bytes) -> None:
        try:
            if self._files.read(self._layout.registry_good) != data:
                self._files.replace(self._layout.registry_good, data)
        except StoreUnavailable:
            return  # the copy only serves a start with a broken file; the next edit writes it again

    def _last_good(self) -> Registry | None:
        try:
            data = self._files.read(self._layout.registry_good)
            return None if data is None else parse_registry(data, self._layout.registry_good)
        except MeshError:
            return None
