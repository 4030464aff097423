"""What the real CLIs write of their sessions, found in their homes and read while they work."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.runners.transcripts import Reading, find, open_transcript
from tests.live.harness import until
from tests.live.test_profiles import ALL, CALL_S, SHELLS, Desk, desk_for, end_group

pytestmark = pytest.mark.timeout(900)

#: Those that note a call before it is answered: in the others a running tool can't be told from a thinking model.
NOTES_CALLS = ("codex", "claude", "pi", "opencode")


def _look(desk: Desk, session: str) -> Reading | None:
    """What is written of the session now; None while nothing is."""
    home = desk.environment["HOME"]
    path = find(desk.profile.name, home, session, str(desk.work), desk.environment)
    transcript = open_transcript(desk.profile.name, path, session) if path else None
    return transcript.read() if transcript else None


def _brief(reading: Reading | None) -> tuple[int | None, str]:
    assert reading is not None, "no transcript was found"
    return (reading.occupancy.tokens if reading.occupancy else None), reading.turn.state


@pytest.mark.parametrize("name", [case for case in ALL if case.values[0] in SHELLS])
def test_occupancy_and_end_of_turn(name: str, tmp_path: Path) -> None:
    with desk_for(name, tmp_path) as desk:
        session = desk.call("[[say hello]] [[usage 9000 120]]").session
        assert session is not None
        first = _look(desk, session)
        assert _brief(first) == (9_120, "ended")
        tool, argument = SHELLS[name]
        more = ', "description": "waits"' if name == "opencode" else ""

        def call(command: str) -> str:
            return f'[[tool {tool} {{"{argument}": "{command}"{more}}}]] [[usage 11000 60]]'

        desk.call(call("echo 43"), session, resume=True)
        second = _look(desk, session)
        assert _brief(second) == (11_060, "ended"), "the last call, not the sum of all three"
        assert second is not None and second.usage is not None and second.problem is None
        assert (second.usage.input_tokens, second.usage.output_tokens) == (11_000, 60)
        assert second.model is not None and "stub-model" in second.model
        if name in ("codex", "openclaw"):
            assert second.occupancy is not None and second.window_source == "the transcript"
            assert second.occupancy.window == (60_800 if name == "codex" else 64_000)

        # Claude Code refuses a plain `sleep`.
        ask = desk.ask(call("python3 -c 'import time; time.sleep(90)'"), session, resume=True)
        process = desk.start(ask)
        try:
            state = "tool" if name in NOTES_CALLS else "working"
            until(lambda: _brief(_look(desk, session))[1] == state or process.poll() is not None, CALL_S, state)
            busy = _look(desk, session)
            assert process.poll() is None and _brief(busy)[1] == state
            assert busy is not None and (name not in NOTES_CALLS or busy.turn.tool == tool)
        finally:
            end_group(process)
