"""Where the CLIs keep their transcripts: as the real ones laid them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.runners.transcripts import find
from tests.runners.transcripts.stage import SESSIONS, database, lines

CWD = "/srv/my.app/src_x y"
CODEX = SESSIONS["codex"]
UUID = SESSIONS["claude"]
#: CLI, session, environment (with {home} in it), where the transcript then lies below the home.
PLACES = [
    ("codex", CODEX, {}, f".codex/sessions/2026/11/30/rollout-2026-11-30T20-48-50-{CODEX}.jsonl"),
    (
        "codex",
        CODEX,
        {"CODEX_HOME": "{home}/own"},
        f"own/sessions/2025/01/02/rollout-2025-01-02T00-00-00-{CODEX}.jsonl",
    ),
    ("codex", CODEX, {}, f".codex/archived_sessions/rollout-2026-11-30T20-48-50-{CODEX}.jsonl"),
    ("claude", UUID, {}, f".claude/projects/-srv-my-app-src-x-y/{UUID}.jsonl"),
    ("claude", UUID, {}, f".config/claude/projects/-srv-my-app-src-x-y/{UUID}.jsonl"),
    ("claude", UUID, {"CLAUDE_CONFIG_DIR": "{home}/own"}, f"own/projects/-srv-my-app-src-x-y/{UUID}.jsonl"),
    ("claude", UUID, {}, f".claude/projects/-where-it-began/{UUID}.jsonl"),
    ("pi", "mine1", {}, ".pi/agent/sessions/--srv-my.app-src_x y--/2026-11-30T20-55-11-963Z_mine1.jsonl"),
    ("pi", "mine1", {"PI_CODING_AGENT_DIR": "{home}/own"}, "own/sessions/--elsewhere--/2026_mine1.jsonl"),
    ("pi", "mine1", {"PI_CODING_AGENT_SESSION_DIR": "{home}/own"}, "own/2026_mine1.jsonl"),
    ("opencode", "ses_1", {}, ".local/share/opencode/opencode.db"),
    ("opencode", "ses_1", {"XDG_DATA_HOME": "{home}/own"}, "own/opencode/opencode.db"),
    ("opencode", "ses_1", {"OPENCODE_DB": "{home}/my/own.db"}, "my/own.db"),
    ("opencode", "ses_1", {}, ".local/share/opencode/opencode-next.db"),
    ("goose", "a name", {}, ".local/share/goose/sessions/sessions.db"),
    ("goose", "a name", {"GOOSE_PATH_ROOT": "{home}/own"}, "own/data/sessions/sessions.db"),
    ("openclaw", "s1", {}, ".openclaw/agents/main/sessions/s1.jsonl"),
    ("openclaw", "s1", {}, ".clawdbot/agents/main/sessions/s1.jsonl"),
    ("openclaw", "s1", {"OPENCLAW_STATE_DIR": "{home}/own"}, "own/agents/other/sessions/s1.jsonl"),
]


def _find(cli: str, home: Path, session: str, cwd: str = CWD, **environment: str) -> str | None:
    return find(cli, str(home), session, cwd, environment)


@pytest.mark.parametrize(("cli", "session", "environment", "place"), PLACES)
def test_places(cli: str, session: str, environment: dict[str, str], place: str, tmp_path: Path) -> None:
    variables = {name: value.format(home=tmp_path) for name, value in environment.items()}
    assert _find(cli, tmp_path, session, **variables) is None, "nothing is there yet"
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert _find(cli, tmp_path, session, **variables) == str(path)
    if cli not in ("opencode", "goose"):
        assert _find(cli, tmp_path, "another", **variables) is None


def test_gemini_goes_by_what_stands_in_the_file(tmp_path: Path) -> None:
    """The name holds only the beginning of the id."""
    chats = tmp_path / ".gemini/tmp/my-app/chats"
    chats.mkdir(parents=True)
    session = SESSIONS["gemini"]
    other = chats / f"session-2026-12-01T20-54-{session[:8]}.jsonl"
    other.write_text('{"sessionId": "33333333-another"}\n')
    assert _find("gemini", tmp_path, session) is None
    mine = chats / f"session-2026-11-30T20-54-{session[:8]}.jsonl"
    mine.write_text("".join(lines("gemini")))
    assert _find("gemini", tmp_path, session) == str(mine)
    assert _find("gemini", tmp_path / "no", session, GEMINI_CLI_HOME=str(tmp_path)) == str(mine)


def test_openclaw_goes_by_what_stands_in_the_database(tmp_path: Path) -> None:
    for agent in ("main", "other"):
        (tmp_path / f".openclaw/agents/{agent}/agent").mkdir(parents=True)
    (tmp_path / ".openclaw/agents/other/agent/openclaw-agent.sqlite").write_text("none")
    mine = database("openclaw", tmp_path / ".openclaw/agents/main/agent/openclaw-agent.sqlite")
    assert _find("openclaw", tmp_path, "job1") == str(mine)
    assert _find("openclaw", tmp_path, "agent:main:explicit:job1") == str(mine)
    assert _find("openclaw", tmp_path, "job2") is None


def test_the_newest_of_several(tmp_path: Path) -> None:
    for day in ("2026/11/30", "2026/12/01", "2025/12/31"):
        folder = tmp_path / ".codex/sessions" / day
        folder.mkdir(parents=True)
        (folder / f"rollout-x-{CODEX}.jsonl").touch()
    assert "/2026/12/01/" in str(_find("codex", tmp_path, CODEX))


def test_a_folder_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    name = f"{tmp_path.resolve()}/real".replace("/", "-").replace("_", "-").replace(".", "-")
    for folder in (name, "-zzz"):
        path = tmp_path / ".claude/projects" / folder / f"{UUID}.jsonl"
        path.parent.mkdir(parents=True)
        path.touch()
    assert _find("claude", tmp_path, UUID, str(tmp_path / "link")) == f"{tmp_path}/.claude/projects/{name}/{UUID}.jsonl"


@pytest.mark.parametrize("session", ["", "../secret", "..", "a/b", "*", "x\0y", "x" * 300])
def test_no_session_leads_elsewhere(session: str, tmp_path: Path) -> None:
    (tmp_path / ".claude/projects/-srv").mkdir(parents=True)
    (tmp_path / ".claude/projects/secret.jsonl").touch()
    for cli in ("claude", "codex", "pi", "gemini", "opencode", "goose", "openclaw"):
        assert _find(cli, tmp_path, session, "/srv") is None


@pytest.mark.parametrize("cli", ["aider", "generic", "unheard-of"])
def test_clis_without_a_transcript(cli: str, tmp_path: Path) -> None:
    assert _find(cli, tmp_path, "s") is None
