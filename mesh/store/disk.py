"""The file operations that the store is built from, one method each: the seam under `files.py`.

`PosixDisk` is the real one. Tests put a fake in its place that records every step, forgets what was not flushed,
or fails the n-th call; both pass the same contract suite. Paths are plain strings: joining them is on hot paths.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import stat
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol, cast


class Signature(NamedTuple):
    """Tells whether a file was changed or replaced since it was last looked at."""

    inode: int
    mtime_ns: int
    size: int


class Entry(NamedTuple):
    """What lies under a name, links not followed."""

    is_file: bool
    inode: int
    size: int
    owner: int
    #: When it came to lie there: writing and linking set it, and nobody can set it back.
    changed_ns: int
    links: int
    #: The permission bits.
    mode: int = 0o600


#: From so many files on, one flush of the whole file system is faster than one of each …
_MANY = 8
#: … unless it would have to wait for more of other people's data than this.
_DIRTY_KB_MAX = 16_000
#: Older kernels don't tell by `syncfs` that writing failed.
_SYNCFS_TELLS = (5, 8)


def _open_quietly(path: str, flags: int) -> int:
    """Open without having reads note the time of access, which costs more than the read itself. Only a file's owner
    may do so."""
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


def _open_or_create(path: str, flags: int) -> int:
    """Open a file (mode 600) that nearly always is there: asking to create it would lock its folder each time."""
    try:
        return _open_quietly(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o600)


@cache
def _syncfs() -> Callable[[int], int] | None:
    """The C library's syncfs, where it can be relied on."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if release is None or tuple(map(int, release.groups())) < _SYNCFS_TELLS:
        return None
    try:
        return cast(Callable[[int], int], ctypes.CDLL(None, use_errno=True).syncfs)
    except (OSError, AttributeError):
        return None


def _dirty_kb() -> int:
    """How much data waits to be written, all programs together."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":") for line in file)
        return int(found["Dirty"].split()[0]) + int(found["Writeback"].split()[0])
    except (OSError, ValueError, KeyError):
        return _DIRTY_KB_MAX


class Disk(Protocol):
    """Raises OSError as the operating system does; nothing is durable before it is flushed."""

    def create(self, path: str) -> int:
        """Open a file for writing that must not exist yet (mode 600); returns a descriptor."""
        ...

    def write(self, fd: int, data: bytes) -> None: ...

    def flush(self, fd: int) -> None: ...

    def flush_all(self, fds: Sequence[int]) -> None:
        """Flush several files of one file system: with one wait where that is to be had. If it fails, any of them may
        not be durable."""
        ...

    def close(self, fd: int) -> None: ...

    def read(self, path: str) -> bytes: ...

    def read_start(self, path: str, bytes_max: int) -> bytes:
        """The first bytes of a regular file. A link is not followed (OSError), a pipe does not block."""
        ...

    def read_handle(self, handle: int) -> bytes:
        """The content of a file whose lock is held, at most 64 KB."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Add to the end in one piece, creating the file (mode 600) if need be; not flushed."""
        ...

    def open_append(self, path: str) -> int:
        """Open a log that other processes write too (mode 600); returns a descriptor."""
        ...

    def open_existing(self, path: str) -> int:
        """Open a file for `overwrite`; returns a descriptor."""
        ...

    def overwrite(self, fd: int, data: bytes) -> None:
        """Write over the first bytes in place; not flushed, and works on a full disk."""
        ...

    def truncate(self, path: str) -> None:
        """Empty a file in place."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def link(self, old: str, new: str) -> None: ...

    def symlink(self, target: str, path: str) -> None: ...

    def resolve(self, path: str) -> str:
        """The file that a link leads to; the path itself if it is no link."""
        ...

    def unlink(self, path: str) -> None: ...

    def make_folder(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None: ...

    def flush_folder(self, path: str) -> None: ...

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted. A missing folder raises FileNotFoundError."""
        ...

    def signature(self, path: str) -> Signature | None:
        """None where there is no file. Follows links."""
        ...

    def look(self, path: str) -> Entry | None:
        """What lies there, or None. Follows no link."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def try_lock(self, path: str) -> int | None:
        """Take the lock that this file stands for, or None while another holds it. Dies with the process."""
        ...

    def label_lock(self, handle: int, text: bytes) -> None:
        """Write into the lock's file who holds it."""
        ...

    def unlock(self, handle: int) -> None: ...


class PosixDisk:
    """The operating system's files."""

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def flush(self, fd: int) -> None:
        os.fsync(fd)

    def flush_all(self, fds: Sequence[int]) -> None:
        if len(fds) >= _MANY and (sync_fs := _syncfs()) is not None and _dirty_kb() < _DIRTY_KB_MAX:
            if sync_fs(fds[0]):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            return
        for fd in fds:
            os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, path: str) -> bytes:
        fd = _open_quietly(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(fd, 1 << 18):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def read_start(self, path: str, bytes_max: int) -> bytes:
        fd = _open_quietly(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(fd, bytes_max)
        finally:
            os.close(fd)

    def read_handle(self, handle: int) -> bytes:
        return os.pread(handle, 1 << 16, 0)

    def append(self, path: str, data: bytes) -> None:
        fd = self.open_append(path)
        try:
            self.write(fd, data)
        finally:
            os.close(fd)

    def open_append(self, path: str) -> int:
        return _open_or_create(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def open_existing(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def overwrite(self, fd: int, data: bytes) -> None:
        os.pwrite(fd, data, 0)

    def truncate(self, path: str) -> None:
        os.truncate(path, 0)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, path)

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def flush_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def signature(self, path: str) -> Signature | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Signature(found.st_ino, found.st_mtime_ns, found.st_size)

    def look(self, path: str) -> Entry | None:
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        is_file = stat.S_ISREG(found.st_mode)
        mode = stat.S_IMODE(found.st_mode)
        return Entry(is_file, found.st_ino, found.st_size, found.st_uid, found.st_ctime_ns, found.st_nlink, mode)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def try_lock(self, path: str) -> int | None:
        fd = _open_or_create(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def label_lock(self, handle: int, text: bytes) -> None:
        os.pwrite(handle, text, 0)

    def unlock(self, handle: int) -> None:
        os.close(handle)
