"""say and inbox: how a person talks with agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from mesh.cli import letters
from mesh.cli.app import cli, echo_json, one_line, with_json, with_root
from mesh.clock import SYSTEM
from mesh.errors import BadUse, MeshError

if TYPE_CHECKING:
    from mesh.models import Message
    from mesh.store import Store
    from mesh.store.mailbox import Posted

_POLL_S = 0.15
#: Lines of a result that are shown, and of any other text.
_RESULT_LINES, _TEXT_LINES = 8, 40
#: What comes while the answer is still being worked on.
_NO_ANSWER = ("task_update", "ack")


@cli.command()
@click.argument("agent")
@click.argument("words", nargs=-1, required=True, metavar="TEXT...")
@click.option(
    "--type", "type_", metavar="TYPE", default="message", show_default=True, help="Any type whose payload is a text."
)
@click.option("--urgent", is_flag=True, help="Before all other mail; unacked after 5 minutes it comes back to people.")
@click.option("--ack", is_flag=True, help="Ask for an explicit ack.")
@click.option("--reply-to", metavar="ID", help="It answers this message from your inbox, which that acks.")
@click.option("--wait", "wait_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait for an answer, print it.")
@with_root
@with_json
def say(root: str | None, as_json: bool, agent: str, words: tuple[str, ...], wait_s: float | None, **how: Any) -> int:
    """Tell an agent something, in your name. Its answers lie in `mesh inbox`.

    Prints the message's id; `mesh mail show ID` tells how far it has come.
    """
    store = letters.open_mail(root)
    sent = _sent(store, agent, " ".join(words), how)
    if not as_json:
        click.echo(f"{sent.message.id} {letters.progress(sent.message, letters.present(store, sent))}.")
    answers = list(_answers(store, sent.message, wait_s or 0, as_json))
    now = letters.present(store, sent)
    if as_json:
        told = [_entry(store, message) for message in answers]
        echo_json({"id": sent.message.id, "to": agent, "delivery": _dumped(now), "answers": told})
    if wait_s is not None and not answers:
        raise MeshError(f"No answer within {wait_s:g} s: the message {letters.progress(sent.message, now)}.")
    return 0


@cli.command()
@click.option("--all", "everything", is_flag=True, help="What you have acked too.")
@click.option("--ack", "ids", multiple=True, metavar="ID", help="You have read this one; may be given again.")
@click.option("--ack-all", is_flag=True, help="You have read all that waits.")
@with_root
@with_json
def inbox(root: str | None, as_json: bool, everything: bool, ids: tuple[str, ...], ack_all: bool) -> int:
    """What agents have told you, newest last.

    Answers, and how your tasks ended. Looking changes nothing.
    """
    from mesh.models import HUMAN

    store = letters.open_mail(root)
    if ids and ack_all:
        raise BadUse("Give --ack or --ack-all, not both.")
    if ids or ack_all:
        return _read(store, ids, as_json)
    found = store.mail.waiting(HUMAN)
    if everything:
        folder = store.layout.mail(HUMAN).processed
        found += [message for _, message in store.mail.tracing.messages(folder)]
    found.sort(key=lambda message: (message.timestamp, message.id))
    if as_json:
        echo_json([_entry(store, message) for message in found])
        return 0
    for message in found:
        click.echo(_told(store, message) + "\n")
    if not found:
        click.echo("Nothing waits for you.")
    elif not everything:
        click.echo("mesh inbox --ack ID, or --ack-all, puts them away; mesh say AGENT --reply-to ID TEXT answers.")
    return 0


# -- saying


def _sent(store: Store, agent: str, text: str, how: dict[str, Any]) -> Posted:
    from mesh.models import HUMAN
    from mesh.service import compose

    letters.known_address(store, agent)
    asked = {
        "type": letters.message_type(how["type_"]),
        "payload": {"text": text},
        "priority": "urgent" if how["urgent"] else "normal",
        "requiresAck": how["ack"],
        "replyTo": how["reply_to"],
    }
    request = compose.request({key: value for key, value in asked.items() if value is not None})
    if how["reply_to"] is not None:
        letters.check_replied(store, HUMAN, how["reply_to"])
    message = compose.compose(store, store.registry.current, HUMAN, agent, request, "operator")
    return letters.post(store, [message], own_id=False, queue=False)[0]


def _answers(store: Store, sent: Message, wait_s: float, as_json: bool) -> Iterator[Message]:
    """What comes in the conversation until there is an answer, or time is up; printed as it comes."""
    from mesh.models import HUMAN

    before = {message.id for message in store.mail.tracing.thread(HUMAN, sent.thread)} if sent.reply_to else {sent.id}
    deadline_s = SYSTEM.monotonic() + wait_s
    while SYSTEM.monotonic() < deadline_s:
        SYSTEM.sleep(_POLL_S)
        fresh = [message for message in store.mail.tracing.thread(HUMAN, sent.thread) if message.id not in before]
        for message in fresh:
            before.add(message.id)
            if not as_json:
                click.echo("\n" + _told(store, message))
            yield message
        if any(message.type not in _NO_ANSWER for message in fresh):
            return


# -- the inbox


def _read(store: Store, ids: tuple[str, ...], as_json: bool) -> int:
    """Ack these messages, or all that wait."""
    from mesh.models import HUMAN

    wanted = list(dict.fromkeys(ids)) or [message.id for message in store.mail.waiting(HUMAN)]
    for id_ in wanted:  # all or nothing: a wrong id must not leave half of them done
        if store.mail.tracing.find(letters.message_id(id_), [HUMAN], ["inbox", "processed"]) is None:
            raise BadUse(f"No message {id_!r} is in your inbox; `mesh inbox --json` shows ids.")
    for id_ in wanted:
        store.mail.ack(HUMAN, id_)
    if as_json:
        echo_json({"acked": wanted})
    else:
        click.echo("1 message is put away." if len(wanted) == 1 else f"{len(wanted)} messages are put away.")
    return 0


def _entry(store: Store, message: Message) -> dict[str, Any]:
    from mesh.service.mail_overview import delivery
    from mesh.store.mail.names import file_name
    from mesh.store.mailbox import Found

    place = "processed" if message.acked_at else "inbox"
    now = delivery(store, Found(message.to, place, file_name(message), message))
    return letters.filed(message, now, headline=letters.headline(message))


def _dumped(now: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = now.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _told(store: Store, message: Message) -> str:
    """A message for a person: who, when, what, and what it answers."""
    from mesh.policy.message_body import body
    from mesh.policy.plain_text import plain

    urgent = "" if message.priority == "normal" else f", {message.priority}"
    kind = "" if message.type == "message" else f", {message.type}"
    acked = " (put away)" if message.acked_at else ""
    lines = [one_line(f"{message.timestamp}  {message.from_}{kind}{urgent}  {message.id}{acked}")]
    asked = _asked(store, message)
    if asked is not None:
        lines.append(f'  to your "{asked}"')
    words, more = letters.of_task(message), f": mesh mail show {message.id}"
    if words is None:
        lines.append(letters.indented(body(message), _TEXT_LINES, more))
    else:
        lines.append(f"    {one_line(words[0])}")
        lines += [letters.indented(plain(words[1]), _RESULT_LINES, more)] if words[1].strip() else []
    lines += [
        f"    attached: {one_line(file.name)}: mesh mail attachment {file.sha256}" for file in message.attachments
    ]
    return "\n".join(lines)


def _asked(store: Store, message: Message) -> str | None:
    """The beginning of what the person said that this answers."""
    from mesh.models import HUMAN

    if message.reply_to is None:
        return None
    found = store.mail.tracing.find(message.reply_to, [HUMAN], ["outbox"])
    return None if found is None else letters.headline(found.message, 50)
