"""`secrets.toml` beside the registry (mode 600): keys and addresses that hold one, where the environment has none.

    OPENAI_API_KEY = "sk-…"
    MESH_WEBHOOK_SECRET = "…"

Never written by the mesh, and what is in it appears in no error. The owner edits it; an edit counts at once.
"""

from __future__ import annotations

import re
import tomllib

from mesh.errors import StoreUnavailable
from mesh.store.disk import Disk, Signature

#: Group and others: whoever of them may read the file knows the keys.
_OTHERS = 0o077
_PLACE = re.compile(r"line \d+, column \d+|end of document")


class SecretFile:
    """The file at `path`, or nothing where there is none. Raises StoreUnavailable where it must not be used: others
    may read it, or it can't be read."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._known: tuple[Signature, dict[str, str]] | None = None

    def get(self, name: str) -> str | None:
        """The value under this name, or None."""
        return self.all().get(name)

    def all(self) -> dict[str, str]:
        """Every name with its value."""
        try:
            path = self._disk.resolve(self._path)
            seen, entry = self._disk.signature(path), self._disk.look(path)
            if seen is None or entry is None:
                return {}
            # Looked at each time: closing a file that was open changes nothing else of it.
            if entry.mode & _OTHERS:
                raise StoreUnavailable(
                    f"{self._path} can be read or written by others (mode {entry.mode:o}): run chmod 600 {path}, and "
                    "replace the keys in it if the host has other users.",
                    file=self._path,
                )
            if self._known is None or self._known[0] != seen:
                self._known = (seen, self._parsed(self._disk.read(path)))
        except OSError as error:
            raise StoreUnavailable(f"{self._path} can't be read: {error.strerror}.", file=self._path) from None
        return dict(self._known[1])

    def _parsed(self, data: bytes) -> dict[str, str]:
        try:
            found = tomllib.loads(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            # Only the place: the parser's own words may quote what stands there.
            place = _PLACE.search(str(error))
            raise StoreUnavailable(
                f'{self._path} is no TOML ({place.group() if place else "not UTF-8"}): write NAME = "value" lines.',
                file=self._path,
            ) from None
        wrong = [name for name, value in found.items() if not isinstance(value, str)]
        if wrong:
            raise StoreUnavailable(
                f'{self._path}: {", ".join(wrong)} must be text in quotes: NAME = "value".', file=self._path
            )
        return {name: str(value) for name, value in found.items()}
