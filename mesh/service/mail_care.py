"""What whoever carries the tick does for the mail of all, the human's and that of agents that are down included:
expiry, alerts, counts, and in the maintenance phase retention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mesh import clock
from mesh.limits import Limits
from mesh.models import HUMAN, SETTLED, ClockFile, DeliveryState, Message
from mesh.models.mail import alert_key
from mesh.policy.mail import Fate, Waiting, judge
from mesh.service.core import Core
from mesh.service.postman import end_message
from mesh.store.mail.references import referenced

#: Oldest messages that one pass judges in an inbox: far more than the cap on waiting mail, unless that was lifted.
_JUDGED_MAX = 1000
#: Newest copies that one pass looks at, of people and of agents that are down.
_COPIES_MAX = 200
#: A message is told to be stale in the pass in which it becomes so.
_PASS_MIN = 1.0
#: An attachment may be stored a while before the message that names it is written.
_UNREFERENCED_DAYS = 1.0
_DAY_S = 86_400.0
_UNANSWERED = "mail_unanswered"


@dataclass(frozen=True)
class Seen:
    """What a pass found in one inbox."""

    waiting: int
    unacked: int
    #: What names them in alerts.
    keys: frozenset[str]


def look_after(core: Core, address: str) -> None:
    """One pass over an inbox. In the writer's thread."""
    limits = core.registry.limits_for(None if address == HUMAN else address)
    if address == HUMAN or core.store.process(address) is None:
        _look_after_sent(core, address)
    seen = _judge_all(core, address, limits)
    _alert(core, address, seen, limits)
    _resolve_answered(core, address, seen.keys)


def _look_after_sent(core: Core, address: str) -> None:
    """What a running agent does for itself: try queued mail again, and let copies learn what became of it."""
    mail = core.store.mail
    if mail.sending.queued(address):
        mail.post_queued(address)
    for name, message in mail.tracing.messages(core.store.layout.mail(address).outbox, newest=_COPIES_MAX):
        if message.delivery is None or message.delivery.state not in SETTLED:
            mail.tracing.bring_up_to_date(address, name)


def _judge_all(core: Core, address: str, limits: Limits) -> Seen:
    mail, folders = core.store.mail, core.store.layout.mail(address)
    index = mail.index(address)
    index.refresh()
    waiting = unacked = 0
    for listed in sorted(index.first(None), key=lambda listed: listed.timestamp)[:_JUDGED_MAX]:
        message = mail.read(address, listed.name)
        entry = core.store.files.look(f"{folders.inbox}/{listed.name}")
        if message is None or entry is None:
            continue
        if message.to != address:
            continue  # whoever has this inbox rejects it
        waiting += 1
        unacked += message.requires_ack
        _judge(core, listed.name, message, entry.changed_ns / 1e9, limits)
    mail.counting.recount(folders)
    return Seen(
        max(waiting, len(index)), unacked, frozenset(alert_key(listed.id).rstrip("-") for listed in index.first(None))
    )


def _judge(core: Core, name: str, message: Message, arrived_s: float, limits: Limits) -> None:
    # The time first: who takes an expired message after both looks finds it expired as well.
    now = core.time.wall()
    claim = core.store.mail.receiving.look(message.to, name)
    if claim is not None:
        # The stamp is that of the last link as well: the sender's copy goes its own way once it knows more.
        arrived_s = min(arrived_s, clock.parse(claim.delivered_at).timestamp())
    age_min = core.clock.mesh_minutes(max(0.0, now.timestamp() - arrived_s))
    shown = claim is not None and claim.shown_at is not None
    judgement = judge(Waiting(message, round(age_min, 1), claim is not None, shown), now, limits)
    if judgement.fate is Fate.EXPIRE:
        end_message(core.store, name, message, DeliveryState.EXPIRED, judgement.reason)
    elif judgement.fate is Fate.TO_HUMAN and message.to != HUMAN:
        _tell_human(core, message, judgement.reason)
    elif judgement.fate is Fate.STALE and _late_min(core, message, age_min, limits) < _PASS_MIN:
        core.store.journal.event(message.to, "mail_stale", judgement.reason, messageId=message.id)


