"""Answers the hooks of CLI sessions: who calls, what they are told, and what their call tells of the session.

A hook stands on the path of every tool call, so with nothing to say the answer comes from memory. What is learned of
the session is noted after the answer.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from mesh import clock
from mesh.errors import Invalid, MeshError
from mesh.models.running import Session
from mesh.policy import hooks
from mesh.policy.hooks import Call, Mail, Moment, Plan, Standing, Welcome
from mesh.runners.transcripts import Transcript, open_transcript
from mesh.service.agent_mail import AgentMail
from mesh.service.core import Core, log
from mesh.service.hook_mail import Batch

#: The share of a hook's patience in which an answer must be found; the rest is for the way.
_PATIENCE_SHARE = 0.75
#: A session that tells nothing new is noted so often.
_NOTE_EVERY_S = 5.0
#: How full the context is, is looked up so often during a turn, and at the end of each.
_OCCUPANCY_EVERY_S = 15.0
#: Who clears the context of a session goes on in a new one, which starts at once.
_FOLLOWS_WITHIN_S = 30.0
#: Sessions that are remembered, for people and against endless loops.
_REMEMBERED_MAX = 50


@dataclass(frozen=True)
class Said:
    """What goes back: the CLI's exact input, and the token by which its hook confirms mail."""

    output: bytes = b""
    token: str | None = None


