"""OpenCode, goose and OpenClaw: what their databases say, and that looking neither locks nor leaves anything."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.runners.transcripts import Transcript, open_transcript
from tests.runners.transcripts.stage import brief, database, read

OPENCODE, GOOSE, OPENCLAW = "opencode", "goose", "openclaw"
SESSIONS = {OPENCODE: "ses_dd1c22d28ffeDV5Nj9yme3BVrb", GOOSE: "job1", OPENCLAW: "job1"}
#: Tokens, turn and tool; then what else the real databases tell.
REAL: dict[str, tuple[Any, str | None, int | None]] = {
    OPENCODE: ((11_060, "tool", "bash"), "test/test-model", None),
    GOOSE: ((11_060, "working", None), "openai/test-model", None),
    OPENCLAW: ((11_060, "ended", None), "test/test-model", 64_000),
}
DATABASES = pytest.mark.parametrize("cli", REAL)


def _execute(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


def _transcript(cli: str, path: Path) -> Transcript:
    transcript = open_transcript(cli, str(path), SESSIONS[cli])
    assert transcript is not None
    return transcript


@DATABASES
def test_real_databases(cli: str, tmp_path: Path) -> None:
    reading = read(cli, database(cli, tmp_path / "t.db"), SESSIONS[cli])
    assert (brief(reading), reading.model, reading.occupancy and reading.occupancy.window) == REAL[cli]
    assert reading.problem is None and reading.occupancy is not None
    assert reading.occupancy.at is not None and reading.occupancy.at.startswith("2026-11-30T")
    assert reading.usage is not None and (reading.usage.input_tokens, reading.usage.output_tokens) == (11_000, 60)


@DATABASES
def test_the_registry_tells_the_window(cli: str, tmp_path: Path) -> None:
    path, model = database(cli, tmp_path / "t.db"), str(REAL[cli][1])
    occupancy = read(cli, path, SESSIONS[cli], **{model: 99_000}).occupancy
    assert occupancy is not None and occupancy.window == (REAL[cli][2] or 99_000), "what the database tells comes first"


@DATABASES
def test_a_session_that_is_not_there(cli: str, tmp_path: Path) -> None:
    reading = read(cli, database(cli, tmp_path / "t.db"), "another")
    assert reading.occupancy is None and reading.problem is not None and "another" in reading.problem


@DATABASES
@pytest.mark.parametrize("content", [b"", b"no database " * 400, None])
def test_what_is_no_database(cli: str, content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    if content is not None:
        path.write_bytes(content)
    reading = read(cli, path, SESSIONS[cli])
    assert reading.occupancy is None and reading.problem is not None and str(path) in reading.problem
    assert os.listdir(tmp_path) == ([] if content is None else ["t.db"])


@DATABASES
def test_missing_tables_and_columns(cli: str, tmp_path: Path) -> None:
    with sqlite3.connect(database(cli, tmp_path / "t.db")) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    connection.close()
    for number, table in enumerate(tables):
        path = database(cli, tmp_path / f"{number}.db")
        _execute(path, f"DROP TABLE {table}")
        reading = read(cli, path, SESSIONS[cli])
        assert reading.problem is not None or reading.occupancy is not None, table
        _execute(path, f"CREATE TABLE {table} (other TEXT)")
        read(cli, path, SESSIONS[cli])


@DATABASES
def test_a_busy_database_keeps_what_was_known(cli: str, tmp_path: Path) -> None:
    path = database(cli, tmp_path / "t.db")
    transcript = _transcript(cli, path)
    known = transcript.read()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    try:
        busy = transcript.read()
    finally:
        writer.execute("ROLLBACK")
        writer.close()
    assert busy.occupancy == known.occupancy and busy.problem is not None and "locked" in busy.problem
    assert transcript.read() == known


@DATABASES
def test_a_writer_in_wal_mode_is_never_kept_out(cli: str, tmp_path: Path) -> None:
    """It writes while we look, and what it has not yet moved into the database counts."""
    path = database(cli, tmp_path / "t.db", wal=True)
    transcript = _transcript(cli, path)
    writer = sqlite3.connect(path, isolation_level=None, timeout=0)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("CREATE TABLE mine (a)")
    assert brief(transcript.read())[0] == 11_060, "in the middle of its transaction"
    writer.execute("COMMIT")
    _more(cli, writer, 33_000)
    assert brief(transcript.read())[0] == 33_000
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    writer.close()
    assert brief(transcript.read())[0] == 33_000


@DATABASES
def test_looking_leaves_no_file(cli: str, tmp_path: Path) -> None:
    path = database(cli, tmp_path / "t.db", wal=True)
    before = (os.listdir(tmp_path), path.read_bytes(), path.stat().st_mtime_ns)
    assert before[0] == ["t.db"], "the last writer has tidied up"
    assert brief(read(cli, path, SESSIONS[cli])) == REAL[cli][0]
    assert (os.listdir(tmp_path), path.read_bytes(), path.stat().st_mtime_ns) == before


@DATABASES
def test_what_a_killed_writer_left_is_read_and_left(cli: str, tmp_path: Path) -> None:
    """Its `-wal` holds what isn't in the database yet: read, and neither moved into it nor deleted."""
    path = database(cli, tmp_path / "t.db", wal=True)
    writer = sqlite3.connect(path, isolation_level=None)
    _more(cli, writer, 44_000)
    (tmp_path / "killed").mkdir()
    for name in ("t.db", "t.db-wal", "t.db-shm"):
        shutil.copy(tmp_path / name, tmp_path / "killed" / name)
    writer.close()
    left = {name: (tmp_path / "killed" / name).read_bytes() for name in ("t.db", "t.db-wal")}
    assert brief(read(cli, tmp_path / "killed/t.db", SESSIONS[cli]))[0] == 44_000
    assert {name: (tmp_path / "killed" / name).read_bytes() for name in left} == left


