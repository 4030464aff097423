"""What a person switches: paused (`system/paused`), stopped (`agents/<id>/stopped`), requests to the supervisor.

They are plain files that everything looks at, so they work while every daemon hangs, and survive a reboot.
"""

from __future__ import annotations

from typing import Any

from mesh import clock
from mesh.errors import StoreUnavailable
from mesh.models import HUMAN, SCHEMA_VERSION
from mesh.store.codec import decode, encode
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.locks import Locks, read_label

ALL = "*"
#: The lock that the one supervisor of a root holds.
SUPERVISOR = "supervisor"
#: What a pause says that was written by hand without a note.
_NO_NOTE: dict[str, Any] = {"at": None, "by": HUMAN, "reason": ""}


class Switches:
    def __init__(self, files: Files, locks: Locks, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._locks = locks
        self._layout = layout
        self._time = time

    def pause(self, agent: str, by: str, reason: str = "") -> None:
        """Pause an agent, or all with `ALL`, until `resume`."""
        with self._locks.hold("system/paused"):
            self._write_paused({**self._paused(), agent: self._note(by, reason)})

    def resume(self, agent: str) -> list[str]:
        """End an agent's own pause, or with `ALL` every one. Returns what was paused."""
        with self._locks.hold("system/paused"):
            paused = self._paused()
            ended = [name for name in paused if agent in (ALL, name)]
            if ended:
                self._write_paused({name: note for name, note in paused.items() if name not in ended})
        return ended

    def paused(self) -> dict[str, Any]:
        """Who is paused, and by whom and why; `ALL` stands for everybody. A file that is there but says nothing
        readable (`touch system/paused`) pauses everybody: a stop must never be lost."""
        try:
            return self._paused()
        except StoreUnavailable:
            return _unreadable()

    def _paused(self) -> dict[str, Any]:
        data = self._files.read(self._layout.paused)
        if data is None:
            return {}
        try:
            agents = dict(decode(data)["agents"])
        except (ValueError, TypeError, KeyError):
            return _unreadable()
        return {agent: {**_NO_NOTE, **note} if isinstance(note, dict) else _NO_NOTE for agent, note in agents.items()}

    def _write_paused(self, paused: dict[str, Any]) -> None:
        if paused:
            self._files.replace(self._layout.paused, encode({"schemaVersion": SCHEMA_VERSION, "agents": paused}))
        else:
            self._files.remove(self._layout.paused)

    def _note(self, by: str, reason: str) -> dict[str, Any]:
        return {"at": clock.iso(self._time.wall()), "by": by, "reason": reason}

    def is_paused(self, agent: str) -> bool:
        paused = self.paused()
        return ALL in paused or agent in paused

    def stop(self, agent: str, by: str, reason: str = "") -> None:
        """Keep the agent stopped, for whoever might start it, until `unstop`."""
        self._files.make_folders(self._layout.agent(agent))
        note = {"schemaVersion": SCHEMA_VERSION, **self._note(by, reason)}
        self._files.replace(self._layout.stopped(agent), encode(note))

    def unstop(self, agent: str) -> bool:
        """True if the agent was to stay stopped."""
        was = self.is_stopped(agent)
        self._files.remove(self._layout.stopped(agent))
        return was

    def is_stopped(self, agent: str) -> bool:
        return self._files.exists(self._layout.stopped(agent))

    def request(self, verb: str, agent: str) -> None:
        """Ask the supervisor for something: `start` or `restart`."""
        note = {"schemaVersion": SCHEMA_VERSION, "at": clock.iso(self._time.wall())}
        self._files.replace(f"{self._layout.requests}/{verb}.{agent}", encode(note))

    def requests(self) -> list[tuple[str, str]]:
        """What the supervisor was asked for, (verb, agent), taken: each is seen once."""
        taken = []
        for name in self._files.names(self._layout.requests):
            verb, _, agent = name.partition(".")
            self._files.remove(f"{self._layout.requests}/{name}")
            taken.append((verb, agent))
        return taken

    def supervisor(self) -> dict[str, Any] | None:
        """Who supervises, or did last: `{pid, started, bootId, mode}`, as the lock's file says."""
        note = read_label(self._files.disk, self._locks.path(SUPERVISOR))
        return note if "pid" in note and "started" in note else None


def _unreadable() -> dict[str, Any]:
    return {ALL: {**_NO_NOTE, "reason": "system/paused is there but can't be read"}}
