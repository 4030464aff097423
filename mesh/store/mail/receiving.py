"""Receiving: claim, keep, ack, bury, reject. A message stays in the inbox until it is acked.

Every way out of the inbox is link, flush, unlink, so that the message lies in at least one place at every instant;
whoever comes after a crash finds it in both and finishes the removal.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mesh import clock
from mesh.errors import Conflict, MeshError, UnknownMessage
from mesh.models import Handling, Message
from mesh.store.codec import encode
from mesh.store.files import Files
from mesh.store.layout import Layout, MailFolders
from mesh.store.locks import HeldFile, SleepingClock
from mesh.store.mail.claims import Claim, ClaimFiles, Holder
from mesh.store.mail.counting import Counting
from mesh.store.mail.names import REASON, SUFFIX
from mesh.store.mail.reading import read_accepted

_CLAIMS_WAIT_S = 5.0
#: A removal waits longer for the count than a sender does: the message is out already.
_COUNT_WAIT_S = 2.0
#: A file's name without `.json` is cut to this where it lies in the end: a number and the reason's ending must fit.
_STEM_BYTES_MAX = 230


class Grip(Enum):
    """What trying to claim a message came to."""

    #: It is ours to handle.
    OURS = "ours"
    #: Somebody else handles it.
    HELD = "held"
    #: It was delivered before, and waits for its ack.
    KEPT = "kept"
    #: It is no longer in the inbox.
    GONE = "gone"


@dataclass(frozen=True)
class Claimed:
    grip: Grip
    claim: Claim | None = None


class Receiving:
    """What one holder does with the mail of an address."""

    def __init__(self, files: Files, layout: Layout, counting: Counting, time: SleepingClock, holder: Holder) -> None:
        self._files = files
        self._layout = layout
        self._counting = counting
        self._time = time
        self._claims = ClaimFiles(files)
        self.holder = holder
        #: Tells the sender that its message was acked, if that was asked for; called again after a crash.
        self.answer: Callable[[Message], object] = lambda acked: None

    def claim(self, address: str, name: str, *, kept_too: bool = False) -> Claimed:
        """Take a message to handle it. One that is kept is left, unless `kept_too`. Raises StoreUnavailable."""
        folders = self._layout.mail(address)
        with self._hold(folders):
            if self._is_gone(folders, name):
                self._files.unlink(f"{folders.claims}/{name}")
                return Claimed(Grip.GONE)
            before = self._claims.read(f"{folders.claims}/{name}")
            attempt = 1
            if before is not None:
                ours = before.held_by(self.holder)
                if before.state == "handling" and not ours and before.held(self.holder.boot_id, self._incarnation()):
                    return Claimed(Grip.HELD, before)
                if before.state == "kept" and not kept_too:
                    return Claimed(Grip.KEPT, before)
                cut_short = before.state == "handling" and not ours
                attempt = before.attempt + 1 if cut_short else before.attempt
            claim = self._claim(before, attempt)
            self._claims.write(f"{folders.claims}/{name}", claim)
            return Claimed(Grip.OURS, claim)

    def keep(
        self,
        address: str,
        name: str,
        *,
        shown: bool = False,
        failed: bool = False,
        uncertain: bool = False,
        task_id: str | None = None,
    ) -> Claim | None:
        """Note that a message of ours is delivered (and shown, or perhaps, or has become a task) and waits for its
        ack; or that showing it failed, which costs an attempt. None if it isn't ours any more."""

        def change(claim: Claim) -> Claim:
            now = clock.iso(self._time.wall())
            update: dict[str, Any] = {"state": "kept"}
            update["attempt"] = 1 if shown else claim.attempt + failed
            update["shown_at"] = claim.shown_at or (now if shown else None)
            update["uncertain_at"] = now if uncertain and not shown else None if shown else claim.uncertain_at
            update["task_id"] = task_id or claim.task_id
            return claim.model_copy(update=update)

        return self._change(address, name, change)

    def release(self, address: str, name: str) -> None:
        """Give an unfinished message back: whoever comes next handles it, and no attempt counts."""
        folders = self._layout.mail(address)
        with self._hold(folders):
            claim = self._claims.read(f"{folders.claims}/{name}")
            if claim is not None and claim.held_by(self.holder):
                self._files.unlink(f"{folders.claims}/{name}")

    def look(self, address: str, name: str) -> Claim | None:
        """The claim of a message. Takes no lock."""
        return self._claims.read(f"{self._layout.mail(address).claims}/{name}")

    def ack(
        self, address: str, name: str, message: Message, answer: Callable[[Message], object] = lambda acked: None
    ) -> Message:
        """Move a message to `processed/` with its `ackedAt`; returns it as it lies there. Acked before: the same
        again. Raises UnknownMessage if it has gone elsewhere.

        `answer` is called before the message leaves the inbox: whoever dies in between leaves it in both places, and
        who finishes its removal answers.
        """
        folders = self._layout.mail(address)
        with self._hold(folders):
            if self._is_gone(folders, name):
                acked = self._acked_before(folders, name, message)
                answer(acked)
                return acked
            claim = self._claims.read(f"{folders.claims}/{name}")
            acked = self._acked(message, claim)
            temporary, fd = self._files.begin(name, acked.encoded())
            self._files.finish(temporary, fd)
            try:
                done = next(path for path in _names(folders.processed, name) if self._files.link(temporary, path))
            finally:
                self._files.drop(temporary)
            self._files.settle(done)
            answer(acked)
            self._take_out(folders, name)
            return acked

    def bury(self, address: str, name: str, place: str, reason: str, **facts: Any) -> bool:
        """Move a file out of the inbox to `dead/` or `rejected/` (`place` is the folder), with its reason beside
        it. False if it is gone already."""
        folders = self._layout.mail(address)
        with self._hold(folders):
            source = f"{folders.inbox}/{name}"
            if self._is_gone(folders, name):
                return False
            target = next(path for path in _names(place, name) if not self._there(path))
            note = {"schemaVersion": 1, "file": name, "at": clock.iso(self._time.wall()), "reason": reason, **facts}
            # The reason first, and through a temporary: an incarnation that was replaced fails here.
            self._files.replace(f"{target}{REASON}", encode(note))
            self._take_out(folders, name, out=self._move(source, target))
            return True

    def unbury(self, address: str, name: str) -> None:
        """Put a dead message back into the inbox, its attempts forgotten. Raises UnknownMessage, or Conflict if
        another waits under its name."""
        folders = self._layout.mail(address)
        dead, inbox = f"{folders.dead}/{name}", f"{folders.inbox}/{name}"
        with self._hold(folders):
            there = self._files.look(dead)
            if there is None:
                raise UnknownMessage(f"There is no {name} among the dead mail of {address}.", agentId=address)
            self._files.unlink(f"{folders.claims}/{name}")  # a power cut may have brought it back
            with self._counting.hold(folders, _COUNT_WAIT_S) as count:
                count.waiting += 1
                count.save()
                if not self._files.link_through(dead, inbox):
                    count.waiting -= 1
                    count.save()
            waits = self._files.look(inbox)
            if waits is None or waits.inode != there.inode:
                raise Conflict(f"Another message waits for {address} as {name}; deal with that first.", file=inbox)
            self._files.settle(inbox)
            self._files.remove(dead)
            self._files.remove(f"{dead}{REASON}")

    # -- inside

    def _hold(self, folders: MailFolders) -> HeldFile:
        return HeldFile(self._files.disk, folders.claims_lock, self._time, _CLAIMS_WAIT_S)

    def _incarnation(self) -> int:
        return self.holder.incarnation

    def _claim(self, before: Claim | None, attempt: int) -> Claim:
        holder = self.holder
        return Claim(
            pid=holder.pid,
            started=holder.started,
            boot_id=holder.boot_id,
            incarnation=holder.incarnation,
            token=holder.token,
            attempt=attempt,
            delivered_at=before.delivered_at if before else clock.iso(self._time.wall()),
            shown_at=before.shown_at if before else None,
            task_id=before.task_id if before else None,
        )

    def _change(self, address: str, name: str, change: Any) -> Claim | None:
        folders = self._layout.mail(address)
        with self._hold(folders):
            claim = self._claims.read(f"{folders.claims}/{name}")
            if claim is None or not self._there(f"{folders.inbox}/{name}"):
                return None
            changed: Claim = change(claim)
            self._claims.write(f"{folders.claims}/{name}", changed)
            return changed

    def _acked(self, message: Message, claim: Claim | None) -> Message:
        now = clock.iso(self._time.wall())
        handling = Handling(
            delivered_at=claim.delivered_at if claim else now,
            shown_at=claim.shown_at if claim else None,
            attempts=claim.attempt if claim else 0,
        )
        return message.model_copy(update={"acked_at": now, "handling": handling, "delivery": None})

    def _is_gone(self, folders: MailFolders, name: str) -> bool:
        """Whether it waits no more. The removal of a message that was taken out by a process that died right after is
        finished: without this, crashes inside an ack would send handled mail to `dead/`."""
        path = f"{folders.inbox}/{name}"
        there = self._files.look(path)
        if there is None:
            return True
        for place in (folders.dead, folders.rejected):
            for copy in _taken(self._files, place, name):
                found = self._files.look(copy)
                if found is not None and found.inode == there.inode:
                    self._files.settle(copy)
                    self._take_out(folders, name)
                    return True
        for copy in _taken(self._files, folders.processed, name):
            acked, waits = self._read(copy), self._read(path)
            # People may use a name again: only the same message is the one that was acked.
            if acked and waits and acked.timestamp == waits.timestamp and acked.same_as(waits):
                self._files.settle(copy)
                self.answer(acked)
                self._take_out(folders, name)
                return True
        return False

    def _acked_before(self, folders: MailFolders, name: str, message: Message) -> Message:
        for copy in _taken(self._files, folders.processed, name):
            acked = self._read(copy)
            if acked is not None and acked.id == message.id:
                self._files.settle(copy)
                return acked
        raise UnknownMessage(
            f"{message.id!r} no longer waits for {message.to}, and was not acked.", messageId=message.id
        )

    def _move(self, source: str, target: str) -> bool:
        """Give it a second name at `target`, durably. True if it had to be moved at once: a folder or a foreign file
        can't have two names, and a link is moved as it is."""
        entry = self._files.look(source)
        moved = entry is None or not entry.is_file or entry.owner != os.geteuid()
        if moved:
            self._files.place(source, target)
        else:
            self._files.link_through(source, target)
        self._files.settle(target)
        return moved

    def _take_out(self, folders: MailFolders, name: str, *, out: bool = False) -> None:
        """Remove it from the inbox (unless it is `out`), and from the count in the same hold. Not flushed: what a
        power cut brings back is found in its new place."""
        path = f"{folders.inbox}/{name}"
        try:
            with self._counting.hold(folders, _COUNT_WAIT_S) as count:
                if self._files.unlink(path) or out:
                    count.waiting = max(0, count.waiting - 1)
                    count.save()
        except MeshError:
            self._files.unlink(path)  # the sweep counts anew
        self._files.unlink(f"{folders.claims}/{name}")

    def _there(self, path: str) -> bool:
        return self._files.look(path) is not None

    def _read(self, path: str) -> Message | None:
        return read_accepted(self._files.disk, path)


def _names(place: str, name: str) -> Iterator[str]:
    """The paths at which a file of this name comes to lie: people may use a name again."""
    stem = os.fsdecode(os.fsencode(name.removesuffix(SUFFIX))[:_STEM_BYTES_MAX])
    yield f"{place}/{stem}{SUFFIX}"
    for number in itertools.count(2):
        yield f"{place}/{stem}.{number}{SUFFIX}"


def _taken(files: Files, place: str, name: str) -> Iterator[str]:
    """Those at which something lies."""
    return itertools.takewhile(lambda path: files.look(path) is not None, _names(place, name))
