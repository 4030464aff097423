"""File locks with a holder that can be read (protocol document, section 11).

The lock itself is the kernel's (`flock`): it dies with its holder, so nothing stale is ever broken open and a pid
used again means nothing. The file says in plain JSON who took it last, when, and until when the holder may be
expected to be done. A lock covers one read-modify-write, and its file is never deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol

from mesh import clock
from mesh.errors import LockTimeout, StoreUnavailable
from mesh.limits import DEFAULT
from mesh.store.codec import decode
from mesh.store.disk import Disk

_LABEL_BYTES = 256
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.01


class SleepingClock(clock.Clock, Protocol):
    """A clock that can also wait, for synchronous code."""

    def sleep(self, seconds: float) -> None: ...


class Locks:
    """The locks of one root, as one holder takes them."""

    def __init__(self, disk: Disk, folder: str, holder: str, time: SleepingClock) -> None:
        self._disk = disk
        self._folder = folder
        self._time = time
        self.holder = holder
        self.wait_s = DEFAULT.lock_wait_s
        #: When a wait for a lock was last given up.
        self._in_vain_s: dict[str, float] = {}

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold the lock called `name`. Raises LockTimeout, naming the holder, after `wait_s` seconds."""
        path = self.path(name)
        handle = self._take(path, name)
        try:
            yield
        finally:
            with suppress(OSError):  # the descriptor is gone whatever closing it reports, and the lock with it
                self._disk.unlock(handle)

    def path(self, name: str) -> str:
        return f"{self._folder}/{name.replace('/', '.')}.lock"

    def _take(self, path: str, name: str) -> int:
        pause_s = _FIRST_PAUSE_S
        # Who waited in vain a moment ago doesn't wait again: a row of callers would each wait its full time.
        patience_s = 0.0 if self._time.monotonic() - self._in_vain_s.get(name, -1e9) < self.wait_s else self.wait_s
        deadline = self._time.monotonic() + patience_s
        try:
            while (handle := self._disk.try_lock(path)) is None:
                if self._time.monotonic() >= deadline:
                    if patience_s:
                        self._in_vain_s[name] = self._time.monotonic()
                    raise self._timeout(path, name)
                self._time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except OSError as error:
            raise StoreUnavailable(f"Could not lock {path}: {error.strerror}.", file=path) from error
        with suppress(OSError):  # the label is for people; a full disk must not stop who holds the lock
            self._disk.label_lock(handle, self._label())
        return handle

    def _label(self) -> bytes:
        # By hand, because it is on the way of every write; a holder's name needs no escaping.
        now = self._time.wall()
        acquired, expires = clock.iso(now), clock.iso(now + timedelta(seconds=self.wait_s))
        holder = f"{self.holder}-{int(now.timestamp() * 1000)}"
        label = f'{{"holder": "{holder}", "acquired": "{acquired}", "expires": "{expires}"}}'
        return label.encode().ljust(_LABEL_BYTES - 1) + b"\n"

    def _timeout(self, path: str, name: str) -> LockTimeout:
        label = read_label(self._disk, path)
        holder = str(label.get("holder", "an unknown process"))
        return LockTimeout(
            f"{name} has been locked for over {self.wait_s:g} s by {holder} (since {label.get('acquired', '?')}); "
            "if that process hangs, restart it: its lock goes with it.",
            file=path,
            holder=holder,
        )


class HeldFile:
    """The lock that is the file itself, held for a moment: `with HeldFile(…) as handle` gives a handle to its content.
    Raises LockTimeout."""

    def __init__(self, disk: Disk, path: str, time: SleepingClock, wait_s: float) -> None:
        self._disk = disk
        self._path = path
        self._time = time
        self._wait_s = wait_s
        self._handle = -1

    def __enter__(self) -> int:
        try:
            handle = self._disk.try_lock(self._path)
            if handle is None:
                handle = _wait_for(self._disk, self._path, self._time, self._wait_s)
        except OSError as error:
            raise StoreUnavailable(f"Could not lock {self._path}: {error.strerror}.", file=self._path) from error
        self._handle = handle
        return handle

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._disk.unlock(self._handle)


def _wait_for(disk: Disk, path: str, time: SleepingClock, wait_s: float) -> int:
    deadline = time.monotonic() + wait_s
    pause_s = _FIRST_PAUSE_S / 5
    while time.monotonic() < deadline:
        time.sleep(pause_s)
        if (handle := disk.try_lock(path)) is not None:
            return handle
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    raise LockTimeout(f"{path} has been locked for over {wait_s:g} s.", file=path)


def read_label(disk: Disk, path: str) -> dict[str, Any]:
    """Who took the lock last: `{holder, acquired, expires}`, empty where it can't be read."""
    try:
        label = decode(disk.read(path))
    except (OSError, ValueError):
        return {}
    return label if isinstance(label, dict) else {}
