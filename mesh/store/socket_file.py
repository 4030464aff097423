"""The Unix socket of an agent: the one file of the mesh that isn't read but connected to.

Made in the incarnation's scratch folder and renamed into its place: there is no moment without a socket when one is
left over from before, and a process that has been locked out can neither put its own there nor take its successor's
away (I8).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mesh.errors import StoreUnavailable
from mesh.store.files import Files


class SocketFile:
    """A socket that listens at `path`, for the owner of the file alone."""

    def __init__(self, files: Files, path: str, backlog: int) -> None:
        """Raises StoreUnavailable, for instance on a file system that has no sockets."""
        self.path = path
        self._files = files
        beside = self._beside("new")
        try:
            self.sock = _listening(beside, backlog)
        except OSError as error:
            raise _unavailable(path, error) from error
        try:
            made = files.disk.signature(beside)
            self._inode = made.inode if made else 0
            files.disk.rename(beside, path)
        except OSError as error:
            self.sock.close()
            raise _unavailable(path, error) from error

    def remove(self) -> None:
        """Take the file away, if it is still this socket's."""
        away = self._beside("old")
        # What stays behind is replaced at the next start. Who was locked out fails here: its scratch folder is gone.
        with suppress(OSError):
            found = self._files.disk.signature(self.path)
            if found is not None and found.inode == self._inode:
                self._files.disk.rename(self.path, away)
                self._files.disk.unlink(away)

    def _beside(self, what: str) -> str:
        return f"{self._files.scratch}/{os.path.basename(self.path)}.{what}"


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Another name of `path`, good while the block lasts and short enough for a socket's address, which holds some
    107 bytes only. Raises OSError where the folder isn't there."""
    folder, name = os.path.split(path)
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


def _listening(path: str, backlog: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(sock.fileno(), 0o600)  # binding gives this mode to the file: it never has another
        with short_path(path) as address:
            sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _unavailable(path: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"No socket could be made at {path}: {error.strerror or error}.", file=path)
