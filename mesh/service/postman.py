"""The postman of one address: notices what came and brings it to a handler.

File events are hints; a sweep every few seconds is the guarantee. A message is claimed before it is handled and stays
in the inbox until it is acked; what its handler says decides whether that is now. What is no mail goes to `rejected/`,
never in the way of the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mesh.errors import MeshError, NotAdmitted, QueueFull, StoreUnavailable
from mesh.limits import Limits
from mesh.models import Message
from mesh.service.folder_events import Watch, folder_events
from mesh.service.sorting import Handled as Handled
from mesh.service.sorting import Handling as Handling
from mesh.service.sorting import Opened, Sorter
from mesh.service.sorting import end_message as end_message
from mesh.service.writer import in_writer, writer
from mesh.store import Store
from mesh.store.mailbox import Claim, Grip

log = logging.getLogger("mesh")

Handle = Callable[[Message], Awaitable[Handling]]


@dataclass
class Counts:
    """What the postman has seen since it began, for people and metrics."""

    handled: int = 0
    rejected: int = 0
    failed: int = 0
    sweeps: int = 0
    hints: int = 0
    by_type: Counter[str] = field(default_factory=Counter)


class Postman:
    """Runs until `stop`. `may_handle` says which messages are handled at present (an agent may be paused);
    `on_kept` is told of each that waits for its ack, and says whether to look at it again with the next sweep. With
    `take_kept` text that another process has taken in, and nobody was shown, is handled as well."""

    def __init__(
        self,
        store: Store,
        address: str,
        handle: Handle,
        limits: Callable[[], Limits],
        *,
        may_handle: Callable[[Message], bool] = lambda message: True,
        on_rejected: Callable[[str, str], Awaitable[None]] | None = None,
        on_kept: Callable[[str, Message, Claim], Awaitable[bool]] | None = None,
        io: Callable[..., Awaitable[Any]] = in_writer,
        take_kept: bool = False,
    ) -> None:
        self.store = store
        self.address = address
        self.counts = Counts()
        self._handle = handle
        self._limits = limits
        self._on_rejected = on_rejected
        self._on_kept = on_kept
        self._io = io
        self._sorter = Sorter(store, address, limits, may_handle, take_kept=take_kept)
        self._wakeup = asyncio.Event()
        self._stopping = False
        #: Called with each sweep.
        self.on_sweep: Callable[[], Awaitable[None]] | None = None

    @property
    def dead(self) -> int:
        """How many messages it gave up."""
        return self._sorter.dead

    async def run(self) -> None:
        """Deliver until stopped."""
        watch: Watch = folder_events().watch(self.store.layout.mail(self.address).inbox, self._hinted)
        try:
            next_sweep_s = self.store.time.monotonic()
            while not self._stopping:
                if self.store.time.monotonic() >= next_sweep_s:
                    next_sweep_s = self.store.time.monotonic() + self._limits().mail_sweep_s
                    await self._sweep()
                await self._pass()
                await self._rest(next_sweep_s)
        finally:
            watch.cancel()

    def stop(self) -> None:
        """Handle nothing more; what is being handled is finished."""
        self._stopping = True
        self._wakeup.set()

    def ring(self) -> None:
        """A doorbell: something came."""
        self._sorter.dirty = True
        self._wakeup.set()

    def notice(self) -> None:
        """There may be something to do; what was set aside is looked at as well."""
        self._sorter.set_aside.clear()
        self.ring()

    def _hinted(self, name: str | None) -> None:
        self.counts.hints += 1
        if name is None:
            self._sorter.set_aside.clear()
        else:
            self._sorter.set_aside.discard(name)
        self.ring()

    async def _rest(self, until_s: float) -> None:
        left_s = until_s - self.store.time.monotonic()
        if self._stopping or left_s <= 0:
            return
        try:
            async with asyncio.timeout(left_s):
                await self._wakeup.wait()
        except TimeoutError:
            return

    async def _sweep(self) -> None:
        """The guarantee: whatever no hint told is seen now."""
        self.counts.sweeps += 1
        try:
            await self._io(self._sorter.sweep)
            if self.on_sweep is not None:
                await self.on_sweep()
        except MeshError as error:
            log.warning("%s: sweep: %s", self.address, error.detail)
        self._sorter.dirty = True

    async def _pass(self) -> None:
        """Bring what waits to the handler, urgent first, until nothing is left or we are stopped."""
        self._wakeup.clear()
        done: Opened | None = None
        handling: Handling | None = None
        try:
            while not self._stopping:
                step = await self._io(self._sorter.step, done, handling)
                if step.kept is not None and done is not None:
                    await self._tell_kept(done, step.kept)
                done, handling = step.opened, None
                if done is None:
                    return
                handling = await self._deal_with(done)
            if done is not None and done.message is not None and handling is not None:
                await self._io(self._sorter.finish, done.name, done.message, handling)
        except MeshError as error:
            log.warning("%s: mail: %s", self.address, error.detail)
        except asyncio.CancelledError:
            writer().submit(self._sorter.give_back)  # after whatever the thread is at
            raise

    async def _deal_with(self, opened: Opened) -> Handling | None:
        """What the handler made of it; None where there is nothing to finish."""
        if opened.rejected is not None:
            self.counts.rejected += 1
            if self._on_rejected is not None:
                await self._on_rejected(opened.name, opened.rejected)
        elif opened.grip is Grip.KEPT and opened.claim is not None:
            await self._tell_kept(opened, opened.claim)
        elif opened.message is not None:
            return await self._bring(opened.name, opened.message)
        return None

    async def _bring(self, name: str, message: Message) -> Handling | None:
        try:
            handling = await self._handle(message)
        except (StoreUnavailable, NotAdmitted, QueueFull) as error:
            log.warning("%s: %s %s: %s", self.address, message.type, message.id, error)
            return Handling(Handled.LATER)
        except Exception as error:
            log.error("%s: handling %s %s failed", self.address, message.type, message.id, exc_info=error)
            self.counts.failed += 1
            await self._io(self._sorter.failed, name, message, error)
            return None
        if handling.how is not Handled.LATER:
            self.counts.handled += 1
            self.counts.by_type[message.type] += 1
        return handling

    async def _tell_kept(self, opened: Opened, claim: Claim) -> None:
        if self._on_kept is not None and opened.message is not None:
            look_again = await self._on_kept(opened.name, opened.message, claim)
            if not look_again:
                self._sorter.park(opened.name)
