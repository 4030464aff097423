"""mail list, show, thread, dead: looking, which changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mesh.cli import letters
from mesh.cli.app import echo_json, one_line, table, with_json, with_root
from mesh.cli.mail import mail
from mesh.errors import BadUse, UnknownMessage

if TYPE_CHECKING:
    from mesh.models import Delivery, Message
    from mesh.service.mail_overview import Ended
    from mesh.store import Store
    from mesh.store.mailbox import Found


@dataclass(frozen=True)
class _Wanted:
    """Which messages are asked for."""

    type: str | None
    sender: str | None
    thread: str | None

    def fits(self, message: Message) -> bool:
        asked = ((self.type, message.type), (self.sender, message.from_), (self.thread, message.thread))
        return all(wanted in (None, found) for wanted, found in asked)

    @property
    def all(self) -> bool:
        return self == _Wanted(None, None, None)


@mail.command("list")
@click.argument("agent", required=False)
@click.option("--type", "type_", metavar="TYPE", help="Only messages of this type.")
@click.option("--from", "sender", metavar="AGENT", help="Only messages from this one.")
@click.option("--thread", metavar="ID", help="Only messages of this conversation.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--all", "everything", is_flag=True, help="Also what was acked, is dead or was rejected, newest first.")
@with_root
@with_json
def list_mail(root: str | None, as_json: bool, agent: str | None, limit: int, everything: bool, **asked: Any) -> None:
    """What waits for AGENT (or human), in the order of serving.

    Without AGENT a line for each inbox. STATE: written (it lies there), delivered (the agent's process took it), shown
    (the agent got its text); stale or overdue if nobody acked it in time.
    """
    store = letters.open_mail(root)
    if asked["sender"] is not None:
        letters.known_address(store, asked["sender"])
    wanted = _Wanted(asked["type_"], asked["sender"], asked["thread"])
    if agent is None:
        if everything:
            raise BadUse("--all needs an AGENT; `mesh mail stats` counts everybody's.")
        _list_inboxes(store, wanted, as_json)
        return
    address = letters.known_address(store, agent)
    found = [
        _waiting_entry(store, address, message) for message in store.mail.waiting(address, limit, fits=wanted.fits)
    ]
    if everything:
        found += _done(store, address, wanted, limit - len(found))
    unreadable = list(store.mail.index(address).unreadable.values())
    if as_json:
        bad = [{"name": file.name, "reason": file.reason} for file in unreadable]
        echo_json({"agent": address, "messages": found, "noMail": bad})
        return
    if not found:
        click.echo(f"Nothing {'that fits ' if not wanted.all else ''}waits for {address}.")
    else:
        click.echo(
            table(["ID", "PRIORITY", "TYPE", "FROM", "AGE", "STATE", "TEXT"], [_cells(entry) for entry in found])
        )
    if unreadable:
        what = "1 file is no mail" if len(unreadable) == 1 else f"{len(unreadable)} files are no mail"
        click.echo(f"{what}: {one_line(unreadable[0].name)}: {one_line(unreadable[0].reason)}")


@mail.command()
@click.argument("id_", metavar="ID")
@click.option("--agent", metavar="AGENT", help="Only look among this one's mail.")
@with_root
@with_json
def show(root: str | None, as_json: bool, id_: str, agent: str | None) -> None:
    """A message in full, and how far it has come.

    With the time of each state, where it lies, why it ended, its text and attachments.
    """
    from mesh.policy.message_body import body
    from mesh.service import mail_overview

    store = letters.open_mail(root)
    where = [letters.known_address(store, agent)] if agent else letters.addresses(store)
    found = store.mail.find(letters.message_id(id_), where)
    now = mail_overview.delivery(store, found)
    if as_json:
        echo_json(letters.filed(found.message, now, place=found.place, file=_file(store, found)))
        return
    for line in _head(store, found, now):
        click.echo(one_line(line) if not line.startswith("  ") else f"  {one_line(line)}")
    click.echo(f"\n{body(found.message)}")


@mail.command()
@click.argument("id_", metavar="ID")
@with_root
@with_json
def thread(root: str | None, as_json: bool, id_: str) -> None:
    """A conversation over all inboxes and outboxes, oldest first. ID: the thread's, or of any message in it."""
    from mesh.policy.message_body import body

    store = letters.open_mail(root)
    found = _conversation(store, letters.message_id(id_))
    if as_json:
        echo_json([letters.filed(message, now) for message, now in found])
        return
    for number, (message, now) in enumerate(found):
        head = f"{message.timestamp}  {message.from_} to {message.to}  {message.type}  {now.state}  {message.id}"
        click.echo(("\n" if number else "") + one_line(head))
        click.echo(letters.indented(body(message)))


@mail.command()
@click.argument("agent", required=False)
@with_root
@with_json
def dead(root: str | None, as_json: bool, agent: str | None) -> None:
    """Mail that nobody will handle, and why.

    dead: its handler crashed again and again, or it expired; rejected: it is no valid mail.
    """
    from mesh.service.mail_overview import ended

    store = letters.open_mail(root)
    where = [letters.known_address(store, agent)] if agent else letters.addresses(store)
    found = [entry for address in where for entry in ended(store, address)]
    if as_json:
        echo_json([_ended_entry(entry) for entry in found])
        return
    if not found:
        click.echo("Nothing is dead or rejected.")
        return
    lines = [
        [_name(entry), entry.address, entry.place, entry.at, *_from(entry.message), entry.reason] for entry in found
    ]
    click.echo(table(["ID OR FILE", "INBOX", "PLACE", "SINCE", "TYPE", "FROM", "REASON"], lines))
    if any(entry.place == "dead" for entry in found):
        click.echo("\n`mesh mail retry ID` puts dead mail back into the inbox.")


# -- one inbox


def _waiting_entry(store: Store, address: str, message: Message) -> dict[str, Any]:
    from mesh.service import mail_overview
    from mesh.store.mailbox import Found

    name = _file_name(store, address, message)
    now = mail_overview.delivery(store, Found(address, "inbox", name, message))
    age_s = mail_overview.age_s(store, address, name)
    mark = mail_overview.mark(store, address, message, now.state, age_s)
    return letters.filed(
        message, now, place="inbox", ageS=round(age_s, 1), mark=mark, headline=letters.headline(message)
    )


def _done(store: Store, address: str, wanted: _Wanted, limit: int) -> list[dict[str, Any]]:
    """What no longer waits, newest first."""
    from mesh.service import mail_overview
    from mesh.store.mailbox import Found

    if limit <= 0:
        return []
    folders, found = store.layout.mail(address), list[tuple[str, dict[str, Any]]]()
    for name, message in store.mail.tracing.messages(folders.processed, newest=limit if wanted.all else None):
        if wanted.fits(message):
            now = mail_overview.delivery(store, Found(address, "processed", name, message))
            entry = letters.filed(message, now, place="processed", headline=letters.headline(message))
            found.append((message.acked_at or "", entry))
    for end in mail_overview.ended(store, address):
        if wanted.all if end.message is None else wanted.fits(end.message):
            found.append((end.at, _ended_entry(end)))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0], reverse=True)[:limit]]


