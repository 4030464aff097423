"""JSON documents: read, locked read-modify-write, last good copy, quarantine, schema versions.

A damaged document is moved to quarantine with a reason and the version before it takes its place; it is never
saved back as an empty one. A document of a newer schema is refused untouched, an older one is copied to
`system/snapshots/` and then migrated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mesh.errors import NewerSchema, Unreadable
from mesh.models import SCHEMA_VERSION
from mesh.store.files import Files, last_copy
from mesh.store.layout import Layout
from mesh.store.locks import Locks
from mesh.store.quarantine import Quarantine

Document = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One sort of document: what it must hold, and how older versions become the present one."""

    name: str
    #: Keys that must be there, and the JSON type of each.
    required: dict[str, type]
    #: From version n, how the document of version n becomes one of n + 1.
    migrations: dict[int, Callable[[Document], Document]] = field(default_factory=dict)
    version: int = SCHEMA_VERSION

    def empty(self) -> Document:
        """What stands in for a document that isn't there yet."""
        return {"schemaVersion": self.version, **{key: shape() for key, shape in self.required.items()}}

    def problem(self, document: object) -> str | None:
        """Why this isn't a document of this kind, or None."""
        if not isinstance(document, dict):
            return "not a JSON object"
        version = document.get("schemaVersion")
        if not isinstance(version, int) or isinstance(version, bool):
            return "schemaVersion is missing or not a whole number"
        for key, shape in self.required.items():
            if not isinstance(document.get(key), shape):
                return f"{key!r} is missing or not a {_JSON_NAMES[shape]}"
        return None


_JSON_NAMES = {list: "list", dict: "object", str: "text", int: "number"}


def _stamp(document: Document) -> Document:
    # Files written after the protocol document's own examples carry no schemaVersion: version 0.
    return {"schemaVersion": 1, **document}


def _kind(name: str, **required: type) -> Kind:
    return Kind(name, required, {0: _stamp})


TASKS = _kind("tasks", tasks=list)
STATE = _kind("state", agentId=str)
HEALTH = _kind("health", agents=dict)
CLOCK = _kind("clock", tick=int)
BLOCKERS = _kind("blockers", blockers=list)
DECISIONS = _kind("decisions", decisions=list)
INSIGHTS = _kind("insights", insights=list)
MEMORY = _kind("memory", memory=dict)


def encode(document: object) -> bytes:
    """As every document is written: indented for people, one final newline."""
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


class Documents:
    """The documents of one root."""

    def __init__(self, files: Files, locks: Locks, layout: Layout, quarantine: Quarantine) -> None:
        self._files = files
        self._locks = locks
        self._layout = layout
        self._quarantine = quarantine

    def read(self, path: str, kind: Kind) -> Document | None:
        """The document, or None where there is none. Looking changes nothing, unless it is damaged or of an
        older version; then it is mended under its lock. Raises NewerSchema, StoreUnavailable."""
        data = self._files.read(path)
        if data is None:
            return None
        document, problem = self._decode(data, path, kind)
        if problem is None and document is not None and document["schemaVersion"] == kind.version:
            return document
        with self._locks.hold(self.lock_name(path)):
            return self.read_held(path, kind)

    def update(self, path: str, kind: Kind, edit: Callable[[Document], Document | None]) -> Document:
        """Read, edit, write, under the document's lock. `edit` changes the document in place or returns
        another; what it raises leaves everything as it was. Returns what was written."""
        with self._locks.hold(self.lock_name(path)):
            document = self.read_held(path, kind) or kind.empty()
            document = edit(document) or document
            self.write(path, document)
        return document

    def write(self, path: str, document: Document) -> None:
        """Replace the document, durably, keeping the version before. For files with one writer, or under a
        lock that the caller holds."""
        self._files.replace(path, encode(document), keep_last=True)

    def read_held(self, path: str, kind: Kind) -> Document | None:
        """Like `read`, for a caller that holds the document's lock."""
        data = self._files.read(path)
        if data is None:
            return None
        document, problem = self._decode(data, path, kind)
        if problem is not None or document is None:
            return self._mend(path, kind, problem or "empty")
        if document["schemaVersion"] < kind.version:
            return self._migrate(path, kind, document, data)
        return document

    def lock_name(self, path: str) -> str:
        return self._layout.relative(path)

    def _decode(self, data: bytes, path: str, kind: Kind) -> tuple[Document | None, str | None]:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            return None, f"not valid JSON: {error}"
        if isinstance(document, dict) and "schemaVersion" not in document:
            document = {"schemaVersion": 0, **document}
        problem = kind.problem(document)
        if isinstance(document, dict):
            version = document.get("schemaVersion")
            if isinstance(version, int) and version > kind.version:
                raise NewerSchema(
                    f"{path} has schemaVersion {version}, this mesh knows {kind.version}: it was left untouched. "
                    "Upgrade the mesh, or restore an older file.",
                    file=path,
                )
        return (document, None) if problem is None else (None, problem)

    def _mend(self, path: str, kind: Kind, problem: str) -> Document | None:
        data = self._files.read(last_copy(path))
        good, _ = (None, None) if data is None else self._decode(data, path, kind)
        instead = "the version before it took its place" if good else "no version before it was there"
        # The bad file is kept before anything replaces it, and a good one replaces it in one step.
        self._quarantine.keep(path, f"{problem}; {instead}")
        if good is None or data is None:
            self._files.remove(path)
            return None
        self._files.replace(path, data)
        return good if good["schemaVersion"] == kind.version else self._migrate(path, kind, good, data)

    def _migrate(self, path: str, kind: Kind, document: Document, data: bytes) -> Document:
        old = document["schemaVersion"]
        slug = self._layout.relative(path).replace("/", ".")
        self._files.create(f"{self._layout.snapshots}/{slug}.v{old}", data)
        while document["schemaVersion"] < kind.version:
            step = kind.migrations.get(document["schemaVersion"])
            if step is None:
                raise Unreadable(f"{path} has schemaVersion {old}, which this mesh can't bring up to date.", file=path)
            before = document["schemaVersion"]
            document = {**step(document), "schemaVersion": before + 1}
        self.write(path, document)
        return document
