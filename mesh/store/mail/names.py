"""The names of message files: `<2026-02-16T204500.000Z>-<id>-<type>.json`."""

from __future__ import annotations

import re
from typing import NamedTuple

from mesh import clock
from mesh.models import Message

_NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d{6}\.\d{3}Z)-([A-Za-z0-9_-][A-Za-z0-9._-]{0,127})-([a-z][a-z0-9_]{0,63})\.json")
#: A time as the mesh writes it.
OUR_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SUFFIX = ".json"
REASON = ".reason.json"


class Name(NamedTuple):
    """What the name of a file that the mesh wrote tells."""

    stamp: str
    id: str
    type: str


def file_name(message: Message) -> str:
    """The name under which the mesh files a message."""
    time = message.timestamp
    stamp = (time if OUR_TIME.fullmatch(time) else clock.iso(clock.parse(time))).replace(":", "")
    return f"{stamp}-{message.id}-{message.type}{SUFFIX}"


def parse_name(name: str) -> Name | None:
    """What the name tells, or None for a file that somebody named otherwise."""
    found = _NAME.fullmatch(name)
    return Name(*found.groups()) if found else None


def is_mail(name: str) -> bool:
    """Whether a file of this name in an inbox is meant as a message."""
    return name.endswith(SUFFIX) and name[0] != "." and not name.endswith(REASON)
