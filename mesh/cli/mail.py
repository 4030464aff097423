"""mail send, ack, retry, attachment: what changes something, or brings something out."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from mesh.cli import letters
from mesh.cli.app import cli, echo_json, known_agent, with_json, with_root
from mesh.clock import SYSTEM, iso
from mesh.errors import BadUse, Conflict, MeshError, NotAdmitted, UnknownMessage

if TYPE_CHECKING:
    from mesh.models import Message, MessageRequest
    from mesh.store import Store
    from mesh.store.mailbox import Found, Posted


@cli.group()
def mail() -> None:
    """Send, read, follow and mend the mail between agents.

    You act as the operator: what you send is from `human`, unless you say --from. It works on the files, so also
    with the mesh down. `mesh say` and `mesh inbox` are the short way to talk with an agent.
    """


@mail.command()
@click.argument("to", metavar="[AGENT]", required=False)
@click.option("--responsibility", metavar="R", help="To every agent that has it, instead of AGENT.")
@click.option(
    "--type",
    "type",
    metavar="TYPE",
    required=True,
    help="message for plain text; known ones such as task_request have payloads of their own.",
)
@click.option("--payload", metavar="JSON", help="A JSON object; '-' reads it from standard input.")
@click.option("--text", help="Short for --payload '{\"text\": …}'; '-' reads it from standard input.")
@click.option("--from", "sender", metavar="AGENT", help="In this agent's name (recorded as via operator).")
@click.option("--priority", type=click.Choice(["urgent", "high", "normal", "low"]), default="normal")
@click.option("--ack", is_flag=True, help="Ask for an explicit ack; it counts as unanswered until then.")
@click.option("--ack-by", metavar="TIME", help="By when, in UTC; includes --ack.")
@click.option("--expires-at", metavar="TIME", help="Nobody need take it after that, in UTC.")
@click.option(
    "--expires-in", type=click.FloatRange(min=0, min_open=True), metavar="MINUTES", help="So many minutes from now."
)
@click.option("--reply-to", metavar="ID", help="It answers this message, which that acks.")
@click.option("--thread", metavar="ID", help="It belongs to this conversation.")
@click.option("--attach", "files", multiple=True, metavar="FILE", help="May be given again.")
@click.option("--id", "own_id", metavar="ID", help="An id of your own; giving it again sends nothing twice.")
@click.option("--queue", is_flag=True, help="If it isn't taken now, let it wait in the outbox.")
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait until it is acked.")
@with_root
@with_json
def send(root: str | None, as_json: bool, to: str | None, responsibility: str | None, **fields: Any) -> int:
    """Send a message and print its id.

    AGENT is an agent or human; '*' (all agents) or a list such as ada,bob send a copy to each.
    """
    store = letters.open_mail(root)
    sender = _sender(store, fields["sender"])
    recipients = _recipients(store, to, responsibility, sender)
    many = to is None or to == "*" or "," in to
    messages = _composed(store, sender, recipients, _request(store, sender, fields), many=many)
    try:
        posted = letters.post(store, messages, own_id=fields["own_id"] is not None, queue=fields["queue"])
    except NotAdmitted as error:
        raise _queueable(error) from None
    return _report(store, posted, many, fields["wait_s"], as_json)


@mail.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--agent", metavar="AGENT", help="In this one's inbox, where several have a message of that id.")
@click.option("--text", default="", help="Goes to the sender with the ack, if it asked for one.")
@with_root
def ack(root: str | None, ids: tuple[str, ...], agent: str | None, text: str) -> int:
    """Say that messages are dealt with.

    They may wait in anybody's inbox; saying it again is harmless.
    """
    store = letters.open_mail(root)
    where = [letters.known_address(store, agent)] if agent else letters.addresses(store)
    found = [_waiting(store, id_, where) for id_ in ids]
    for entry in found:
        if entry.place == "processed":
            store.mail.ack(entry.address, entry.message.id, text)
        else:
            store.mail.ack_file(entry.address, entry.name, entry.message, text)
            store.journal.event("operator", "message_acked", "by command", messageId=entry.message.id)
        before = " (it was before)" if entry.place == "processed" else ""
        click.echo(f"{entry.message.id} to {entry.address} is acked{before}.")
    return 0


@mail.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@with_root
def retry(root: str | None, ids: tuple[str, ...]) -> int:
    """Put dead mail back into the inbox, to be handled afresh. `mesh mail dead` lists it."""
    store = letters.open_mail(root)
    for entry in [_dead(store, id_) for id_ in ids]:
        store.mail.revive(entry.address, entry.name, entry.message)
        click.echo(f"{entry.message.id} waits in {entry.address}'s inbox again.")
    return 0


@mail.command()
@click.argument("sha256", metavar="SHA256")
@click.option("--out", metavar="FILE", help="Where to write it; '-' for standard output.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@with_root
def attachment(root: str | None, sha256: str, out: str | None, force: bool) -> int:
    """Write out the content of an attachment. `mesh mail show` names those of a message."""
    if out is None and sys.stdout.isatty():
        raise BadUse("It may be anything: say --out FILE, or --out - to have it on the terminal all the same.")
    data = letters.open_mail(root).mail.attachments.read(sha256.lower())
    if out in (None, "-"):
        sys.stdout.buffer.write(data)
        return 0
    try:
        with click.open_file(str(out), "wb" if force else "xb") as file:
            file.write(data)
    except FileExistsError:
        raise BadUse(f"{out} is there already; name another file, or say --force.") from None
    except OSError as error:
        raise MeshError(f"{out} can't be written: {error.strerror}.") from None
    click.echo(f"{out}: {len(data)} bytes")
    return 0


# -- whom


def _sender(store: Store, named: str | None) -> str:
    from mesh.models import HUMAN

    return HUMAN if named in (None, HUMAN) else known_agent(store, named)


def _recipients(store: Store, to: str | None, responsibility: str | None, sender: str) -> list[str]:
    if (to is None) == (responsibility is None):
        raise BadUse("Say whom to send it to: AGENT, a list such as ada,bob, '*' for all, or --responsibility R.")
    agents = store.registry.current.agents
    if to == "*":
        chosen = [agent for agent in agents if agent != sender]
    elif to is not None:
        chosen = [letters.known_address(store, name.strip()) for name in to.split(",") if name.strip()]
    else:
        chosen = [agent for agent, entry in agents.items() if responsibility in entry.responsibilities]
        known = sorted({name for entry in agents.values() for name in entry.responsibilities})
        if not chosen:
            raise BadUse(f"Nobody is responsible for {responsibility!r}; there are: {', '.join(known)}.")
        chosen = [agent for agent in chosen if agent != sender]
    if not chosen:
        raise BadUse("That is nobody to send it to but its sender.")
    return list(dict.fromkeys(chosen))


# -- what


def _request(store: Store, sender: str, fields: dict[str, Any]) -> MessageRequest:
    """What is asked for, checked as far as the recipient doesn't matter; attachments stored last."""
    from mesh.models import HUMAN
    from mesh.service import compose

    asked = {
        "type": letters.message_type(fields["type"]),
        "payload": _payload(fields["payload"], fields["text"]),
        "id": fields["own_id"],
        "priority": fields["priority"],
        "requiresAck": fields["ack"] or fields["ack_by"] is not None,
        "ackBy": fields["ack_by"] and letters.moment("--ack-by", fields["ack_by"]),
        "expiresAt": _expiry(fields["expires_at"], fields["expires_in"], again=fields["own_id"] is not None),
        "replyTo": fields["reply_to"],
        "threadId": fields["thread"],
    }
    request = compose.request({key: value for key, value in asked.items() if value is not None})
    if fields["reply_to"] is not None:
        letters.check_replied(store, sender, fields["reply_to"])
    bytes_max = store.registry.current.limits_for(None if sender == HUMAN else sender).attachment_bytes_max
    contents = [(path, store.read_outside(path, bytes_max)) for path in fields["files"]]
    request.attachments = [store.mail.attachments.add(data, path, None, bytes_max) for path, data in contents]
    return request


