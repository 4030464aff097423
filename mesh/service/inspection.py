"""Whether a file in an inbox is mail that may be delivered, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from mesh import clock
from mesh.limits import Limits
from mesh.models import HUMAN, MESH, Message, Registry
from mesh.policy.admission import why_not_write
from mesh.store import Store
from mesh.store.mail.reading import BadMail, look_at, parse_message


class Verdict(Enum):
    DELIVER = "deliver"
    REJECT = "reject"
    #: Somebody may still be writing it.
    LATER = "later"


@dataclass(frozen=True)
class Inspected:
    name: str
    verdict: Verdict
    reason: str = ""
    message: Message | None = None


def inspect(store: Store, address: str, name: str, limits: Limits) -> Inspected:
    """Look at a file in the inbox of `address`. Raises OSError, StoreUnavailable where that can't be done now."""
    path = f"{store.layout.mail(address).inbox}/{name}"
    try:
        entry = look_at(store.disk, path, limits.message_bytes_max)
        message = parse_message(store.disk.read_start(path, entry.size))
    except FileNotFoundError:
        return Inspected(name, Verdict.LATER, "it is gone")
    except BadMail as error:
        return _bad(store, path, name, error.reason, limits)
    is_sent = entry.links > 1 or store.mail.tracing.is_from_sender(message, name)
    if not is_sent:
        # Through whom something came is told by the mesh alone: a file that was put here can't claim it.
        message = message.model_copy(update={"via": None})
    reason = _why_not(store, address, name, message, limits, is_sent=is_sent)
    if reason is not None:
        return Inspected(name, Verdict.REJECT, reason, message)
    return Inspected(name, Verdict.DELIVER, message=message)


def _bad(store: Store, path: str, name: str, reason: str, limits: Limits) -> Inspected:
    entry = store.files.look(path)
    if entry is None:
        return Inspected(name, Verdict.LATER, "it is gone")
    age_s = store.time.wall().timestamp() - entry.changed_ns / 1e9
    # `cat > file` shows a file before it is whole: it gets a moment. A clock that was set back must not keep it.
    settling = 0 <= age_s < limits.mail_settle_s
    return Inspected(name, Verdict.LATER if settling else Verdict.REJECT, reason)


def _why_not(store: Store, address: str, name: str, message: Message, limits: Limits, *, is_sent: bool) -> str | None:
    registry = store.registry.current
    if message.to != address:
        return f"it is addressed to {message.to!r}, and lies in {address}'s inbox"
    if message.from_ != HUMAN and message.from_ not in registry.agents:
        return f"'from' names {message.from_!r}, and no agent is called so"
    latest = store.time.wall() + timedelta(seconds=limits.mail_future_s)
    if clock.parse(message.timestamp) > latest:
        return f"it is dated {message.timestamp}, which is still to come"
    if message.from_ == HUMAN and store.files.look(f"{store.layout.mail(HUMAN).outbox}/{name}") is None:
        # Theirs is there before the message itself, and stays: any other sign could be made by whoever drops a file.
        return "'from' says human, but no copy of it lies in the human's outbox: use `mesh say` or `mesh mail send`"
    if message.via == MESH:
        return None
    if (reason := _why_not_write(store, registry, address, message)) is not None:
        return reason
    return None if is_sent else _why_not_dropped(store, address, name, message)


def _why_not_write(store: Store, registry: Registry, address: str, message: Message) -> str | None:
    if address == HUMAN:
        return None
    reply = message.reply_to is not None and replies(store, message)
    return why_not_write(registry, message.from_, address, message.type, is_reply=reply)


def _why_not_dropped(store: Store, address: str, name: str, message: Message) -> str | None:
    """A file that was put there by hand, as its sender has no copy of it."""
    for twin in store.mail.index(address).by_id(message.id):
        # Of two that were dropped the first by name stays; one that was really sent always does.
        if twin.name < name or (twin.name != name and _was_sent(store, address, twin.name)):
            return f"its id {message.id!r} is already that of {twin.name}, which waits"
    processed = store.mail.tracing.was_processed(address, message.id, name)
    if processed is not None:
        return f"its id {message.id!r} is already that of {processed}, which was handled"
    return None


def _was_sent(store: Store, address: str, name: str) -> bool:
    message = store.mail.read(address, name)
    return message is not None and store.mail.tracing.is_from_sender(message, name)


def replies(store: Store, message: Message) -> bool:
    """Whether it answers a message that its recipient really sent to its sender."""
    found = store.mail.tracing.find(message.reply_to or "", [message.to], ["outbox"])
    return found is not None and found.message.to == message.from_
