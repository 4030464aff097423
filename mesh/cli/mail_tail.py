"""mail tail: what happens to messages, from the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mesh.cli import letters
from mesh.cli.app import as_json_text, one_line, with_json, with_root
from mesh.cli.mail import mail
from mesh.clock import SYSTEM, iso, parse
from mesh.errors import BadUse, Invalid

if TYPE_CHECKING:
    from mesh.store.event_log import EventLog, Logged, Reading

_POLL_S = 0.2
_LAST = 20
_KNOWN = ("at", "tick", "agentId", "event", "reason", "messageId", "from", "to", "type", "priority")


@mail.command()
@click.argument("agent", required=False)
@click.option("--all", "everybody", is_flag=True, help="Everybody's mail; so it is without AGENT.")
@click.option("--since", metavar="OFFSET|TIME", help="After this offset (as --json prints them), or from this time on.")
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--limit", type=click.IntRange(0, 1_000_000), help="So many of the last, 20 by default; with --since the next."
)
@with_root
@with_json
def tail(root: str | None, as_json: bool, agent: str | None, everybody: bool, follow: bool, **asked: Any) -> None:
    """What happened to messages, oldest first.

    They are sent, delivered, shown, acked, dead and so on. With AGENT only mail from or to it. With --json one line an
    event, with the offset after it: --since OFFSET goes on from there, missing nothing and showing nothing twice, also
    when the log was rotated meanwhile.
    """
    from mesh.store.event_log import EventLog

    if agent is not None and everybody:
        raise BadUse("Give AGENT or --all, not both.")
    store = letters.open_mail(root)
    shown = _Shown(None if agent is None else letters.known_address(store, agent), as_json)
    log = EventLog(store.files, store.layout.events)
    since, limit = asked["since"], asked["limit"]
    _, seen = log.changed(None)
    if since is None:
        reading = log.last(_LAST if limit is None else limit, shown.fits)
        limit = None
    else:
        reading, shown.from_ = _since(log, since)
    if shown.show(reading, limit):
        return
    while follow:
        SYSTEM.sleep(_POLL_S)
        changed, seen = log.changed(seen)
        if changed:
            reading = log.read(reading.end)
            if shown.show(reading, limit):
                return


class _Shown:
    """Chooses the events that are asked for, prints them and counts."""

    def __init__(self, agent: str | None, as_json: bool) -> None:
        self._agent = agent
        self._as_json = as_json
        self._count = 0
        #: Only events from this time on.
        self.from_: str | None = None

    def fits(self, event: dict[str, Any]) -> bool:
        if not str(event.get("event")).startswith("mail_"):
            return False
        if self.from_ is not None and str(event.get("at")) < self.from_:
            return False
        ends = (event.get("from"), event.get("to"))
        return self._agent is None or self._agent in (ends if any(ends) else (event.get("agentId"),))

    def show(self, reading: Reading, limit: int | None) -> bool:
        """Print what fits; True once as many as `limit` have been."""
        if reading.gap:
            what = "mesh: what followed that offset is rotated away; here is all that is kept"
            click.echo(what, err=True)
        for logged in reading.events:
            if limit is not None and self._count >= limit:
                return True
            if self.fits(logged.event):
                click.echo(self._line(logged))
                self._count += 1
        return limit is not None and self._count >= limit

    def _line(self, logged: Logged) -> str:
        event = logged.event
        if self._as_json:
            return as_json_text({**event, "offset": logged.position})
        route = f"{event['from']} to {event['to']}" if event.get("from") and event.get("to") else event.get("agentId")
        kind = " ".join(str(event[key]) for key in ("type", "priority") if event.get(key) not in (None, "normal"))
        others = " ".join(f"{key}={value}" for key, value in event.items() if key not in _KNOWN and value is not None)
        what = str(event.get("event")).removeprefix("mail_")
        parts = [event.get("at"), f"{what:<9}", route, kind, event.get("messageId"), event.get("reason"), others]
        return "  ".join(one_line(str(part)) if part is not parts[1] else str(part) for part in parts if part)


def _since(log: EventLog, since: str) -> tuple[Reading, str | None]:
    """The events after an offset, or all that are kept with the time from which on they are asked for."""
    from mesh.store.event_log import POSITION

    if since == "0" or POSITION.fullmatch(since):
        try:
            return log.read(None if since == "0" else since), None
        except Invalid as error:
            raise BadUse(f"--since {error.detail} Take one that --json printed, or a time.") from None
    try:
        parse(since)
    except ValueError:
        example = iso(SYSTEM.wall())
        what = "is neither an offset that --json printed nor a time in UTC, such as"
        raise BadUse(f"--since {since!r} {what} {example}; 0 is the oldest that is kept.") from None
    return log.read(None), letters.moment("--since", since)
