"""Text that was delivered and waits to be shown: who shows it now, the runner or a hook, and what of it is doubtful.

What was handed out and isn't known to have been shown is `uncertain`. It isn't handed out the same way again: the
runner may show what a hook may have shown, and a hook what the runner may have. That is recorded before the text
leaves, so it holds after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable

from mesh import clock
from mesh.models import DeliveryState, Message
from mesh.policy.mail import attempts_left
from mesh.service.core import Core
from mesh.service.effects import Effects
from mesh.service.postman import end_message
from mesh.store.handed import Handed
from mesh.store.mailbox import Grip

HOOK, RUNNER = "hook", "runner"


class Shelf:
    def __init__(self, core: Core, effects: Effects) -> None:
        self._core = core
        self._effects = effects
        #: Delivered text that nobody was shown yet, by file name.
        self.waiting: dict[str, Message] = {}
        #: What of it a reader failed over, or died.
        self.suspect: set[str] = set()
        #: What of it is being shown right now.
        self.showing: dict[str, Message] = {}
        #: What was handed out and isn't known to have been shown, by id.
        self._handed: dict[str, Handed] = {}

    async def open(self) -> None:
        """Learn what an earlier process handed out."""
        core = self._core
        self._handed = {entry.id: entry for entry in await core.io(core.store.handed.all, core.agent)}

    # -- looking

    def is_showing(self, message: Message) -> bool:
        return any(message.id == shown.id for shown in self.showing.values())

    def free_for(self, who: str) -> list[str]:
        """What this one may show, in the order of serving; the same message under two names once."""
        names = {}
        for name in sorted(self.waiting, key=self.place, reverse=True):
            message = self.waiting[name]
            if not self.is_showing(message) and self.uncertain(message) not in (who, "both"):
                names[message.id] = name
        return sorted(names.values(), key=self.place)

    def uncertain(self, message: Message) -> str | None:
        """By whom it may have been shown already."""
        entry = self._handed.get(message.id)
        return None if entry is None else entry.by

    @property
    def uncertain_ids(self) -> list[str]:
        return sorted(message.id for message in self.waiting.values() if message.id in self._handed)

    def place(self, name: str) -> tuple[tuple[int, str, str], str]:
        """Where it comes in the order of serving. The same message under two names has two places."""
        return self.waiting[name].order(), name

    # -- changing

    def put(self, name: str, message: Message, *, suspect: bool) -> None:
        self.waiting[name] = message
        if suspect:
            self.suspect.add(name)

    def put_by(self, name: str) -> Message | None:
        """Show it no more."""
        self.suspect.discard(name)
        return self.waiting.pop(name, None)

    async def claim(self, name: str) -> bool:
        """Take it in hand, to show it. False if it is gone, was shown, or has been tried too often."""
        core, mail = self._core, self._core.store.mail
        claimed = await core.io(mail.receiving.claim, core.agent, name, kept_too=True)
        claim = claimed.claim if claimed.grip is Grip.OURS else None
        if claim is not None and claim.shown_at is None and attempts_left(claim.attempt, core.limits):
            return True
        message = self.put_by(name)
        if claim is not None and claim.shown_at is not None:
            await core.io(mail.receiving.keep, core.agent, name)  # it came here twice
        elif claim is not None and message is not None:
            reason = "the process that was to show it died each time"
            await core.io(end_message, core.store, name, message, DeliveryState.DEAD, reason)
        return False

    async def hand_out(self, names: Iterable[str], by: str, session: str | None = None) -> None:
        """Record that these leave now."""
        now = clock.iso(self._core.time.wall())
        for name in names:
            message = self.waiting[name]
            before = self.uncertain(message)
            who = "both" if before not in (None, by) else by
            fields = {"id": message.id, "name": name, "at": now, "by": who, "session": session}
            self._handed[message.id] = Handed.model_validate(fields)
        await self._record()

    async def take_back(self, names: Iterable[str], by: str) -> None:
        """They did not leave: no attempt counts."""
        core = self._core
        for name in names:
            message = self.waiting.get(name)
            entry = self._handed.get(message.id) if message is not None else None
            if message is not None and entry is not None:
                if entry.by == "both":
                    self._handed[message.id] = entry.model_copy(update={"by": RUNNER if by == HOOK else HOOK})
                elif entry.by == by:
                    del self._handed[message.id]
            await core.io(core.store.mail.receiving.keep, core.agent, name)
        await self._record()

    async def was_shown(self, name: str, message: Message) -> None:
        """It was really seen: recorded, and acked where nothing else is asked for."""
        core, mail = self._core, self._core.store.mail
        self.put_by(name)
        await core.io(mail.receiving.keep, core.agent, name, shown=True)
        if self._handed.pop(message.id, None) is not None:
            await self._record()
        await core.io(mail.note_delivered, message, shown=True)
        if not message.requires_ack or self._effects.has_effect(message):
            await core.io(mail.ack_file, core.agent, name, message)

    async def leave_uncertain(self, names: Iterable[str], reason: str) -> None:
        """They left, and nobody says whether they were seen."""
        core = self._core
        for name in names:
            message = self.waiting.get(name)
            if message is not None:
                await core.io(core.store.mail.receiving.keep, core.agent, name, uncertain=True)
                core.event("mail_uncertain", reason, messageId=message.id)

    async def forget_gone(self) -> None:
        """What no longer waits needs no note."""
        core = self._core
        inbox = core.store.layout.mail(core.agent).inbox
        gone = [entry.id for entry in self._handed.values() if not core.store.files.exists(f"{inbox}/{entry.name}")]
        for id_ in gone:
            del self._handed[id_]
        if gone:
            await self._record()

    async def _record(self) -> None:
        core = self._core
        await core.io(core.store.handed.write, core.agent, list(self._handed.values()))
