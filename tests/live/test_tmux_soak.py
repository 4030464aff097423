"""The same checks, where they take long: the other real CLIs, and many more messages into the fake TUI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.models import Task
from mesh.models.runner_choice import TmuxChoice
from mesh.runners.base import Report
from mesh.runners.tmux import TmuxRunner
from mesh.runners.tmux.screens import State
from tests.live.stub_llm import stub
from tests.live.test_tmux import check_real
from tests.live.tmux_sessions import Host, RealSession, tmux_host
from tests.live.tmux_storm import judge, storm

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture
def host() -> Iterator[Host]:
    with tmux_host() as host:
        yield host


@pytest.mark.parametrize("cli", ["gemini", "goose", "openclaw", "aider"])
async def test_a_real_session(host: Host, tmp_path: Path, cli: str) -> None:
    with stub() as llm:
        await check_real(RealSession(host, cli, tmp_path / cli, llm))


async def test_aider_gets_a_task_by_doorbell(host: Host, tmp_path: Path) -> None:
    """Aider has no queue, no hooks and no tools: the doorbell in its own terminal is its way."""

    class Context:
        async def told(self, task: Task) -> Report:
            await session.until(lambda found: bool(llm.asked(task.id)) and found.state is State.IDLE, 60)
            return Report("told")

    with stub() as llm:
        session = RealSession(host, "aider", tmp_path, llm)
        await session.start()
        choice = TmuxChoice.model_validate(
            {"kind": "tmux", "cli": "aider", "target": session.name, "socket": host.socket}
        )
        runner = TmuxRunner("coder", choice)
        assert (await runner.health()).state == "ok"
        task = Task.model_validate(
            {
                "id": "0197a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b",
                "title": "Mend it",
                "owner": "coder",
                "from": "chief",
                "createdAt": "2026-01-01T00:00:00.000Z",
                "updatedAt": "2026-01-01T00:00:00.000Z",
                "attempts": 1,
            }
        )
        for _ in range(2):  # the second time, as the next daemon: it is not rung again
            assert (await runner.run(task, Context())).text == "told"
        doorbell = f"[mesh] normal task from chief. Read it with: mesh task show {task.id}"
        assert session.got(doorbell) == 1


async def test_a_thousand_messages_come_once_or_are_reported_uncertain(host: Host, tmp_path: Path) -> None:
    judge(await storm(host, tmp_path, 1000, 8), 1000)
