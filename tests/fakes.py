"""Time and disk for tests: a clock that only moves when told, and a disk that forgets what was not flushed.

`MemoryDisk` passes the same contract suite as the real disk (`tests/store/test_disk_contract.py`). Its model of
durability is the unforgiving one of a file system without a journal: the content of a file counts from `flush`, an
entry of a folder from `flush_folder` of that folder. A rename between folders is two changes: the removal may be
durable long before the arrival.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from mesh.store.disk import Entry, Signature

START = datetime(2026, 2, 16, 20, 45, tzinfo=UTC)


class FakeClock:
    """Wall, monotonic and boot time that only move when told; `sleep` moves them too."""

    def __init__(self, wall: datetime = START, uptime_s: float = 5000.0) -> None:
        self._wall = wall
        self._monotonic = uptime_s
        self._boottime = uptime_s
        self._boot = 1

    def wall(self) -> datetime:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def boottime(self) -> float:
        return self._boottime

    def boot_id(self) -> str:
        return f"boot-{self._boot}"

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._wall += timedelta(seconds=seconds)
        self._monotonic += seconds
        self._boottime += seconds

    def suspend(self, seconds: float) -> None:
        """The host sleeps: only the monotonic clock stands still."""
        self._wall += timedelta(seconds=seconds)
        self._boottime += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._wall += timedelta(seconds=seconds)

    def reboot(self, down_s: float = 30.0) -> None:
        """The host starts anew: uptime counts from zero, under another boot id."""
        self._wall += timedelta(seconds=down_s)
        self._monotonic = self._boottime = 1.0
        self._boot += 1


@dataclass
class Node:
    """A file, folder or symbolic link: `data` or `entries` as they are, and what of them is durable."""

    kind: Literal["file", "folder", "link"]
    number: int
    mtime_ns: int
    data: bytes = b""
    flushed: bytes = b""
    entries: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    #: Changes of the folder since it was last flushed; each is atomic: name → node, or None for a removal.
    pending: list[dict[str, int | None]] = field(default_factory=list)

    def copy(self) -> Node:
        # By position, and only what differs: the crash suites copy a disk some hundred thousand times.
        if self.kind != "folder":
            return Node(self.kind, self.number, self.mtime_ns, self.data, self.flushed)
        entries, durable = self.entries.copy(), self.durable.copy()
        return Node(self.kind, self.number, self.mtime_ns, b"", b"", entries, durable, self.pending.copy())


class Effect(NamedTuple):
    """Something that a power cut may take: change `index` of a folder, or (-1) the content of a file."""

    node: int
    index: int

    @property
    def is_content(self) -> bool:
        return self.index < 0


Fate = Literal["kept", "lost", "torn"]


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class MemoryDisk:
    """The `Disk` in memory. `crash` gives the disk as a power cut leaves it, `kill` as the death of all processes."""

    def __init__(self, time: FakeClock | None = None) -> None:
        self.time = time or FakeClock()
        self.free = 50_000_000_000
        self._next = 1
        self._nodes: dict[int, Node] = {}
        self._root = self._make("folder").number
        self._open: dict[int, int] = {}
        self._locked: dict[int, int] = {}

    def clone(self) -> MemoryDisk:  # with its clock, open files and locks
        other = MemoryDisk.__new__(MemoryDisk)
        other.__dict__.update(self.__dict__)
        other.time = copy(self.time)
        other._nodes = {number: node.copy() for number, node in self._nodes.items()}
        other._open, other._locked = dict(self._open), dict(self._locked)
        return other

    def kill(self) -> MemoryDisk:
        """As it is when every process has died: locks are free, what was not flushed is visible."""
        other = self.clone()
        other._open, other._locked = {}, {}
        return other

    def effects(self) -> list[Effect]:
        """What is not durable yet."""
        changes = [Effect(node.number, index) for node in self._nodes.values() for index in range(len(node.pending))]
        return changes + [Effect(node.number, -1) for node in self._nodes.values() if node.data != node.flushed]

    def crash(self, fate: Callable[[Effect], Fate]) -> MemoryDisk:
        """As it is after a power cut that did this to what was not flushed."""
        other = self.kill()
        for effect in self.effects():
            if effect.is_content:
                node = other._nodes[effect.node]
                node.data = _content_after(node, fate(effect))
        for node in other._nodes.values():
            if node.kind == "folder":
                node.entries = dict(node.durable)
                for index, change in enumerate(node.pending):
                    if fate(Effect(node.number, index)) == "kept":
                        _apply(node.entries, change)
        other._settle()
        return other

    def sync(self) -> None:
        """Make everything durable, and forget what no name leads to."""
        reachable = {number for _, number in self._walk(self._root, "")} | {self._root} | set(self._open.values())
        self._nodes = {number: node for number, node in self._nodes.items() if number in reachable}
        self._settle()

    def _settle(self) -> None:
        for node in self._nodes.values():
            node.flushed = node.data
            if node.pending:
                node.durable = node.entries.copy()
                node.pending = []

    def tree(self) -> dict[str, bytes]:
        """Every path with its content; a folder's ends in a slash, a link's content is its target."""
        found = {}
        for path, number in self._walk(self._root, ""):
            node = self._nodes[number]
            found[path + "/" if node.kind == "folder" else path] = node.data
        return found

    def put(self, path: str, data: bytes) -> None:
        """A file with this content, whatever was there; durable at once."""
        node = self._find(path, missing_ok=True)
        if node is None:
            parent, name = self._parent(path)
            node = self._make("file")
            parent.entries[name] = parent.durable[name] = node.number
        node.data = node.flushed = data
        node.mtime_ns = self._now_ns()

    def age(self, path: str, days: float) -> None:
        """Let the file look as if last written so long ago."""
        node = self._find(path)
        node.mtime_ns = int((self.time.wall().timestamp() - days * 86_400) * 1e9)

    def create(self, path: str) -> int:
        parent, name = self._parent(path)
        if name in parent.entries:
            raise _error(errno.EEXIST, path)
        node = self._make("file")
        self._change(parent, {name: node.number})
        return self._descriptor(node)

    def write(self, fd: int, data: bytes) -> None:
        node = self._nodes[self._open[fd]]
        node.data += data
        node.mtime_ns = self._now_ns()

    def flush(self, fd: int) -> None:
        node = self._nodes[self._open[fd]]
        node.flushed = node.data

    def flush_all(self, fds: Sequence[int]) -> None:
        for fd in fds:
            self.flush(fd)

    def close(self, fd: int) -> None:
        del self._open[fd]

    def read(self, path: str) -> bytes:
        node = self._find(path)
        if node.kind == "folder":
            raise _error(errno.EISDIR, path)
        return node.data

    def read_start(self, path: str, bytes_max: int) -> bytes:
        node = self._find(path, follow=False)
        if node.kind != "file":
            raise _error(errno.ELOOP if node.kind == "link" else errno.EISDIR, path)
        return node.data[:bytes_max]

    def read_handle(self, handle: int) -> bytes:
        return self._nodes[self._open[handle]].data[: 1 << 16]

    def append(self, path: str, data: bytes) -> None:
        fd = self._open_or_make(path)
        self.write(fd, data)
        self.close(fd)

    def open_existing(self, path: str) -> int:
        return self._descriptor(self._find(path))

    def overwrite(self, fd: int, data: bytes) -> None:
        node = self._nodes[self._open[fd]]
        node.data = data + node.data[len(data) :]
        node.mtime_ns = self._now_ns()

    def truncate(self, path: str) -> None:
        self._find(path).data = b""

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        number = source.entries.get(old_name)
        if number is None:
            raise _error(errno.ENOENT, old)
        there = self._nodes.get(target.entries.get(new_name, -1))
        if there is not None and there.number == number:
            return  # two names of one file: POSIX leaves both
        if there is not None and there.kind == "folder" and there.entries:
            raise _error(errno.ENOTEMPTY, new)
        if source is target:
            self._change(source, {old_name: None, new_name: number})
        else:
            self._change(target, {new_name: number})
            self._change(source, {old_name: None})

    def link(self, old: str, new: str) -> None:
        node = self._find(old, follow=False)
        parent, name = self._parent(new)
        if name in parent.entries:
            raise _error(errno.EEXIST, new)
        self._change(parent, {name: node.number})

    def symlink(self, target: str, path: str) -> None:
        parent, name = self._parent(path)
        if name in parent.entries:
            raise _error(errno.EEXIST, path)
        node = self._make("link")
        node.data = node.flushed = target.encode()
        self._change(parent, {name: node.number})

    def resolve(self, path: str) -> str:
        try:
            node = self._find(path, follow=False)
        except OSError:
            return path
        return path if node.kind != "link" else self.resolve(_join(path, node.data.decode()))

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        if name not in parent.entries:
            raise _error(errno.ENOENT, path)
        if self._nodes[parent.entries[name]].kind == "folder":
            raise _error(errno.EISDIR, path)
        self._change(parent, {name: None})

    def make_folder(self, path: str) -> None:
        parent, name = self._parent(path)
        if name in parent.entries:
            raise _error(errno.EEXIST, path)
        self._change(parent, {name: self._make("folder").number})

    def remove_folder(self, path: str) -> None:
        if self._folder(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        self._change(parent, {name: None})

    def flush_folder(self, path: str) -> None:
        node = self._folder(path)
        node.durable = dict(node.entries)
        node.pending = []

    def names(self, path: str) -> list[str]:
        return sorted(self._folder(path).entries)

    def signature(self, path: str) -> Signature | None:
        try:
            node = self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Signature(node.number, node.mtime_ns, len(node.data))

    def look(self, path: str) -> Entry | None:
        try:
            node = self._find(path, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        folders = (folder.entries.values() for folder in self._nodes.values() if folder.entries)
        links = sum(number == node.number for entries in folders for number in entries)
        return Entry(node.kind == "file", node.number, len(node.data), os.getuid(), node.mtime_ns, links)

    def free_bytes(self, path: str) -> int:
        self._find(path)
        return self.free

    def try_lock(self, path: str) -> int | None:
        fd = self._open_or_make(path)
        if self._open[fd] in self._locked.values():
            self.close(fd)
            return None
        self._locked[fd] = self._open[fd]
        return fd

    def label_lock(self, handle: int, text: bytes) -> None:
        self.overwrite(handle, text)

    def unlock(self, handle: int) -> None:
        del self._locked[handle]
        self.close(handle)

    def _make(self, kind: Literal["file", "folder", "link"]) -> Node:
        node = Node(kind, self._number(), self._now_ns())
        self._nodes[node.number] = node
        return node

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _now_ns(self) -> int:
        # Each change has a time of its own, as on a disk with fine stamps.
        return int(self.time.wall().timestamp() * 1e9) + self._number()

    def _descriptor(self, node: Node) -> int:
        fd = self._number()  # never used twice, so that tests can follow one
        self._open[fd] = node.number
        return fd

    def _open_or_make(self, path: str) -> int:
        node = self._find(path, missing_ok=True)
        return self.create(path) if node is None else self._descriptor(node)

    def _change(self, folder: Node, change: dict[str, int | None]) -> None:
        _apply(folder.entries, change)
        folder.pending.append(change)
        folder.mtime_ns = self._now_ns()

    def _parent(self, path: str) -> tuple[Node, str]:
        folder, name = os.path.split(path)
        return self._folder(folder), name

    def _folder(self, path: str) -> Node:
        node = self._find(path)
        if node.kind != "folder":
            raise _error(errno.ENOTDIR, path)
        return node

    def _find(self, path: str, *, follow: bool = True, missing_ok: bool = False) -> Any:
        node = self._nodes[self._root]
        parts = path.strip("/").split("/") if path.strip("/") else []
        for depth, part in enumerate(parts):
            if node.kind != "folder":
                raise _error(errno.ENOTDIR, path)
            number = node.entries.get(part)
            if number is None:
                if missing_ok and depth == len(parts) - 1:
                    return None
                raise _error(errno.ENOENT, path)
            node = self._nodes[number]
            if node.kind == "link" and (follow or depth < len(parts) - 1):
                node = self._find(_join("/" + "/".join(parts[: depth + 1]), node.data.decode()))
        return node

    def _walk(self, number: int, path: str) -> Iterator[tuple[str, int]]:
        waiting = [(path, number)]
        while waiting:
            path, number = waiting.pop()
            for name, child in self._nodes[number].entries.items():
                yield f"{path}/{name}", child
                if self._nodes[child].kind == "folder":
                    waiting.append((f"{path}/{name}", child))


def _apply(entries: dict[str, int], change: dict[str, int | None]) -> None:
    for name, number in change.items():
        if number is None:
            entries.pop(name, None)
        else:
            entries[name] = number


def _content_after(node: Node, fate: Fate) -> bytes:
    if fate == "kept":
        return node.data
    if fate == "lost":
        return node.flushed
    start = len(node.flushed) if node.data.startswith(node.flushed) else 0
    return node.data[: start + (len(node.data) - start) // 2]


def _join(link: str, target: str) -> str:
    return os.path.normpath(os.path.join(os.path.dirname(link), target))
