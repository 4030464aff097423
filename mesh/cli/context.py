"""context: who is how full, and why."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mesh.cli.app import cli, echo_json, known_agent, one_line, open_store, table, with_json, with_root

if TYPE_CHECKING:
    from mesh.limits import Limits
    from mesh.models.running import Occupancy, Session
    from mesh.runners.transcripts import Reading
    from mesh.store import Store

_HEADERS = ["AGENT", "TOKENS", "WINDOW", "FULL", "LEVEL", "SOURCE", "AGE", "SESSION"]
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class _Found:
    """What is known of one agent's context, and where from."""

    agent: str
    limits: Limits
    session: Session | None
    path: str | None
    reading: Reading | None
    occupancy: Occupancy | None
    window_source: str
    #: Why the context isn't known, or isn't known better.
    note: str

    @property
    def percent(self) -> float | None:
        seen = self.occupancy
        return round(100 * seen.tokens / seen.window, 1) if seen and seen.window else None

    @property
    def level(self) -> str:
        """What the thresholds make of it."""
        if self.percent is None:
            return _UNKNOWN
        over = [name for name, ratio in _thresholds(self.limits) if self.percent >= 100 * ratio]
        return over[-1] if over else "ok"


@cli.command()
@click.argument("agent", required=False)
@with_root
@with_json
def context(agent: str | None, root: str | None, as_json: bool) -> int:
    """How full each agent's context is; with AGENT, by which file and rule that was found.

    A context is as full as its last call saw it, read from what the agent's CLI writes of its session. LEVEL goes by
    the limits contextWarnRatio, contextCompressRatio and contextCriticalRatio. What isn't known says unknown.
    """
    store = open_store(root)
    agents = [known_agent(store, agent)] if agent else list(store.registry.current.agents)
    found = [_look(store, one) for one in agents]
    if as_json:
        shown = [_dump(one) for one in found]
        echo_json(shown[0] if agent else shown)
    elif agent:
        click.echo(one_line(f"{agent}: {_headline(found[0])}"))
        for label, said in _why(found[0]):
            click.echo(f"  {label:<11} {one_line(said)}")
    else:
        click.echo(table(_HEADERS, [_cells(one) for one in found]))
    return 0


def _look(store: Store, agent: str) -> _Found:
    registry = store.registry.current
    session, limits = store.sessions.find(agent), registry.limits_for(agent)
    path = None if session is None else _path(session, getattr(registry.entry(agent).runner, "home", None))
    reading = _read(session, path, registry.windows)
    seen = None if reading is None else reading.occupancy
    if reading is not None and seen is not None:
        source, note = reading.window_source, reading.problem or ""
    else:
        seen = _noted(store, agent)
        source = "the agent's state" if seen and seen.window else ""
        note = _why_not(registry.entry(agent).runner.kind, session, path, reading)
    return _Found(agent, limits, session, path, reading, seen, source, note)


def _path(session: Session, home: str | None) -> str | None:
    """Where the session's transcript lies: as its hooks told, else where its CLI keeps them."""
    from mesh.runners.transcripts import find

    if session.transcript:
        return session.transcript
    # A home of its own has nothing to do with the variables of whoever asks.
    return find(session.cli, home or os.path.expanduser("~"), session.id, session.cwd, {} if home else os.environ)


def _read(session: Session | None, path: str | None, windows: dict[str, int]) -> Reading | None:
    from mesh.runners.transcripts import open_transcript

    if session is None or path is None:
        return None
    transcript = open_transcript(session.cli, path, session.id, windows)
    return None if transcript is None else transcript.read()


def _noted(store: Store, agent: str) -> Occupancy | None:
    """What the agent itself last wrote down. No tokens at all means that it doesn't know."""
    from pydantic import ValidationError

    from mesh.models.running import Occupancy

    state = store.state(agent)
    if state is None:
        return None
    told = state.dump().get("context")
    try:
        if told is not None:
            return Occupancy.model_validate(told)
    except ValidationError:
        return None
    if not state.context_tokens:
        return None
    return Occupancy(
        tokens=state.context_tokens, window=state.context_limit, source="state.json", at=state.last_activity
    )


def _why_not(kind: str, session: Session | None, path: str | None, reading: Reading | None) -> str:
    if session is None:
        return "skills use no model" if kind == "skills" else "no session of a CLI is known yet"
    if path is None:
        return f"{session.cli} keeps no transcript of session {session.id} that was found"
    if reading is None:
        return f"{session.cli} writes no transcript that tells it"
    return reading.problem or reading.rule or "no call stands in the transcript yet"


def _thresholds(limits: Limits) -> list[tuple[str, float]]:
    return [
        ("warn", limits.context_warn_ratio),
        ("compress", limits.context_compress_ratio),
        ("critical", limits.context_critical_ratio),
    ]


