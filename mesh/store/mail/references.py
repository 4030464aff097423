"""Which attachments the mail that lies in files still needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.mail.ages import look

# Found in the bytes: faster than parsing, and a message that is damaged elsewhere keeps its attachments.
_NAMED = re.compile(rb'"sha256"\s*:\s*"([0-9a-f]{64})"')


def referenced(files: Files, layout: Layout, addresses: Iterable[str]) -> set[str]:
    """The SHA-256 of every attachment that a message of these addresses names: waiting, sent, processed, dead or
    rejected. Raises StoreUnavailable if a file can't be read: what it names is unknown, so nothing may be
    collected then."""
    found: set[str] = set()
    seen: set[str] = set()
    for folder in _folders(layout, list(addresses)):
        for path in [f"{folder}/{name}" for name in files.names(folder)]:
            if path not in seen and _is_regular(files, path):
                named = [digest.decode() for digest in _NAMED.findall(files.read(path) or b"")]
                found.update(named)
            seen.add(path)
    return found


def _folders(layout: Layout, addresses: list[str]) -> Iterator[str]:
    """In the order in which mail moves on, so that what moves meanwhile is met where it arrives. Dead mail that is
    sent again moves backwards: hence the inboxes once more."""
    mail = [layout.mail(address) for address in addresses]
    yield from (folders.queued for folders in mail)
    yield from (folders.outbox for folders in mail)
    yield from (folders.inbox for folders in mail)
    yield from (folders.processed for folders in mail)
    yield from (folders.rejected for folders in mail)
    yield from (folders.dead for folders in mail)
    yield from (folders.inbox for folders in mail)


def _is_regular(files: Files, path: str) -> bool:
    """Links are no mail, and reading a pipe would block."""
    entry = look(files, path)
    return entry is not None and entry.is_file
