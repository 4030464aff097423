"""react: turns what happened to a pull request into messages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mesh.cli.app import F, cli, echo_json, open_store, with_json, with_root
from mesh.errors import BadUse

if TYPE_CHECKING:
    from mesh.policy.reactions import Kind

T = TypeVar("T")


@cli.group()
def react() -> None:
    """Tell an agent what happened to a pull request: a failed check, review comments, or that it can be merged.

    For CI jobs and scripts. The same again is harmless: a message follows from the head commit, and is sent once.
    """


def _common(command: F) -> F:
    for option in (
        click.option("--head", metavar="SHA", help="The head commit."),
        click.option("--pr", metavar="N", help="Its number, or its address."),
        click.option("--repo", metavar="OWNER/NAME", help="The repository."),
        click.option("--to", required=True, metavar="AGENT", help="Who is told."),
    ):
        command = option(command)
    return with_root(with_json(command))


@react.command()
@_common
@click.option("--check", metavar="NAME", help="The check that failed.")
@click.option("--url", metavar="URL", help="Where it ran.")
@click.option(
    "--from-file", "file", metavar="FILE", help="Its log, or the event's payload as GitHub gives it; - for stdin."
)
def ci(root: str | None, as_json: bool, to: str, file: str | None, **named: Any) -> int:
    """A check failed. In a GitHub workflow: mesh react ci --to AGENT --from-file "$GITHUB_EVENT_PATH"."""
    return _react("ci", root, as_json, to, file, named)


@react.command()
@_common
@click.option(
    "--from-file",
    "file",
    metavar="FILE",
    help="A JSON list of comments, or the event's payload as GitHub gives it; - for stdin.",
)
def review(root: str | None, as_json: bool, to: str, file: str | None, **named: Any) -> int:
    """Somebody commented. For instance: gh api repos/O/R/pulls/7/comments | mesh react review --from-file - …"""
    return _react("review", root, as_json, to, file, named)


@react.command()
@_common
@click.option("--title", metavar="TEXT", help="What it is called.")
@click.option("--from-file", "file", metavar="FILE", help="The event's payload as GitHub gives it; - for stdin.")
def mergeable(root: str | None, as_json: bool, to: str, file: str | None, **named: Any) -> int:
    """It can be merged: checks are green, and nothing stands in the way."""
    return _react("mergeable", root, as_json, to, file, named)


def _react(kind: Kind, root: str | None, as_json: bool, to: str, file: str | None, named: dict[str, Any]) -> int:
    from mesh.interop.reactions import BYTES_MAX, Named, read, tell
    from mesh.policy.reactions import Ignored

    store = open_store(root)
    store.registry.current.entry(to)
    content = None
    if file == "-":
        content = sys.stdin.buffer.read(BYTES_MAX + 1).decode(errors="replace")
    elif file is not None:
        content = _file(store.read_outside, file, BYTES_MAX)
    found = read(kind, Named(**named), content)
    if isinstance(found, Ignored):
        if as_json:
            echo_json({"ignored": found.reason, "messages": []})
        else:
            click.echo(f"mesh: nothing was sent: {found.reason}.", err=True)
        return 0
    told = tell(store, found, to)
    if as_json:
        echo_json({"messages": [entry.view() for entry in told]})
        return 0
    for entry in told:
        click.echo(entry.id)
        if entry.before:
            click.echo(f"mesh: {to} was told of {entry.about} before; nothing was sent again.", err=True)
        elif entry.queued:
            click.echo(f"mesh: {to} can't take it now; it waits in the orchestrator's outbox.", err=True)
    return 0


def _file(read_outside: Any, path: str, bytes_max: int) -> str:
    from mesh.errors import Invalid

    try:
        return str(read_outside(path, bytes_max).decode(errors="replace"))
    except Invalid as error:
        raise BadUse(f"--from-file: {error.detail}") from None
