"""File events as hints: one inotify instance for everything that shares an event loop.

A hint says that a look is worth while; no hint says nothing: whoever watches also sweeps. The host allows a user
only some 128 instances, and a process may hold a hundred agents, so they share one, which is given back with the
last watch. No thread; nothing runs while nothing happens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

from mesh.service.inotify_reader import InotifyReader, is_missing, remedy

log = logging.getLogger("mesh")

OnHint = Callable[[str | None], None]

#: Watched folders that one `check` asks for again, lest one was replaced unseen (when a parent of it was moved).
#: Every caller asks for some, so that many callers with many folders don't each ask for all of them.
_ASKED_AGAIN = 8


class Watch:
    """One caller's interest in a folder."""

    def __init__(self, folder: str, on_hint: OnHint, leave: Callable[[Watch], None]) -> None:
        self.folder = folder
        self._on_hint: OnHint | None = on_hint
        self._leave = leave

    def cancel(self) -> None:
        """No hint comes any more, not even one that is on its way."""
        if self._on_hint is not None:
            self._on_hint = None
            self._leave(self)

    def hint(self, name: str | None) -> None:
        """Tell the caller that this file came, or with None to look at everything."""
        if self._on_hint is None:
            return
        try:
            self._on_hint(name)
        except Exception:
            log.exception("a watcher of %s failed; it and the others go on", self.folder)


class FolderEvents:
    """The watches of one event loop."""

    def __init__(self) -> None:
        #: How often the reader was started again after it had died.
        self.restarts = 0
        self._watches: dict[str, list[Watch]] = {}
        self._reader: InotifyReader | None = None
        #: Why there is no reader, though somebody watches.
        self._no_reader: str | None = None
        #: Folders that can't be watched, and why, where that is no matter of their not being there.
        self._refused: dict[str, str] = {}
        self._turn = 0

    @property
    def problem(self) -> str | None:
        """Why there are no events at present, or not from everywhere, and what to do; None if all is well. That a
        folder isn't there is no problem."""
        if self._no_reader is not None:
            return self._no_reader
        if self._reader is not None and (death := self._reader.death):
            return f"the reader of file events died ({death}); the next sweep starts it again"
        return next(iter(self._refused.values()), None)

    def watch(self, folder: str, on_hint: OnHint) -> Watch:
        """Have `on_hint` called in this loop with the name of each file that comes to `folder` (hidden ones left
        out), or with None: look at everything. Never fails: without events `problem` says why, and `check` mends."""
        watch = Watch(folder, on_hint, self._leave)
        self._watches.setdefault(folder, []).append(watch)
        if self._reader is None and self._no_reader is None:
            self._start()
        self._ask_for(folder)
        return watch

    def check(self) -> bool:
        """Mend what can be mended; to be called with every sweep. True if the reader had to be started (again),
        which is worth an alert. Whoever missed events is told to look at everything."""
        if not self._watches:
            return False
        if self._reader is not None and self._reader.death is None:
            self._ask_again()
            return False
        died = self._reader is not None
        if not self._start():
            return False
        self.restarts += died
        for folder in self._watches:
            self._ask_for(folder)
        self._hint_all()
        return True

    async def close(self) -> None:
        """End every watch."""
        reader = self._reader
        for watches in tuple(self._watches.values()):
            for watch in tuple(watches):
                watch.cancel()
        if reader is not None and (task := reader.end()) is not None:
            await asyncio.wait({task})

    def _start(self) -> bool:
        """Get a reader; False, and `problem` set, where none is to be had."""
        try:
            self._reader = InotifyReader(self._hint, self._hint_all)
        except (OSError, ImportError, RuntimeError) as error:
            self._no_reader = f"no file events, so files are noticed by sweeps alone: {remedy(error)}"
            return False
        self._no_reader = None
        return True

    def _ask_again(self) -> None:
        """Ask for folders that may be there again or have been replaced; tell their watchers if so."""
        assert self._reader is not None
        folders = list(self._watches)
        chosen = [folder for folder in folders if not self._reader.watches(folder)]
        count = min(_ASKED_AGAIN, len(folders))
        chosen += [folders[(self._turn + number) % len(folders)] for number in range(count)]
        self._turn = (self._turn + count) % len(folders)
        for folder in chosen:
            if self._ask_for(folder):
                self._hint(folder, None)

    def _ask_for(self, folder: str) -> bool:
        """Ask for the events of the folder that is at this path now; True if none came from that one before."""
        self._refused.pop(folder, None)
        if self._reader is None or self._reader.death is not None:
            return False
        try:
            return self._reader.add(folder)
        except OSError as error:
            if not is_missing(error):
                self._refused[folder] = f"no file events from {folder}: {remedy(error)}"
            return False

    def _hint(self, folder: str, name: str | None) -> None:
        for watch in tuple(self._watches.get(folder, ())):
            watch.hint(name)

    def _hint_all(self) -> None:
        for folder in tuple(self._watches):
            self._hint(folder, None)

    def _leave(self, watch: Watch) -> None:
        watches = self._watches[watch.folder]
        watches.remove(watch)
        if watches:
            return
        del self._watches[watch.folder]
        self._refused.pop(watch.folder, None)
        if self._reader is not None:
            self._reader.remove(watch.folder)
        if not self._watches:
            if self._reader is not None:
                self._reader.end()
            self._reader = self._no_reader = None


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, FolderEvents] = WeakKeyDictionary()


def folder_events() -> FolderEvents:
    """The one of the running loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = FolderEvents()
    return found
