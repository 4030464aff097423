"""How many messages wait in an inbox, and who sent when: `inbox/.admission`, kept under its own lock.

Admission needs no scan of the inbox. The count is written before a message is linked and after one is removed, in one
hold of the lock, so it never falls short while processes die; the sweep counts anew. Nothing here is flushed: what was
recorded before the last boot, or can't be read, is counted anew by who comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mesh.errors import DiskFull, InboxBusy, LockTimeout, StoreUnavailable
from mesh.models import InboxFacts
from mesh.store.codec import decode, decode_own, encode_line
from mesh.store.disk import Disk
from mesh.store.files import FULL
from mesh.store.layout import MailFolders
from mesh.store.locks import HeldFile, SleepingClock
from mesh.store.mail.names import is_mail

#: A stopped holder must not stop senders for longer: their mail waits in the outbox.
WAIT_S = 0.25
_WINDOW_S = 60.0
#: A sender that was turned away and hasn't tried again for so long gives its place in the line up.
_IN_LINE_S = 10.0
_RETRY_AFTER_S = 1.0
#: As much of a record as is read back. The count must get through, whatever the senders' stamps come to.
_RECORD_BYTES_MAX = (1 << 16) - 1


class Count:
    """The record, while its lock is held. `save` writes it."""

    def __init__(self, disk: Disk, handle: int, inbox: str, boot_id: str, now_s: float) -> None:
        self._disk = disk
        self._handle = handle
        self._inbox = inbox
        self._boot_id = boot_id
        self.now_s = now_s
        self._size = 0
        self.waiting = 0
        self._sent: dict[str, list[float]] = {}
        self._line: dict[str, float] = {}
        self._read()

    def facts(self, sender: str) -> InboxFacts:
        """What policy decides from."""
        return InboxFacts(self.now_s, self.waiting, self._recent(sender), dict(self._line))

    def took(self, sender: str, *, rated: bool) -> None:
        """One message more."""
        self.waiting += 1
        self._line.pop(sender, None)
        if rated:
            # Rounded up: rounded down, the window would be too short.
            self._sent[sender] = [*self._recent(sender), math.ceil(self.now_s * 1000) / 1000]

    def left_out(self, sender: str, *, rated: bool) -> None:
        """What was taken did not come to lie in the inbox."""
        self.waiting = max(0, self.waiting - 1)
        if rated:
            self._sent[sender] = self._sent.get(sender, [])[:-1]

    def count_anew(self) -> None:
        """Count the files themselves."""
        self.waiting = sum(is_mail(name) for name in self._disk.names(self._inbox))

    def turned_away(self, sender: str) -> None:
        """The sender found no room, and gets its turn before those who come after it."""
        self._line[sender] = round(self.now_s, 3)  # the place in the dict, and so in the line, stays

    def save(self) -> None:
        sent = {sender: recent for sender in self._sent if (recent := self._recent(sender))}
        record = {"bootId": self._boot_id, "waiting": self.waiting, "sent": sent, "turnedAway": self._line}
        data = encode_line(record)[:-1]
        if len(data) > _RECORD_BYTES_MAX:
            data = encode_line({**record, "sent": {}})[:-1]
        self._size = max(self._size, len(data))  # what was written before is covered, in this hold as well
        self._disk.label_lock(self._handle, data.ljust(self._size) + b"\n")

    def _recent(self, sender: str) -> list[float]:
        return [stamp for stamp in self._sent.get(sender, ()) if 0 < stamp - self.now_s + _WINDOW_S <= _WINDOW_S + 1]

    def _read(self) -> None:
        data = self._disk.read_handle(self._handle)
        self._size = max(0, len(data) - 1)
        with suppress(AttributeError, TypeError, ValueError, KeyError):
            record: dict[str, Any] = decode_own(data)
            if record["bootId"] == self._boot_id:
                sent = {str(name): [float(s) for s in stamps] for name, stamps in record["sent"].items()}
                line = {str(name): float(stamp) for name, stamp in record["turnedAway"].items()}
                self.waiting = max(0, int(record["waiting"]))
                self._sent = sent
                self._line = {name: stamp for name, stamp in line.items() if self.now_s - stamp <= _IN_LINE_S}
                return
        self.count_anew()


class Counting:
    """The records of all inboxes."""

    def __init__(self, disk: Disk, time: SleepingClock) -> None:
        self._disk = disk
        self._time = time

    @contextmanager
    def hold(self, folders: MailFolders, wait_s: float = WAIT_S) -> Iterator[Count]:
        """The inbox' record, locked. Raises InboxBusy if somebody has held it for `wait_s`."""
        try:
            with HeldFile(self._disk, folders.admission, self._time, wait_s) as handle:
                yield Count(self._disk, handle, folders.inbox, self._time.boot_id(), self._time.boottime())
        except LockTimeout as error:
            raise InboxBusy(error.detail, retryAfterS=_RETRY_AFTER_S) from None
        except OSError as error:
            kind = DiskFull if error.errno in FULL else StoreUnavailable
            raise kind(f"Could not use {folders.admission}: {error.strerror}.", file=folders.admission) from error

    def recount(self, folders: MailFolders) -> tuple[int, int]:
        """Count the files under the lock; (what the record said, what it is)."""
        with self.hold(folders, 5.0) as count:
            was = count.waiting
            count.count_anew()
            count.save()
            return was, count.waiting

    def waiting(self, folders: MailFolders) -> int:
        """How many messages wait, by the record; takes no lock."""
        try:
            return int(decode(self._disk.read(folders.admission))["waiting"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0
