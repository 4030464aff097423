"""The command group and what all commands share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mesh import __version__
from mesh.errors import BadUse

if TYPE_CHECKING:
    from mesh.store import Store

F = TypeVar("F", bound=Callable[..., Any])

_MODULES = (
    "alerts",
    "context",
    "hook",
    "join",
    "lifecycle",
    "look",
    "mail",
    "mail_look",
    "mail_stats",
    "mail_tail",
    "mcp",
    "react",
    "roster",
    "say",
    "switch",
    "tasks",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="mesh")
def cli() -> None:
    """Several AI agents on one host as one team."""


def with_root(command: F) -> F:
    """Add `--root`."""
    option = click.option(
        "--root", metavar="DIR", help="The mesh's folder; else MESH_ROOT, an initialised ./shared, /shared."
    )
    return option(command)


def with_json(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def root_of(option: str | None) -> str:
    """The root that a command works on, initialised or not."""
    from mesh.store.setup import resolve_root

    return resolve_root(option, os.environ.get("MESH_ROOT"))


def open_store(option: str | None) -> Store:
    """The store of an initialised root. Raises BadUse, naming the root, if there is none."""
    from mesh.store import Store
    from mesh.store.setup import is_initialised

    root = root_of(option)
    if not is_initialised(root):
        raise BadUse(f"{root} is not a mesh's folder; make it with `mesh init --root {root}`, or name another.")
    if option is None and sys.stderr.isatty():
        click.echo(f"root {root}", err=True)  # where nobody said which: a person should see it
    return Store(root)


def known_agent(store: Store, agent: str) -> str:
    """The agent's id, if the registry has it. Raises UnknownAgent."""
    store.registry.current.entry(agent)
    return agent


def echo_json(value: Any) -> None:
    click.echo(as_json_text(value, indent=2))


def as_json_text(value: Any, indent: int | None = None) -> str:
    """The value as JSON, in which what would steer a terminal, or isn't seen at all, stands as an escape."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1] for sign in text)


def one_line(text: str) -> str:
    """What somebody else wrote, for one line of a terminal."""
    from mesh.policy.plain_text import plain

    return " ".join(plain(text).split())


def table(headers: list[str], lines: list[list[str]]) -> str:
    """Columns for a terminal, as wide as their widest cell. Cells are made harmless: agents wrote some of them."""
    everything = [headers, *([one_line(cell) for cell in line] for line in lines)]
    widths = [max(len(line[column]) for line in everything) for column in range(len(headers))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in everything
    )


def add_commands() -> None:
    """Import the files in which the commands stand."""
    from importlib import import_module

    for name in _MODULES:
        import_module(f"mesh.cli.{name}")
