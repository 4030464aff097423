"""Mail that goes to a CLI session by its hooks.

The text is claimed and noted before it leaves, and counts as shown once the hook says that it wrote it out. A hook that
doesn't say so within seconds may have been killed on the way: then it is uncertain, and goes no second time this way.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from mesh.errors import MeshError
from mesh.limits import Limits
from mesh.models import Message
from mesh.policy.envelope import turn
from mesh.service.core import Core, log
from mesh.service.mail_shelf import HOOK, Shelf

#: A hook that wrote its output says so at once, on the connection that it has.
_CONFIRM_S = 5.0
#: Late words that are waited for.
_DOUBTFUL_MAX = 100
#: The smallest text that a turn can be cut to.
_ROOM_BYTES_MIN = 500


@dataclass(frozen=True)
class Batch:
    """Messages on their way to a session."""

    token: str
    text: str
    #: By file name.
    messages: dict[str, Message]


class HookMail:
    def __init__(self, core: Core, shelf: Shelf, on_uncertain: Callable[[], None]) -> None:
        self._core = core
        self._shelf = shelf
        self._on_uncertain = on_uncertain
        self._under_way: dict[str, Batch] = {}
        #: Given up waiting for; a late word still counts.
        self._doubtful: dict[str, Batch] = {}
        self._timers: set[asyncio.Task[None]] = set()

    async def take(
        self, takes: Callable[[Message], bool], room_bytes: int, session: str, deadline_s: float
    ) -> Batch | None:
        """Hand out what waits and is wanted, as much as fits; None for nothing, or if that took until after the
        deadline (on the monotonic clock), when nobody listens any more."""
        shelf, core = self._shelf, self._core
        names = [name for name in shelf.free_for(HOOK) if takes(shelf.waiting[name])]
        limits = self._limits(room_bytes)
        if not names or limits is None:
            return None
        made = turn([shelf.waiting[name] for name in names], secrets.token_hex(8), limits)
        chosen = {name: shelf.waiting[name] for name in names[: len(made.shown)]}
        shelf.showing.update(chosen)  # nobody else takes them from here on
        ours: dict[str, Message] = {}
        try:
            for name, message in chosen.items():
                if await shelf.claim(name):
                    ours[name] = message
            if not ours:
                return None
            if len(ours) < len(chosen):
                made = turn(list(ours.values()), secrets.token_hex(8), limits)
            await shelf.hand_out(ours, HOOK, session)
            if core.time.monotonic() > deadline_s:
                await shelf.take_back(ours, HOOK)
                ours = {}
                return None
        except BaseException:
            if ours:
                await asyncio.shield(shelf.take_back(ours, HOOK))
                ours = {}
            raise
        finally:
            for name in chosen:
                if name not in ours:
                    shelf.showing.pop(name, None)
        batch = Batch(secrets.token_hex(8), made.text, ours)
        self._under_way[batch.token] = batch
        timer = asyncio.create_task(self._expect_word(batch), name="hook")
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)
        return batch

    async def was_written(self, token: str) -> bool:
        """The hook wrote it out. Again is harmless; False for a token that nobody was given."""
        batch = self._under_way.pop(token, None)
        late = self._doubtful.pop(token, None)
        if batch is None and late is None:
            return False
        for name, message in (batch or late or Batch("", "", {})).messages.items():
            if late is not None and (name not in self._shelf.waiting or self._shelf.is_showing(message)):
                continue  # somebody else shows it meanwhile, or has
            try:
                await self._shelf.was_shown(name, message)
            except MeshError as error:  # the others were shown all the same
                log.warning("%s: what became of %s: %s", self._core.agent, message.id, error.detail)
            finally:
                self._shelf.showing.pop(name, None)
        return True

    def close(self) -> None:
        """What is under way stays noted: whoever comes next finds it uncertain."""
        for timer in list(self._timers):
            timer.cancel()

    async def _expect_word(self, batch: Batch) -> None:
        await asyncio.sleep(_CONFIRM_S)
        if self._under_way.pop(batch.token, None) is None:
            return
        self._doubtful[batch.token] = batch
        if len(self._doubtful) > _DOUBTFUL_MAX:
            del self._doubtful[next(iter(self._doubtful))]
        try:
            await self._shelf.leave_uncertain(batch.messages, "the hook did not say that it was written out")
        except MeshError as error:
            log.warning("%s: %s", self._core.agent, error.detail)
        for name in batch.messages:
            self._shelf.showing.pop(name, None)
        self._on_uncertain()

    def _limits(self, room_bytes: int) -> Limits | None:
        """The limits of a turn that fits; None if nothing does."""
        limits = self._core.limits
        if room_bytes < _ROOM_BYTES_MIN:
            return None
        return limits.model_copy(update={"turn_bytes_max": min(room_bytes, limits.turn_bytes_max)})
