"""JSON documents: read, locked read-modify-write, last good copy, quarantine, schema versions.

A damaged document is moved to quarantine with a reason and the version before it takes its place; it is never
saved back as an empty one. A document of a newer schema is refused untouched, an older one is copied to
`system/snapshots/` and then migrated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from mesh.errors import NewerSchema, StoreUnavailable
from mesh.models import SCHEMA_VERSION, AgentState, ClockFile, HealthFile, Task
from mesh.models.base import Filed
from mesh.models.running import RunRecord
from mesh.store.codec import decode
from mesh.store.codec import encode as encode
from mesh.store.files import Files, last_copy
from mesh.store.layout import Layout
from mesh.store.locks import Locks, SleepingClock
from mesh.store.quarantine import Quarantine

Document = dict[str, Any]

_SETTLING_LOOKS, _SETTLING_S = 10, 0.1


@dataclass(frozen=True)
class Kind:
    """One sort of document: what it must hold, and how older versions become the present one."""

    name: str
    #: Keys that must be there, and the JSON type of each.
    required: dict[str, type]
    #: What the whole must be, where readers rely on more than the keys.
    model: type[BaseModel] | None = None
    #: From version n, how the document of version n becomes one of n + 1.
    migrations: dict[int, Callable[[Document], Document]] = field(default_factory=dict)
    #: What the version before must become, to stand in for the one that was damaged.
    stand_in: Callable[[Document], Document] = lambda document: document
    version: int = SCHEMA_VERSION

    def empty(self) -> Document:
        """What stands in for a document that isn't there yet."""
        return {"schemaVersion": self.version, **{key: shape() for key, shape in self.required.items()}}

    def check(self, document: Document) -> None:
        """Raises ValueError with the reason if this isn't a document of this kind and version."""
        for key, shape in self.required.items():
            if not isinstance(document.get(key), shape):
                raise ValueError(f"{key!r} is missing or not a {_JSON_NAMES[shape]}")
        if self.model is not None:
            try:
                self.model.model_validate(document)
            except ValidationError as error:
                raise ValueError(first_problem(error)) from None

    def upgrade(self, document: Document) -> Document:
        """The document in the present version, checked; itself if it is. Raises ValueError."""
        while (version := document["schemaVersion"]) < self.version:
            if version not in self.migrations:
                raise ValueError(f"schemaVersion {version} can't be brought up to date")
            try:
                document = {**self.migrations[version](document), "schemaVersion": version + 1}
            except (TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"schemaVersion {version} has another shape: {error}") from None
        self.check(document)
        return document


_JSON_NAMES = {list: "list", dict: "object", str: "text", int: "number"}


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong, in one line: where, and what."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


class _Blockers(Filed):
    blockers: list[dict[str, Any]]


class _References(Filed):
    tasks: list[dict[str, Any]]


# Files written after the protocol document's own examples carry no schemaVersion: version 0.


def _same(document: Document) -> Document:
    return document


def _state_from_0(document: Document) -> Document:
    task = document.get("currentTask")
    if task:
        task = {"title": str(task.get("description", task.get("id")))[:200], **task}
    stamps = {"bootId": "", "activityS": 0.0}
    return {"incarnation": 0, "stamps": stamps, **document, "currentTask": task}


def _kind(name: str, /, model: type[BaseModel] | None = None, from_0: Any = _same, **required: type) -> Kind:
    return Kind(name, required, model, {0: from_0})


TASKS = _kind("tasks", tasks=list)
REFERENCES = _kind("references", _References, tasks=list)
ENDED_TASK = _kind("task", Task, id=str)
STATE = _kind("state", AgentState, _state_from_0, agentId=str)
HEALTH = _kind("health", HealthFile, lambda document: {"asOfTick": 0, **document}, agents=dict)
#: The version before may be one tick old, and a tick must not come twice (I6).
CLOCK = replace(
    _kind("clock", ClockFile, tick=int), stand_in=lambda document: {**document, "tick": document["tick"] + 1}
)
BLOCKERS = _kind("blockers", _Blockers, blockers=list)
DECISIONS = _kind("decisions", decisions=list)
INSIGHTS = _kind("insights", insights=list)
MEMORY = _kind("memory", memory=dict)
PLACES = _kind("places", taken=list, waiting=list)
ACCOUNTS = _kind("accounts", accounts=dict)
RUN = _kind("run", RunRecord, id=str)