def _payload(payload: str | None, text: str | None) -> dict[str, Any]:
    if payload is not None and text is not None:
        raise BadUse("Give --payload or --text, not both.")
    if text is not None:
        return {"text": _or_input(text)}
    try:
        given = json.loads(_or_input(payload)) if payload is not None else {}
    except ValueError as error:
        raise BadUse(f"--payload is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadUse('--payload must be a JSON object, such as \'{"text": "hello"}\'.')
    return given


def _or_input(value: str) -> str:
    return sys.stdin.read() if value == "-" else value


def _expiry(at: str | None, in_min: float | None, *, again: bool) -> str | None:
    if at is not None and in_min is not None:
        raise BadUse("Give --expires-at or --expires-in, not both.")
    if in_min is not None:
        try:
            return iso(SYSTEM.wall() + timedelta(minutes=in_min))
        except OverflowError:
            raise BadUse(f"--expires-in {in_min:g} minutes is beyond what a calendar holds.") from None
    if at is None:
        return None
    expiry, now = letters.moment("--expires-at", at), iso(SYSTEM.wall())
    if expiry <= now and not again:
        raise BadUse(f"--expires-at {expiry} has passed: it is {now} now (UTC).")
    return expiry


def _composed(store: Store, sender: str, recipients: list[str], asked: MessageRequest, *, many: bool) -> list[Message]:
    """One message each. Ids of copies follow from an id of one's own, so that sending them again is harmless."""
    from uuid_utils import uuid7

    from mesh.models import derived_id
    from mesh.service.compose import compose

    registry, own_id = store.registry.current, asked.id
    if not many:
        return [compose(store, registry, sender, recipients[0], asked, "operator")]
    broadcast, messages = own_id or str(uuid7()), []
    for to in recipients:
        copy = asked.model_copy(update={"id": derived_id(own_id, suffix=f"-{to}") if own_id else None})
        messages.append(compose(store, registry, sender, to, copy, "operator"))
        messages[-1].broadcast_id = broadcast
    return messages


# -- what became of it


def _report(store: Store, posted: list[Posted], many: bool, wait_s: float | None, as_json: bool) -> int:
    accepted = [entry for entry in posted if entry.error is None]
    if not as_json:
        for entry in accepted:
            click.echo(f"{entry.message.to} {entry.message.id}" if many else entry.message.id)
            _note(entry)
    failure = _refused([entry for entry in posted if entry.error is not None], bool(accepted))
    if wait_s is not None and failure is None:
        try:
            letters.wait_for_acks(store, accepted, wait_s)
        except MeshError as error:
            failure = error
    if as_json:
        entries = [_entry(store, entry) for entry in posted]
        echo_json({"broadcastId": posted[0].message.broadcast_id, "messages": entries} if many else entries[0])
    if failure is not None:
        raise failure
    return 0


def _note(entry: Posted) -> None:
    to = entry.message.to
    if entry.queued:
        click.echo(f"mesh: {to} can't take it now; it waits in {entry.message.from_}'s outbox.", err=True)
    elif entry.duplicate:
        click.echo(f"mesh: it was sent to {to} before; nothing was sent again.", err=True)


def _refused(refused: list[Posted], others_went: bool) -> MeshError | None:
    if not refused:
        return None
    told = " ".join(f"{entry.message.to}: {letters.explained(entry.error).detail}" for entry in refused if entry.error)
    failure = f"{'The others got it, but not' if others_went else 'Nobody got it:'} {told}"
    return _queueable(NotAdmitted(failure)) if isinstance(refused[0].error, NotAdmitted) else MeshError(failure)


def _queueable(error: NotAdmitted) -> NotAdmitted:
    return type(error)(f"{error.detail} With --queue it waits in the outbox until it is taken.", **error.facts)


def _entry(store: Store, entry: Posted) -> dict[str, Any]:
    found: dict[str, Any] = {"id": entry.message.id, "to": entry.message.to}
    if entry.error is not None:
        return {**found, "error": entry.error.detail}
    now = letters.present(store, entry).model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**found, "queued": entry.queued, "duplicate": entry.duplicate, "delivery": now}


