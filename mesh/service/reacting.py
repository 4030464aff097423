"""Sends what follows from pull requests: in the orchestrator's name, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mesh.errors import Conflict
from mesh.models import Message, Registry, derived_id
from mesh.policy.reactions import Reaction
from mesh.service.compose import compose, request
from mesh.store import Store
from mesh.store.mailbox import Posted

#: How signed calls come in, as the messages that follow say.
WEBHOOK = "webhook"


@dataclass(frozen=True)
class Outcome:
    """What became of one reaction."""

    id: str
    type: str
    about: str
    #: It was sent before: nothing was sent again.
    before: bool
    #: It waits in the sender's outbox for a place in the inbox.
    queued: bool

    def view(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": self.type,
            "about": self.about,
            "alreadySent": self.before,
            "queued": self.queued,
        }


def message_of(store: Store, registry: Registry, reaction: Reaction, to: str, via: str) -> Message:
    """The message to `to`. Raises UnknownAgent, TooLarge."""
    asked = request(
        {
            "id": derived_id(reaction.id, suffix=f"-{to}"),
            "type": reaction.type,
            "payload": reaction.payload,
            "priority": reaction.priority,
            "requiresAck": reaction.requires_ack,
        }
    )
    return compose(store, registry, registry.orchestrator, to, asked, via)


def outcome(reaction: Reaction, posted: Posted) -> Outcome:
    """The same event may come again in other words (a check that ran again): that is still the same message. Raises
    why it was not accepted otherwise."""
    again = posted.duplicate or isinstance(posted.error, Conflict)
    if posted.error is not None and not again:
        raise posted.error
    return Outcome(posted.message.id, reaction.type, reaction.about, before=again, queued=posted.queued)
