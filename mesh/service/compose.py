"""Making a message out of what somebody asks to send: the one door for HTTP, Python and the command line."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from uuid_utils import uuid7

from mesh import clock
from mesh.errors import Forbidden, Invalid, TooLarge, UnknownAgent
from mesh.limits import Limits
from mesh.models import HUMAN, InboxFacts, Message, MessageRequest, Refusal, Registry, payload_problems
from mesh.policy.admission import admit, is_rated, why_not_write
from mesh.store import Store
from mesh.store.codec import encode

#: How many times as large indented JSON can be, at the depth that a payload may have.
_INDENTED_MAX = 20
#: So many bytes a character takes at most.
_ESCAPED_MAX = 6


def compose(store: Store, registry: Registry, sender: str, to: str, asked: MessageRequest, via: str | None) -> Message:
    """The message, checked. Raises UnknownAgent (with the valid names), Forbidden, Invalid, TooLarge."""
    if to != HUMAN and to not in registry.agents:
        known = ", ".join((*registry.agents, HUMAN))
        raise UnknownAgent(f"No agent is called {to!r}; mail can go to: {known}.", agentId=to)
    problems = payload_problems(asked.type, asked.payload)
    if problems:
        detail = "; ".join(f"{item['field']}: {item['reason']}" for item in problems)
        raise Invalid(f"The payload of {asked.type}: {detail}", errors=problems)
    replied = _replied_to(store, sender, asked)
    is_reply = replied is not None and replied.from_ == to
    reason = why_not_write(registry, sender, to, asked.type, is_reply=is_reply)
    if reason is not None:
        raise Forbidden(f"{reason}.", agentId=sender)
    for attachment in asked.attachments:
        if not store.mail.attachments.exists(attachment.sha256):
            raise Invalid(
                f"There is no attachment {attachment.sha256}; add it first (POST /attachment).",
                errors=[{"field": "attachments", "reason": f"{attachment.sha256} is not stored"}],
            )
    thread = asked.thread_id or (replied.thread if replied is not None else None)
    fields = asked.model_dump(exclude={"from_", "id", "thread_id"})
    now = clock.iso(store.time.wall())
    message = Message(
        id=asked.id or str(uuid7()), from_=sender, to=to, timestamp=now, via=via, thread_id=thread, **fields
    )
    _check_size(message, registry)
    return message


@cache
def camel(name: str) -> str:
    """The key of a field as it stands in files, by its Python name."""
    return to_camel(name)


def request(fields: dict[str, Any]) -> MessageRequest:
    """What is asked for, from keys in camelCase. Raises Invalid, naming each field."""
    try:
        return MessageRequest.model_validate(fields)
    except ValidationError as error:
        errors = [
            {"field": ".".join(map(str, item["loc"])), "reason": item["msg"].removeprefix("Value error, ")}
            for item in error.errors()
        ]
        detail = "; ".join(f"{item['field']}: {item['reason']}" for item in errors)
        raise Invalid(detail, errors=errors) from None


def _replied_to(store: Store, sender: str, asked: MessageRequest) -> Message | None:
    """What it replies to, if that came to the sender or was sent by it."""
    if asked.reply_to is None:
        return None
    found = store.mail.tracing.find(asked.reply_to, [sender], ["inbox", "processed", "outbox", "dead"])
    return None if found is None else found.message


def _check_size(message: Message, registry: Registry) -> None:
    bytes_max = registry.limits_for(message.to if message.to != HUMAN else None).message_bytes_max
    if len(repr(message.payload)) * _ESCAPED_MAX * _INDENTED_MAX < bytes_max:
        return  # whatever its file comes to
    # Measured as it will lie in its file: its recipient rejects one that is larger, and indenting can make short lists
    # many times as large. Only a large message is worth measuring so.
    size = len(message.model_dump_json(by_alias=True, exclude_none=True).encode())
    if size * _INDENTED_MAX > bytes_max:
        size = len(encode(message.filed()))
    if size > bytes_max:
        raise TooLarge(
            f"The message is {size} bytes, and {message.to} takes {bytes_max}; send large content as an attachment.",
            limitBytes=bytes_max,
        )


class Rules:
    """What the limits of a registry say of mail, for a store to obey."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._limits: dict[str, Limits] = {}

    def admit(self, facts: InboxFacts, message: Message) -> Refusal | None:
        return admit(facts, message, self._of(message.to))

    def is_rated(self, message: Message) -> bool:
        return is_rated(message, self._of(message.to))

    def _of(self, address: str) -> Limits:
        found = self._limits.get(address)
        if found is None:
            found = self._registry.limits_for(None if address == HUMAN else address)
            self._limits[address] = found
        return found


def put_in_force(store: Store, registry: Registry) -> None:
    """Have the store's mail obey this registry."""
    rules = Rules(registry)
    store.mail.sending.admit, store.mail.sending.is_rated = rules.admit, rules.is_rated
    everybody = [registry.limits_for(), *(registry.limits_for(agent) for agent in registry.agents)]
    store.mail.bytes_max = max(limits.message_bytes_max for limits in everybody)
