"""How old files are: what retention decides from."""

from __future__ import annotations

from collections.abc import Iterator

from mesh import clock
from mesh.errors import StoreUnavailable
from mesh.store.disk import Entry
from mesh.store.files import Files

DAY_S = 86_400.0


def days_ago(time: clock.Clock, days: float) -> float:
    """That moment, as files are stamped: seconds since 1970."""
    return time.wall().timestamp() - days * DAY_S


def look(files: Files, path: str) -> Entry | None:
    """What lies there, links not followed; None if nothing does. Raises StoreUnavailable."""
    try:
        return files.disk.look(path)
    except OSError as error:
        raise StoreUnavailable(f"Could not look at {path}: {error.strerror or error}.", file=path) from error


def written(files: Files, path: str) -> float | None:
    """When a regular file was last written; None where there is none, or where that can't be told."""
    try:
        found = files.disk.look(path)
        stamp = files.disk.signature(path) if found is not None and found.is_file else None
    except OSError:
        return None
    return None if stamp is None else stamp.mtime_ns / 1e9


def older(files: Files, folder: str, oldest: float) -> Iterator[tuple[str, float]]:
    """The regular files of a folder that were last written before that moment: name and time, by name."""
    for name in files.names(folder):
        at = written(files, f"{folder}/{name}")
        if at is not None and at < oldest:
            yield name, at


def lay_before(files: Files, path: str, oldest: float) -> bool:
    """Whether something, links included, has lain there since before that moment; False if that can't be told."""
    try:
        entry = files.disk.look(path)
    except OSError:
        return False
    return entry is not None and entry.changed_ns / 1e9 < oldest
