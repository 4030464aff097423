"""An agent's mail: its postman, what is shown to its runner or by hooks to its session, and what it sent itself.

The mesh acks what asks for no ack once its effect has been carried out or its text was shown. Text waits for the end of
the task in hand: a busy agent's mail is deferred, not dropped. A session that a person runs is told by its hooks; its
runner says so too only if it can reach that very session, and only while nothing else is going on there.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from mesh.errors import DeliveryUncertain, MeshError
from mesh.models import DeliveryState, Message
from mesh.models.running import Session
from mesh.policy.envelope import turn
from mesh.policy.mail import attempts_left
from mesh.policy.plain_text import plain
from mesh.service.agent_runner import AgentRunner
from mesh.service.core import Core, log
from mesh.service.effects import Effects
from mesh.service.folder_events import folder_events
from mesh.service.hook_mail import HookMail
from mesh.service.mail_shelf import RUNNER, Shelf
from mesh.service.outgoing import Outgoing
from mesh.service.postman import Handled, Handling, Postman, end_message
from mesh.service.sent import SentMail
from mesh.service.writer import writer
from mesh.store.mailbox import Claim

#: How often it is looked whether the reading of mail must be stopped.
_LOOK_S = 0.25
#: What is handled while the agent is paused: orders to it, and what needs no work.
_DESPITE_PAUSE = frozenset({"shutdown", "ack", "status_request"})
#: After so many sweeps without trouble the watcher of new mail is said to be well again.
_FINE_SWEEPS = 12
#: A session that has said nothing for so long isn't taken to be busy: its CLI may have been killed in a turn.
_BUSY_MAX_S = 900.0
_MAYBE_SEEN = "Some of this may have reached you before; what you have dealt with needs nothing more.\n\n"


class AgentMail:
    def __init__(self, core: Core, runner: AgentRunner) -> None:
        self._core = core
        self._runner = runner
        self.effects = Effects(core, runner.can_run)
        self.outgoing = Outgoing(core.store.mail)
        self.sent = SentMail(core)
        self.postman = Postman(
            core.store,
            core.agent,
            self._handle,
            lambda: core.limits,
            may_handle=self._may_handle,
            on_rejected=self._rejected,
            on_kept=self._kept,
            io=core.io,
        )
        self.postman.on_sweep = self._sweep
        self.shelf = Shelf(core, self.effects)
        self.by_hook = HookMail(core, self.shelf, self.show_now)
        #: When a hook of its session last called, on the monotonic clock.
        self.heard_s = core.time.monotonic()
        self._show_now = asyncio.Event()
        self._stopping = False
        self._watch_problem: str | None = None
        self._fine_sweeps = 0

    async def run(self) -> None:
        """Deliver, show and look after what was sent, until stopped."""
        await self.shelf.open()
        await asyncio.gather(self.postman.run(), self._show_forever(), self.sent.retry_forever())

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self.postman.stop()
        self.sent.stop()
        self.by_hook.close()
        self._show_now.set()

    def show_now(self) -> None:
        """There may be something for the runner to show."""
        self._show_now.set()

    def turn_ended(self) -> None:
        """The agent's task has ended: what waited for that is shown, and what it answers is acked."""
        self._show_now.set()
        self.postman.notice()

    def overview(self) -> dict[str, Any]:
        """How the mail stands, for `/status`."""
        core = self._core
        return {
            "waiting": core.store.mail.counting.waiting(core.store.layout.mail(core.agent)),
            "deferred": len(self.shelf.waiting),
            "uncertain": self.shelf.uncertain_ids,
            "queued": self.sent.queued,
            "handled": self.postman.counts.handled,
            "rejected": self.postman.counts.rejected,
            "dead": self.postman.dead,
            "watcher": folder_events().problem or "ok",
            "readsMail": self._runner.reads_mail or self.joined() is not None,
        }

    def joined(self) -> Session | None:
        """The session of a person that speaks for the agent, if there is one."""
        try:
            found = self._core.store.sessions.find(self._core.agent)
        except MeshError as error:
            log.warning("%s: %s", self._core.agent, error.detail)
            return None
        return found if found is not None and found.joined else None

    # -- the postman's questions

    def _may_handle(self, message: Message) -> bool:
        core = self._core
        if core.agent not in core.registry.agents or core.fatal:
            return False
        if self.shelf.is_showing(message):
            return False  # claimed already, by the turn that shows it
        return (core.paused is None and not core.disk_low) or message.type in _DESPITE_PAUSE

    async def _handle(self, message: Message) -> Handling:
        handling = await self.effects(message)
        self._core.active_now()
        if handling.how is Handled.DONE and not handling.refused and self._is_read(message):
            return Handling(Handled.KEPT)
        return handling

    def _is_read(self, message: Message) -> bool:
        """Whether somebody is to be shown its text. Orders, acks and questions for the state are the mesh's own."""
        return message.type not in _DESPITE_PAUSE and (self._runner.reads_mail or self.joined() is not None)

    async def _kept(self, name: str, message: Message, claim: Claim) -> bool:
        """What waits: text to be shown, or a task whose end is the ack. Whether to look again with the next sweep."""
        if claim.task_id is not None:
            if await self._core.io(self._has_ended, claim.task_id):
                await self._core.io(self._core.store.mail.ack_file, self._core.agent, name, message, "the task ended")
        elif claim.shown_at is None and self._is_read(message):
            self.shelf.put(name, message, suspect=claim.attempt > 1)
            self._show_now.set()
        else:
            return False  # somebody will ack it
        return True

    def _has_ended(self, task_id: str) -> bool:
        try:
            return self._core.store.tasks.find(task_id).finished_at is not None
        except MeshError:
            return True  # it ended long ago and was deleted

    async def _rejected(self, name: str, reason: str) -> None:
        core = self._core
        await core.io(
            core.store.alerts.raise_alert,
            "mail_rejected",
            core.agent,
            f"{core.agent} got a file that is no mail",
            f"the last one, {_readable(name)}: {reason}",
            next_=f"mesh mail dead {core.agent} lists them; nothing waits for you to look",
        )

    async def _sweep(self) -> None:
        core = self._core
        restarted = folder_events().check()
        problem = folder_events().problem
        if restarted:
            problem = "file events were lost, and are there again: mail was found by sweeps meanwhile"
        if problem is not None and problem != self._watch_problem:
            await self._alert_watcher(problem)
        self._fine_sweeps = 0 if problem is not None else self._fine_sweeps + 1
        if self._watch_problem is not None and self._fine_sweeps >= _FINE_SWEEPS:
            await core.io(core.store.alerts.resolve, "mail_watcher", core.agent)
            self._watch_problem = None
        self._watch_problem = problem or self._watch_problem
        await self.sent.look()
        await self.shelf.forget_gone()

    async def _alert_watcher(self, detail: str) -> None:
        core = self._core
        core.event("mail_watcher", detail)
        title = f"{core.agent}'s watcher of new mail failed"
        await core.io(core.store.alerts.raise_alert, "mail_watcher", core.agent, title, detail, severity="low")

    # -- showing

    async def _show_forever(self) -> None:
        while not self._stopping:
            await self._show_now.wait()
            self._show_now.clear()
            while self._for_runner() and self._may_show():
                async with self._core.turn:
                    try:
                        if not await self._show_once():
                            break  # tried again with the next sweep: what ails the reader may pass
                    except MeshError as error:
                        log.warning("%s: mail not shown: %s", self._core.agent, error.detail)
                        break

    def _for_runner(self) -> list[str]:
        """What the runner is to show now, in the order of serving."""
        session = self.joined() if self._runner.reads_mail else None
        if not self._runner.reads_mail or (session is not None and not self._reaches(session)):
            return []
        return self.shelf.free_for(RUNNER)

    def _reaches(self, session: Session) -> bool:
        """Whether the runner can speak to a person's own session, and nothing else is going on there: then its hooks
        are the better way."""
        if not getattr(self._runner, "reaches_joined", False):
            return False
        return not session.busy or self._core.time.monotonic() - self.heard_s >= _BUSY_MAX_S

    def _may_show(self) -> bool:
        return not self._stopping and self._core.paused is None and not self._core.fatal

    async def _show_once(self) -> bool:
        """One turn: as many messages as fit. Claimed meanwhile, so that crashes over their text are counted. False if
        the reader failed."""
        core, shelf = self._core, self.shelf
        ordered = self._for_runner()
        if not ordered:
            return True
        # Text over which a reader failed is shown by itself: it must not take others with it to dead/.
        together = next((place for place, name in enumerate(ordered) if name in shelf.suspect), len(ordered)) or 1
        limits = core.limits.model_copy(update={"turn_messages_max": min(together, core.limits.turn_messages_max)})
        messages = [shelf.waiting[name] for name in ordered]
        made = turn(messages, secrets.token_hex(8), limits)
        showing = dict(zip(ordered[: len(made.shown)], messages, strict=False))
        shelf.showing.update(showing)
        try:
            claimed = [name for name in showing if self._may_show() and await shelf.claim(name)]
            if len(claimed) < len(showing):
                return True  # some are gone: the turn is made again without them
            seen = any(shelf.uncertain(message) for message in showing.values())
            return await self._let_read((_MAYBE_SEEN if seen else "") + made.text, showing)
        except asyncio.CancelledError:
            for name in showing:  # cut short by us: no attempt counts
                writer().submit(core.store.mail.receiving.keep, core.agent, name)
            raise
        finally:
            for name in showing:
                shelf.showing.pop(name, None)

    async def _let_read(self, text: str, showing: dict[str, Message]) -> bool:
        """Hand the text to whoever reads, and record what came of it. False if they failed."""
        core = self._core
        reading = asyncio.ensure_future(self._runner.show(text))
        try:
            cut_short = await self._until_read(reading)
        finally:
            if not reading.done():
                reading.cancel()
        if cut_short is not None:
            await asyncio.wait({reading}, timeout=core.limits.stop_grace_s)
            if not reading.done() and not self._stopping:
                core.fatal = "the reading of mail will not stop"
            if not reading.cancelled() and reading.done() and reading.exception() is None:
                cut_short = None  # it was read all the same
        for name, message in showing.items():
            try:
                if cut_short is None:
                    await self.shelf.was_shown(name, message)
                else:
                    await self._not_shown(name, message, cut_short)
            except MeshError as error:  # the others were shown or not, all the same
                log.warning("%s: what became of %s: %s", core.agent, message.id, error.detail)
        return cut_short is None

    async def _until_read(self, reading: asyncio.Future[None]) -> Exception | None:
        """Wait for the reader. Why it has not read the text, or None if it has."""
        core = self._core
        deadline_s = core.time.monotonic() + core.limits.task_run_max_s
        while not reading.done():
            await asyncio.wait({reading}, timeout=_LOOK_S)
            if not reading.done() and (not self._may_show() or core.time.monotonic() > deadline_s):
                reading.cancel()
                overdue = self._may_show()
                return TimeoutError(f"longer than {core.limits.task_run_max_s:g} s") if overdue else _Interrupted()
        error = asyncio.CancelledError() if reading.cancelled() else reading.exception()
        if error is None:
            return None
        log.error("%s: showing mail failed", core.agent, exc_info=error)
        return error if isinstance(error, Exception) else RuntimeError(repr(error))

    async def _not_shown(self, name: str, message: Message, error: Exception) -> None:
        """The reader failed: the attempt counts as a crash would. One that we stopped ourselves doesn't count."""
        core, mail = self._core, self._core.store.mail
        if isinstance(error, DeliveryUncertain):
            await self.shelf.hand_out([name], RUNNER)
            await self.shelf.leave_uncertain([name], error.detail)
            return
        failed = not isinstance(error, _Interrupted)
        if failed:
            self.shelf.suspect.add(name)
        claim = await core.io(mail.receiving.keep, core.agent, name, failed=failed)
        if claim is None or attempts_left(claim.attempt, core.limits):
            return
        self.shelf.put_by(name)
        reason = f"showing it failed: {type(error).__name__}: {error}"
        await core.io(end_message, core.store, name, message, DeliveryState.DEAD, reason)


def _readable(name: str) -> str:
    """A file's name as text, whatever bytes it is of."""
    return plain(name.encode(errors="surrogateescape").decode(errors="backslashreplace"))


class _Interrupted(Exception):
    """The agent was stopped or paused while it read."""
