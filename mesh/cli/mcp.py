"""mcp: the mesh as tools for CLI agents, over HTTP or on standard input and output."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mesh.cli.app import F, cli, echo_json, known_agent, open_store, with_json, with_root
from mesh.errors import BadUse

if TYPE_CHECKING:
    from mesh.interop.cli_settings.mcp_install import McpInstaller
    from mesh.store import Store

_CLIS = ("claude", "codex", "gemini", "opencode", "pi", "openclaw")
_DEFAULT_PORT = 18799
#: Names the agent whose session a process belongs to.
_AGENT_ENV = "MESH_AGENT"


@cli.group()
def mcp() -> None:
    """The mesh as tools of the Model Context Protocol (MCP), for CLI agents in a session.

    `serve` is one server for all agents; `install` tells a CLI of it. `stdio` serves one agent and is started by its
    CLI, where HTTP won't do.
    """


@mcp.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_DEFAULT_PORT, show_default=True, help="0: any free one."
)
@with_root
def serve(root: str | None, port: int) -> int:
    """Serve all agents on one port of this machine, until it is stopped.

    An agent is known by its secret; whoever calls acts as that agent and as no other.
    """
    from mesh.interop.mcp.extra import need_sdk

    store = open_store(root)
    need_sdk()
    from mesh.interop.mcp.server import serve_http

    serve_http(store.layout.root, port, lambda url: click.echo(f"MCP for {store.layout.root} at {url}"))
    return 0


@mcp.command()
@click.option("--agent", envvar=_AGENT_ENV, metavar="AGENT", help=f"Whom it serves; else {_AGENT_ENV}.")
@with_root
def stdio(root: str | None, agent: str | None) -> int:
    """Serve one agent on standard input and output. CLIs start this; people don't."""
    from mesh.interop.mcp.extra import need_sdk

    store = open_store(root)
    if not agent:
        raise BadUse(f"Say which agent it serves: mesh mcp stdio --agent AGENT, or {_AGENT_ENV}.")
    known_agent(store, agent)
    need_sdk()
    from mesh.interop.mcp.server import serve_stdio

    serve_stdio(store.layout.root, agent)
    return 0


def _where(command: F) -> F:
    """Add what says whose entry, and where."""
    for option in (
        click.option("--name", default="mesh", show_default=True, help="What the server is called there."),
        click.option("--home", metavar="DIR", help="Below this home instead of yours."),
        click.argument("which", metavar="CLI", type=click.Choice(_CLIS)),
    ):
        command = option(command)
    return with_root(with_json(command))


_AGENT = click.option("--agent", envvar=_AGENT_ENV, metavar="AGENT", help="Whose session it is.")
_PORT = click.option(
    "--port", type=click.IntRange(1, 65535), default=_DEFAULT_PORT, show_default=True, help="Where the server listens."
)


@mcp.command()
@_where
@_AGENT
@_PORT
@click.option("--stdio", "own", is_flag=True, help="Let the CLI start a server of its own (80 MB each) instead.")
def install(
    root: str | None, as_json: bool, which: str, home: str | None, name: str, agent: str | None, port: int, own: bool
) -> int:
    """Tell a CLI of the mesh's server. Again is harmless.

    CLI is claude, codex, gemini, opencode, pi or openclaw. Only the server's own entry is written, and `uninstall`
    takes it back. The agent's secret isn't in it: a session says whose it is by MESH_AGENT_SECRET.
    """
    store = open_store(root)
    whom = _named(store, agent)
    told = _installer(store, which, home, name).install(whom, _url(port), stdio=own)
    if as_json:
        echo_json({"cli": which, "agent": whom, "file": told.path, "changed": told.changed, "notes": told.notes})
        return 0
    click.echo(f"{'Installed' if told.changed else 'Nothing to do:'} {name} in {told.path}.")
    for note in told.notes:
        click.echo(note)
    return 0


@mcp.command()
@_where
def uninstall(root: str | None, as_json: bool, which: str, home: str | None, name: str) -> int:
    """Take the server's entry out of a CLI's configuration.

    If nobody else has edited the file since, it is byte for byte what it was.
    """
    told = _installer(open_store(root), which, home, name).uninstall()
    if as_json:
        echo_json({"cli": which, "file": told.path, "changed": told.changed})
    else:
        click.echo(f"Took {name} out of {told.path}." if told.changed else f"No {name} of the mesh is in {told.path}.")
    return 0


@mcp.command()
@_where
@_AGENT
@_PORT
def check(
    root: str | None, as_json: bool, which: str, home: str | None, name: str, agent: str | None, port: int
) -> int:
    """Look whether a CLI knows the server, and whether that answers the agent; exit status 1 if not."""
    from mesh.interop.mcp.reach import silence

    store = open_store(root)
    whom, installer = _named(store, agent), _installer(store, which, home, name)
    problems = installer.problems(whom, _url(port))
    if not problems and not installer.is_stdio():
        quiet = silence(_url(port), whom, store.secrets.of(whom))
        problems += [quiet] if quiet else []
    if as_json:
        echo_json({"agent": whom, "file": installer.path, "ok": not problems, "problems": problems})
    else:
        click.echo(f"{whom:<12} {installer.path}: {'; '.join(problems) or 'installed, and it answers'}")
    return 1 if problems else 0


def _installer(store: Store, which: str, home: str | None, name: str) -> McpInstaller:
    from mesh.interop.cli_settings.mcp_install import McpInstaller

    return McpInstaller(store, which, home, os.environ, name)


def _named(store: Store, agent: str | None) -> str:
    if not agent:
        raise BadUse(f"Say whose session it is: --agent AGENT; there are: {', '.join(store.registry.current.agents)}.")
    return known_agent(store, agent)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"
