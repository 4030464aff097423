"""Who may give work to whom, who may call it off, who may write to whom, and how much of it.

`open`: anyone to anyone. `peers` and `orchestrator`: tasks go only along `canDelegate`, to one's buddy, and to and
from the orchestrator; under `orchestrator` messages as well keep to the orchestrator, buddies and replies. People and
the operator may do everything.
"""

from __future__ import annotations

from mesh.limits import Limits
from mesh.models import ACK, ERROR, HUMAN, MESH, PROTOCOL_TYPES, InboxFacts, Message, Refusal, Registry, Task

#: Messages that hand over work.
_GIVING = frozenset({"task_request", "context_handoff"})
_SHUTDOWN = "shutdown"
_UNRATED = PROTOCOL_TYPES | {ACK, ERROR, "status_response"}
_WINDOW_S = 60.0
_FULL_RETRY_S = 1.0


def why_not_give(registry: Registry, giver: str, owner: str) -> str | None:
    """Why the giver may not give the owner a task, or None if it may. The global queue is open to all."""
    if giver in (HUMAN, owner) or owner == "any" or registry.policy == "open":
        return None
    if registry.orchestrator in (giver, owner):
        return None
    entry = registry.entry(giver)
    if owner in entry.can_delegate or owner == entry.buddy:
        return None
    allowed = sorted({*entry.can_delegate, entry.buddy, registry.orchestrator})
    return (
        f"{giver} may not give {owner} tasks under the policy {registry.policy!r}; it may give them to "
        f'{", ".join(allowed)}, or to the global queue ("owner": "any")'
    )


def may_cancel(registry: Registry, caller: str, task: Task) -> bool:
    """Owner, giver, orchestrator and people may cancel a task."""
    return caller in (HUMAN, task.owner, task.from_, registry.orchestrator)


def why_not_write(registry: Registry, sender: str, recipient: str, type_: str, *, is_reply: bool) -> str | None:
    """Why the sender may not send the recipient a message of this type, or None if it may. Both are agents of the
    registry or the human; `is_reply` says that it answers a message which the recipient really sent the sender."""
    if type_ == _SHUTDOWN and sender not in (HUMAN, registry.orchestrator):
        return (
            f"{sender} may not shut down {recipient}; only {registry.orchestrator}, the orchestrator, and {HUMAN} may"
        )
    if HUMAN in (sender, recipient) or sender == recipient:
        return None
    if type_ in _GIVING and (refusal := why_not_give(registry, sender, recipient)):
        return refusal
    if registry.policy != "orchestrator" or is_reply or registry.orchestrator in (sender, recipient):
        return None
    buddy = registry.entry(sender).buddy
    watchers = [agent for agent, entry in registry.agents.items() if entry.buddy == sender]
    if recipient in (buddy, *watchers):
        return None
    allowed = ", ".join(sorted({buddy, *watchers, registry.orchestrator, HUMAN}))
    return (
        f"{sender} may not write to {recipient} under the policy {registry.policy!r}; it may write to {allowed}, "
        "and reply to whoever wrote to it"
    )


def is_rated(message: Message, limits: Limits) -> bool:
    """Whether a message counts against its sender's rate: answers, the protocol's own types and what the mesh tells
    by itself don't, and nothing does where the limit is lifted."""
    return limits.messages_per_minute is not None and message.via != MESH and message.type not in _UNRATED


def admit(facts: InboxFacts, message: Message, limits: Limits) -> Refusal | None:
    """Why the recipient, whose limits these are, can't take the message now; None if it can.

    Whoever was turned away from a full inbox stands in line: a place that becomes free goes to who has waited
    longest, so that no sender fills the inbox alone.
    """
    rate = limits.messages_per_minute
    if is_rated(message, limits) and rate is not None and len(facts.sent_s) >= rate:
        wait_s = max(0.0, facts.sent_s[-rate] + _WINDOW_S - facts.now_s)
        reason = f"{message.from_} has sent {message.to} {rate} messages within a minute"
        return Refusal("rate", f"{reason}; the next can go in {wait_s:.0f} s.", max(wait_s, 0.1))
    if message.to == HUMAN:
        return None  # people are told whatever there is to tell
    line = list(facts.turned_away)
    before = line.index(message.from_) if message.from_ in line else len(line)
    if facts.waiting + before >= limits.inbox_waiting_max:
        reason = f"{facts.waiting} messages wait in {message.to}'s inbox, which takes {limits.inbox_waiting_max}"
        return Refusal("full", f"{reason}; try again in {_FULL_RETRY_S:g} s.", _FULL_RETRY_S)
    return None
