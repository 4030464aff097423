"""The command that a CLI runs as its hook, and how it is known again as ours."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass

from mesh.interop.hooks import run

_PROGRAM = "/mesh/interop/hooks/run.py"
#: An interpreter or a mesh that is gone must not make noise in every session.
_QUIETLY = " 2>/dev/null || :"


@dataclass(frozen=True)
class Hook:
    """Whose hook it is."""

    cli: str
    agent: str
    socket: str

    def argv(self) -> list[str]:
        """The program as it is installed here: absolute interpreter, one file, nothing of the environment."""
        return [sys.executable, "-I", "-S", os.path.abspath(run.__file__), self.cli, self.agent, self.socket]

    def command(self) -> str:
        """For a shell."""
        return shlex.join(self.argv()) + _QUIETLY


def hook_of(command: object) -> Hook | None:
    """Whose hook a command is; None if it is none of the mesh's."""
    if not isinstance(command, str) or _PROGRAM not in command:
        return None
    try:
        words = shlex.split(command.removesuffix(_QUIETLY))
    except ValueError:
        return None
    return hook_of_argv(words)


def hook_of_argv(words: list[str]) -> Hook | None:
    """The same for a list of words."""
    if len(words) != 7 or not words[3].endswith(_PROGRAM):
        return None
    return Hook(*words[4:])


def missing(argv: list[str]) -> str | None:
    """What of an installed program is no longer there, in words."""
    for path in (argv[0], argv[3]):
        if not os.path.exists(path):
            return f"{path} is gone"
    return None
