"""The only durable I/O of the mesh.

A change is: temporary under a name of its own, write, flush, rename, flush the folder; only then the call returns.
Temporaries lie in the process' scratch folder. An agent's is `run/<incarnation>/`, always reached by its path: a
successor renames that folder away, and from then on the old process can't create, rename or link anything (I8).
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from mesh.errors import DiskFull, DurabilityLost, Fenced, StoreUnavailable
from mesh.store.disk import Disk, Entry, Signature

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: So much of a file's name goes into that of its temporary: both must fit into 255 bytes.
_STEM_BYTES_MAX = 200


class Files:
    """Durable writes with one scratch folder. Raises StoreUnavailable and its kinds, never OSError."""

    def __init__(self, disk: Disk, scratch: str) -> None:
        self.disk = disk
        self.scratch = scratch
        self._numbers = itertools.count(1)
        #: Several processes of one host may share a scratch folder (the command line does).
        self._prefix = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._lost: str | None = None
        #: Set by the last write that met a full disk, cleared by the next that didn't.
        self.full = False

    @property
    def lost(self) -> str | None:
        """Why this process may no longer write, or None."""
        return self._lost

    def read(self, path: str) -> bytes | None:
        """The content, or None where there is no such file."""
        try:
            return self.disk.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._raise(error, "read", path)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, hidden ones left out; none where there is no folder."""
        try:
            return [name for name in self.disk.names(folder) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._raise(error, "list", folder)

    def exists(self, path: str) -> bool:
        return self.signature(path) is not None

    def signature(self, path: str) -> Signature | None:
        """Tells whether the file was changed or replaced; None where there is none."""
        try:
            return self.disk.signature(path)
        except OSError as error:
            self._raise(error, "look at", path)

    def look(self, path: str) -> Entry | None:
        """What lies there, links not followed; None where there is nothing."""
        try:
            return self.disk.look(path)
        except OSError as error:
            self._raise(error, "look at", path)

    def resolve(self, path: str) -> str:
        """The file that a link leads to; the path itself if it is no link."""
        try:
            return self.disk.resolve(path)
        except OSError as error:
            self._raise(error, "look at", path)

    def replace(self, path: str, data: bytes, *, keep_last: bool = False) -> None:
        """Make `path` hold `data`, durably; readers see the old or the new content, whole.

        With `keep_last` the version before stays as `last_copy(path)`: a hard link, so nearly free.
        """
        temporary = self._write_temporary(path, data)
        try:
            if keep_last:
                self._keep_last(path)
            self.disk.rename(temporary, path)
        except OSError as error:
            self.drop(temporary)
            if self._folder_is_gone(error, path):
                self.make_folders(os.path.dirname(path))
                return self.replace(path, data, keep_last=keep_last)
            self._raise(error, "replace", path)
        self._flush_folder(path)
        return None

    def create(self, path: str, data: bytes) -> bool:
        """Like `replace`, but False (and nothing changed) if `path` is there already; durably, in either case."""
        temporary = self._write_temporary(path, data)
        try:
            self.disk.link(temporary, path)
            made = True
        except FileExistsError:
            made = False
        except OSError as error:
            self.drop(temporary)
            self._raise(error, "create", path)
        self.drop(temporary)
        self._flush_folder(path)
        return made

    def move(self, old: str, new: str) -> None:
        """Move a file to another folder; it is in at least one of both at every instant, power cuts included."""
        self._check()
        try:
            self.disk.link(old, new)
        except OSError as error:
            self._raise(error, "move", old)
        self._flush_folder(new)
        self.remove(old)

    def rename(self, old: str, new: str) -> None:
        """Give a file or folder another name in the same folder, durably; replaces a file of that name."""
        self._check()
        try:
            self.disk.rename(old, new)
        except OSError as error:
            self._raise(error, "rename", old)
        self._flush_folder(new)

    def settle(self, path: str) -> None:
        """Make durable that the file lies there: whoever put it may have been killed before the flush. To be
        called before anything is promised, or removed elsewhere, because of it."""
        self._check()
        self._flush_folder(path)

    def remove(self, path: str) -> None:
        """Delete a file, durably; a missing one is fine."""
        if self.unlink(path):
            self._flush_folder(path)

    def append(self, path: str, data: bytes) -> None:
        """Add whole lines to a log, in one piece. Not flushed: a power cut may take the last lines."""
        try:
            self.disk.append(path, data)
        except OSError as error:
            self._raise(error, "append to", path)

    def make_folders(self, path: str) -> None:
        """Make a folder (mode 700) and its parents, durably; one that is there already is fine."""
        self._check()
        try:
            self.disk.make_folder(path)
        except FileExistsError:
            pass  # flushed all the same: who made it may have been killed before
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if parent == path:
                raise
            self.make_folders(parent)
            self.make_folders(path)
            return
        except OSError as error:
            self._raise(error, "make the folder", path)
        self._flush_folder(path)

    # -- the steps themselves, for who groups many files into few flushes

    def begin(self, path: str, data: bytes) -> tuple[str, int]:
        """Write a temporary for `path`, not flushed yet; returns it and its open descriptor, for `finish`."""
        self._check()
        temporary = self._spare(path)
        try:
            fd = self.disk.create(temporary)
        except FileNotFoundError:
            raise Fenced(
                f"{self.scratch} is gone: a newer incarnation has taken over, and {path} was not written.",
                file=path,
            ) from None
        except OSError as error:
            self._raise(error, "write", path)
        try:
            self.disk.write(fd, data)
        except OSError as error:
            self._give_up(temporary, fd)
            self._raise(error, "write", path)
        return temporary, fd

    def finish(self, temporary: str, fd: int, *, flushed: bool = True) -> None:
        """Flush and close what `begin` wrote."""
        try:
            try:
                if flushed:
                    self.disk.flush(fd)
            finally:
                self.disk.close(fd)
        except OSError as error:
            # Never flushed again: the kernel may have dropped the pages. The temporary goes, nothing changed.
            self.drop(temporary)
            self._raise(error, "write", temporary)
        self.full = False

    def finish_all(self, begun: Sequence[tuple[str, int]]) -> None:
        """Flush and close many together. All of them or, where it raises, none: then their temporaries are gone."""
        try:
            try:
                self.disk.flush_all([fd for _, fd in begun])
            finally:
                for _, fd in begun:
                    self.disk.close(fd)
        except OSError as error:
            for temporary, _ in begun:
                self.drop(temporary)
            self._raise(error, "write", begun[0][0])
        self.full = False

    def link(self, source: str, path: str) -> bool:
        """Give a file a second name, not durable before `settle`; False if `path` is there already."""
        self._check()
        try:
            self.disk.link(source, path)
        except FileExistsError:
            return False
        except OSError as error:
            if self._folder_is_gone(error, path):
                self.make_folders(os.path.dirname(path))
                return self.link(source, path)
            self._raise(error, "create", path)
        return True

    def link_through(self, source: str, path: str) -> bool:
        """Like `link`, for a file that doesn't lie in the scratch folder: by way of a name there, so that an
        incarnation that was replaced fails."""
        self._check()
        spare = self._spare(path)
        try:
            self.disk.link(source, spare)
        except OSError as error:
            self._raise(error, "create", path)
        try:
            return self.link(spare, path)
        finally:
            self.drop(spare)

    def place(self, temporary: str, path: str) -> None:
        """Put a temporary where it belongs, not durable before `settle`."""
        try:
            self.disk.rename(temporary, path)
        except OSError as error:
            if self._folder_is_gone(error, path):
                self.make_folders(os.path.dirname(path))
                return self.place(temporary, path)
            self._raise(error, "replace", path)
        return None

    def replace_quickly(self, path: str, data: bytes, *, flushed: bool) -> None:
        """Make `path` hold `data`. Without `flushed` a power cut may bring the old content back, or an empty file:
        only for what can be worked out anew."""
        temporary, fd = self.begin(path, data)
        self.finish(temporary, fd, flushed=flushed)
        self.place(temporary, path)
        if flushed:
            self._flush_folder(path)

    def unlink(self, path: str) -> bool:
        """Delete a file; a power cut may bring it back. False if it was missing, which is fine."""
        self._check()
        try:
            self.disk.unlink(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._raise(error, "delete", path)
        return True

    def drop(self, temporary: str) -> None:
        """Delete a temporary; one that can't be deleted goes with its scratch folder."""
        try:
            self.disk.unlink(temporary)
        except OSError:
            return

    def _write_temporary(self, path: str, data: bytes) -> str:
        temporary, fd = self.begin(path, data)
        self.finish(temporary, fd)
        return temporary

    def _spare(self, path: str) -> str:
        """A fresh path in the scratch folder, named after `path`."""
        stem = path.rpartition("/")[2]
        if len(stem) > _STEM_BYTES_MAX or not stem.isascii():
            stem = os.fsdecode(os.fsencode(stem)[:_STEM_BYTES_MAX])
        return f"{self.scratch}/{stem}.{self._prefix}.{next(self._numbers)}"

    def _give_up(self, temporary: str, fd: int) -> None:
        with suppress(OSError):
            self.disk.close(fd)
        self.drop(temporary)

    def _keep_last(self, path: str) -> None:
        spare = self._spare(path)
        try:
            self.disk.link(path, spare)
        except FileNotFoundError:
            return
        # rename() leaves both names where they are links to one file, so the spare may still be there
        self.disk.rename(spare, last_copy(path))

    def _flush_folder(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        try:
            self.disk.flush_folder(folder)
        except OSError as error:
            self._lost = f"flushing {folder} failed ({error.strerror})"
            raise DurabilityLost(
                f"{path} was changed, but {self._lost}: it may not survive a power cut. "
                "This process writes no more; check the disk, then restart it.",
                file=path,
            ) from error

    def _folder_is_gone(self, error: OSError, path: str) -> bool:
        """Whether somebody deleted the folder that the file belongs to: it is made again."""
        try:
            folder_gone = self.disk.signature(os.path.dirname(path)) is None
        except OSError:
            return False
        return isinstance(error, FileNotFoundError) and folder_gone and self._scratch_there()

    def _check(self) -> None:
        if self._lost:
            raise DurabilityLost(f"{self._lost} earlier; check the disk, then restart this process.")

    def _raise(self, error: OSError, verb: str, path: str) -> NoReturn:
        if error.errno in FULL:
            self.full = True
            raise DiskFull(f"Could not {verb} {path}: the disk is full. Free some space.", file=path) from error
        if isinstance(error, FileNotFoundError) and not self._scratch_there():
            raise Fenced(f"A newer incarnation has taken over; could not {verb} {path}.", file=path) from error
        raise StoreUnavailable(f"Could not {verb} {path}: {error.strerror or error}.", file=path) from error

    def _scratch_there(self) -> bool:
        try:
            return self.disk.signature(self.scratch) is not None
        except OSError:
            return True  # unknown is not gone


def last_copy(path: str) -> str:
    """Where the version before the present one is kept."""
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.last"