# -- what is there


@dataclass(frozen=True)
class _Dead:
    address: str
    name: str
    message: Message


def _waiting(store: Store, id_: str, where: list[str]) -> Found:
    """The message in the one inbox where it waits, else where it was acked."""
    letters.message_id(id_)
    for place in ("inbox", "processed"):
        found = [entry for at in where if (entry := store.mail.tracing.find(id_, [at], [place])) is not None]
        if len(found) > 1 and place == "inbox":
            names = " and ".join(entry.address for entry in found)
            raise BadUse(f"A message {id_} waits for {names}; say which with --agent.")
        if found:
            return found[0]
    whom = where[0] if len(where) == 1 else "anybody"
    raise UnknownMessage(f"No message {id_!r} waits for {whom}; `mesh mail list AGENT` shows what does.")


def _dead(store: Store, id_: str) -> _Dead:
    """The dead message. Raises what says why it can't be put back."""
    from mesh.service.mail_overview import ended

    letters.message_id(id_)
    where = letters.addresses(store)
    found = store.mail.tracing.find(id_, where, ["dead"])
    if found is None:
        for entry in (entry for address in where for entry in ended(store, address, ["rejected"])):
            if id_ in (entry.name, entry.message.id if entry.message else None):
                what = f"{entry.address} rejected {id_}: {entry.reason}. It can't be retried"
                raise Conflict(f"{what}: put that right and send it anew (see `mesh mail show {id_}`).")
        other = store.mail.find(id_, where)
        raise Conflict(f"{id_} is not dead: it lies in {other.address}'s {other.place}; see `mesh mail show {id_}`.")
    expiry = found.message.expires_at
    if expiry is not None and expiry <= iso(SYSTEM.wall()):
        raise Conflict(f"{id_} expired at {expiry} and would again; send it anew: `mesh mail show {id_}` has its text.")
    return _Dead(found.address, found.name, found.message)
