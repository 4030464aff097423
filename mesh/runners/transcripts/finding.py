"""Where a CLI keeps the transcript of a session, below its own home."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping

from mesh.models.base import is_id
from mesh.runners.transcripts.sqlite import DatabaseProblem, columns, opened, rows
from mesh.runners.transcripts.tail import first_object


def find(cli: str, home: str, session: str, cwd: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The file or database of a session, or None if there is none (yet).

    `home` is the user's home folder as the CLI sees it, `cwd` the folder that it works in; `environment` is the CLI's
    (by default our own): CODEX_HOME, CLAUDE_CONFIG_DIR, XDG_DATA_HOME and the like move things.
    """
    search = _SEARCHES.get(cli)
    if search is None or not session:
        return None
    # Of what becomes part of a file's name no path may lead elsewhere. Databases are asked with it as a value.
    if cli not in _DATABASES and not is_id(session):
        return None
    place = _Place(home, session, cwd, os.environ if environment is None else environment)
    return next(search(place), None)


class _Place:
    """What a search goes by."""

    def __init__(self, home: str, session: str, cwd: str, environment: Mapping[str, str]) -> None:
        self.home = home
        self.session = session
        self.cwd = cwd.rstrip("/") or "/"
        self.environment = environment

    def folder(self, variable: str, default: str) -> str:
        """What the variable names, or a folder below the home."""
        return self.environment.get(variable) or f"{self.home}/{default}"

    def cwds(self) -> Iterator[str]:
        """The working folder as it was named, and as it is without links: CLIs ask the system for it."""
        yield self.cwd
        real = os.path.realpath(self.cwd)
        if real != self.cwd:
            yield real


def _codex(place: _Place) -> Iterator[str]:
    base = place.folder("CODEX_HOME", ".codex")
    end = f"-{place.session}.jsonl"
    days = (day for year in _newest(f"{base}/sessions") for month in _newest(year) for day in _newest(month))
    for folder in (*days, f"{base}/archived_sessions"):
        yield from (path for path in _newest(folder) if path.endswith(end) and _base(path).startswith("rollout-"))


def _claude(place: _Place) -> Iterator[str]:
    chosen = place.environment.get("CLAUDE_CONFIG_DIR")
    settings = place.folder("XDG_CONFIG_HOME", ".config")
    for base in [chosen] if chosen else [f"{place.home}/.claude", f"{settings}/claude"]:
        names = [re.sub(r"[^A-Za-z0-9]", "-", cwd) for cwd in place.cwds()]
        yield from _named(f"{base}/projects", names, lambda name: name == f"{place.session}.jsonl")


def _pi(place: _Place) -> Iterator[str]:
    base = place.folder("PI_CODING_AGENT_DIR", ".pi/agent")
    names = [f"--{re.sub(r'[/:]', '-', cwd.removeprefix('/'))}--" for cwd in place.cwds()]
    own = place.environment.get("PI_CODING_AGENT_SESSION_DIR")
    if own:
        yield from (path for path in _newest(own) if path.endswith(f"_{place.session}.jsonl"))
    yield from _named(f"{base}/sessions", names, lambda name: name.endswith(f"_{place.session}.jsonl"))


def _gemini(place: _Place) -> Iterator[str]:
    base = f"{place.environment.get('GEMINI_CLI_HOME') or place.home}/.gemini/tmp"
    end = f"-{place.session[:8]}.jsonl"
    for project in _newest(base):
        for path in _newest(f"{project}/chats"):
            if path.endswith(end) and first_object(path, lambda entry: entry.get("sessionId") == place.session):
                yield path


def _opencode(place: _Place) -> Iterator[str]:
    base = f"{place.folder('XDG_DATA_HOME', '.local/share')}/opencode"
    own = place.environment.get("OPENCODE_DB")
    if own:
        yield from _there(own if own.startswith("/") else f"{base}/{own}")
    else:
        yield from _there(f"{base}/opencode.db")
        yield from (path for path in _newest(base) if re.fullmatch(r"opencode-[\w.-]+\.db", _base(path)))


def _goose(place: _Place) -> Iterator[str]:
    root = place.environment.get("GOOSE_PATH_ROOT")
    base = f"{root}/data" if root else f"{place.folder('XDG_DATA_HOME', '.local/share')}/goose"
    yield from _there(f"{base}/sessions/sessions.db")


def _openclaw(place: _Place) -> Iterator[str]:
    chosen = place.environment.get("OPENCLAW_STATE_DIR")
    homes = [chosen] if chosen else [f"{place.home}/.openclaw", f"{place.home}/.clawdbot"]
    agents = [agent for base in homes for agent in _newest(f"{base}/agents")]
    for agent in agents:
        for path in _there(f"{agent}/agent/openclaw-agent.sqlite"):
            if _holds(path, place.session):
                yield path
    if is_id(place.session):
        for agent in agents:
            yield from _there(f"{agent}/sessions/{place.session}.jsonl")


def _holds(path: str, session: str) -> bool:
    """Whether OpenClaw's database knows the session, by its id or by its key."""
    try:
        with opened(path) as database:
            query = "SELECT 1 FROM transcript_events WHERE session_id = ? LIMIT 1"
            if rows(database, query, session):
                return True
            if "current_session_id" not in columns(database, "session_nodes"):
                return False
            return bool(rows(database, "SELECT 1 FROM session_nodes WHERE session_key = ? LIMIT 1", session))
    except DatabaseProblem:
        return False


_SEARCHES: dict[str, Callable[[_Place], Iterator[str]]] = {
    "codex": _codex,
    "claude": _claude,
    "pi": _pi,
    "gemini": _gemini,
    "opencode": _opencode,
    "goose": _goose,
    "openclaw": _openclaw,
}
_DATABASES = ("opencode", "goose", "openclaw")


def _named(base: str, names: list[str], wanted: Callable[[str], bool]) -> Iterator[str]:
    """Files of the wanted name below `base`, first in the folders with these names, then in all others: a session may
    have begun in another folder."""
    first = [f"{base}/{name}" for name in names]
    for folder in (*first, *(folder for folder in _newest(base) if folder not in first)):
        yield from (path for path in _newest(folder) if wanted(_base(path)))


def _newest(folder: str) -> list[str]:
    """What lies in a folder, by name, the last (dates: the newest) first; nothing where it can't be listed."""
    try:
        names = os.listdir(folder)
    except (OSError, ValueError):
        return []
    return [f"{folder}/{name}" for name in sorted(names, reverse=True)]


def _there(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path


def _base(path: str) -> str:
    return path.rpartition("/")[2]
