"""The mail at a glance, from files alone: it works with the mesh down. Looking changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from mesh import clock
from mesh.errors import MeshError
from mesh.models import HUMAN, Delivery, DeliveryState, Message
from mesh.policy.mail import Fate, Waiting, judge
from mesh.store import Store
from mesh.store.codec import decode
from mesh.store.mail.names import REASON, is_mail
from mesh.store.mail.reading import BadMail, read_message
from mesh.store.mailbox import Found

#: Latency is that of so many processed messages at most, and of the last so many hours.
_RECENT_MAX, _RECENT_H = 1_000, 24
_ANY_BYTES = 1 << 30
#: What the age of a waiting message has come to, in a word.
_MARKS = {Fate.EXPIRE: "expired", Fate.TO_HUMAN: "overdue", Fate.STALE: "stale", Fate.KEEP: None}


@dataclass(frozen=True)
class Ended:
    """A file in `dead/` or `rejected/`. `message` is None where it is none that can be read."""

    address: str
    place: str
    name: str
    #: `dead`, `expired` or `rejected`.
    state: str
    at: str
    reason: str
    message: Message | None


@dataclass(frozen=True)
class Latency:
    """From send to ack, in milliseconds."""

    count: int
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Figures:
    """One address' mail in numbers."""

    agent: str
    sent: int
    received: int
    waiting: int
    queued: int
    unacked: int
    #: More wait unacked than `unackedAlert` allows.
    unacked_alert: bool
    dead: int
    rejected: int
    archived: int
    latency_ms: Latency | None


def delivery(store: Store, found: Found) -> Delivery:
    """How far the message has come, told from where it lies now rather than from the day it was sent."""
    message = found.message
    if found.place not in ("outbox", "queued"):
        # A file that somebody dropped may be addressed to another than who has it.
        message = message.model_copy(update={"to": found.address})
    return store.mail.tracing.delivery_of(message, found.name)


def age_s(store: Store, address: str, name: str) -> float:
    """Seconds since the file came to lie in the inbox; 0 if it is gone."""
    entry = store.files.look(f"{store.layout.mail(address).inbox}/{name}")
    return 0.0 if entry is None else max(0.0, store.time.wall().timestamp() - entry.changed_ns / 1e9)


def mark(store: Store, address: str, message: Message, state: DeliveryState, age: float) -> str | None:
    """`stale`, `overdue` (urgent: a person is called) or `expired`, if the message's age has come to that."""
    minutes = store.ticks.read().mesh_minutes(age)
    shown = state is DeliveryState.SHOWN
    waiting = Waiting(message, minutes, shown or state is DeliveryState.DELIVERED, shown)
    limits = store.registry.current.limits_for(None if address == HUMAN else address)
    return _MARKS[judge(waiting, store.time.wall(), limits).fate]


def ended(store: Store, address: str, places: Sequence[str] = ("dead", "rejected")) -> Iterator[Ended]:
    """What ended otherwise than acked, by name and so mostly by time."""
    folders = store.layout.mail(address)
    for place in places:
        folder = getattr(folders, place)
        for name in filter(is_mail, store.files.names(folder)):
            note = _note(store, f"{folder}/{name}{REASON}")
            state, at = str(note.get("state", place)), str(note.get("at", ""))
            reason = str(note.get("reason", "no reason is known"))
            yield Ended(address, place, name, state, at, reason, _read(store, f"{folder}/{name}"))


def figures(store: Store, address: str) -> Figures:
    """Count what lies in the address' folders."""
    mail, folders = store.mail, store.layout.mail(address)
    limits = store.registry.current.limits_for(None if address == HUMAN else address)
    waiting = mail.waiting(address)
    unacked = sum(message.requires_ack for message in waiting)
    return Figures(
        agent=address,
        sent=_count(store, folders.outbox),
        received=len(waiting) + _count(store, folders.processed),
        waiting=len(waiting),
        queued=mail.sending.queued(address),
        unacked=unacked,
        unacked_alert=unacked > limits.unacked_alert,
        dead=_count(store, folders.dead),
        rejected=_count(store, folders.rejected),
        archived=mail.archive.count(address)["messages"],
        latency_ms=latency(_recent_ms(store, folders.processed)),
    )


def latency(spans_ms: Sequence[float]) -> Latency | None:
    """Percentiles by the nearest rank; None of nothing."""
    ordered = sorted(spans_ms)
    if not ordered:
        return None
    p50, p95, p99 = (ordered[math.ceil(len(ordered) * share) - 1] for share in (0.50, 0.95, 0.99))
    return Latency(len(ordered), p50, p95, p99)


def _recent_ms(store: Store, processed: str) -> list[float]:
    oldest = store.time.wall() - timedelta(hours=_RECENT_H)
    spans = []
    for _, message in store.mail.tracing.messages(processed, newest=_RECENT_MAX):
        acked = clock.parse(message.acked_at) if message.acked_at else None
        if acked is not None and acked >= oldest:
            spans.append(max(0.0, round((acked - clock.parse(message.timestamp)).total_seconds() * 1000)))
    return spans


def _count(store: Store, folder: str) -> int:
    return sum(map(is_mail, store.files.names(folder)))


def _note(store: Store, path: str) -> dict[str, Any]:
    note: Any = {}
    with suppress(MeshError, ValueError):
        note = decode(store.files.read(path) or b"{}")
    return note if isinstance(note, dict) else {}


def _read(store: Store, path: str) -> Message | None:
    try:
        return read_message(store.disk, path, _ANY_BYTES)
    except (BadMail, OSError):
        return None
