"""Beats: a few bytes that an agent's event loop writes over in place once a second.

No flush and no rename: microseconds. The stamp inside is the suspend-proof monotonic clock of this boot, so that
an observer computes the age from the beat itself and a jump of the wall clock changes nothing (I10).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from mesh import clock
from mesh.errors import Fenced, StoreUnavailable
from mesh.store.disk import Disk
from mesh.store.files import Files

#: sequence, incarnation, boot time in s, progress counter, checksum of the boot id; then the checksum of these.
_BODY = struct.Struct("<QQdQI")
_CHECK = struct.Struct("<I")


@dataclass(frozen=True)
class Beat:
    sequence: int
    incarnation: int
    stamp_s: float
    progress: int
    boot: int

    def age_s(self, time: clock.Clock) -> float | None:
        """Seconds since it was written, or None if it is of another boot."""
        if self.boot != boot_mark(time):
            return None
        return max(0.0, time.boottime() - self.stamp_s)


def boot_mark(time: clock.Clock) -> int:
    """The boot id in four bytes."""
    return zlib.crc32(time.boot_id().encode())


def encode(beat: Beat) -> bytes:
    body = _BODY.pack(beat.sequence, beat.incarnation, beat.stamp_s, beat.progress, beat.boot)
    return body + _CHECK.pack(zlib.crc32(body))


class BeatWriter:
    """Writes one incarnation's beats. It holds its file open: once a successor has put a new file in its place,
    what an old process still writes is seen by nobody."""

    def __init__(self, files: Files, path: str, first: Beat) -> None:
        files.replace(path, encode(first))
        self._disk = files.disk
        self._path = path
        self._last = first
        try:
            self._fd = files.disk.open_existing(path)
        except OSError as error:
            raise StoreUnavailable(f"Could not open {path}: {error.strerror}.", file=path) from error
        found = read(files.disk, path)
        if found is None or found.incarnation != first.incarnation:
            self.close()  # a successor's file came in between: what is open may be its
            raise Fenced(f"{path} is no longer incarnation {first.incarnation}'s.", file=path)
        signature = files.signature(path)
        self._inode = signature.inode if signature else 0

    def write(self, stamp_s: float, progress: int) -> None:
        """The next beat. Raises OSError."""
        last = self._last
        self._last = Beat(last.sequence + 1, last.incarnation, stamp_s, progress, last.boot)
        self._disk.overwrite(self._fd, encode(self._last))

    def replaced(self) -> bool:
        """Whether its file was removed or replaced, so that nobody sees what is written."""
        found = self._disk.signature(self._path)
        return found is None or found.inode != self._inode

    def close(self) -> None:
        self._disk.close(self._fd)


def read(disk: Disk, path: str) -> Beat | None:
    """The last beat, or None where there is none or it can't be read (unknown, which isn't death)."""
    try:
        data = disk.read(path)
    except OSError:
        return None
    if len(data) != _BODY.size + _CHECK.size:
        return None
    body = data[: _BODY.size]
    if _CHECK.unpack(data[_BODY.size :])[0] != zlib.crc32(body):
        return None
    return Beat(*_BODY.unpack(body))
