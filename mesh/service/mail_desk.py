"""What the message routes ask for: taking in, listing, acknowledging, attachments."""

from __future__ import annotations

from typing import Any

from mesh.errors import DiskFull, Forbidden, Invalid
from mesh.models import Attachment, Message, MessageRequest
from mesh.service.agent import AgentService
from mesh.service.auth import Caller
from mesh.service.compose import compose
from mesh.service.core import Core
from mesh.store.mailbox import Again


async def take_in(
    service: AgentService, asked: MessageRequest, sender: str, caller: Caller
) -> tuple[Message, dict[str, Any] | None]:
    """Put a message into this agent's inbox, durably; the message, and the answer where that is known at once.
    Raises UnknownAgent, Forbidden, Invalid, TooLarge, NotAdmitted, Conflict."""
    core = service.core
    if core.disk_low:
        raise DiskFull(f"Less than {core.limits.disk_free_min_mb} MB of disk are free: no mail is taken.")
    message = await core.io(compose, core.store, core.registry, sender, core.agent, asked, caller.via)
    again = Again.NEVER if asked.id is None else Again.BY_ID
    posted = await service.mail.outgoing.send(message, again=again)
    service.mail.postman.ring()
    response = service.mail.effects.status() if message.type == "status_request" else None
    return posted.message, response


def may_read(core: Core, caller: Caller) -> None:
    """Raise Forbidden unless the caller may read and acknowledge this agent's mail: itself, people, and programs of
    the mesh's user on its Unix socket."""
    if not (caller.is_operator or caller.is_local or caller.name == core.agent):
        raise Forbidden(f"Only {core.agent} itself and people may look at its mail.", agentId=core.agent)


def listed(
    core: Core, type_: str | None, sender: str | None, thread: str | None, unread: bool, limit: int
) -> list[dict[str, Any]]:
    """What waits, in the order of serving, each with how far it has come. Looking changes nothing."""
    mail = core.store.mail
    found = []
    for message in mail.waiting(
        core.agent,
        None if unread else limit,
        lambda entry: type_ in (None, entry.type) and sender in (None, entry.sender),
        lambda message: thread in (None, message.thread),
    ):
        view = seen(core, message)
        if not (unread and view["delivery"]["state"] == "shown"):
            found.append(view)
        if len(found) >= limit:
            break
    return found


def seen(core: Core, message: Message) -> dict[str, Any]:
    """A waiting message as it is answered: with its present state instead of that of the day it was sent."""
    delivery = core.store.mail.waiting_delivery(core.agent, message)
    return {**message.filed(), "delivery": delivery.model_dump(mode="json", by_alias=True, exclude_none=True)}


async def acknowledge(service: AgentService, id_: str, text: str) -> None:
    """Ack a waiting message. Again is harmless. Raises UnknownMessage."""
    core = service.core
    await core.io(core.store.mail.ack, core.agent, id_, text)
    service.mail.postman.notice()


async def attach(core: Core, data: bytes, name: str, type_: str | None) -> Attachment:
    """Store the content of an attachment. Raises TooLarge, Invalid."""
    if not data:
        raise Invalid("The body is empty: send the file's content.", errors=[{"field": "", "reason": "is empty"}])
    return await core.io(core.store.mail.attachments.add, data, name, type_, core.limits.attachment_bytes_max)