class HookDesk:
    """The hooks of one agent's sessions."""

    def __init__(self, core: Core, mail: AgentMail) -> None:
        self._core = core
        self._mail = mail
        self._continues: dict[str, int] = {}
        #: Sessions that nobody bound: (cli, id) → what is known.
        self._strangers: dict[tuple[str, str], dict[str, str]] = {}
        #: The session as its hooks told last, and when that was written down.
        self._seen: Session | None = None
        self._noted_s = self._looked_s = -1e9
        self._transcript: Transcript | None = None
        self._cleared: tuple[str, str, float] | None = None
        self._learning: set[asyncio.Task[None]] = set()

    async def call(self, cli: str, body: bytes, *, cut: bool, run: str, wait_s: float) -> Said:
        """Answer a hook that waits for so long. `body` is what the CLI said, perhaps `cut`; `run` names the run that
        the mesh started it in. Raises Invalid."""
        core = self._core
        deadline_s = core.time.monotonic() + _PATIENCE_SHARE * wait_s
        call = hooks.read_call(cli, leading_members(body) if cut else _parsed(body))
        session = await self._own_session(call, run)
        counted = hooks.continues_before(call, self._continues.get(call.session, 0))
        plan = hooks.plan(call, Standing(session is not None, run=bool(run), continues=counted))
        if session is None:
            self._note_stranger(call)
            return Said()
        self._mail.heard_s = core.time.monotonic()
        core.active_now()
        batch, text = None, ""
        try:
            greeting = await self._greeting() if plan.welcome else ""
            batch = await self._take(call, plan, greeting, deadline_s)
            text = _composed(core.agent, call, greeting, batch)
        except MeshError as error:
            log.warning("%s: a hook's mail: %s", core.agent, error.detail)
        goes_on = call.moment is Moment.STOP and batch is not None
        self._remember(self._continues, call.session, counted + goes_on)
        self._learn(call, session, True if goes_on else plan.busy)
        return Said(hooks.answer(call, text), batch.token if batch else None)

    async def was_written(self, token: str) -> bool:
        """The hook wrote its output: the mail in it was shown. False for a token that nobody was given."""
        return await self._mail.by_hook.was_written(token)

    def view(self) -> dict[str, Any]:
        """The session and what its hooks told, for `/status`."""
        bound = self._bound()
        seen = self._seen
        if bound is not None and seen is not None and (seen.cli, seen.id) == (bound.cli, bound.id):
            bound = seen.model_copy(update={"joined": bound.joined})
        return {
            "session": bound.dump() if bound else None,
            "unknownSessions": [
                {"cli": cli, "id": id_, **known} for (cli, id_), known in reversed(self._strangers.items())
            ],
        }

    # -- whose session

    async def _own_session(self, call: Call, run: str) -> Session | None:
        """The session that calls, if it is the agent's own."""
        core, bound = self._core, self._bound()
        if bound is not None and (bound.cli, bound.id) == (call.cli, call.session):
            return bound
        if bound is not None and self._goes_on_in(call, bound):
            fresh = bound.model_copy(update={"id": call.session, "transcript": call.transcript})
            if await core.io(core.store.sessions.follow, core.agent, bound.id, fresh):
                core.event("session_followed", f"{call.cli} {bound.id} was cleared", session=call.session)
                return fresh
        if run and await self._is_of_run(call, run):
            return Session(cli=call.cli, id=call.session, cwd=call.cwd, transcript=call.transcript)
        return None

    def _bound(self) -> Session | None:
        try:
            return self._core.store.sessions.find(self._core.agent)
        except MeshError as error:
            log.warning("%s: %s", self._core.agent, error.detail)
            return None

    def _goes_on_in(self, call: Call, bound: Session) -> bool:
        """Whether a person's session was cleared just now and this is what it goes on as."""
        cleared, now_s = self._cleared, self._core.time.monotonic()
        if cleared is None or call.moment is not Moment.START or call.source != "clear" or not bound.joined:
            return False
        return cleared[:2] == (bound.id, call.cwd) and bound.cli == call.cli and now_s - cleared[2] < _FOLLOWS_WITHIN_S

    async def _is_of_run(self, call: Call, run: str) -> bool:
        """Whether the mesh started this very session: what runs within it has the run's mark as well."""
        core = self._core
        record = await core.io(core.store.runs.find, core.agent, run)
        return record is not None and record.cli == call.cli and record.session in (None, call.session)

    def _note_stranger(self, call: Call) -> None:
        key = (call.cli, call.session)
        if key not in self._strangers:
            self._core.event("session_unknown", f"{call.cli} in {call.cwd}", session=call.session)
        known = {"cwd": call.cwd, "seenAt": clock.iso(self._core.time.wall()), "seenFor": call.event}
        self._strangers.pop(key, None)
        self._remember(self._strangers, key, known)

    def _remember(self, where: dict[Any, Any], key: Any, value: Any) -> None:
        where[key] = value
        if len(where) > _REMEMBERED_MAX:
            del where[next(iter(where))]

    # -- what is said

    async def _greeting(self) -> str:
        core = self._core
        entry = core.registry.entry(core.agent)
        others = {agent: other.responsibilities for agent, other in core.registry.agents.items() if agent != core.agent}
        path = core.store.layout.summary(core.agent)
        summary = await core.io(core.store.files.read, path)
        waiting = await core.io(core.store.tasks.open)
        handed = [task for task in waiting if (task.owner, task.type, task.status) == (core.agent, "handoff", "queued")]
        return hooks.welcome_text(
            Welcome(
                agent=core.agent,
                name=entry.name,
                responsibilities=entry.responsibilities,
                others=others,
                summary=(summary or b"").decode(errors="replace"),
                summary_file=path,
                handoffs=[(task.title, task.from_) for task in handed[:10]],
            )
        )

    async def _take(self, call: Call, plan: Plan, greeting: str, deadline_s: float) -> Batch | None:
        core = self._core
        if plan.mail is Mail.NONE or core.paused is not None or core.fatal:
            return None
        room = hooks.text_room(_composed(core.agent, call, greeting, Batch("", "", {})))
        return await self._mail.by_hook.take(plan.mail.takes, room, call.session, deadline_s)

    # -- what is learned

    def _learn(self, call: Call, session: Session, busy: bool | None) -> None:
        core = self._core
        before = self._seen if self._seen is not None and self._seen.id == session.id else session
        told = {
            "seen_at": clock.iso(core.time.wall()),
            "seen_for": call.event,
            "busy": before.busy if busy is None else busy,
            "transcript": call.transcript or before.transcript,
            "cwd": before.cwd or call.cwd,
        }
        seen = self._seen = before.model_copy(update=told)
        now_s = core.time.monotonic()
        if call.moment is Moment.END and call.source == "clear":
            self._cleared = (call.session, call.cwd, now_s)
        news = seen.busy != before.busy or call.moment in (Moment.START, Moment.END)
        note = news or now_s - self._noted_s >= _NOTE_EVERY_S
        look = call.moment is Moment.STOP or (seen.busy and now_s - self._looked_s >= _OCCUPANCY_EVERY_S)
        self._noted_s = now_s if note else self._noted_s
        self._looked_s = now_s if look else self._looked_s
        if note or look:
            task = asyncio.create_task(self._write_down(seen, note=note, look=look), name="session")
            self._learning.add(task)
            task.add_done_callback(self._learning.discard)

    async def _write_down(self, seen: Session, *, note: bool, look: bool) -> None:
        core = self._core
        try:
            if note:
                await core.io(core.store.sessions.note, core.agent, seen)
            transcript = self._transcript_of(seen) if look else None
            occupancy = (await asyncio.to_thread(transcript.read)).occupancy if transcript else None
            if occupancy is not None:
                core.note_occupancy(occupancy)
                await core.save()
        except MeshError as error:
            log.warning("%s: the session of its hooks: %s", core.agent, error.detail)

    def _transcript_of(self, seen: Session) -> Transcript | None:
        """The session's transcript, where its hooks told it. Kept: it remembers how far it was read."""
        if not seen.transcript:
            return None
        if self._transcript is None or self._transcript.path != seen.transcript:
            windows = self._core.registry.windows
            self._transcript = open_transcript(seen.cli, seen.transcript, seen.id, windows)
        return self._transcript


def _composed(agent: str, call: Call, greeting: str, batch: Batch | None) -> str:
    """All that is said: the greeting, and mail with a line before it and one on how to answer."""
    parts = [greeting] if greeting else []
    if batch is not None:
        parts += [hooks.lead(call.moment), batch.text]
        parts += [] if greeting else [hooks.answering(agent)]
    return "\n\n".join(parts)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Invalid("A hook's body is the JSON that its CLI wrote.", errors=[]) from None


def leading_members(body: bytes) -> dict[str, Any]:
    """The members of a JSON object that stand whole before the place where it was cut off."""
    text, decoder = body.decode(errors="ignore"), json.JSONDecoder()
    found: dict[str, Any] = {}
    place = text.find("{") + 1
    try:
        while place:
            key, place = decoder.raw_decode(text, _to(text, place))
            place = text.index(":", place) + 1
            found[str(key)], place = decoder.raw_decode(text, _to(text, place))
            place = text.index(",", place) + 1
    except (ValueError, RecursionError):
        pass
    return found


def _to(text: str, place: int) -> int:
    """The next place that is no space."""
    while text[place : place + 1].isspace():
        place += 1
    return place
