"""join and leave: a person's own CLI session speaks for an agent."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from mesh.cli.app import cli, echo_json, known_agent, open_store, with_json, with_root
from mesh.errors import BadUse, MeshError

if TYPE_CHECKING:
    from mesh.store import Store

_CLIS = click.Choice(["claude", "codex", "gemini", "opencode", "pi"])


@cli.command()
@click.argument("agent")
@click.option("--cli", "which", metavar="CLI", type=_CLIS, required=True, help="claude, codex, gemini, opencode or pi.")
@click.option("--session", "session", metavar="ID", help="The session's id, as the CLI shows it.")
@click.option("--cwd", metavar="DIR", help="Where it runs; by default the present folder.")
@with_root
@with_json
def join(agent: str, which: str, session: str | None, cwd: str | None, root: str | None, as_json: bool) -> int:
    """Bind your running CLI session to an agent.

    From then on the agent's mail goes to that session by its hooks (`mesh hook install`), and the mesh shows when it
    was last heard. The mesh starts and ends nothing in it.
    """
    from mesh import clock
    from mesh.clock import SYSTEM
    from mesh.models import HUMAN
    from mesh.models.running import Session

    store = open_store(root)
    known_agent(store, agent)
    folder = os.path.abspath(cwd or os.getcwd())
    if session is None:
        raise BadUse(f"Say which session: --session ID.{_seen(store, agent, which)}")
    if not session.isprintable() or not 0 < len(session) <= 200:
        raise BadUse(f"{session!r} is no session's id.")
    bound = Session(cli=which, id=session, cwd=folder, since=clock.iso(SYSTEM.wall()))
    store.sessions.join(agent, bound, list(store.registry.current.agents))
    store.journal.event(HUMAN, "joined", f"{which} session {session}", about=agent)
    notes = _not_yet(store, agent, which, folder)
    _ring(store, agent)
    if as_json:
        echo_json({"agent": agent, "session": bound.model_copy(update={"joined": True}).dump(), "notes": notes})
        return 0
    click.echo(f"{which} session {session} speaks for {agent} now, until `mesh leave {agent}`.")
    for note in notes:
        click.echo(note)
    return 0


@cli.command()
@click.argument("agent")
@with_root
@with_json
def leave(agent: str, root: str | None, as_json: bool) -> int:
    """Set a joined session free: the agent's mail goes its own way again. Nothing in the session is touched."""
    from mesh.models import HUMAN

    store = open_store(root)
    left = store.sessions.leave(known_agent(store, agent))
    if left is not None:
        store.journal.event(HUMAN, "left", f"{left.cli} session {left.id}", about=agent)
        _ring(store, agent)
    if as_json:
        echo_json({"agent": agent, "session": left.dump() if left else None})
    elif left is None:
        click.echo(f"No session was joined to {agent}.")
    else:
        click.echo(f"{left.cli} session {left.id} no longer speaks for {agent}.")
    return 0


def _ring(store: Store, agent: str) -> None:
    """Have the agent look now; one that is down looks when it starts."""
    from mesh.cli.peer import call

    with suppress(MeshError):
        call(store, agent, "POST", "/wake", {"reason": "its session changed"}, timeout_s=2.0)


def _seen(store: Store, agent: str, which: str) -> str:
    """The sessions of this CLI whose hooks called the agent and that it doesn't know, for a person to choose from."""
    from mesh.cli.peer import call

    with suppress(MeshError):
        status: dict[str, Any] = call(store, agent, "GET", "/status", timeout_s=2.0)
        found = [entry for entry in status.get("unknownSessions", []) if entry["cli"] == which]
        if found:
            return " Seen lately: " + ", ".join(f"{entry['id']} in {entry['cwd']}" for entry in found[:5]) + "."
    return ""


def _not_yet(store: Store, agent: str, which: str, cwd: str) -> list[str]:
    """What is still missing for mail to get there."""
    from mesh.interop.cli_settings.hooks_install import HookInstaller

    for project in (None, cwd):
        with suppress(MeshError):
            installer = HookInstaller(store, which, None, project, os.environ)
            if any(checked.agent == agent and not checked.problems for checked in installer.check(agent)):
                return []
    return [f"Its hooks are not installed in your home or there: mesh hook install {which} --agent {agent}"]
