"""What becomes of a message by its age.

A message waits in its recipient's inbox until it is acked. Time alone never takes it from a recipient that has it
already: it can only make it known that nobody answers. What nobody took in time ends, and its sender hears so once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mesh import clock
from mesh.limits import Limits
from mesh.models import ACK, ERROR, MESH, DeliveryState, Message, Priority

_ID_MAX = 128


class Fate(StrEnum):
    """What becomes of a message that still waits."""

    KEEP = "keep"
    #: It goes to dead/, and its sender gets one notice.
    EXPIRE = "expire"
    #: A person is alerted; it stays.
    TO_HUMAN = "to_human"
    #: It is marked as stale; it stays.
    STALE = "stale"


@dataclass(frozen=True)
class Waiting:
    """What is known of a message that lies in an inbox, unacked."""

    message: Message
    #: Mesh minutes since it came to lie there.
    age_min: float
    #: The recipient's process has taken it.
    delivered: bool
    #: Its text was really shown.
    shown: bool


@dataclass(frozen=True)
class Judgement:
    """What becomes of it, and why, in words for people."""

    fate: Fate
    reason: str


def judge(waiting: Waiting, now: datetime, limits: Limits) -> Judgement:
    """What becomes of a waiting message (the mailbox document's open question on expiry). `now` is aware."""
    message = waiting.message
    expired = message.expires_at is not None and clock.parse(message.expires_at) <= now
    if expired and not waiting.delivered:
        return Judgement(Fate.EXPIRE, f"it expired at {message.expires_at}, before {message.to} took it")
    # Nobody is waiting for an ack or an error: no person is called for one.
    for_human = message.priority is Priority.URGENT and message.type not in (ACK, ERROR)
    age_max_min = limits.urgent_unacked_min if for_human else limits.stale_unacked_min
    ack_overdue = message.requires_ack and message.ack_by is not None and clock.parse(message.ack_by) <= now
    facts = [f"not acked after {waiting.age_min:g} min (of {age_max_min:g})", _progress(waiting)]
    if ack_overdue:
        facts.append(f"its ack was due by {message.ack_by}")
    if expired:
        facts.append(f"it expired at {message.expires_at}, after {message.to} had taken it")
    late = Fate.TO_HUMAN if for_human else Fate.STALE
    too_old = ack_overdue or waiting.age_min >= age_max_min
    return Judgement(late if too_old else Fate.KEEP, "; ".join(facts))


def _progress(waiting: Waiting) -> str:
    if waiting.shown:
        return f"{waiting.message.to} was shown it"
    return f"{waiting.message.to} has taken it" if waiting.delivered else f"{waiting.message.to} has not taken it"


def notice_of_end(message: Message, state: DeliveryState, reason: str, at: str) -> Message | None:
    """The one notice that tells the sender how its message ended; None where a notice would answer a notice. The
    same end always makes the same notice, so that it can be sent again. `at` is ISO 8601."""
    if message.type in (ACK, ERROR) or message.via == MESH:
        return None
    text = f"Your mail {message.id} ({message.type}) to {message.to} is {state}: {reason}."
    return Message.model_validate(
        {
            "id": _notice_id(message.id, state),
            "from": message.to,
            "to": message.from_,
            "timestamp": at,
            "type": ERROR,
            "priority": message.priority,
            "requiresAck": False,
            "replyTo": message.id,
            "threadId": message.thread,
            "via": MESH,
            "payload": {"text": text, "messageId": message.id, "state": str(state)},
        }
    )


def _notice_id(message_id: str, state: DeliveryState) -> str:
    plain = f"{message_id}-{state}"
    if len(plain) <= _ID_MAX:
        return plain
    # Cut off at the end it could be the message's own id, or that of its neighbour's notice.
    ending = f"-{hashlib.sha256(message_id.encode()).hexdigest()[:16]}-{state}"
    return message_id[: _ID_MAX - len(ending)] + ending


def was_late(message: Message, taken_at: str) -> bool:
    """Whether the recipient first took the message when it had expired already."""
    return message.expires_at is not None and clock.parse(message.expires_at) <= clock.parse(taken_at)


def attempts_left(attempt: int, limits: Limits) -> bool:
    """Whether a message may be handled for the `attempt`th time, counted from 1."""
    return attempt <= limits.mail_attempts_max
