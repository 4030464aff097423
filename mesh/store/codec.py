"""JSON as it lies in files."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json


def encode(document: object) -> bytes:
    """As every document is written: indented for people, one final newline."""
    try:
        return to_json(document, indent=1) + b"\n"
    except PydanticSerializationError:  # half a character (a lone surrogate), which a hand edit may have left
        return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def decode(data: bytes) -> Any:
    """The value. Raises ValueError for whatever isn't JSON in UTF-8, or is nested too deeply to be meant."""
    try:
        return json.loads(data.decode("utf-8-sig", "surrogatepass"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
