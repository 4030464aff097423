"""An agent's mailbox in Python: `from mesh import Mailbox`. No server is needed; it works beside one.

box = Mailbox(root, "coder")
id = await box.send("ops", type="status_request", payload={"text": "…"}, requires_ack=True)
mail = await box.receive()
await box.ack(mail[0].id)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from uuid_utils import uuid7

from mesh.errors import Forbidden, Invalid, MeshError, UnknownAgent, UnknownMessage
from mesh.models import (
    HUMAN,
    SETTLED,
    Attachment,
    Delivery,
    DeliveryState,
    Message,
    MessageRequest,
    Registry,
    derived_id,
)
from mesh.service import compose
from mesh.service.folder_events import folder_events
from mesh.service.outgoing import Outgoing
from mesh.service.postman import Handled, Handling, Postman
from mesh.service.writer import in_writer, writer
from mesh.store import Store
from mesh.store.mailbox import Again, Posted

_REMEMBERED = 1_000


class Mailbox:
    """The mail of one agent. Every call raises MeshError's kinds, and what was accepted is durable.

    A message that the recipient's inbox can't take now waits in this agent's outbox and is tried again, by this
    mailbox while it is open and by the agent's service.
    """

    def __init__(self, root: str | Path, agent: str) -> None:
        self.store = Store(str(root))
        self.agent = agent
        if agent == HUMAN:
            raise Forbidden("A mailbox is an agent's; people use `mesh say` and `mesh inbox`.")
        self.store.registry.current.entry(agent)
        self._rules_of: Registry | None = None
        self._outgoing = Outgoing(self.store.mail)
        self._sent: dict[str, tuple[str, Message]] = {}
        self._retrying: asyncio.Task[None] | None = None
        self._postman: Postman | None = None

    # -- sending

    async def send(self, to: str, *, type: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Send one message; returns its id once it is durable. `fields`: priority, requires_ack, ack_by,
        expires_at, reply_to, thread_id, attachments, id. An id of one's own makes sending it again harmless.

        Raises UnknownAgent (with the valid names), Forbidden, Invalid, TooLarge, Conflict.
        """
        message = await self._compose(to, {"type": type, "payload": payload or {}, **fields})
        again = Again.NEVER if fields.get("id") is None else Again.BY_ID
        posted = await self._outgoing.send(message, again=again, queue=True)
        self._note([posted])
        return posted.message.id

    async def send_many(self, messages: Iterable[Mapping[str, Any]]) -> list[str]:
        """Send several: mappings with `to`, `type` and whatever `send` takes. They share their flushes. Raises the
        first error, if any; the others are sent all the same."""
        asked = [dict(item) for item in messages]
        if any(not isinstance(item.get("to"), str) for item in asked):
            raise Invalid("Each message needs 'to'.", errors=[{"field": "to", "reason": "is needed"}])
        composed = [await self._compose(item.pop("to"), item) for item in asked]
        return await self._post_all(composed, own_ids=[item.get("id") is not None for item in asked])

    async def broadcast(
        self, to: str | Iterable[str] = "*", *, responsibility: str | None = None, **fields: Any
    ) -> list[str]:
        """Send a copy each to all other agents (`*`), to those named, or to those with a responsibility. Returns
        the ids; the copies share a `broadcastId`. An id of one's own is that of the whole: sent again, nobody gets
        a second copy."""
        registry = self._registry()
        chosen = list(registry.agents) if to == "*" else [to] if isinstance(to, str) else list(to)
        if responsibility is not None:
            chosen = [agent for agent in chosen if responsibility in registry.entry(agent).responsibilities]
        if to == "*":
            chosen = [agent for agent in chosen if agent != self.agent]
        if not chosen:
            named = "" if responsibility is None else f" with the responsibility {responsibility!r}"
            raise UnknownAgent(f"Nobody to write to: no other agent{named} was named.")
        own_id = fields.pop("id", None)
        composed = [await self._compose(agent, fields) for agent in dict.fromkeys(chosen)]
        broadcast = own_id or str(uuid7())
        for message in composed:
            message.broadcast_id = broadcast
            if own_id is not None:
                message.id = derived_id(own_id, suffix=f"-{message.to}")
        return await self._post_all(composed, own_ids=[own_id is not None] * len(composed))

    async def attach(self, content: bytes | str | Path, name: str | None = None, type: str | None = None) -> Attachment:
        """Store a file, given by its path or content, for `send(attachments=[…])`. The same content is stored
        once."""
        limit = self._registry().limits_for(self.agent).attachment_bytes_max
        if isinstance(content, bytes):
            data, name = content, name or "attachment"
        else:
            data = await in_writer(self.store.read_outside, str(content), limit)
            name = name or Path(content).name
        return await in_writer(self.store.mail.attachments.add, data, name, type, limit)

    async def read_attachment(self, sha256: str) -> bytes:
        """The content of an attachment. Raises UnknownAttachment."""
        return await in_writer(self.store.mail.attachments.read, sha256)

    # -- receiving

    async def receive(
        self,
        type: str | None = None,
        sender: str | None = None,
        thread: str | None = None,
        limit: int | None = None,
    ) -> list[Message]:
        """What waits, urgent first, then by time and id. Looking changes nothing: `ack` does."""
        self._registry()
        return await in_writer(
            self.store.mail.waiting,
            self.agent,
            limit,
            lambda listed: type in (None, listed.type) and sender in (None, listed.sender),
            lambda message: thread in (None, message.thread),
        )

    async def ack(self, id: str, text: str = "") -> None:
        """Say that a message is dealt with: it moves to `processed/`, and its sender is told if it asked for that.
        Again is harmless. Raises UnknownMessage."""
        await in_writer(self.store.mail.ack, self.agent, id, text)

    async def thread(self, id: str) -> list[Message]:
        """The messages of a thread that this agent sent or got, oldest first. `id`: the thread's, or of any message
        in it."""
        return await in_writer(self._thread, id)

    async def serve(self, handler: Callable[[Message], Awaitable[None]]) -> None:
        """Bring each message to `handler` as it comes, and ack it when that returns, until `close`. One process at
        a time gets a message, and gets text too that the agent's service has taken in but nobody was shown. One whose
        handler's process died three times, or that raised three times, goes to `dead/`."""

        async def handle(message: Message) -> Handling:
            await handler(message)
            return Handling(Handled.DONE)

        self._registry()
        self._postman = Postman(
            self.store, self.agent, handle, lambda: self._registry().limits_for(self.agent), take_kept=True
        )
        await self._postman.run()

    # -- what became of it

    async def delivery(self, id: str) -> Delivery:
        """What has become of a message that this agent sent. Raises UnknownMessage."""
        name, message = await in_writer(self._find_sent, id)
        return await in_writer(self._delivery, name, message)

    async def wait_for_ack(self, id: str, timeout_s: float = 60.0) -> bool:
        """Wait until a message of ours is acked; woken by the ack itself. False if time is up, or it can't be acked
        any more (expired, rejected, dead). Raises UnknownMessage."""
        sent = self._sent.get(id)
        name, message = sent if sent is not None else await in_writer(self._find_sent, id)
        there, look = self.store.layout.mail(message.to), self.store.files.look
        changed = asyncio.Event()
        watch = folder_events().watch(there.processed, lambda came: changed.set() if came in (None, name) else None)
        deadline_s = self.store.time.monotonic() + timeout_s
        sweep_s = self._registry().limits_for(self.agent).mail_sweep_s
        try:
            while look(f"{there.processed}/{name}") is None:
                left_s = deadline_s - self.store.time.monotonic()
                if left_s <= 0 or look(f"{there.dead}/{name}") or look(f"{there.rejected}/{name}"):
                    # Our copy tells what the caller is told. While it waits, nobody has to write it anew.
                    state = (await in_writer(self._delivery, name, message)).state
                    if left_s <= 0 or state in SETTLED:
                        return state is DeliveryState.ACKED
                if not await _within(changed, min(left_s, sweep_s)):
                    folder_events().check()
                changed.clear()
        finally:
            watch.cancel()
        # The sender's own files may follow after it is told.
        writer().submit(self._note_acked, name, message)
        return True

    async def close(self) -> None:
        """End `serve` and the retries. What is queued stays in the outbox."""
        if self._postman is not None:
            self._postman.stop()
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.wait({self._retrying})

    # -- inside

    def _registry(self) -> Registry:
        """The registry in force, read again if it was edited."""
        if self.store.registry.changed():
            self.store.registry.refresh()
        registry = self.store.registry.current
        if registry is not self._rules_of:
            self._rules_of = registry
            compose.put_in_force(self.store, registry)
        return registry

    async def _compose(self, to: str, fields: Mapping[str, Any]) -> Message:
        given = {compose.camel(key): value for key, value in fields.items() if value is not None}
        asked: MessageRequest = compose.request(given)
        if asked.from_ not in (None, self.agent):
            raise Forbidden(f"This is {self.agent}'s mailbox, so 'from' can't be {asked.from_!r}.", agentId=self.agent)
        registry = self._registry()
        if asked.reply_to is None:
            return compose.compose(self.store, registry, self.agent, to, asked, None)
        # What it replies to is looked for in whole folders: not on the caller's loop.
        return await in_writer(compose.compose, self.store, registry, self.agent, to, asked, None)

    async def _post_all(self, messages: list[Message], own_ids: list[bool]) -> list[str]:
        halves = {
            own: [message for message, its in zip(messages, own_ids, strict=True) if its is own] for own in own_ids
        }
        done = await asyncio.gather(
            *(
                self._outgoing.post(half, again=Again.BY_ID if own else Again.NEVER, queue=True)
                for own, half in halves.items()
            )
        )
        results = {own: iter(half) for own, half in zip(halves, done, strict=True)}
        posted = [next(results[own]) for own in own_ids]
        self._note(posted)
        for entry in posted:
            if entry.error is not None:
                raise entry.error
        return [entry.message.id for entry in posted]

    def _note(self, posted: list[Posted]) -> None:
        for entry in posted:
            if entry.error is None:
                self._sent[entry.message.id] = (entry.name, entry.message)
        while len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]
        if any(entry.queued for entry in posted) and (self._retrying is None or self._retrying.done()):
            self._retrying = asyncio.create_task(self._retry())

    async def _retry(self) -> None:
        """Try again what is queued, at growing intervals while nothing gets through."""
        limits = self._registry().limits_for(self.agent)
        pause_s = limits.mail_retry_s
        left = 1
        while left:
            await asyncio.sleep(pause_s)
            tried = []
            with suppress(MeshError):
                tried = await in_writer(self.store.mail.post_queued, self.agent)
                left = await in_writer(self.store.mail.sending.queued, self.agent)
            through = any(entry.error is None and not entry.queued for entry in tried)
            pause_s = limits.mail_retry_s if through else min(2 * pause_s, limits.mail_retry_max_s)

    def _find_sent(self, id_: str) -> tuple[str, Message]:
        known = self._sent.get(id_)
        if known is not None:
            return known
        found = self.store.mail.tracing.find(id_, [self.agent], ["outbox", "queued"])
        if found is None:
            raise UnknownMessage(f"{self.agent} has sent no message {id_!r}.", messageId=id_)
        return found.name, found.message

    def _note_acked(self, name: str, message: Message) -> None:
        """Bring our copy up to date. Who waited for the ack has got its message: nobody else needs to look at it."""
        with suppress(MeshError):
            self.store.mail.tracing.bring_up_to_date(self.agent, name)
            if message.requires_ack:
                answer = derived_id(message.id, suffix="-ack")
                found = self.store.mail.tracing.find(answer, [self.agent], ["inbox"])
                if found is not None:
                    self.store.mail.ack_file(self.agent, found.name, found.message)

    def _delivery(self, name: str, message: Message) -> Delivery:
        known = self.store.mail.tracing.bring_up_to_date(self.agent, name)
        return known or self.store.mail.tracing.delivery_of(message, name)

    def _thread(self, id_: str) -> list[Message]:
        found = self.store.mail.tracing.find(id_, [self.agent], ["inbox", "processed", "outbox", "queued", "dead"])
        return self.store.mail.tracing.thread(self.agent, found.message.thread if found else id_)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event; False if it didn't come in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
