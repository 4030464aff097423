"""Attachments: each content once, named by its SHA-256, for whoever knows the name."""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
from collections.abc import Set
from functools import cache

from pydantic import ValidationError

from mesh import clock
from mesh.errors import Invalid, TooLarge, UnknownAttachment
from mesh.models import Attachment
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.mail.ages import days_ago, written

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ANY_TYPE = "application/octet-stream"
#: A file that is about to be collected bears this after its name, so that it is no attachment any more.
_LEAVING = ".leaving"


class Attachments:
    """`knowledge/attachments/`."""

    def __init__(self, files: Files, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._folder = layout.attachments
        self._time = time

    def add(self, data: bytes, name: str, type_: str | None, bytes_max: int) -> Attachment:
        """Store the bytes, durably, and describe them for a message. Bytes that are there already are written over
        with themselves: that makes them young again, so `collect` spares them until the message is written, and
        mends a damaged file. Raises TooLarge, or Invalid for a name or media type that can't be."""
        if len(data) > bytes_max:
            raise TooLarge(
                f"The attachment has {len(data):,} bytes; attachmentBytesMax allows {bytes_max:,}.",
                limit="attachmentBytesMax",
                bytesMax=bytes_max,
            )
        attachment = _described(data, name, type_)
        self._files.replace(self._path(attachment.sha256), data)
        return attachment

    def read(self, sha256: str) -> bytes:
        """The content. Raises UnknownAttachment, also if the file no longer holds what its name says."""
        data = self._files.read(self._path(sha256)) if _SHA256.fullmatch(sha256) else None
        if data is None:
            raise UnknownAttachment(f"No attachment has the SHA-256 {sha256[:64]!r}.", sha256=sha256[:64])
        if hashlib.sha256(data).hexdigest() != sha256:
            raise UnknownAttachment(
                f"The attachment {sha256} is damaged: its content was changed. Add it again to mend it.", sha256=sha256
            )
        return data

    def exists(self, sha256: str) -> bool:
        return _SHA256.fullmatch(sha256) is not None and self._files.exists(self._path(sha256))

    def collect(self, referenced: Set[str], older_than_days: float) -> int:
        """Delete what no message references and was added longer ago than that; returns how many. Younger ones
        stay: their message may be about to be written. One that can't be deleted stays for the next run."""
        found = self._files.names(self._folder)
        # Whoever collected before may have been killed with a file put aside.
        for name in [name for name in found if name.endswith(_LEAVING)]:
            self._return(name.removesuffix(_LEAVING))
        names = sorted({name.removesuffix(_LEAVING) for name in found} - referenced)
        oldest = days_ago(self._time, older_than_days)
        return sum(self._delete(name, oldest) for name in names if _SHA256.fullmatch(name))

    def _delete(self, name: str, oldest: float) -> bool:
        """Delete the file if it is old. `add` may make it young at any moment, so it is put aside under another name
        first, and deleted only if what was put aside is still old."""
        path, aside = self._path(name), self._path(name) + _LEAVING
        if not self._is_old(path, oldest):
            return False
        try:
            self._files.disk.rename(path, aside)
            if self._is_old(aside, oldest):
                self._files.disk.unlink(aside)  # not flushed: what a power cut brings back is collected again
                return True
        except OSError:
            return False
        self._return(name)
        return False

    def _is_old(self, path: str, oldest: float) -> bool:
        at = written(self._files, path)
        return at is not None and at < oldest

    def _return(self, name: str) -> None:
        """Undo the putting aside, unless the same content was added again meanwhile."""
        path, aside = self._path(name), self._path(name) + _LEAVING
        if self._files.exists(aside):
            self._files.link(aside, path)
            self._files.settle(path)
            self._files.remove(aside)

    def _path(self, sha256: str) -> str:
        return f"{self._folder}/{sha256}"


def _described(data: bytes, name: str, type_: str | None) -> Attachment:
    base = re.split(r"[/\\]", name)[-1]
    if base.strip() in ("", ".", ".."):
        raise Invalid(
            f"{name[:200]!r} names no file.", errors=[{"field": "name", "reason": "must be the name of a file"}]
        )
    media_type = _guessed(base) if type_ is None else type_.lower()
    fields = {"sha256": hashlib.sha256(data).hexdigest(), "name": base, "type": media_type, "bytes": len(data)}
    try:
        return Attachment.model_validate(fields)
    except ValidationError as error:
        errors = [{"field": str(item["loc"][0]), "reason": item["msg"]} for item in error.errors()]
        wrong = "; ".join(f"{item['field']}: {item['reason']}" for item in errors)
        raise Invalid(f"The attachment can't be described: {wrong}.", errors=errors) from None


def _guessed(name: str) -> str:
    """By the last extension: what `x.tar.gz` holds once unpacked says nothing of the file itself."""
    return _known_types().get(os.path.splitext(name)[1].lower(), _ANY_TYPE)


@cache
def _known_types() -> dict[str, str]:
    """Python's own table of registered types: the same on every host, whatever its mime.types says."""
    return mimetypes.MimeTypes().types_map[True]
