"""mail stats."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from mesh.cli import letters
from mesh.cli.app import echo_json, table, with_json, with_root
from mesh.cli.mail import mail

if TYPE_CHECKING:
    from mesh.service.mail_overview import Figures

_HEADERS = ["AGENT", "SENT", "RECEIVED", "WAITING", "QUEUED", "UNACKED", "DEAD", "REJECTED", "ARCHIVED"]


@mail.command()
@click.argument("agent", required=False)
@with_root
@with_json
def stats(root: str | None, as_json: bool, agent: str | None) -> None:
    """Counts for each agent, and latencies.

    P50 and so on: milliseconds from send to ack, of the last 24 hours. UNACKED waits and asked for an ack; '!' marks
    more than the limit unackedAlert. QUEUED waits in the sender's outbox.
    """
    from pydantic.alias_generators import to_camel

    from mesh.service.mail_overview import figures

    store = letters.open_mail(root)
    where = [letters.known_address(store, agent)] if agent else letters.addresses(store)
    found = [figures(store, address) for address in where]
    if as_json:
        echo_json([{to_camel(key): value for key, value in asdict(row).items()} for row in found])
        return
    click.echo(table([*_HEADERS, "P50 MS", "P95 MS", "P99 MS"], [_cells(row) for row in found]))


def _cells(row: Figures) -> list[str]:
    counts = [row.sent, row.received, row.waiting, row.queued, row.unacked, row.dead, row.rejected, row.archived]
    cells = [row.agent, *map(str, counts)]
    cells[_HEADERS.index("UNACKED")] += "!" if row.unacked_alert else ""
    spans = row.latency_ms
    return [*cells, *(["-"] * 3 if spans is None else [f"{value:.0f}" for value in (spans.p50, spans.p95, spans.p99)])]
