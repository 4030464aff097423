"""The `mesh` command. One file a subject; each command imports what it needs when it runs.

Exit status 0 done, 1 failed, 2 bad use; one line on stderr says what is wrong and what to do, never a traceback.
"""

from __future__ import annotations

import os
import sys

import click

from mesh.errors import (
    BadUse,
    Invalid,
    MeshError,
    RegistryInvalid,
    UnknownAgent,
    UnknownAttachment,
    UnknownMessage,
    UnknownTask,
)

_BAD_USE = (BadUse, Invalid, UnknownAgent, UnknownAttachment, UnknownMessage, UnknownTask)


def main() -> None:
    """The entry point of `mesh`."""
    from mesh.cli.app import add_commands, cli

    add_commands()

    sys.exit(_run(cli, sys.argv[1:]))


def run_one_agent() -> int:
    """The entry point of `python -m agents`."""
    from mesh.cli.lifecycle import one_agent

    return _run(one_agent, sys.argv[1:])


def _run(command: click.Command, arguments: list[str]) -> int:
    try:
        result = command.main(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return _complain("stopped", 130)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see '{context.command_path} --help')" if context else ""
        return _complain(f"{error.format_message()}{hint}", 2)
    except MeshError as error:
        status = 2 if isinstance(error, _BAD_USE) and not isinstance(error, RegistryInvalid) else 1
        return _complain(error.detail, status)
    except SystemExit:
        return 0  # how click ends when the reader of its output has left
    except KeyboardInterrupt:
        return _complain("stopped", 130)
    except Exception as error:
        if os.environ.get("MESH_DEBUG"):
            raise
        return _complain(f"a bug in the mesh: {error!r}; MESH_DEBUG=1 shows where. Please report it.", 1)


def _complain(text: str, status: int) -> int:
    from mesh.policy.plain_text import plain

    click.echo(f"mesh: {' '.join(plain(text).split())}", err=True)
    return status
