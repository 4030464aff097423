"""What an agent has sent: refused mail is tried again with back-off, and the copies learn what became of the rest."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mesh.errors import MeshError
from mesh.models import SETTLED
from mesh.service.core import Core, log

#: Copies that one sweep brings up to date, and that it reads for the first time: a sweep must stay short.
_PER_SWEEP = 200


class SentMail:
    """One agent's outbox, looked after by its service."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: set[str] = set()
        #: Copies of what hasn't come to its end, looked at in turn.
        self._unsettled: list[str] = []
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._stopped = asyncio.Event()
        #: How many messages wait for a place in an inbox.
        self.queued = 0

    def stop(self) -> None:
        self._stopping = True
        self._stopped.set()
        self._wakeup.set()

    async def look(self) -> None:
        """Bring copies up to date; see whether something waits. Part of each sweep."""
        core = self._core
        self.queued = await core.io(core.store.mail.sending.queued, core.agent)
        if self.queued:
            self._wakeup.set()
        await core.io(self._bring_up_to_date)

    async def retry_forever(self) -> None:
        """Try what is queued again, at growing intervals while nothing gets through."""
        core = self._core
        pause_s = core.limits.mail_retry_s
        while not self._stopping:
            if not self.queued:
                await self._wakeup.wait()
                self._wakeup.clear()
                pause_s = core.limits.mail_retry_s
            if self._stopping:
                return
            try:
                tried = await core.io(core.store.mail.post_queued, core.agent)
                self.queued = await core.io(core.store.mail.sending.queued, core.agent)
            except MeshError as error:
                log.warning("%s: queued mail: %s", core.agent, error.detail)
                tried = []
            through = any(entry.error is None and not entry.queued for entry in tried)
            pause_s = core.limits.mail_retry_s if through else min(2 * pause_s, core.limits.mail_retry_max_s)
            if self.queued:
                await self._sleep(pause_s)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, unless stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    def _bring_up_to_date(self) -> None:
        """In the writer's thread."""
        store, agent = self._core.store, self._core.agent
        names = set(store.files.names(store.layout.mail(agent).outbox))
        fresh = sorted(name for name in names - self._known if name.endswith(".json"))[:_PER_SWEEP]
        self._known = (self._known & names) | set(fresh)
        self._unsettled += fresh
        now, self._unsettled = self._unsettled[:_PER_SWEEP], self._unsettled[_PER_SWEEP:]
        for name in now:
            delivery = store.mail.tracing.bring_up_to_date(agent, name)
            if delivery is not None and delivery.state not in SETTLED:
                self._unsettled.append(name)
