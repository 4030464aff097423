"""Sending: from the sender's hand into the recipient's inbox, durably, with a copy in the sender's outbox.

A message is accepted once its file is flushed, linked into the inbox and the inbox flushed (I1). The same file is the
outbox copy, by a second name. Many messages at once share their flushes. What isn't admitted now is refused, or waits
durably in `outbox/queued/` and is tried again.

Whether a message is new is decided under the inbox' lock. An id that its sender chose is found by its marker,
`ids/<id>`, a further name of the file; one that waits in the outbox without a marker by its name there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from mesh.errors import (
    Conflict,
    DurabilityLost,
    InboxBusy,
    InboxFull,
    MeshError,
    NotAdmitted,
    RateExceeded,
    StoreUnavailable,
)
from mesh.models import HUMAN, Delivery, InboxFacts, Message, Refusal
from mesh.store.files import Files
from mesh.store.layout import Layout, MailFolders
from mesh.store.mail.counting import Count, Counting
from mesh.store.mail.names import file_name, is_mail, parse_name
from mesh.store.mail.reading import read_accepted

Admit = Callable[[InboxFacts, Message], Refusal | None]


class Again(Enum):
    """Whether these messages may have been sent before, and how that shows."""

    #: Their ids are fresh.
    NEVER = "never"
    #: The sender chose the ids: the same id with the same content is the same message, whenever it was sent.
    BY_ID = "by_id"
    #: Id and time follow from what they tell, so that the same message has the same name each time.
    BY_NAME = "by_name"


@dataclass
class Posted:
    """What became of one message that was sent."""

    message: Message
    #: Why it was not accepted, or None.
    error: MeshError | None = None
    #: It waits in the sender's outbox for a place in the inbox.
    queued: bool = False
    #: The same message had been accepted before.
    duplicate: bool = False

    @property
    def name(self) -> str:
        """Under which name it is filed."""
        return file_name(self.message)


@dataclass
class _Letter:
    """A message on its way."""

    posted: Posted
    name: str
    again: Again
    path: str = ""
    fd: int = -1
    #: It lies in the sender's `outbox/queued/`, rather than in a temporary.
    queued: bool = False
    #: This call brought it into the inbox.
    linked: bool = False
    #: It lies with the recipient under its own name, or did.
    arrived: bool = False

    @property
    def has_own_id(self) -> bool:
        """Whether its sender may send the id again. Of what waits in the outbox nobody knows any more."""
        return self.again is Again.BY_ID or self.queued


class Sending:
    def __init__(self, files: Files, layout: Layout, counting: Counting) -> None:
        self._files = files
        self._layout = layout
        self._counting = counting
        #: Asked, under the inbox' lock, whether a message is taken. Policy's; who sends puts it here.
        self.admit: Admit = lambda facts, message: None
        #: Whether a message counts against its sender's rate. Policy's, too.
        self.is_rated: Callable[[Message], bool] = lambda message: False

    def post(self, messages: Sequence[Message], *, again: Again = Again.NEVER, queue: bool = False) -> list[Posted]:
        """Send; one answer a message, in their order. With `queue` what isn't admitted waits in the outbox."""
        posted = [Posted(message) for message in messages]
        letters = [letter for entry in posted if (letter := self._begin(entry, again)) is not None]
        letters = self._flush(letters)
        by_recipient = sorted(letters, key=lambda letter: letter.posted.message.to)
        for recipient, group in groupby(by_recipient, key=lambda letter: letter.posted.message.to):
            now, later = _apart(group)
            while now:
                self._deliver(recipient, now, queue=queue)
                now, later = _apart(later)
        return posted

    def post_queued(self, sender: str) -> list[Posted]:
        """Try again what waits in the sender's outbox, oldest first; returns what was tried."""
        folders = self._layout.mail(sender)
        tried: list[Posted] = []
        stuck: set[str] = set()
        for name in filter(is_mail, self._files.names(folders.queued)):
            path = f"{folders.queued}/{name}"
            try:
                message = self._read(path)
            except StoreUnavailable:
                continue  # tried again the next time; the others go on
            if message is None or message.to in stuck:
                continue  # those who come first go first
            posted = Posted(message)
            tried.append(posted)
            self._deliver(message.to, [_Letter(posted, name, Again.BY_NAME, path, queued=True)], queue=True)
            if posted.error is not None or posted.queued:
                stuck.add(message.to)
        return tried

    def queued(self, sender: str) -> int:
        """How many messages wait in the sender's outbox."""
        return sum(is_mail(name) for name in self._files.names(self._layout.mail(sender).queued))

    def arrived(self, to: str, name: str) -> bool:
        """Whether a message of this name came to lie with the recipient, wherever it is by now."""
        folders = self._layout.mail(to)
        places = (folders.inbox, folders.processed, folders.dead, folders.rejected)
        return any(self._files.look(f"{place}/{name}") for place in places)

    def recover(self, folder: str) -> None:
        """Finish what a process that was killed left in its scratch folder: a message that came to lie in the inbox
        gets its outbox copy."""
        for temporary in self._files.names(folder):
            path = f"{folder}/{temporary}"
            try:
                message = self._read(path)
            except StoreUnavailable:
                continue
            if message is None or message.delivery is None or message.acked_at is not None:
                continue  # no message, or one that was being acked
            name = file_name(message)
            copy = f"{self._layout.mail(message.from_).outbox}/{name}"
            if self.arrived(message.to, name) and not self._has(copy):
                self._files.place(path, copy)

    # -- inside

    def _begin(self, posted: Posted, again: Again) -> _Letter | None:
        message = posted.message
        message.delivery = Delivery(at={"written": message.timestamp})
        letter = _Letter(posted, file_name(message), again)
        try:
            letter.path, letter.fd = self._files.begin(letter.name, message.encoded())
        except MeshError as error:
            posted.error = error
            return None
        return letter

    def _flush(self, letters: list[_Letter]) -> list[_Letter]:
        """Those whose files are durable now. What can't be flushed together fails together."""
        try:
            if letters:
                self._files.finish_all([(letter.path, letter.fd) for letter in letters])
        except MeshError as error:
            for letter in letters:
                letter.posted.error = error
            return []
        return letters

    def _deliver(self, recipient: str, letters: list[_Letter], *, queue: bool) -> None:
        """Link into the inbox what is admitted, flush once, put the outbox copies in place. What waits in the outbox
        leaves it last: it was accepted, and must lie in one place that is durable."""
        folders = self._layout.mail(recipient)
        try:
            try:
                self._admit(folders, letters)
            except StoreUnavailable:
                if self._has(folders.inbox):
                    raise
                for folder in folders.folders():  # somebody deleted it
                    self._files.make_folders(folder)
                self._admit(folders, letters)
        except InboxBusy as error:
            for letter in letters:
                letter.posted.error = error
        except MeshError as error:
            for letter in letters:
                if not letter.arrived:
                    letter.posted.error = letter.posted.error or error
        for letter in letters:
            if not letter.queued:
                self._file_copy(letter, queue=queue)
        if any(letter.linked or letter.posted.duplicate for letter in letters):
            self._settle(folders.inbox, letters)
        for letter in letters:
            if letter.queued:
                self._file_copy(letter, queue=queue)

    def _admit(self, folders: MailFolders, letters: list[_Letter]) -> None:
        with self._counting.hold(folders) as count:
            for letter in letters:
                self._try(letter, count)
            self._link_all(letters, count)

    def _try(self, letter: _Letter, count: Count) -> None:
        posted, message = letter.posted, letter.posted.message
        try:
            if self._known(letter):
                posted.duplicate = True
                return
            refusal = self.admit(count.facts(message.from_), message)
            if letter.has_own_id and refusal is None:
                self._mark(letter)
        except MeshError as error:
            posted.error = error
            return
        if refusal is None:
            count.took(message.from_, rated=self.is_rated(message))
            return
        if refusal.kind == "full":
            count.turned_away(message.from_)
        kind = InboxFull if refusal.kind == "full" else RateExceeded
        posted.error = kind(
            refusal.reason, agentId=message.to, messageId=message.id, retryAfterS=round(refusal.retry_after_s, 2)
        )

    def _known(self, letter: _Letter) -> bool:
        """Whether this very message was accepted before. Raises Conflict if its id names another."""
        posted, message = letter.posted, letter.posted.message
        if letter.again is Again.BY_NAME and self.arrived(message.to, letter.name):
            letter.arrived = True
            return True
        for before in self._with_its_id(letter) if letter.has_own_id else ():
            name = file_name(before)
            queued = f"{self._layout.mail(before.from_).queued}/{name}"
            # Of two that wait, the older one goes; and each is judged by itself, so it must not wait for itself.
            waits = self._has(queued) and (not letter.queued or name < letter.name)
            if not waits and (not self.arrived(message.to, name) or (letter.queued and name == letter.name)):
                continue
            if before.same_as(message):
                posted.message, posted.queued = before, waits and not letter.queued
                if waits:
                    self._files.settle(queued)  # who put it there may have been killed before the flush
                return True
            if not letter.queued:  # that one was accepted
                raise Conflict(
                    f"The id {message.id!r} already names another message to {message.to}; send a new id.",
                    messageId=message.id,
                )
        return False

    def _with_its_id(self, letter: _Letter) -> Iterator[Message]:
        """The messages to the same recipient that are known to have this id, this one perhaps among them."""
        message, folder = letter.posted.message, self._layout.mail(letter.posted.message.from_).queued
        paths = [self._marker(message)]
        paths += [f"{folder}/{name}" for name in self._files.names(folder) if _id_in(name) == message.id]
        for found in filter(None, map(self._read, paths)):
            if (found.id, found.to) == (message.id, message.to):
                yield found

    def _mark(self, letter: _Letter) -> None:
        """Note the id. Durable before the message can arrive: who sends it again after a crash must find it."""
        marker = self._marker(letter.posted.message)
        there, ours = self._files.look(marker), self._files.look(letter.path)
        if there is None or ours is None or there.inode != ours.inode:
            self._files.unlink(marker)  # of a message that never arrived
            self._link(letter, marker)
        self._files.settle(marker)

    def _marker(self, message: Message) -> str:
        return f"{self._layout.mail(message.to).ids}/{message.id}"

    def _link(self, letter: _Letter, path: str) -> bool:
        """Give it a further name. What waits in the outbox goes through the scratch folder, so that an incarnation
        that was replaced sends nothing."""
        return self._files.link_through(letter.path, path) if letter.queued else self._files.link(letter.path, path)

    def _read(self, path: str) -> Message | None:
        return read_accepted(self._files.disk, path)

    def _link_all(self, letters: list[_Letter], count: Count) -> None:
        """The count first, so that it never falls short while processes die."""
        count.save()
        missed = False
        for letter in letters:
            posted = letter.posted
            if posted.error is not None or posted.duplicate:
                continue
            try:
                self._link_one(letter)
            except MeshError as error:
                posted.error = error
            if not letter.linked:
                missed = True
                count.left_out(posted.message.from_, rated=self.is_rated(posted.message))
        if missed:
            count.save()

    def _link_one(self, letter: _Letter) -> None:
        message = letter.posted.message
        copy = f"{self._layout.mail(message.from_).outbox}/{letter.name}"
        if message.from_ == HUMAN:
            # Their copy is what tells their messages from forged ones: it must be there first, and stay.
            self._link(letter, copy)
            self._files.settle(copy)
        try:
            letter.linked = self._link(letter, f"{self._layout.mail(message.to).inbox}/{letter.name}")
        except MeshError:
            if message.from_ == HUMAN:
                self._files.drop(copy)
            raise
        letter.arrived = True
        letter.posted.duplicate = not letter.linked

    def _file_copy(self, letter: _Letter, *, queue: bool) -> None:
        """Put the sender's copy where it belongs."""
        posted, outbox = letter.posted, self._layout.mail(letter.posted.message.from_)
        copy = f"{outbox.outbox}/{letter.name}"
        try:
            if isinstance(posted.error, NotAdmitted) and queue:
                if not letter.queued:
                    self._files.place(letter.path, f"{outbox.queued}/{letter.name}")
                    self._files.settle(f"{outbox.queued}/{letter.name}")
                posted.error, posted.queued = None, True
            elif letter.queued and posted.error is not None:
                pass  # it stays, and is tried again
            elif letter.arrived and (letter.again is Again.NEVER or not self._has(copy)):
                self._files.place(letter.path, copy)
            else:
                self._files.drop(letter.path)
        except MeshError as error:
            if not letter.arrived:  # it is in the inbox all the same; the copy is made again from there
                posted.error = error

    def _has(self, path: str) -> bool:
        return self._files.look(path) is not None

    def _settle(self, inbox: str, letters: Iterable[_Letter]) -> None:
        try:
            self._files.settle(f"{inbox}/*")
        except DurabilityLost as error:
            for letter in letters:
                if letter.linked or letter.posted.duplicate:
                    letter.posted.error = error


def _apart(letters: Iterable[_Letter]) -> tuple[list[_Letter], list[_Letter]]:
    """The first of each id, and what repeats one in the same go: that is judged once the first has arrived."""
    first: list[_Letter] = []
    again: list[_Letter] = []
    seen: set[str] = set()
    for letter in letters:
        id_ = letter.posted.message.id
        (again if letter.has_own_id and id_ in seen else first).append(letter)
        seen.add(id_)
    return first, again


def _id_in(name: str) -> str | None:
    parsed = parse_name(name)
    return parsed.id if parsed else None
