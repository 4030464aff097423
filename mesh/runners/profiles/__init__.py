"""The CLIs that the mesh knows, one module each. A module is loaded when its profile is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from mesh.errors import Invalid
from mesh.models.runner_choice import Cli

if TYPE_CHECKING:
    from mesh.runners.profile import Profile

NAMES: tuple[str, ...] = get_args(Cli)


@cache
def profile(name: str) -> Profile:
    """The profile of a CLI. Raises Invalid for a name that isn't in `NAMES`."""
    if name not in NAMES:
        raise Invalid(f"no CLI is called {name!r}; the mesh knows {', '.join(NAMES)}", cli=name)
    found: Profile = import_module(f"{__name__}.{name}").PROFILE
    return found