class Documents:
    """The documents of one root."""

    def __init__(self, files: Files, locks: Locks, layout: Layout, quarantine: Quarantine, time: SleepingClock) -> None:
        self._files = files
        self._locks = locks
        self._layout = layout
        self._quarantine = quarantine
        self._time = time

    def read(self, path: str, kind: Kind, *, lock: str | None = None) -> Document | None:
        """The document, or None where there is none. Looking changes nothing, unless it is damaged or of an
        older version; then it is mended under its lock (`lock`, where it is written under another than its own).
        Raises NewerSchema, StoreUnavailable."""
        data = self._files.read(path)
        if data is None:
            return None
        try:
            document = self._decode(data, path, kind)
            if kind.upgrade(document) is document:
                return document
        except ValueError:
            pass
        with self._locks.hold(lock or self.lock_name(path)):
            return self.read_held(path, kind)

    def problem(self, path: str, kind: Kind) -> str | None:
        """What keeps the document from being read, or None; nothing is mended."""
        try:
            data = self._files.read(path)
            if data is not None:
                kind.upgrade(self._decode(data, path, kind))
        except (ValueError, StoreUnavailable) as error:
            return str(error)
        return None

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
        problem, data = "", self._files.read(path)
        for _ in range(_SETTLING_LOOKS):
            try:
                return None if data is None else self._take(path, kind, data)
            except ValueError as error:
                problem = str(error)
            # An editor may be in the middle of writing it: damaged is only what stays as it is.
            self._time.sleep(_SETTLING_S)
            before, data = data, self._files.read(path)
            if data == before:
                break
        return self._mend(path, kind, problem)

    def _take(self, path: str, kind: Kind, data: bytes) -> Document:
        """The document that these bytes are; one of an older version is copied away and rewritten first. Raises
        ValueError if they are none."""
        found = self._decode(data, path, kind)
        document = kind.upgrade(found)
        if document is not found:
            slug = self._layout.relative(path).replace("/", ".")
            self._files.create(f"{self._layout.snapshots}/{slug}.v{found['schemaVersion']}", data)
            self.write(path, document)
        return document

    def lock_name(self, path: str) -> str:
        return self._layout.relative(path)

    def _decode(self, data: bytes, path: str, kind: Kind) -> Document:
        """The document as it lies there, in whichever version. Raises ValueError if it is none, NewerSchema."""
        try:
            document = decode(data)
        except ValueError as error:
            raise ValueError(f"not valid JSON: {error}") from None
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        version = document.setdefault("schemaVersion", 0)
        if not isinstance(version, int) or isinstance(version, bool):
            raise ValueError("schemaVersion is not a whole number")
        if version > kind.version:
            raise NewerSchema(
                f"{path} has schemaVersion {version}, this mesh knows {kind.version}: it was left untouched. "
                "Upgrade the mesh, or restore an older file.",
                file=path,
            )
        return document

    def _mend(self, path: str, kind: Kind, problem: str) -> Document | None:
        good = self.last_good(path, kind)
        instead = "the version before it took its place" if good else "no version before it was there"
        # The bad file is kept before anything replaces it, and a good one replaces it in one step.
        self._quarantine.keep(path, f"{problem}; {instead}")
        if good is None:
            self._files.remove(path)
        else:
            self._files.replace(path, encode(good))
        return good

    def last_good(self, path: str, kind: Kind) -> Document | None:
        """What can stand in for a document that is damaged or lost: the version before."""
        data = self._files.read(last_copy(path))
        try:
            return None if data is None else kind.stand_in(kind.upgrade(self._decode(data, path, kind)))
        except (ValueError, NewerSchema):
            return None
