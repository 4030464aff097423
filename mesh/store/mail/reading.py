"""Reading message files that anybody may have put there: what is no message is told apart, and why."""

from __future__ import annotations

import os

from pydantic import ValidationError

from mesh.errors import StoreUnavailable
from mesh.models import Message, payload_problems
from mesh.store.codec import decode
from mesh.store.disk import Disk, Entry

#: A message file also holds what the mesh adds to it.
_ADDED_BYTES = 4_000
#: What the mesh accepted once is read whatever the limits say now.
_ANY_BYTES = 1 << 30


class BadMail(Exception):
    """The file is no message that can be delivered. `reason` is for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_message(disk: Disk, path: str, bytes_max: int) -> Message:
    """The message in a file. Raises BadMail, FileNotFoundError, or another OSError if the disk fails."""
    return parse_message(read_data(disk, path, bytes_max))


def read_accepted(disk: Disk, path: str) -> Message | None:
    """A message that the mesh filed, however large; None where there is none. Raises StoreUnavailable if the disk
    fails: what can't be looked at now must not count as gone."""
    try:
        return read_message(disk, path, _ANY_BYTES)
    except (BadMail, FileNotFoundError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"Could not read {path}: {error.strerror or error}.", file=path) from error


def read_data(disk: Disk, path: str, bytes_max: int) -> bytes:
    """The content of a file that anybody may have put there. Raises as `read_message` does."""
    return disk.read_start(path, look_at(disk, path, bytes_max).size)


def look_at(disk: Disk, path: str, bytes_max: int) -> Entry:
    """A file that anybody may have put there, and that may be read. Raises as `read_message` does.

    Links are not followed and pipes not opened: whoever can write here must not make us read elsewhere.
    """
    entry = disk.look(path)
    if entry is None:
        raise FileNotFoundError(path)
    if not entry.is_file:
        raise BadMail("it is a link, or no regular file")
    if entry.owner not in (os.geteuid(), 0):  # root included: it reads for the mesh, not for whoever left a file
        raise BadMail(f"it belongs to another user (uid {entry.owner})")
    if entry.size > bytes_max + _ADDED_BYTES:
        raise BadMail(f"it is larger than {bytes_max} bytes")
    return entry


def parse_message(data: bytes) -> Message:
    """The message that these bytes are. Raises BadMail."""
    try:
        document = decode(data)
    except ValueError as error:
        raise BadMail(f"it is not JSON: {error}") from None
    try:
        message = Message.model_validate(document)
    except ValidationError as error:
        raise BadMail(_first(error)) from None
    problems = payload_problems(message.type, message.payload)
    if problems:
        raise BadMail(f"{problems[0]['field']}: {problems[0]['reason']}")
    return message


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]
