"""Finding messages, and what has become of those that were sent.

The state of a sent message follows from where it lies with its recipient, so the sender's copy can always be brought
up to date, and a bad copy is made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mesh import clock
from mesh.errors import MeshError
from mesh.models import MESSAGE_TRANSITIONS, Delivery, DeliveryState, Message
from mesh.store.codec import decode, encode
from mesh.store.files import Files
from mesh.store.layout import Layout, MailFolders
from mesh.store.locks import SleepingClock
from mesh.store.mail.claims import ClaimFiles
from mesh.store.mail.names import REASON, is_mail, parse_name
from mesh.store.mail.reading import BadMail, parse_message, read_accepted, read_data

_S = DeliveryState
#: What the mesh accepted once is read whatever the limits say now.
_ANY_BYTES = 1 << 30


@dataclass(frozen=True)
class Found:
    """A message, where it lies, and under which name."""

    address: str
    #: `inbox`, `processed`, `dead`, `rejected`, `outbox` or `queued`.
    place: str
    name: str
    message: Message


class Tracing:
    def __init__(self, files: Files, layout: Layout, time: SleepingClock) -> None:
        self._files = files
        self._layout = layout
        self._time = time
        self._claims = ClaimFiles(files)

    def find(self, id_: str, addresses: Iterable[str], places: Iterable[str]) -> Found | None:
        """The first message with this id in these places of these addresses."""
        for address in addresses:
            folders = self._layout.mail(address)
            for place in places:
                folder = getattr(folders, place)
                for name in self._files.names(folder):
                    found = self._with_id(address, place, folder, name, id_)
                    if found is not None:
                        return found
        return None

    def thread(self, address: str, thread: str) -> list[Message]:
        """Every message of a thread that this address sent or got and that isn't archived, oldest first."""
        folders = self._layout.mail(address)
        found: dict[str, Message] = {}
        for folder in (folders.outbox, folders.queued, folders.dead, folders.processed, folders.inbox):
            for _, message in self.messages(folder, containing=thread):
                if thread in (message.thread, message.id):
                    found[message.id] = message
        return sorted(found.values(), key=lambda message: (message.timestamp, message.id))

    def messages(self, folder: str, containing: str = "", newest: int | None = None) -> Iterator[tuple[str, Message]]:
        """The messages in a folder with their names, by time; only the `newest` so many, if given."""
        names = [name for name in self._files.names(folder) if is_mail(name)]
        for name in names if newest is None else names[-newest:]:
            message = self._read(f"{folder}/{name}", containing.encode())
            if message is not None:
                yield name, message

    def delivery_of(self, message: Message, name: str) -> Delivery:
        """What has become of a sent message, by where it lies now."""
        # Looked for twice: it may have moved from a place not yet looked at to one already behind.
        found = self._where(message, name) or self._where(message, name)
        if found is not None:
            return found
        at = {"written": message.timestamp, "uncertain": clock.iso(self._time.wall())}
        return Delivery(state=_S.UNCERTAIN, at=at, reason="it lies nowhere any more")

    def _where(self, message: Message, name: str) -> Delivery | None:
        folders = self._layout.mail(message.to)
        at = {"written": message.timestamp}
        acked = read_accepted(self._files.disk, f"{folders.processed}/{name}")
        if acked is not None:
            handling = acked.handling
            at |= {"delivered": handling.delivered_at or ""} if handling else {}
            at |= {"shown": handling.shown_at} if handling and handling.shown_at else {}
            return Delivery(state=_S.ACKED, at={**at, "acked": acked.acked_at or ""})
        for place, state in ((folders.dead, _S.DEAD), (folders.rejected, _S.REJECTED)):
            if self._files.look(f"{place}/{name}"):
                return self._ended(f"{place}/{name}", state, at)
        if self._files.look(f"{folders.inbox}/{name}"):
            return self._waiting(folders, name, at)
        queued = self._layout.mail(message.from_).queued
        if self._files.look(f"{queued}/{name}"):
            return Delivery(at=at, reason=f"waits in the outbox until {message.to}'s inbox takes it")
        return None

    def bring_up_to_date(self, sender: str, name: str) -> Delivery | None:
        """Rewrite the sender's copy if more is known by now; the state as it is. None where there is no copy."""
        path = f"{self._layout.mail(sender).outbox}/{name}"
        message = self._read(path)
        if message is None:
            return None
        known, now = message.delivery or Delivery(), self.delivery_of(message, name)
        if now.state is known.state or now.state not in MESSAGE_TRANSITIONS[known.state]:
            return known
        message.delivery = now.model_copy(update={"at": {**known.at, **now.at}})
        self._write_copy(path, message)
        return message.delivery

    def is_from_sender(self, message: Message, name: str) -> bool:
        """Whether the sender has a copy, or the file was put into the inbox by hand. A file that is just being sent
        has a second name already, though not yet in the outbox."""
        entry = self._files.look(f"{self._layout.mail(message.to).inbox}/{name}")
        if entry is not None and entry.links > 1:
            return True
        return self._files.look(f"{self._layout.mail(message.from_).outbox}/{name}") is not None

    def was_processed(self, address: str, id_: str, other_than: str) -> str | None:
        """The name of a processed or dead message with this id, apart from the dead one of this name."""
        folders = self._layout.mail(address)
        for place in ("processed", "dead"):
            folder = getattr(folders, place)
            for name in self._files.names(folder):
                # What a person takes from dead/ and puts back under its name is meant to be delivered again.
                if (place, name) != ("dead", other_than) and self._with_id(address, place, folder, name, id_):
                    return name
        return None

    def restore_copy(self, message: Message, name: str) -> None:
        """Make the sender's copy again, if it is gone."""
        path = f"{self._layout.mail(message.from_).outbox}/{name}"
        if self._files.look(path) is None and self._files.look(self._layout.mail(message.from_).base) is not None:
            copy = message.model_copy(update={"delivery": Delivery(at={"written": message.timestamp})})
            self._files.replace_quickly(path, encode(copy.filed()), flushed=False)

    # -- inside

    def _with_id(self, address: str, place: str, folder: str, name: str, id_: str) -> Found | None:
        if not is_mail(name):
            return None
        parsed = parse_name(name)
        if parsed is not None and parsed.id != id_:
            return None
        message = self._read(f"{folder}/{name}")
        if message is None or message.id != id_:
            return None
        return Found(address, place, name, message)

    def _write_copy(self, path: str, message: Message) -> None:
        """Its content is flushed, its folder is not: a power cut may bring the old copy back, never half a one."""
        temporary, fd = self._files.begin(path, encode(message.filed()))
        self._files.finish(temporary, fd)
        self._files.place(temporary, path)

    def _read(self, path: str, containing: bytes = b"") -> Message | None:
        try:
            data = read_data(self._files.disk, path, _ANY_BYTES)
            return parse_message(data) if containing in data else None
        except (OSError, BadMail):
            return None

    def _ended(self, path: str, state: DeliveryState, at: dict[str, str]) -> Delivery:
        note: Any = None
        with suppress(MeshError, ValueError):
            note = decode(self._files.read(f"{path}{REASON}") or b"null")
        note = note if isinstance(note, dict) else {}
        found = _S.EXPIRED if note.get("state") == _S.EXPIRED else state
        return Delivery(state=found, at={**at, found: note.get("at", "")}, reason=note.get("reason"))

    def _waiting(self, folders: MailFolders, name: str, at: dict[str, str]) -> Delivery:
        claim = self._claims.read(f"{folders.claims}/{name}")
        if claim is None:
            return Delivery(at=at)
        at = {**at, "delivered": claim.delivered_at}
        if claim.shown_at:
            return Delivery(state=_S.SHOWN, at={**at, "shown": claim.shown_at})
        if claim.uncertain_at:
            return Delivery(state=_S.UNCERTAIN, at={**at, "uncertain": claim.uncertain_at})
        return Delivery(state=_S.DELIVERED, at=at)