def _late_min(core: Core, message: Message, age_min: float, limits: Limits) -> float:
    """For how many mesh minutes it has been late."""
    late_min = age_min - limits.stale_unacked_min
    if message.requires_ack and message.ack_by is not None:
        overdue_s = (core.time.wall() - clock.parse(message.ack_by)).total_seconds()
        late_min = max(late_min, min(age_min, core.clock.mesh_minutes(max(0.0, overdue_s))))
    return late_min


def _resolve_answered(core: Core, address: str, waiting: frozenset[str]) -> None:
    """Who was called for urgent mail that waits no more needn't come."""
    for alert in core.store.alerts.open():
        if (alert.type, alert.agent_id) == (_UNANSWERED, address):
            if alert.id.removeprefix(f"{_UNANSWERED}-{address}-") not in waiting:
                core.store.alerts.set_status(alert.id, "resolved")


def _tell_human(core: Core, message: Message, reason: str) -> None:
    text = str(message.payload.get("text") or message.type)
    core.store.alerts.raise_alert(
        _UNANSWERED,
        message.to,
        f"{message.to} has not dealt with urgent mail from {message.from_}",
        f"{reason}. It says: {' '.join(text.split())[:300]}",
        about=alert_key(message.id),
        severity="high",
        tried=["waited for its ack"],
        next_=f"mesh mail show {message.id}; wake {message.to}, or ack it: mesh mail ack {message.id}",
        once=True,
    )


def _alert(core: Core, address: str, seen: Seen, limits: Limits) -> None:
    """The mailbox document's two alarms (section 11), raised and resolved."""
    _alarm(
        core,
        address,
        "inbox_growing",
        seen.waiting > limits.inbox_alert,
        f"{seen.waiting} messages wait in {address}'s inbox",
        f"more than {limits.inbox_alert}; at {limits.inbox_waiting_max} it takes no more",
    )
    _alarm(
        core,
        address,
        "mail_unacked",
        seen.unacked > limits.unacked_alert,
        f"{seen.unacked} messages that asked for an ack wait for {address}",
        f"more than {limits.unacked_alert}",
    )


def _alarm(core: Core, address: str, type_: str, on: bool, title: str, detail: str) -> None:
    alerts = core.store.alerts
    if on:
        alerts.raise_alert(type_, address, title, detail, next_=f"mesh mail list {address}")
    else:
        alerts.resolve(type_, address)


def keep_house(core: Core) -> dict[str, int]:
    """Archive and delete what is old (the mailbox document's retention); what was done, by sort. In the writer's
    thread, in the maintenance phase."""
    store, done = core.store, dict[str, int]()
    addresses = (*core.registry.agents, HUMAN)
    for address in addresses:
        _settle_old_copies(core, address)
    for address in addresses:
        limits = core.registry.limits_for(None if address == HUMAN else address)
        for sort, count in store.mail.archive.run(address, limits).items():
            done[sort] = done.get(sort, 0) + count
    if store.files.names(store.layout.attachments):
        collected = store.mail.attachments.collect(referenced(store.files, store.layout, addresses), _UNREFERENCED_DAYS)
        if collected:
            done["attachments"] = collected
    return done


def _settle_old_copies(core: Core, address: str) -> None:
    """Let copies learn what became of their messages while that can still be seen: once the recipient's is
    archived, it can't. Senders that are down can't do so themselves."""
    tracing = core.store.mail.tracing
    oldest = core.time.wall().timestamp() - core.limits.mail_retention_days * _DAY_S / 2
    for name, message in tracing.messages(core.store.layout.mail(address).outbox):
        unsettled = message.delivery is None or message.delivery.state not in SETTLED
        if unsettled and clock.parse(message.timestamp).timestamp() < oldest:
            tracing.bring_up_to_date(address, name)


def due(now: ClockFile, mesh_now: datetime) -> bool:
    """Whether this tick keeps house: twice in the maintenance phase, lest one tick was missed."""
    return now.phase == "maintenance" and mesh_now.minute % 5 == 0
