"""Building command lines: what a profile passes by itself, unless the registry's `args` say otherwise."""

from __future__ import annotations

from collections.abc import Sequence


def unless(args: Sequence[str], flags: Sequence[str], default: Sequence[str]) -> list[str]:
    """The default, unless one of the flags (or, for `-c key=value`, the beginning of a value) stands in `args`."""
    for arg in args:
        if any(arg == flag or arg.startswith(f"{flag}=") for flag in flags):
            return []
    return list(default)


def option(flag: str, value: str | None) -> list[str]:
    """The flag and its value, or nothing where there is no value."""
    return [flag, value] if value else []
