"""hook: the mesh's hooks in the configuration of CLI agents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mesh.cli.app import cli, echo_json, known_agent, open_store, with_json, with_root
from mesh.errors import BadUse

if TYPE_CHECKING:
    from mesh.interop.cli_settings.hooks_install import HookInstaller
    from mesh.store import Store

_CLIS = click.Choice(["claude", "codex", "gemini", "opencode", "pi"])


@cli.group()
def hook() -> None:
    """Hooks in CLI sessions: they bring an agent its mail, and tell how it is."""


def _where(command: click.decorators.FC) -> click.decorators.FC:
    """Add what says whose hooks, and where."""
    for option in (
        click.option("--project", metavar="DIR", help="In this project's configuration."),
        click.option("--home", metavar="DIR", help="Below this home instead of yours."),
        click.option("--agent", metavar="ID", help="Whom they speak for."),
        click.argument("which", metavar="CLI", type=_CLIS),
    ):
        command = option(command)
    return command


@hook.command()
@_where
@with_root
@with_json
def install(
    which: str, agent: str | None, home: str | None, project: str | None, root: str | None, as_json: bool
) -> int:
    """Install an agent's hooks with a CLI. Again is harmless.

    Only what is the mesh's is written; `mesh hook uninstall` takes it back. Sessions that the mesh starts for another
    agent in the same home speak for that one.
    """
    store = open_store(root)
    whom = _agent(store, which, agent)
    done = _installer(store, which, home, project).install(whom)
    if as_json:
        echo_json({"cli": which, "agent": whom, "file": done.path, "changed": done.changed, "notes": done.notes})
        return 0
    click.echo(f"{'Installed' if done.changed else 'Nothing to do:'} hooks of {whom} in {done.path}.")
    for note in done.notes:
        click.echo(note)
    return 0


@hook.command()
@_where
@with_root
@with_json
def uninstall(
    which: str, agent: str | None, home: str | None, project: str | None, root: str | None, as_json: bool
) -> int:
    """Take an agent's hooks out of a CLI's configuration; without --agent all of this mesh's.

    If nobody else has edited the file since, it is byte for byte what it was.
    """
    store = open_store(root)
    done = _installer(store, which, home, project).uninstall(agent)
    if as_json:
        echo_json({"cli": which, "agent": agent, "file": done.path, "changed": done.changed, "notes": done.notes})
        return 0
    click.echo(f"Took the hooks out of {done.path}." if done.changed else f"No hooks of this mesh are in {done.path}.")
    for note in done.notes:
        click.echo(note)
    return 0


@hook.command()
@_where
@with_root
@with_json
def check(which: str, agent: str | None, home: str | None, project: str | None, root: str | None, as_json: bool) -> int:
    """Look whether hooks are installed and would work; exit status 1 if not."""
    from mesh.interop.cli_settings.hooks_reach import silence

    store = open_store(root)
    found = _installer(store, which, home, project).check(None if agent is None else known_agent(store, agent))
    for checked in found:
        if checked.agent is not None and not checked.problems:
            quiet = silence(store.layout.socket(checked.agent))
            checked.problems += [f"{checked.agent} doesn't answer: {quiet}"] if quiet else []
    if as_json:
        lines = [
            {"agent": entry.agent, "file": entry.path, "ok": not entry.problems, "problems": entry.problems}
            for entry in found
        ]
        echo_json(lines)
    else:
        for checked in found:
            told = "; ".join(checked.problems) or "installed, and the agent answers"
            click.echo(f"{checked.agent or '-':<12} {checked.path}: {told}")
    return 0 if not any(checked.problems for checked in found) else 1


@hook.command()
@click.argument("which", metavar="CLI")
@click.argument("agent")
@click.argument("socket_path", metavar="[SOCKET]", required=False)
@with_root
def run(which: str, agent: str, socket_path: str | None, root: str | None) -> int:
    """Be the hook: reads what the CLI says on standard input, prints what it must read.

    What is installed calls the same program without this command's start.
    """
    from mesh.interop.hooks.run import main

    path = socket_path or f"{open_store(root).layout.agent(agent)}/agent.sock"
    return main([which, agent, path])


def _installer(store: Store, which: str, home: str | None, project: str | None) -> HookInstaller:
    from mesh.interop.cli_settings.hooks_install import HookInstaller

    return HookInstaller(store, which, home, project, os.environ)


def _agent(store: Store, which: str, named: str | None) -> str:
    """Whom the hooks speak for: who was named, or the only one that works with this CLI."""
    if named is not None:
        return known_agent(store, named)
    registry = store.registry.current
    works = [agent for agent, entry in registry.agents.items() if getattr(entry.runner, "cli", None) == which]
    if len(works) == 1:
        return works[0]
    whose = f"{', '.join(works)} work with {which}" if works else f"no agent's runner is {which}"
    raise BadUse(f"Say for whom: --agent ID ({whose}; known are: {', '.join(registry.agents)}).")