def _file_name(store: Store, address: str, message: Message) -> str:
    from mesh.store.mail.names import file_name

    listed = next(store.mail.index(address).by_id(message.id), None)
    return listed.name if listed else file_name(message)


def _cells(entry: dict[str, Any]) -> list[str]:
    state = entry.get("delivery", {}).get("state") or entry["place"]
    if entry.get("mark"):
        state = f"{state}, {entry['mark']}"
    age = letters.span(entry["ageS"]) if "ageS" in entry else "-"
    name = entry.get("id") or entry["file"]
    said = entry["reason"] if entry.get("reason") else entry["headline"]
    return [name, entry.get("priority", "-"), entry.get("type", "-"), entry.get("from", "-"), age, state, said]


def _ended_entry(entry: Ended) -> dict[str, Any]:
    more = {"agent": entry.address, "place": entry.place, "file": entry.name, "at": entry.at, "reason": entry.reason}
    if entry.message is None:
        return more
    return {**entry.message.filed(), "delivery": {"state": entry.state}, **more}


def _name(entry: Ended) -> str:
    return entry.message.id if entry.message else entry.name


def _from(message: Message | None) -> list[str]:
    return ["-", "-"] if message is None else [message.type, message.from_]


# -- all inboxes


def _list_inboxes(store: Store, wanted: _Wanted, as_json: bool) -> None:
    rows = [_inbox(store, address, wanted.fits) for address in letters.addresses(store)]
    if as_json:
        echo_json(rows)
        return
    lines = []
    for row in rows:
        oldest = "-" if row["oldestS"] is None else letters.span(row["oldestS"])
        waiting = f"{row['waiting']} (+{row['noMail']} no mail)" if row["noMail"] else str(row["waiting"])
        lines.append([row["agent"], waiting, str(row["urgent"]), str(row["unacked"]), oldest, row["next"] or "-"])
    click.echo(table(["INBOX", "WAITING", "URGENT", "ACK ASKED", "OLDEST", "NEXT"], lines))


