"""Reads the new end of a file of lines that somebody else writes, and folds it.

Remembers how far it has read (offset, device, inode, and the last bytes before the offset, so that a file which was
written anew in place is noticed), and the half-written last line. A first look at a large file starts near its end
and goes back in growing steps until the state has settled. Memory and time are bounded by the caps below, whatever
lies in the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime

from mesh import clock
from mesh.runners.transcripts.state import Fold, State, parse

#: A longer line (a picture, a log) is passed over as it streams by: no answer of a model is that long.
LINE_BYTES_MAX = 4_000_000
#: How far back a first look goes, step by step. A file below the first is read whole; beyond the last nothing is
#: looked for, since no CLI works on for so long without a call.
LOOK_BACK_BYTES = (256_000, 1_000_000, 4_000_000, 16_000_000)
_CHUNK_BYTES = 65_536
_SEAL_BYTES = 64


class TailReader:
    """One file, folded as it grows. Not to be used by two threads at once."""

    def __init__(self, path: str, fold: Fold) -> None:
        self.path = path
        #: Why the last look found no file to read; None if it did.
        self.problem: str | None = None
        #: When the file was last written, as ISO 8601 UTC.
        self.written_at: str | None = None
        self._fold = fold
        self._file: tuple[int, int] | None = None
        self._start_anew()

    def look(self) -> State:
        """The state after all lines that are there now; a last line without its end counts if it is whole JSON.
        With `problem` set, the state as it was known before."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            self.problem = _reason(self.path, error)
            return self._with_last_line()
        try:
            self._catch_up(fd)
        except OSError as error:
            self.problem = _reason(self.path, error)
        finally:
            os.close(fd)
        return self._with_last_line()

    def _catch_up(self, fd: int) -> None:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            self.problem = f"{self.path} is not a file"
            return
        self.problem = None
        self.written_at = clock.iso(datetime.fromtimestamp(found.st_mtime, UTC))
        size, file = found.st_size, (found.st_dev, found.st_ino)
        grown = size - self._offset
        if file == self._file and 0 <= grown <= LOOK_BACK_BYTES[-1] and self._sealed(fd):
            self._take(fd, size)
        else:
            self._file = file
            self._look_back(fd, size)
        self._seal = os.pread(fd, min(_SEAL_BYTES, self._offset), max(self._offset - _SEAL_BYTES, 0))

    def _look_back(self, fd: int, size: int) -> None:
        """Fold the end of the file: so much of it that the state has settled."""
        for span in LOOK_BACK_BYTES:
            self._start_anew()
            if span < size:
                # One byte earlier, so that a line which begins just there is not taken for the rest of another.
                self._offset, self._skipping = size - span - 1, True
            self._take(fd, size)
            if span >= size or self._with_last_line().settled:
                return

    def _start_anew(self) -> None:
        self._state = State()
        self._offset = 0
        self._half = bytearray()
        self._skipping = False
        self._seal = b""

    def _sealed(self, fd: int) -> bool:
        """Whether what stands before the offset is what stood there."""
        return os.pread(fd, len(self._seal), self._offset - len(self._seal)) == self._seal

    def _take(self, fd: int, size: int) -> None:
        while self._offset < size:
            data = os.pread(fd, min(_CHUNK_BYTES, size - self._offset), self._offset)
            if not data:  # it was cut meanwhile: the next look sees that
                return
            self._offset += len(data)
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            self._add(data[begin:end])
            if not self._skipping:
                self._state = self._folded(self._half)
            self._half.clear()
            self._skipping = False
            begin = end + 1
        self._add(data[begin:])

    def _add(self, piece: bytes) -> None:
        if self._skipping or len(self._half) + len(piece) > LINE_BYTES_MAX:
            self._skipping = True
            self._half.clear()
        else:
            self._half += piece

    def _folded(self, line: bytearray) -> State:
        entry = parse(line) if line else None
        return self._state if entry is None else self._fold(self._state, entry)

    def _with_last_line(self) -> State:
        """The state with the last line, if it is whole though no newline stands behind it."""
        whole = not self._skipping and self._half.rstrip(b"\0 \t\r").endswith(b"}")
        return self._folded(self._half) if whole else self._state


def _reason(path: str, error: OSError | ValueError) -> str:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{path} can't be read: {reason}"


def first_object(path: str, wanted: Callable[[dict[str, object]], bool], lines_max: int = 3) -> bool:
    """Whether one of the file's first lines is an object like that. Looks at its first 64 KB only."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return False
    try:
        head = os.read(fd, _CHUNK_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return False
    finally:
        os.close(fd)
    entries = (parse(line) for line in head.split(b"\n", lines_max)[:lines_max])
    return any(entry is not None and wanted(dict(entry)) for entry in entries)
