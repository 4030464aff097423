"""Transcripts that real CLIs wrote (texts shortened, paths replaced), and lines like theirs."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from mesh.runners.transcripts import Reading, open_transcript

FIXTURES = Path(__file__).parent / "fixtures"
CODEX, CLAUDE, PI, GEMINI = "codex", "claude", "pi", "gemini"
#: The CLIs whose transcripts are lines, with the session that the fixture is of.
SESSIONS = {
    CODEX: "01a22e37-ac6f-76a0-9492-56b47af9d3fc",
    CLAUDE: "11111111-2222-4333-8444-555555555555",
    PI: "mine1",
    GEMINI: "33333333-2222-4333-8444-555555555555",
}


def lines(cli: str) -> list[str]:
    return (FIXTURES / f"{cli}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)


def read(cli: str, path: Path, session: str = "", **windows: int) -> Reading:
    """One first look."""
    transcript = open_transcript(cli, str(path), session, windows)
    assert transcript is not None
    return transcript.read()


def read_lines(cli: str, path: Path, entries: Iterable[str | dict[str, Any]]) -> Reading:
    """What a file of these lines says."""
    path.write_text("".join(each if isinstance(each, str) else f"{json.dumps(each)}\n" for each in entries))
    return read(cli, path)


def database(name: str, path: Path, *, wal: bool = False) -> Path:
    """The database that a fixture's statements make."""
    path.write_bytes(_made(name, wal))
    return path


@cache
def _made(name: str, wal: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.db"
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(f"PRAGMA journal_mode={'WAL' if wal else 'DELETE'}")
        connection.executescript(f"BEGIN;{(FIXTURES / f'{name}.sql').read_text(encoding='utf-8')}COMMIT;")
        connection.close()
        return path.read_bytes()


def brief(reading: Reading) -> tuple[int | None, str, str | None]:
    """Tokens, where the turn stands, and which tool it waits for."""
    tokens = reading.occupancy.tokens if reading.occupancy else None
    return tokens, reading.turn.state, reading.turn.tool