def _age_s(seen: Occupancy | None) -> float | None:
    from mesh import clock

    try:
        at = clock.parse(seen.at) if seen and seen.at else None
    except ValueError:
        return None
    return None if at is None else max(0.0, (clock.SYSTEM.wall() - at).total_seconds())


def _dump(one: _Found) -> dict[str, Any]:
    seen, reading, age_s = one.occupancy, one.reading, _age_s(one.occupancy)
    session = one.session
    turn = reading.turn if reading else None
    return {
        "agent": one.agent,
        "tokens": seen.tokens if seen else None,
        "window": seen.window if seen else None,
        "percent": one.percent,
        "level": one.level,
        "estimated": seen.estimated if seen else None,
        "source": seen.source if seen else None,
        "at": seen.at if seen else None,
        "ageS": None if age_s is None else round(age_s, 1),
        "session": None if session is None else {"cli": session.cli, "id": session.id, "joined": session.joined},
        "transcript": one.path,
        "rule": reading.rule if reading and reading.occupancy else None,
        "windowSource": one.window_source or None,
        "model": reading.model if reading else None,
        "turn": None if turn is None else {"state": turn.state, "tool": turn.tool, "since": turn.since},
        "lastCall": reading.usage.dump() if reading and reading.usage else None,
        "thresholds": {name: ratio for name, ratio in _thresholds(one.limits)},
        "note": one.note or None,
    }


def _cells(one: _Found) -> list[str]:
    seen, age_s = one.occupancy, _age_s(one.occupancy)
    about = "~" if seen and seen.estimated else ""
    return [
        one.agent,
        f"{about}{seen.tokens:,}" if seen else _UNKNOWN,
        f"{seen.window:,}" if seen and seen.window else _UNKNOWN if seen else "-",
        "-" if one.percent is None else f"{one.percent:.0f} %",
        one.level,
        seen.source if seen else one.note,
        "-" if age_s is None else _age(age_s),
        f"{one.session.cli} {one.session.id}" if one.session else "-",
    ]


def _why(one: _Found) -> list[tuple[str, str]]:
    """The explanation: what, and what is known of it."""
    seen, reading, session = one.occupancy, one.reading, one.session
    lines: list[tuple[str, str]] = []
    if session is not None:
        joined = " (joined)" if session.joined else ""
        lines.append(("session", f"{session.cli} {session.id}{joined} in {session.cwd or '-'}"))
    if one.path is not None:
        lines.append(("transcript", one.path))
    if seen is not None:
        lines.append(("source", seen.source or _UNKNOWN))
    if reading is not None and reading.occupancy is not None:
        lines.append(("rule", reading.rule))
    if seen is not None:
        told = one.window_source or "nobody tells it; name it in the registry's windows"
        lines.append(("window", f"{seen.window:,}, by {told}" if seen.window else told))
        age_s = _age_s(seen)
        lines.append(("as of", (seen.at or _UNKNOWN) + ("" if age_s is None else f" ({_age(age_s)} ago)")))
    if reading is not None:
        lines.append(("turn", _turn(reading)))
        lines += [("last call", _last_call(reading))] if reading.usage else []
    window = seen.window if seen else None
    marks = [
        f"{ratio:.0%} {name}" + (f" ({int(ratio * window):,})" if window else "")
        for name, ratio in _thresholds(one.limits)
    ]
    lines.append(("thresholds", ", ".join(marks)))
    return [*lines, *([("note", one.note)] if one.note else [])]


def _headline(one: _Found) -> str:
    seen = one.occupancy
    if seen is None:
        return _UNKNOWN
    about = "about " if seen.estimated else ""
    if seen.window is None:
        return f"{about}{seen.tokens:,} tokens of a window that is not known"
    return f"{about}{seen.tokens:,} of {seen.window:,} tokens, {one.percent:.1f} %: {one.level}"


def _turn(reading: Reading) -> str:
    turn = reading.turn
    words = {"ended": "over", "working": "going on", "tool": f"waits for {turn.tool}", "unknown": _UNKNOWN}[turn.state]
    return words + (f" since {turn.since}" if turn.since else "")


def _last_call(reading: Reading) -> str:
    usage = reading.usage
    assert usage is not None
    parts = {
        "input": usage.input_tokens,
        "cache read": usage.cache_read_tokens,
        "cache write": usage.cache_write_tokens,
        "output": usage.output_tokens,
    }
    told = [f"{name} {value:,}" for name, value in parts.items() if value is not None]
    return ", ".join(told) + (f" ({reading.model})" if reading.model else "")


def _age(age_s: float) -> str:
    if age_s < 120:
        return f"{age_s:.0f} s"
    return f"{age_s / 60:.0f} min" if age_s < 7200 else f"{age_s / 3600:.0f} h"
