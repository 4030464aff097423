"""Programs of the host."""

from __future__ import annotations

import shutil


def find_program(name: str, path: str) -> str | None:
    """The full path of a program, looked for on this PATH unless the name is a path itself; None if there is none."""
    return shutil.which(name, path=path)
