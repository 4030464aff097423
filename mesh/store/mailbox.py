"""The mail of a root, as one process uses it: sending, receiving, finding. The parts are in `store/mail/`.

The file in the recipient's inbox is the truth. Every step that changes something is an event in the journal, so the
whole mesh's mail can be followed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from mesh.errors import MeshError, UnknownMessage
from mesh.limits import DEFAULT
from mesh.models import ACK, HUMAN, MESH, Delivery, DeliveryState, Message, derived_id
from mesh.store.files import Files
from mesh.store.journal import Journal
from mesh.store.layout import Layout
from mesh.store.locks import SleepingClock
from mesh.store.mail.archive import Archive
from mesh.store.mail.attachments import Attachments
from mesh.store.mail.claims import Claim, this_process
from mesh.store.mail.counting import Counting
from mesh.store.mail.index import InboxIndex, Listed
from mesh.store.mail.names import file_name
from mesh.store.mail.reading import BadMail, read_message
from mesh.store.mail.receiving import Claimed, Grip, Receiving
from mesh.store.mail.sending import Again, Posted, Sending
from mesh.store.mail.tracing import Found, Tracing

__all__ = ["Again", "BadMail", "Claim", "Claimed", "Found", "Grip", "Listed", "MailStore", "Posted"]

_SPARE = 16
_EVERYWHERE = ("inbox", "queued", "dead", "rejected", "processed", "outbox")


class MailStore:
    """All mail of one root. `incarnation` is that of the agent's service whose process this is, 0 for any other."""

    def __init__(
        self, files: Files, journal: Journal, layout: Layout, time: SleepingClock, incarnation: int = 0
    ) -> None:
        self._files = files
        self._journal = journal
        self._layout = layout
        self._time = time
        self._incarnation = incarnation
        self._indexes: dict[str, InboxIndex] = {}
        self.counting = counting = Counting(files.disk, time)
        self.sending = Sending(files, layout, counting)
        self.tracing = Tracing(files, layout, time)
        self.attachments = Attachments(files, layout, time)
        self.archive = Archive(files, layout, time)
        #: The largest message that is read. Policy's; who receives puts it here.
        self.bytes_max = DEFAULT.message_bytes_max

    @cached_property
    def receiving(self) -> Receiving:
        holder = this_process(self._time.boot_id(), self._incarnation)
        receiving = Receiving(self._files, self._layout, self.counting, self._time, holder)
        receiving.answer = self.answer
        return receiving

    # -- sending

    def post(self, messages: Sequence[Message], *, again: Again = Again.NEVER, queue: bool = False) -> list[Posted]:
        """Send messages, durably; what became of each, in their order. See `Sending.post`."""
        posted = self.sending.post(messages, again=again, queue=queue)
        for entry in posted:
            if entry.error is None and entry.message.reply_to is not None and entry.message.via != MESH:
                self.close(entry.message)
        self._journal.events(
            self._entry("mail_queued" if entry.queued else "mail_sent", entry.message)
            for entry in posted
            if not entry.duplicate and entry.error is None
        )
        return posted

    def send(self, message: Message, *, again: Again = Again.NEVER, queue: bool = False) -> Posted:
        """Send one message. Raises why it was not accepted."""
        posted = self.post([message], again=again, queue=queue)[0]
        if posted.error is not None:
            raise posted.error
        return posted

    def tell(self, message: Message, again: Again = Again.BY_NAME) -> None:
        """Send what the mesh itself has to tell. Telling it again changes nothing; a full inbox keeps it waiting."""
        self.send(message, again=again, queue=True)

    def post_queued(self, sender: str) -> list[Posted]:
        """Try again what waits in the sender's outbox; returns what was tried."""
        tried = self.sending.post_queued(sender)
        for entry in tried:
            if not entry.queued and entry.error is None:
                self._event("mail_sent", entry.message, "it waited in the outbox")
        return tried

    # -- looking

    def index(self, address: str) -> InboxIndex:
        """The index of an inbox, as this process last saw it."""
        found = self._indexes.get(address)
        if found is None:
            folder = self._layout.mail(address).inbox
            found = self._indexes[address] = InboxIndex(self._files, folder, lambda: self.bytes_max)
        return found

    def waiting(
        self,
        address: str,
        limit: int | None = None,
        listed_fits: Callable[[Listed], bool] = lambda listed: True,
        fits: Callable[[Message], bool] = lambda message: True,
    ) -> list[Message]:
        """What waits in an inbox, in the order of serving. Looking changes nothing. `listed_fits` chooses by what
        the index knows, `fits` by the whole message."""
        index = self.index(address)
        index.refresh()
        found: list[Message] = []
        # A few more than asked for: some may be gone by now, or not fit. Only if that isn't enough, all.
        for count in (None,) if limit is None else (limit + _SPARE, None):
            found = []
            for listed in index.first(count, listed_fits):
                message = self.read(address, listed.name)
                if message is not None:
                    index.correct(listed.name, message)
                if message is not None and message.to == address and fits(message):
                    found.append(message)
                if limit is not None and len(found) >= limit:
                    return found
            if count is not None and len(index) <= count:
                break
        return found

    def read(self, address: str, name: str) -> Message | None:
        """The message in a file of the inbox, or None where there is none that can be read."""
        try:
            return read_message(self._files.disk, f"{self._layout.mail(address).inbox}/{name}", self.bytes_max)
        except BadMail as error:
            self.index(address).set_aside(name, error.reason)
            return None
        except OSError:
            return None

    def waiting_delivery(self, address: str, message: Message) -> Delivery:
        """How far a waiting message has come by now."""
        listed = next(self.index(address).by_id(message.id), None)
        return self.tracing.delivery_of(message, listed.name if listed else file_name(message))

    def find_waiting(self, address: str, id_: str) -> Found:
        """The waiting message with this id. Raises UnknownMessage."""
        found = self.tracing.find(id_, [address], ["inbox"]) or self._under_other_name(address, id_)
        if found is None:
            raise UnknownMessage(f"No message {id_!r} waits for {address}.", messageId=id_, agentId=address)
        return found

    def find(self, id_: str, addresses: Iterable[str]) -> Found:
        """The message with this id, wherever it lies; first where it waits. Raises UnknownMessage."""
        addresses = list(addresses)
        for place in _EVERYWHERE:
            found = self.tracing.find(id_, addresses, [place])
            if found is not None:
                return found
        raise UnknownMessage(f"There is no message {id_!r}; archived mail is in agents/<id>/archive/.", messageId=id_)

    # -- receiving

    def ack(self, address: str, id_: str, text: str = "") -> Message:
        """Acknowledge the message with this id, and answer its sender if that was asked for. Again is harmless.
        Raises UnknownMessage."""
        found = self.tracing.find(id_, [address], ["inbox", "processed"])
        if found is None:
            found = self.find_waiting(address, id_)
        if found.place == "processed":
            self._files.settle(f"{self._layout.mail(address).processed}/{found.name}")
            self.answer(found.message, text)
            return found.message
        return self.ack_file(address, found.name, found.message, text)

    def ack_file(self, address: str, name: str, message: Message, text: str = "", *, answer: bool = True) -> Message:
        """Acknowledge the waiting message in this file."""
        acked = self.receiving.ack(address, name, message, lambda acked: self.answer(acked, text) if answer else None)
        for copy in list(self.index(address).by_id(message.id)):
            if copy.name != name:  # a copy that somebody put there: it is the same message
                with suppress(UnknownMessage):
                    self.receiving.ack(address, copy.name, message)
        self._event("mail_acked", acked)
        return acked

    def answer(self, acked: Message, text: str = "") -> None:
        """Tell the sender that its message was acked, if it asked for that. Nobody acknowledges an ack, and a
        person sees it on the message itself."""
        if not acked.requires_ack or acked.type == ACK or HUMAN in (acked.from_, acked.to):
            return
        self.tell(
            Message.model_validate(
                {
                    "id": derived_id(acked.id, suffix="-ack"),
                    "from": acked.to,
                    "to": acked.from_,
                    "timestamp": acked.acked_at,
                    "type": ACK,
                    "priority": acked.priority,
                    "replyTo": acked.id,
                    "threadId": acked.thread,
                    "via": MESH,
                    "payload": {"text": text or "acknowledged"},
                }
            )
        )

    def bury(self, address: str, name: str, message: Message, state: DeliveryState, reason: str) -> None:
        """Move a message that nobody will handle to `dead/`, with its reason."""
        if self.receiving.bury(address, name, self._layout.mail(address).dead, reason, state=state):
            self._event(f"mail_{state}", message, reason)

    def reject(self, address: str, name: str, reason: str) -> bool:
        """Move a file that is no deliverable message to `rejected/`, with its reason. False if it is gone."""
        done = self.receiving.bury(
            address, name, self._layout.mail(address).rejected, reason, state=DeliveryState.REJECTED
        )
        if done:
            self._journal.event(address, "mail_rejected", reason, file=name)
        return done

    def revive(self, address: str, name: str, message: Message) -> None:
        """Put a dead message into the inbox again."""
        self.receiving.unbury(address, name)
        self._event("mail_retried", message, "put back by a person")

    def note_delivered(self, message: Message, *, shown: bool = False) -> None:
        """Record in the journal that the recipient has taken a message, or was shown it."""
        self._event("mail_shown" if shown else "mail_delivered", message)

    def close(self, reply: Message) -> None:
        """A reply acks what it replies to. Again is harmless."""
        try:
            found = self.tracing.find(reply.reply_to or "", [reply.from_], ["inbox"])
            if found is not None and found.message.from_ == reply.to:
                self.ack_file(reply.from_, found.name, found.message, answer=False)
        except MeshError as error:
            self._event("mail_close_failed", reply, error.detail)

    # -- inside

    def _under_other_name(self, address: str, id_: str) -> Found | None:
        """A waiting message in a file whose name tells another id: people copy and edit files."""
        index = self.index(address)
        index.refresh()
        for listed in index.by_id(id_):
            message = self.read(address, listed.name)
            if message is not None and message.id == id_:
                return Found(address, "inbox", listed.name, message)
        return None

    def _event(self, event: str, message: Message, reason: str = "") -> None:
        self._journal.events([self._entry(event, message, reason)])

    def _entry(self, event: str, message: Message, reason: str = "") -> tuple[str, str, str, dict[str, Any]]:
        ids = {
            "messageId": message.id,
            "from": message.from_,
            "to": message.to,
            "type": message.type,
            "priority": message.priority,
        }
        speaker = message.from_ if event in ("mail_sent", "mail_queued") else message.to
        return speaker, event, reason, ids
