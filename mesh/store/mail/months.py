"""The form of an archive: gzip of JSON lines, one file a month; members are added at its end."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mesh import clock
from mesh.store.codec import decode
from mesh.store.files import Files

SUFFIX = ".jsonl.gz"
_ARCHIVE = re.compile(r"((?!0000)[0-9]{4}-(?:0[1-9]|1[0-2]))\.jsonl\.gz(\.damaged-[0-9]+)?")


class Damaged(Exception):
    """The archive can't be read to its end."""


class Mail(NamedTuple):
    """One file on its way into an archive."""

    name: str
    month: str
    line: bytes


def month_in(name: str, *, damaged: bool = False) -> str | None:
    """The month of an archive with this file name; None if it is none. With `damaged` also of those put aside."""
    found = _ARCHIVE.fullmatch(name)
    return found[1] if found and (damaged or not found[2]) else None


def ended(month: str) -> float:
    """When the month was over: seconds since 1970."""
    year, number = map(int, month.split("-"))
    try:
        return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC).timestamp()
    except ValueError:
        return math.inf  # the last month of all years


def mail(name: str, data: bytes, written: float, now: datetime) -> Mail:
    """The line for a file, and the month that it belongs to: of its ack, else of its own time, else (if it tells
    none, or one to come) of when it was written. What is no message goes in as it stands, under `damaged`."""
    try:
        document = decode(data)
        line = _line(document)
    except (ValueError, RecursionError):
        document, line = None, b""
    if not isinstance(document, dict):
        document = {}
        # Backslashes for what is no UTF-8: no byte is lost.
        line = _line({"damaged": data.decode("utf-8", "backslashreplace"), "file": name})
    told = _moment(document.get("ackedAt")) or _moment(document.get("timestamp"))
    moment = told if told and told <= now else datetime.fromtimestamp(written, UTC)
    return Mail(name, f"{moment.year:04}-{moment.month:02}", line)


def append(files: Files, path: str, new: list[bytes]) -> None:
    """Add to an archive, durably and whole or not at all, those lines that it doesn't hold yet: a run before may have
    been killed before it deleted their files. A damaged archive is put aside as `<name>.damaged-N`."""
    old = files.read(path) or b""
    fresh = dict.fromkeys(new)
    last = b"\n"
    try:
        for last in lines(old):
            fresh.pop(last.rstrip(b"\n"), None)
    except Damaged:
        _put_aside(files, path)
        old, fresh, last = b"", dict.fromkeys(new), b"\n"
    if fresh:
        cut_off = b"" if last.endswith(b"\n") else b"\n"  # somebody edited the archive
        files.replace(path, old + _member(cut_off, fresh))
    else:
        files.settle(path)


def _put_aside(files: Files, path: str) -> None:
    number = 1
    while files.exists(f"{path}.damaged-{number}"):
        number += 1
    files.rename(path, f"{path}.damaged-{number}")


def _member(start: bytes, new: Iterable[bytes]) -> bytes:
    """One gzip member; the same lines give the same bytes."""
    return gzip.compress(start + b"".join(line + b"\n" for line in new), mtime=0)


def lines(archive: bytes) -> Iterator[bytes]:
    """Every line, its newline included. Raises Damaged where it can't be read on."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise Damaged(str(error)) from error


def _line(document: object) -> bytes:
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a character, which a hand edit may have left: escaped, so that all can read it
        return json.dumps(document, separators=(",", ":")).encode()


def _moment(value: Any) -> datetime | None:
    try:
        return clock.parse(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None
