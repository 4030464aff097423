"""What a postman does with files: what comes next, whether it is mail, claiming it, and what becomes of it.

Synchronous, for the writer's thread: one step finishes a message and opens the next.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from mesh.clock import iso
from mesh.errors import MeshError
from mesh.limits import Limits
from mesh.models import MESH, DeliveryState, Message
from mesh.models.mail import is_address
from mesh.policy.mail import attempts_left, notice_of_end, was_late
from mesh.service.inspection import Inspected, Verdict, inspect
from mesh.store import Store
from mesh.store.mailbox import Again, Claim, Claimed, Grip

#: Handled between two looks at a large inbox, so that something urgent waits for no more than these.
_AT_ONCE = 20
#: Up to so many waiting files, every hint is worth a look at once.
_SMALL_INBOX = 500
#: Sweeps between two looks at what only waits for an ack.
_LOOK_AT_PARKED = 12


class Handled(Enum):
    """What a handler made of a message."""

    #: Its effect has been carried out: acked, and answered if asked for.
    DONE = "done"
    #: It became a task, or waits for an explicit ack: kept, delivered.
    KEPT = "kept"
    #: It can't be handled now: tried again with the next sweep.
    LATER = "later"


@dataclass(frozen=True)
class Handling:
    """What a handler made of a message, and the task that it became."""

    how: Handled
    task_id: str | None = None
    #: It was refused, and its sender told so: nobody needs to be shown its text.
    refused: bool = False


@dataclass(frozen=True)
class Opened:
    """A file that came to the front: a message that is ours to handle, one that is kept, or one that was rejected."""

    name: str
    message: Message | None = None
    claim: Claim | None = None
    grip: Grip = Grip.GONE
    rejected: str | None = None


@dataclass(frozen=True)
class Step:
    """What one step came to: the claim of the message that was kept by it, and what was opened."""

    kept: Claim | None
    opened: Opened | None


class Sorter:
    """One address' inbox, as its postman works through it."""

    def __init__(
        self,
        store: Store,
        address: str,
        limits: Callable[[], Limits],
        may_handle: Callable[[Message], bool],
        *,
        take_kept: bool = False,
    ) -> None:
        self._store = store
        self._address = address
        self._limits = limits
        self._may_handle = may_handle
        self._take_kept = take_kept
        #: The message that is ours and not finished.
        self._in_hand: str | None = None
        self._ready: deque[str] = deque()
        #: What waits for an ack, a turn or better times, and isn't looked at again before the next sweep.
        self.set_aside: set[str] = set()
        self._parked: set[str] = set()
        self._sweeps = 0
        #: Something came since the last look.
        self.dirty = True
        self.failures: Counter[str] = Counter()
        self.dead = 0

    def step(self, done: Opened | None = None, handling: Handling | None = None) -> Step:
        """Finish a message, and open what comes next; `opened` is None when nothing is left."""
        kept = None
        if done is not None and done.message is not None and handling is not None:
            kept = self.finish(done.name, done.message, handling)
        return Step(kept, self._open_next())

    def finish(self, name: str, message: Message, handling: Handling) -> Claim | None:
        """Carry out what the handler said; the claim of a message that is kept."""
        mail = self._store.mail
        self._in_hand = None
        self.failures.pop(name, None)
        if handling.how is Handled.LATER:
            mail.receiving.release(self._address, name)
        elif handling.how is Handled.DONE:
            mail.ack_file(self._address, name, message)
        else:
            claim = mail.receiving.keep(self._address, name, task_id=handling.task_id)
            if claim is not None:
                mail.note_delivered(message)
            return claim
        return None

    def failed(self, name: str, message: Message, error: Exception) -> None:
        """A handler's bug: tried again as often as a crash would be, then dead."""
        self._in_hand = None
        self.failures[name] += 1
        if attempts_left(self.failures[name] + 1, self._limits()):
            self._store.mail.receiving.release(self._address, name)
        else:
            self._bury(name, message, f"handling it failed: {type(error).__name__}: {error}")

    def give_back(self) -> None:
        """What is in hand will not be finished: whoever comes next handles it, and no attempt counts."""
        name, self._in_hand = self._in_hand, None
        if name is not None:
            self._store.mail.receiving.release(self._address, name)

    def sweep(self) -> None:
        """Look at everything again, and put the count right. What only waits for somebody's ack is looked at again
        every now and then: its claim tells that it was delivered, and there may be thousands."""
        self._sweeps += 1
        if self._sweeps % _LOOK_AT_PARKED == 0:
            self._parked.clear()
        self.set_aside.clear()
        self.set_aside |= self._parked
        self._ready.clear()
        self._store.mail.counting.recount(self._store.layout.mail(self._address))

    def park(self, name: str) -> None:
        """This one waits for somebody's ack, and there is nothing to do about it."""
        self._parked.add(name)

    def _open_next(self) -> Opened | None:
        while True:
            if not self._ready or self.dirty:
                self._look()
            if not self._ready:
                return None
            name = self._ready.popleft()
            self.set_aside.add(name)
            opened = self._open(name)
            if opened is not None:
                return opened

    def _look(self) -> None:
        """See what waits, and take the next few."""
        index = self._store.mail.index(self._address)
        if self.dirty and self._ready and len(index) > _SMALL_INBOX:
            return  # the look is dear here, and comes soon
        self.dirty = False
        index.refresh()
        bad = [name for name in index.unreadable if name not in self.set_aside]
        good = index.first(_AT_ONCE, lambda listed: listed.name not in self.set_aside)
        self._ready = deque([*bad, *(listed.name for listed in good)])

    def _open(self, name: str) -> Opened | None:
        limits = self._limits()
        inspected = self._inspect(name, limits)
        if inspected.verdict is Verdict.REJECT:
            gone = self._store.mail.reject(self._address, name, inspected.reason)
            return Opened(name, rejected=inspected.reason) if gone else None
        message = inspected.message
        if message is None or not self._may_handle(message):
            return None
        claimed = self._claim(name)
        if claimed.claim is None or claimed.grip not in (Grip.OURS, Grip.KEPT):
            return None
        if claimed.grip is Grip.OURS:
            if not attempts_left(claimed.claim.attempt, limits):
                tries = claimed.claim.attempt - 1
                self._bury(name, message, f"{tries} times the process that handled it died meanwhile")
                return None
            if was_late(message, claimed.claim.delivered_at):
                reason = f"it expired at {message.expires_at}, before {self._address} took it"
                end_message(self._store, name, message, DeliveryState.EXPIRED, reason)
                return None
            self._in_hand = name
            if message.reply_to is not None and message.via != MESH:
                # Its sender did so, unless it was killed in between or the reply was put here by hand.
                self._store.mail.close(message)
        if message.delivery is not None:
            # What the mesh sent has a copy with its sender; a power cut may have taken that.
            self._store.mail.tracing.restore_copy(message, name)
        return Opened(name, message, claimed.claim, claimed.grip)

    def _claim(self, name: str) -> Claimed:
        receiving = self._store.mail.receiving
        claimed = receiving.claim(self._address, name)
        kept = claimed.claim if claimed.grip is Grip.KEPT else None
        if self._take_kept and kept is not None and kept.shown_at is None and kept.task_id is None:
            # Text that the agent's service has taken in, and nobody was shown yet.
            return receiving.claim(self._address, name, kept_too=True)
        return claimed

    def _inspect(self, name: str, limits: Limits) -> Inspected:
        try:
            return inspect(self._store, self._address, name, limits)
        except (OSError, MeshError) as error:
            return Inspected(name, Verdict.LATER, f"can't be looked at now: {error}")

    def _bury(self, name: str, message: Message, reason: str) -> None:
        end_message(self._store, name, message, DeliveryState.DEAD, reason)
        self.dead += 1
        self.failures.pop(name, None)


def end_message(store: Store, name: str, message: Message, state: DeliveryState, reason: str) -> None:
    """Take a message that nobody will handle out of the inbox. The notice to its sender goes first: a crash in
    between tells it twice, and telling it again changes nothing."""
    notice = notice_of_end(message, state, reason, iso(store.time.wall()))
    if notice is not None and is_address(notice.to, store.registry.current.agents):
        store.mail.tell(notice, Again.BY_ID)
    store.mail.bury(message.to, name, message, state, reason)