def _inbox(store: Store, address: str, fits: Callable[[Message], bool]) -> dict[str, Any]:
    from mesh.service.mail_overview import age_s

    waiting = store.mail.waiting(address, fits=fits)
    ages_s = [age_s(store, address, _file_name(store, address, message)) for message in waiting]
    first = f"{waiting[0].type} from {waiting[0].from_}: {letters.headline(waiting[0], 40)}" if waiting else None
    return {
        "agent": address,
        "waiting": len(waiting),
        "urgent": sum(message.priority == "urgent" for message in waiting),
        "unacked": sum(message.requires_ack for message in waiting),
        "oldestS": round(max(ages_s), 1) if ages_s else None,
        "next": first,
        "noMail": len(store.mail.index(address).unreadable),
    }


# -- one message


def _file(store: Store, found: Found) -> str:
    return store.layout.relative(f"{getattr(store.layout.mail(found.address), found.place)}/{found.name}")


def _head(store: Store, found: Found, now: Delivery) -> list[str]:
    message = found.message
    more = {
        "via": message.via,
        "thread": message.thread_id,
        "answers": message.reply_to,
        "broadcast": message.broadcast_id,
        "expires": message.expires_at,
    }
    asks = f"asks for an ack{f' by {message.ack_by}' if message.ack_by else ''}" if message.requires_ack else ""
    lines = [
        f"{message.id}  {message.type}  {message.priority}",
        f"from {message.from_} to {message.to}{f', {asks}' if asks else ''}",
        *(f"{name} {value}" for name, value in more.items() if value),
        f"state {now.state}{f': {now.reason}' if now.reason else ''}",
        *(f"  {state} {at}" for state, at in now.at.items() if at),
        f"file {_file(store, found)}",
    ]
    for file in message.attachments:
        path = f"{store.layout.attachments}/{file.sha256}"
        lines.append(f"attachment {file.name} ({file.type}, {file.bytes} bytes): {path}")
    return lines


# -- a conversation


def _conversation(store: Store, id_: str) -> list[tuple[Message, Delivery]]:
    """The messages of a thread with their present states. Raises UnknownMessage."""
    where = letters.addresses(store)
    try:
        id_ = store.mail.find(id_, where).message.thread
    except UnknownMessage:
        pass  # it may be the id of a thread whose first message is archived
    found: dict[tuple[str, str], Message] = {}
    for address in where:
        for message in store.mail.tracing.thread(address, id_):
            known = found.get((message.id, message.to))
            if known is None or known.delivery is None:  # the sender's copy: its file bears the same name
                found[message.id, message.to] = message
    if not found:
        raise UnknownMessage(f"There is no message and no thread {id_!r}; archived mail is in agents/<id>/archive/.")
    ordered = sorted(found.values(), key=lambda message: (message.timestamp, message.id, message.to))
    return [(message, _state_of(store, message)) for message in ordered]


def _state_of(store: Store, message: Message) -> Delivery:
    from mesh.service.mail_overview import delivery
    from mesh.store.mail.names import file_name

    places = ["inbox", "processed", "dead", "rejected"]
    here = store.mail.tracing.find(message.id, [message.to], places)
    here = here or store.mail.tracing.find(message.id, [message.from_], ["queued", "outbox"])
    if here is None:  # it has moved on this very moment
        return store.mail.tracing.delivery_of(message, file_name(message))
    return delivery(store, here)
