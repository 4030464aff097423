"""Disks around a disk: one records the states that every step leaves, one lets others act before the n-th call,
one lets that call fail."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.fakes import Effect, Fate, MemoryDisk

CHANGING = frozenset(
    "create write flush flush_all append overwrite truncate rename link symlink unlink make_folder remove_folder "
    "flush_folder try_lock label_lock".split()
)


class Around:
    """Passes each call of the `Disk` protocol through `call`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.time = inner.time

    def call(self, name: str, *args: Any) -> Any:
        return getattr(self.inner, name)(*args)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.call(name, *args)


class RecordingDisk(Around):
    """Keeps the disk as it was before the first and after every step that changes something."""

    def __init__(self, inner: MemoryDisk) -> None:
        super().__init__(inner)
        self.steps: list[tuple[Any, ...]] = []
        self.states = [inner.clone()]

    def call(self, name: str, *args: Any) -> Any:
        result = super().call(name, *args)
        if name in CHANGING:
            self.steps.append((name, *args))
            self.states.append(self.inner.clone())
        return result


class Interrupted(Around):
    """Somebody else does something just before the n-th call."""

    def __init__(self, inner: MemoryDisk, before: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self.before = before
        self.act = act
        self.count = 0

    def call(self, name: str, *args: Any) -> Any:
        self.count += 1
        if self.count == self.before:
            self.act()
        return super().call(name, *args)


class FaultyDisk(Around):
    """Lets the n-th call fail (counted from 1, calls of every kind), and with `lasting` all after it."""

    def __init__(self, inner: Any, fail_at: int, code: int, *, lasting: bool = False) -> None:
        super().__init__(inner)
        self.fail_at = fail_at
        self.code = code
        self.lasting = lasting
        self.calls: list[tuple[Any, ...]] = []
        self.failed: tuple[Any, ...] | None = None
        self._failed_flushes: set[int] = set()

    def call(self, name: str, *args: Any) -> Any:
        self.calls.append((name, *args))
        number = len(self.calls)
        if name == "flush":
            assert args[0] not in self._failed_flushes, "a flush that failed was tried again"
        if number != self.fail_at and not (self.lasting and number > self.fail_at):
            return super().call(name, *args)
        self.failed = self.failed or (name, *args)
        self._fail(name, args)
        raise OSError(self.code, os.strerror(self.code))

    def _fail(self, name: str, args: tuple[Any, ...]) -> None:
        """What is left behind: half of a write; and a descriptor is gone even where closing it failed."""
        if name == "flush":
            self._failed_flushes.add(args[0])
        elif name == "write":
            self.inner.write(args[0], args[1][: len(args[1]) // 2])
        elif name in ("close", "unlock"):
            super().call(name, *args)


#: What is drawn by lot in the name of a temporary, and in a claim.
_LOT = re.compile(r"\.\d+-[0-9a-f]{8}(?=\.\d+$)")
_TOKEN = re.compile(rb'"token": ?"[0-9a-f]*"')


def fingerprint(disk: MemoryDisk) -> int:
    """The same for disks that hold the same, whatever was drawn by lot: none needs to be checked twice."""
    return hash(frozenset(_without_lots(path, data) for path, data in disk.tree().items()))


def _without_lots(path: str, data: bytes) -> tuple[str, bytes]:
    if "/run/" in path or "/scratch/" in path:
        path = _LOT.sub("", path)
    return path, _TOKEN.sub(b"", data) if b'"token"' in data else data


#: Up to so many unflushed effects, every subset of them is tried.
_ALL_SUBSETS_MAX = 6


def after_power_cut(disk: MemoryDisk) -> Iterator[tuple[str, MemoryDisk]]:
    """Every state that a power cut at this moment may leave, each with its name.

    All unflushed effects kept, all lost, each single one lost or kept alone (or every subset, where they are few);
    and each unflushed content torn in the middle, with the other effects kept and lost.
    """
    effects = disk.effects()
    for lost in _subsets(effects):
        yield f"lost {lost}", disk.crash(lambda effect, lost=lost: "lost" if effect in lost else "kept")
    for one in effects:
        if one.is_content:
            yield f"{one} torn, others kept", disk.crash(_torn(one, "kept"))
            yield f"{one} torn, others lost", disk.crash(_torn(one, "lost"))


def _subsets(effects: list[Effect]) -> Iterator[tuple[Effect, ...]]:
    count = len(effects)
    sizes = range(count + 1) if count <= _ALL_SUBSETS_MAX else sorted({0, 1, count - 1, count})
    for size in sizes:
        yield from itertools.combinations(effects, size)


def _torn(one: Effect, others: Fate) -> Any:
    return lambda effect: "torn" if effect == one else others
