"""The table that `mesh up` and `mesh status --watch` show."""

from __future__ import annotations

import contextlib
import http.client
import sys

import click

from mesh import clock
from mesh.cli.app import table
from mesh.errors import MeshError
from mesh.service.overview import Row, rows
from mesh.store import Store

_HEADERS = ["AGENT", "PORT", "STATUS", "CURRENT TASK", "QUEUE", "MAIL", "BUDDY", "LAST BEAT", ""]
_EVERY_S = 1.0
#: Where it is only printed when something changed.
_EVERY_S_UNSEEN = 3.0
_CLEAR = "\x1b[H\x1b[2J"


def render(store: Store, notes: dict[str, str] | None = None) -> str:
    """The table as text."""
    return table(_HEADERS, [_cells(row) for row in rows(store, notes)])


def _cells(row: Row) -> list[str]:
    task = f"{row.task} {row.progress:.0%}" if row.task and row.progress is not None else (row.task or "-")
    beat = "-" if row.beat_age_s is None else f"{row.beat_age_s:.0f} s ago"
    task = task if len(task) <= 44 else task[:43] + "…"
    note = "; ".join(text for text in (row.note, _session(row)) if text)
    return [row.agent, str(row.port), row.status, task, str(row.queue), str(row.mail), row.buddy, beat, note]


def _session(row: Row) -> str:
    """A person's session that speaks for the agent, and when it was last heard."""
    session = row.session
    if session is None or not session["joined"]:
        return ""
    age_s = session["seenAgeS"]
    heard = "not heard yet" if age_s is None else f"heard {age_s:.0f} s ago"
    return f"{session['cli']} session joined, {'busy, ' if session['busy'] else ''}{heard}"


class LiveTable:
    """Shows the table again and again: in place on a terminal, elsewhere once for each change that matters."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shown_s = -_EVERY_S
        self._last = ""
        self._terminal = sys.stdout.isatty()

    def show(self, notes: dict[str, str]) -> None:
        """Show it, if it is time. Whatever keeps it from being shown must not end the supervisor."""
        now_s = clock.SYSTEM.monotonic()
        if now_s - self._shown_s < (_EVERY_S if self._terminal else _EVERY_S_UNSEEN):
            return
        self._shown_s = now_s
        with contextlib.suppress(OSError):  # the output's disk is full, or nobody reads it any more
            self._draw(notes)

    def _draw(self, notes: dict[str, str]) -> None:
        try:
            found = rows(self._store, notes)
        except MeshError as error:
            text = key = error.detail
        else:
            text = table(_HEADERS, [_cells(row) for row in found])
            key = repr([(row.agent, row.port, row.status, row.note, row.buddy) for row in found])
        if self._terminal:
            head = f"mesh {self._store.layout.root}   Ctrl-C stops all agents\n\n"
            click.echo(_CLEAR + head + text + _error_line(self._store))
        elif key != self._last:
            click.echo(text + _error_line(self._store) + "\n")
            sys.stdout.flush()
        self._last = key


def _error_line(store: Store) -> str:
    error = store.registry.error
    return f"\n\nregistry: {error.detail} The last good one is in force." if error else ""


def not_healthy(store: Store) -> set[str]:
    """Which of the agents that should run don't answer `GET /health` with 200."""
    registry = store.registry.current
    wanted = [agent for agent in registry.agents if not store.switches.is_stopped(agent)]
    return {agent for agent in wanted if not _answers(registry.entry(agent).host, registry.entry(agent).port)}


def _answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=1.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
