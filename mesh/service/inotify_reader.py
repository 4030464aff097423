"""One inotify instance and the task that reads it: from the kernel's events to (folder, name).

It lives once: after its end another takes its place.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncinotify import Event
    from asyncinotify import Watch as KernelWatch

# The kernel's numbers, <sys/inotify.h>. A hard link shows as a creation.
_CLOSE_WRITE, _MOVED_TO, _CREATE = 0x8, 0x80, 0x100
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED, _ONLYDIR = 0x400, 0x800, 0x4000, 0x8000, 0x1000000
_CAME = _CLOSE_WRITE | _MOVED_TO | _CREATE
_LOST = _DELETE_SELF | _MOVE_SELF | _IGNORED
_ASKED_FOR = _CAME | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
#: Events that are read at once.
_BATCH = 64


class InotifyReader:
    """Calls `on_event(folder, name)` in this loop for each file that came, with None once the folder is watched no
    more, and `on_overflow()` when events were lost."""

    def __init__(self, on_event: Callable[[str, str | None], None], on_overflow: Callable[[], None]) -> None:
        """Raises OSError where no instance is to be had, ImportError or RuntimeError where there is no inotify."""
        from asyncinotify import Inotify  # it loads ctypes and asks for the C library: only who needs it pays

        self._on_event, self._on_overflow = on_event, on_overflow
        self._inotify = Inotify(cache_size=_BATCH)
        os.set_blocking(self._inotify.fd, False)  # the library means to, and asks for something else
        self._kernel: dict[str, KernelWatch] = {}
        self._folders: dict[int, set[str]] = {}  # two paths may lead to one folder
        self._death = "it was cancelled"
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._read(), name="folder events")
        self._task.add_done_callback(self._ended)

    @property
    def death(self) -> str | None:
        """Why it reads no more, or None while it does."""
        return self._death if self._task is None or self._task.done() else None

    def add(self, folder: str) -> bool:
        """Watch the folder that is at this path now; False if it was watched already. Raises OSError, the one that
        was at this path before being watched no more."""
        from asyncinotify import Mask

        try:
            found = self._inotify.add_watch(folder, Mask(_ASKED_FOR))
        except OSError:
            self.remove(folder)
            raise
        before = self._kernel.get(folder)
        if before is not None and before.wd == found.wd:
            return False
        self.remove(folder)
        self._kernel[folder] = found
        self._folders.setdefault(found.wd, set()).add(folder)
        return True

    def remove(self, folder: str) -> None:
        """Watch the folder no more."""
        known = self._kernel.pop(folder, None)
        if known is None:
            return
        sharing = self._folders[known.wd]
        sharing.remove(folder)
        if sharing:
            return
        del self._folders[known.wd]
        try:
            self._inotify.rm_watch(known)
        except (OSError, ValueError):
            return  # the kernel dropped it with its folder, or all of them with this reader

    def watches(self, folder: str) -> bool:
        return folder in self._kernel

    def end(self) -> asyncio.Task[None] | None:
        """Stop reading; returns what can be awaited for it, if it still runs."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _read(self) -> None:
        async for event in self._inotify:
            self.handle(event)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._death = repr(error)
        self._task = None  # it refers to its loop
        self._inotify.close()

    def handle(self, event: Event) -> None:
        """Pass one event on."""
        mask = int(event.mask)
        if mask & _OVERFLOW:
            self._on_overflow()
            return
        folders = self._folders.get(event.watch.wd, ()) if event.watch is not None else ()
        if mask & _LOST:
            for folder in tuple(folders):
                self.remove(folder)
                self._on_event(folder, None)
        elif mask & _CAME and (name := str(event.name or "")) and not name.startswith("."):
            for folder in tuple(folders):
                self._on_event(folder, name)


def is_missing(error: OSError) -> bool:
    """Whether there is just no such folder, yet or any more."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR)


def remedy(error: Exception) -> str:
    """What the error is, and what to do about it."""
    number = error.errno if isinstance(error, OSError) else None
    what = {errno.EMFILE: "max_user_instances", errno.ENOSPC: "max_user_watches"}.get(number or 0)
    if what is None:
        return str(error) or repr(error)
    # EMFILE has two causes, and the kernel doesn't say which
    also = " (or raise the process' limit of open files, ulimit -n)" if number == errno.EMFILE else ""
    return f"this user has used up fs.inotify.{what}; raise it: sudo sysctl -w fs.inotify.{what}=<more>{also}"
