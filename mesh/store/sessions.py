"""`agents/<id>/session.json`: the CLI session that an agent's work goes on in, or that a person runs and has joined.

Bound by whoever runs the session; what its hooks tell is noted beside, without a flush: the next hook tells it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mesh.errors import Conflict
from mesh.models.running import Session
from mesh.store.codec import encode
from mesh.store.disk import Signature
from mesh.store.documents import Documents, Kind
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.locks import Locks

SESSION = Kind("session", {"cli": str, "id": str}, Session)
#: Held while a session is bound, so that two agents can't be given the same one.
_LOCK = "system/sessions"


class Sessions:
    def __init__(self, files: Files, documents: Documents, locks: Locks, layout: Layout) -> None:
        self._files = files
        self._documents = documents
        self._locks = locks
        self._layout = layout
        self._known: dict[str, tuple[Signature, Session]] = {}

    def find(self, agent: str) -> Session | None:
        """The agent's session as it stands now. Looks at the file's stamp only, where it hasn't changed."""
        path = self._layout.session(agent)
        signature = self._files.signature(path)
        known = self._known.get(agent)
        if signature is None:
            return None
        if known is not None and known[0] == signature:
            return known[1].model_copy()
        document = self._documents.read(path, SESSION)
        if document is None:
            return None
        session = Session.model_validate(document)
        self._known[agent] = (signature, session)
        return session.model_copy()

    def bind(self, agent: str, session: Session) -> None:
        """Make this the agent's session. A later note of its hooks survives if it is the same one."""

        def edit(document: dict[str, Any]) -> dict[str, Any]:
            fresh = session.dump()
            if (document.get("cli"), document.get("id")) == (session.cli, session.id):
                fresh |= {
                    key: document.get(key) for key in ("seenAt", "seenFor", "busy") if fresh[key] in (None, False)
                }
            return fresh

        self._documents.update(self._layout.session(agent), SESSION, edit)

    def join(self, agent: str, session: Session, agents: Iterable[str]) -> None:
        """Bind a person's session, which may be no other agent's. Raises Conflict."""
        with self._locks.hold(_LOCK):
            for other in agents:
                found = None if other == agent else self.find(other)
                if found is not None and (found.cli, found.id) == (session.cli, session.id):
                    raise Conflict(
                        f"Session {session.id} is {other}'s already; `mesh leave {other}` sets it free.",
                        agentId=other,
                        session=session.id,
                    )
            mine = self.find(agent)
            if mine is not None and mine.joined and (mine.cli, mine.id) != (session.cli, session.id):
                raise Conflict(
                    f"{agent} is bound to {mine.cli} session {mine.id} already; `mesh leave {agent}` ends that.",
                    agentId=agent,
                    session=mine.id,
                )
            self.bind(agent, session.model_copy(update={"joined": True}))

    def leave(self, agent: str) -> Session | None:
        """Set a joined session free; returns it. None if there was none: the agent's own goes on."""
        with self._locks.hold(_LOCK):
            found = self.find(agent)
            if found is None or not found.joined:
                return None
            self._files.remove(self._layout.session(agent))
            return found

    def note(self, agent: str, session: Session) -> bool:
        """Note what a hook told of the session; False if another is bound by now."""
        path = self._layout.session(agent)
        with self._locks.hold(self._documents.lock_name(path)):
            document = self._documents.read_held(path, SESSION)
            if document is None or (document["cli"], document["id"]) != (session.cli, session.id):
                return False
            told = session.dump()
            told = {key: told[key] for key in ("seenAt", "seenFor", "busy", "transcript", "cwd")}
            self._files.replace_quickly(path, encode({**document, **told}), flushed=False)
            return True

    def follow(self, agent: str, old: str, new: Session) -> bool:
        """A joined session goes on under another id (its context was cleared); False if it isn't bound any more."""
        with self._locks.hold(_LOCK):
            found = self.find(agent)
            if found is None or not found.joined or found.id != old:
                return False
            self.bind(agent, new)
            return True
