"""JSON as it lies in files."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json


def encode(document: object) -> bytes:
    """As every document is written: indented for people, one final newline."""
    try:
        return to_json(document, indent=1) + b"\n"
    except PydanticSerializationError:  # half a character (a lone surrogate), which a hand edit may have left
        return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def encode_line(entry: object) -> bytes:
    """As a line of a log."""
    try:
        return to_json(entry) + b"\n"
    except PydanticSerializationError:
        return json.dumps(entry, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def decode_own(data: bytes) -> Any:
    """What the mesh itself wrote, fast. Raises ValueError."""
    return from_json(data)


def decode(data: bytes) -> Any:
    """The value. Raises ValueError for whatever isn't JSON in UTF-8, or is nested too deeply to be meant."""
    try:
        return json.loads(data.decode("utf-8-sig", "surrogatepass"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