def _more(cli: str, connection: sqlite3.Connection, tokens: int) -> None:
    """One more call of the session."""
    if cli == OPENCODE:
        data = {"role": "assistant", "tokens": {"total": tokens}, "finish": "stop"}
        values = ("msg_zz", SESSIONS[cli], 1_800_000_000_000, 0, json.dumps(data))
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", values)
    elif cli == GOOSE:
        connection.execute("UPDATE sessions SET total_tokens = ?", (tokens,))
    else:
        _event(connection, {"role": "assistant", "usage": {"totalTokens": tokens}, "stopReason": "stop"})


def _event(connection: sqlite3.Connection, message: dict[str, Any]) -> None:
    event = json.dumps({"type": "message", "message": message})
    query = "INSERT INTO transcript_events SELECT session_id, max(seq) + 1, ?, 0, NULL FROM transcript_events"
    connection.execute(query, (event,))


OPENCODE_MESSAGES = [
    ({"role": "user"}, (11_060, "working", None), "asked"),
    ({"role": "assistant"}, (11_060, "working", None), "the call has not answered"),
    (
        {
            "role": "assistant",
            "tokens": {"input": 10, "output": 5, "reasoning": 2, "cache": {"read": 900, "write": 83}},
        },
        (1_000, "working", None),
        "an older version that tells no total",
    ),
    ({"role": "assistant", "error": {"name": "APIError"}}, (11_060, "ended", None), "refused"),
    ({"role": "assistant", "finish": "tool-calls", "tokens": {"total": 7}}, (7, "working", None), "its tools are done"),
    (
        {"role": "assistant", "summary": True, "tokens": {"total": 90_000, "output": 800}, "finish": "stop"},
        (800, "ended", None),
        "the summary of a compaction: what it answered is what is left",
    ),
]


@pytest.mark.parametrize(("data", "expected", "why"), OPENCODE_MESSAGES, ids=[row[2] for row in OPENCODE_MESSAGES])
def test_opencode(data: dict[str, Any], expected: Any, why: str, tmp_path: Path) -> None:
    path = database(OPENCODE, tmp_path / "t.db")
    values = ("msg_zz", SESSIONS[OPENCODE], 1_800_000_000_000, 0, json.dumps(data))
    _execute(path, "INSERT INTO message VALUES (?, ?, ?, ?, ?)", *values)
    assert brief(read(OPENCODE, path, SESSIONS[OPENCODE])) == expected


GOOSE_MESSAGES = [
    ("assistant", [{"type": "text", "text": "done"}], (11_060, "ended", None)),
    (
        "assistant",
        [{"type": "toolRequest", "id": "c", "toolCall": {"value": {"name": "shell"}}}],
        (11_060, "tool", "shell"),
    ),
    ("user", [{"type": "toolResponse", "id": "c"}], (11_060, "working", None)),
]


@pytest.mark.parametrize(("role", "content", "expected"), GOOSE_MESSAGES)
def test_goose(role: str, content: Any, expected: Any, tmp_path: Path) -> None:
    path = database(GOOSE, tmp_path / "t.db")
    values = (99, "m", "20261130_1", role, json.dumps(content), 1_800_000_000)
    names = "id, message_id, session_id, role, content_json, created_timestamp"
    _execute(path, f"INSERT INTO messages ({names}) VALUES (?, ?, ?, ?, ?, ?)", *values)
    assert brief(read(GOOSE, path, "20261130_1")) == expected
    beside = (100, "n", "20261130_1", "user", '[{"type":"text","text":"<turn-context>now"}]', 1_800_000_001)
    _execute(path, f"INSERT INTO messages ({names}) VALUES (?, ?, ?, ?, ?, ?)", *beside)
    assert brief(read(GOOSE, path, "20261130_1")) == expected, "what goose itself says is no prompt"
    settings = json.dumps({"model_name": "test-model", "context_limit": 70_000})
    _execute(path, "UPDATE sessions SET model_config_json = ?", settings)
    occupancy = read(GOOSE, path, "job1").occupancy
    assert occupancy is not None and occupancy.window == 70_000


def test_openclaw_by_its_key_read_on_and_written_anew(tmp_path: Path) -> None:
    path = database(OPENCLAW, tmp_path / "t.db")
    transcript = open_transcript(OPENCLAW, str(path), "agent:main:explicit:job1")
    assert transcript is not None and brief(transcript.read())[0] == 11_060
    with sqlite3.connect(path) as connection:
        _event(connection, {"role": "assistant", "usage": {"totalTokens": 500}, "stopReason": "stop"})
        _event(connection, {"role": "user", "content": "x" * 35})
    assert brief(transcript.read()) == (510, "working", None)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM transcript_events WHERE seq > 5")
    assert brief(transcript.read()) == (9_120, "ended", None), "cut"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE transcript_events SET event_json = replace(event_json, '9120', '4000')")
        connection.execute("UPDATE transcript_rewrite_watermarks SET generation = 'another'")
    assert brief(transcript.read())[0] == 4_000, "rewritten"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE transcript_events SET event_json = NULL, event_zstd = x'00'")
        connection.execute("UPDATE transcript_rewrite_watermarks SET generation = 'third'")
        _event(connection, {"role": "assistant", "usage": {"totalTokens": 77}, "stopReason": "stop"})
    connection.close()
    assert brief(transcript.read())[0] == 77, "compressed events are passed over"


@DATABASES
@given(data=st.data())
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_damaged_database_never_raises(cli: str, data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.unlink(missing_ok=True)
    content = bytearray(database(cli, path).read_bytes())
    for _ in range(data.draw(st.integers(1, 20))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    read(cli, path, SESSIONS[cli])
