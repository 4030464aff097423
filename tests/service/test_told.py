"""What an interactive session says of the task in hand, over HTTP, to a real agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mesh.models import Message, Task
from mesh.models.running import Occupancy, RunnerHealth
from mesh.runners.base import Report
from mesh.service.agent_runner import AgentRunner
from mesh.service.told import Told
from tests.service.stage import Mesh, Served, until


class Interactive:
    """A runner whose session is elsewhere: it only waits for what that says."""

    outlives = False
    reads_mail = False

    def can_run(self, task: Task) -> bool:
        return True

    async def run(self, task: Task, context: Told) -> Report:
        return await context.told(task)

    async def show(self, text: str, messages: Sequence[Message] = ()) -> None:
        raise AssertionError("it reads no mail")

    async def summarise(self, text: str) -> str | None:
        return None

    async def occupancy(self) -> Occupancy | None:
        return Occupancy(tokens=1200, window=4000, source="a test")

    async def health(self) -> RunnerHealth:
        return RunnerHealth(state="ok")


@pytest.fixture(autouse=True)
def interactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentRunner, "_made", lambda self, entry: Interactive())


async def say(ada: Served, task_id: str, what: str, body: dict[str, Any], caller: str = "ada") -> tuple[int, Any]:
    async with ada.client(caller) as client:
        answer = await client.post(f"/task/{task_id}/{what}", json=body)
    return answer.status_code, answer.json()


async def in_hand(ada: Served, **fields: Any) -> str:
    task_id = await ada.give("Something for a person's session", **fields)
    await until(lambda: ada.service.runner.told._end is not None)
    return task_id


async def test_it_is_done(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        task_id = await in_hand(ada)
        assert await say(ada, task_id, "progress", {"progress": 0.4, "note": "half way"}) == (200, {"noted": True})
        await until(lambda: mesh.events("task_note"))
        assert await say(ada, task_id, "complete", {"text": "**done**", "evidence": ["saw it"]}) == (
            200,
            {"completed": True},
        )
        task = await ada.ended(task_id)
        assert (task["result"]["text"], task["result"]["evidence"]) == ("**done**", ["saw it"])
        state = ada.service.core.state
        assert (state.context_tokens, state.context_limit) == (1200, 4000)


async def test_it_failed(mesh: Mesh) -> None:
    mesh.limit(taskAttemptsMax=1)
    async with mesh.running("ada") as ada:
        task_id = await in_hand(ada)
        assert (await say(ada, task_id, "fail", {"error": "no database"}))[0] == 200
        assert "no database" in (await ada.ended(task_id, "failed"))["error"]


async def test_what_is_not_in_hand_is_refused(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        for what, body in (("progress", {"progress": 1}), ("complete", {"text": "x"}), ("fail", {"error": "x"})):
            status, problem = await say(ada, "other", what, body)
            assert (status, "it works on nothing" in problem["detail"]) == (409, True)
        task_id = await in_hand(ada)
        status, problem = await say(ada, "other", "complete", {"text": "x"})
        assert (status, task_id in problem["detail"]) == (409, True)
        assert (await say(ada, task_id, "complete", {"text": "x"}))[0] == 200
        await ada.ended(task_id)
        assert (await say(ada, task_id, "complete", {"text": "again"}))[0] == 409


async def test_the_end_is_told_once(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        task_id = await in_hand(ada)
        answers = await asyncio.gather(*(say(ada, task_id, "complete", {"text": str(n)}) for n in range(5)))
        assert sorted(status for status, _ in answers) == [200, 409, 409, 409, 409]
        await ada.ended(task_id)


async def test_others_have_no_say(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        task_id = await in_hand(ada)
        assert (await say(ada, task_id, "complete", {"text": "x"}, caller="bob"))[0] == 403
        assert (await say(ada, task_id, "complete", {}))[0] == 422
        assert (await say(ada, task_id, "progress", {"progress": 7}))[0] == 422
        assert (await say(ada, task_id, "complete", {"text": "by a person"}, caller="operator"))[0] == 200
        await ada.ended(task_id)


async def test_a_skill_ends_by_itself(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        await ada.ended(await ada.give("Echo"))
        assert (await say(ada, "any", "progress", {"progress": 1}))[0] == 409
