"""alerts list, ack, resolve."""

from __future__ import annotations

from typing import Literal

import click

from mesh.cli.app import cli, echo_json, open_store, table, with_json, with_root
from mesh.errors import BadUse


@cli.group()
def alerts() -> None:
    """What a person must know of or decide."""


@alerts.command("list")
@click.option("--all", "everything", is_flag=True, help="The resolved ones too.")
@with_root
@with_json
def list_alerts(root: str | None, as_json: bool, everything: bool) -> None:
    """The open alerts, oldest first, with what to do."""
    store = open_store(root)
    found = store.alerts.all() if everything else store.alerts.open()
    if as_json:
        echo_json([alert.dump() for alert in found])
        return
    lines = [[a.id, a.status, a.severity, a.agent_id, a.since, f"{a.title}. {a.next}"] for a in found]
    click.echo(table(["ID", "STATUS", "SEVERITY", "AGENT", "SINCE", "WHAT, AND WHAT TO DO"], lines))


@alerts.command()
@click.argument("alert_id")
@with_root
def ack(root: str | None, alert_id: str) -> int:
    """Say that you have seen it; it stays until it is resolved."""
    return _set(root, alert_id, "acked")


@alerts.command()
@click.argument("alert_id")
@with_root
def resolve(root: str | None, alert_id: str) -> int:
    """Say that it is over."""
    return _set(root, alert_id, "resolved")


def _set(root: str | None, alert_id: str, status: Literal["acked", "resolved"]) -> int:
    store = open_store(root)
    if not store.alerts.set_status(alert_id, status):
        raise BadUse(f"There is no open alert {alert_id!r}; `mesh alerts list` shows them.")
    store.journal.event("operator", f"alert_{status}", "by command", alertId=alert_id)
    click.echo(f"{alert_id} is {status}.")
    return 0
