"""Sending from an event loop: messages that are sent at the same time share their flushes.

One writer thread a process. What is handed in while it writes is written next, together, so that many senders cost
little more than one; each failure is its own sender's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from mesh.errors import MeshError, StoreUnavailable
from mesh.models import Message
from mesh.service.writer import writer
from mesh.store.mailbox import Again, MailStore, Posted

#: Written together at most, so that the first of many doesn't wait for the last.
_TOGETHER_MAX = 200


@dataclass
class _Handed:
    messages: Sequence[Message]
    again: Again
    queue: bool
    done: asyncio.Future[list[Posted]]


class Outgoing:
    """The senders of one store in one event loop."""

    def __init__(self, mail: MailStore) -> None:
        self._mail = mail
        self._handed: list[_Handed] = []
        self._writing = False

    async def post(
        self, messages: Sequence[Message], *, again: Again = Again.NEVER, queue: bool = False
    ) -> list[Posted]:
        """Send; what became of each message once all of them are durable, refused, or queued."""
        loop = asyncio.get_running_loop()
        handed = _Handed(messages, again, queue, loop.create_future())
        self._handed.append(handed)
        if not self._writing:
            self._writing = True
            writer().submit(self._write, loop)
        return await handed.done

    async def send(self, message: Message, *, again: Again = Again.NEVER, queue: bool = False) -> Posted:
        """Send one message. Raises why it was not accepted."""
        posted = (await self.post([message], again=again, queue=queue))[0]
        if posted.error is not None:
            raise posted.error
        return posted

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the writer's thread: write what can be written together. What is left goes to the end of the thread's
        queue, so that senders don't keep others from it."""
        group = self._next_group()
        if not group:
            return  # written already
        first = group[0]
        messages = [message for handed in group for message in handed.messages]
        try:
            posted = self._mail.post(messages, again=first.again, queue=first.queue)
        except MeshError as error:
            posted = [Posted(message, error) for message in messages]
        except Exception as error:  # a bug of ours must not leave senders waiting for ever
            posted = [Posted(message, StoreUnavailable(f"A bug in sending: {error!r}.")) for message in messages]
        with suppress(RuntimeError):  # the loop has ended, and its senders with it
            loop.call_soon_threadsafe(_hand_back, group, posted)
        self._writing = False
        if self._handed:  # perhaps by one who saw us writing
            self._writing = True
            writer().submit(self._write, loop)

    def _next_group(self) -> list[_Handed]:
        """Those at the front that can be written together, taken."""
        waiting = self._handed
        count, size = 0, 0
        for handed in waiting[:_TOGETHER_MAX]:
            if (handed.again, handed.queue) != (waiting[0].again, waiting[0].queue) or size > _TOGETHER_MAX:
                break
            count, size = count + 1, size + len(handed.messages)
        group = waiting[:count]
        del waiting[:count]
        return group


def _hand_back(group: list[_Handed], posted: list[Posted]) -> None:
    start = 0
    for handed in group:
        end = start + len(handed.messages)
        if not handed.done.done():
            handed.done.set_result(posted[start:end])
        start = end
