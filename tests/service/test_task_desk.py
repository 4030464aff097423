"""The task calls: giving, finding, listing, cancelling, and who may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.stage import Gate, Mesh, Served, assert_problem, until

at_the_door = pytest.mark.asyncio(loop_scope="module")

# -- giving


async def test_a_task_is_accepted_done_and_reported(ada: Served) -> None:
    async with ada.client("dee") as client:
        # dee isn't ada's giver by delegation but watches her: ada is her buddy.
        answer = await client.post("/task", json={"title": "echo", "from": "dee", "input": {"a": 1}})
        assert answer.status_code == 202
        assert answer.json().keys() == {"accepted", "taskId"} and answer.json()["accepted"] is True
        await ada.ended(answer.json()["taskId"])
        task = (await client.get(f"/task/{answer.json()['taskId']}")).json()
    keys = "id type title description status priority owner from needs createdAt updatedAt startedAt finishedAt"
    keys += " estimatedCompletion progress attempts blockedBy blocks result error history"
    assert task.keys() >= set(keys.split())
    assert (task["status"], task["owner"], task["from"], task["via"]) == ("completed", "ada", "dee", None)
    assert (task["progress"], task["attempts"], task["error"]) == (1.0, 1, None)
    assert task["result"] == {
        "text": "echo of {'a': 1}",
        "format": "markdown",
        "files": [],
        "evidence": ["the input"],
        "usage": None,
        "branch": None,
        "commits": [],
    }
    assert [entry["status"] for entry in task["history"]] == ["queued", "working", "completed"]
    assert task["createdAt"] <= task["startedAt"] <= task["finishedAt"]
    assert not {"digest", "revision"} & task.keys()


async def test_the_giver_is_told_the_end(ada: Served) -> None:
    theirs = await ada.give("Echo", "dee")
    await ada.ended(theirs)
    persons = await ada.give("Echo")
    await ada.ended(persons)
    await until(lambda: list((ada.mesh.root / "system/human/inbox").glob(f"*{persons}*")))
    outbox = ada.mesh.json("agents/dee/outbox.json")["tasks"]
    assert [(entry["id"], entry["status"], entry["to"]) for entry in outbox] == [(theirs, "completed", "ada")]


async def test_the_same_id_and_body_again_is_one_task(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    body = {"title": "Hold", "id": "mine.1", "input": {"n": 1}}
    async with mesh.running("ada") as ada, ada.client() as client:
        answers = [await client.post("/task", json=body) for _ in range(3)]
        await until(lambda: gate.begun)
        answers.append(await client.post("/task", json=body))  # while it runs
        gate.opened.set()
        await ada.ended("mine.1")
        answers.append(await client.post("/task", json=body))  # and after it has ended
        assert {answer.status_code for answer in answers} == {202}
        assert all(answer.json() == {"accepted": True, "taskId": "mine.1"} for answer in answers)
        assert gate.begun == 1
        assert len((await client.get("/task")).json()) == 1


@pytest.mark.parametrize("change", [{"input": {"n": 2}}, {"priority": "high"}, {"from": "bob"}, {"owner": "any"}])
async def test_the_same_id_with_another_body_is_a_conflict(ada: Served, change: dict[str, Any]) -> None:
    body = {"title": "Echo", "id": "mine.2", "input": {"n": 1}}
    async with ada.client() as client:
        assert (await client.post("/task", json=body)).status_code == 202
        found = assert_problem(await client.post("/task", json={**body, **change}), 409, "conflict")
    assert found["taskId"] == "mine.2" and found["accepted"] is False


@at_the_door
async def test_what_nothing_runs_is_refused_with_what_could_be_asked_for(front: Served) -> None:
    async with front.client() as client:
        for body in ({"title": "Fly"}, {"title": "Echo", "skill": "Fly"}):
            found = assert_problem(await client.post("/task", json=body), 409, "nothing-runs-it")
            assert (found["skills"], found["accepted"]) == (["Echo"], False)
        assert (await client.post("/task", json={"title": "Anything", "skill": "ECHO"})).status_code == 202


@at_the_door
async def test_another_owner_is_refused(front: Served) -> None:
    async with front.client() as client:
        found = assert_problem(await client.post("/task", json={"title": "Echo", "owner": "bob"}), 422, "invalid")
        assert found["errors"][0]["field"] == "owner"
        assert (await client.post("/task", json={"title": "Echo", "owner": "ada"})).status_code == 202


async def test_a_task_for_anyone_goes_to_who_is_responsible(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("bob", "Bobbing", gate)
    async with mesh.all_running("ada", "bob") as (ada, bob), ada.client() as client:
        body = {"title": "Bobbing", "owner": "any", "needs": ["bob-things"]}
        answer = await client.post("/task", json=body)
        assert answer.status_code == 202, "ada can't, but bob can"
        await until(lambda: gate.begun)
        assert bob.task(answer.json()["taskId"])["owner"] == "bob"
        gate.opened.set()
        await bob.ended(answer.json()["taskId"])


async def test_a_task_for_anyone_that_nobody_can_do_is_refused(mesh: Mesh) -> None:
    async with mesh.all_running("ada", "bob") as (ada, _), ada.client() as client:
        for body in ({"title": "Fly"}, {"title": "Echo", "needs": ["flying"]}):
            answer = await client.post("/task", json={**body, "owner": "any"})
            found = assert_problem(answer, 409, "nothing-runs-it")
            assert found["accepted"] is False


async def test_the_operator_names_the_giver_and_it_is_recorded(ada: Served) -> None:
    as_bob = ada.task(await ada.give("Echo", **{"from": "bob"}))
    assert (as_bob["from"], as_bob["via"]) == ("bob", "operator")
    own = ada.task(await ada.give("Echo"))
    assert (own["from"], own["via"]) == ("human", "operator")


@pytest.mark.parametrize(
    ("policy", "giver", "allowed", "why"),
    [
        ("peers", "dee", True, "ada is dee's buddy"),
        ("peers", "cyd", True, "cyd orchestrates"),
        ("peers", "ada", True, "to herself"),
        ("peers", "bob", False, "bob is watched by ada, which gives him no right"),
        ("open", "bob", True, "anyone to anyone"),
        ("orchestrator", "bob", False, "tasks go as under peers"),
    ],
)
async def test_delegation(mesh: Mesh, policy: str, giver: str, allowed: bool, why: str) -> None:
    mesh.edit(lambda document: document.update(policy=policy))
    async with mesh.running("ada") as ada, ada.client(giver) as client:
        answer = await client.post("/task", json={"title": "Echo"})
        if allowed:
            assert answer.status_code == 202, why
        else:
            found = assert_problem(answer, 403, "forbidden")
            assert found["accepted"] is False and '"owner": "any"' in found["detail"], why
        anyone = await client.post("/task", json={"title": "Echo", "owner": "any"})
        assert anyone.status_code == 202, "the global queue is open to all"


async def test_a_task_waits_for_another(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada, ada.client() as client:
        first = await ada.give("Hold")
        second = await ada.give("Echo", blockedBy=[first])
        await until(lambda: gate.begun)
        assert ada.task(second)["status"] == "blocked"
        assert (await client.get(f"/task/{first}")).json()["blocks"] == [second]
        gate.opened.set()
        await ada.ended(second)
        assert ada.task(first)["finishedAt"] <= ada.task(second)["startedAt"]
        third = await ada.give("Echo", blockedBy=[first, second])
        await ada.ended(third)


async def test_blocked_by_nothing_known(ada: Served) -> None:
    async with ada.client() as client:
        body = {"title": "Echo", "blockedBy": ["nobody-1"]}
        found = assert_problem(await client.post("/task", json=body), 422, "invalid")
    assert found["errors"][0]["field"] == "blockedBy.0"


async def test_what_waits_for_a_failed_task_fails_too(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada, ada.client() as client:
        first = await ada.give("Hold")
        second = await ada.give("Echo", blockedBy=[first])
        third = await ada.give("Echo", blockedBy=[second])
        assert (await client.delete(f"/task/{first}")).status_code == 200
        assert first in str((await ada.ended(second, "failed"))["error"])
        assert second in str((await ada.ended(third, "failed"))["error"])


async def test_a_task_that_needs_approval_waits_for_a_person(ada: Served) -> None:
    waits = await ada.give("Echo", approval=True)
    await ada.ended(await ada.give("Echo"))
    assert (ada.task(waits)["status"], ada.task(waits)["attempts"]) == ("awaiting_approval", 0)


async def test_a_full_queue(mesh: Mesh) -> None:
    mesh.limit(tasksWaitingMax=2)
    mesh.store.switches.pause("ada", "human")
    async with mesh.running("ada") as ada, ada.client() as client:
        for _ in range(2):
            await ada.give("Echo")
        answer = await client.post("/task", json={"title": "Echo"})
        found = assert_problem(answer, 429, "queue-full")
        assert found["accepted"] is False and answer.headers["retry-after"]


async def test_urgent_work_is_served_first(mesh: Mesh) -> None:
    mesh.store.switches.pause("ada", "human")
    async with mesh.running("ada") as ada, ada.client() as client:
        ids = {name: await ada.give("Echo", priority=name) for name in ("low", "normal", "high", "urgent")}
        listed = [task["id"] for task in (await client.get("/task")).json()]
        assert listed == [ids[name] for name in ("urgent", "high", "normal", "low")]
        mesh.store.switches.resume("ada")
        await ada.ended(ids["low"])
    begun = [event["taskId"] for event in mesh.events("task_started")]
    assert begun == listed


# -- finding and listing


async def test_any_agent_answers_for_any_task(mesh: Mesh) -> None:
    async with mesh.all_running("ada", "dee") as (ada, dee):
        task_id = await ada.give("Echo")
        await ada.ended(task_id)
        async with dee.client("bob") as client:
            found = await client.get(f"/task/{task_id}")
        assert (found.status_code, found.json()["owner"], found.json()["status"]) == (200, "ada", "completed")


@at_the_door
@pytest.mark.parametrize("task_id", ["nothing", ".x", "%2e%2e%2fregistry", "a%00b", "x" * 300, "%ff", "é"])
async def test_unknown_tasks(front: Served, task_id: str) -> None:
    async with front.client() as client:
        for method in ("GET", "DELETE"):
            assert_problem(await client.request(method, f"/task/{task_id}"), 404)


@pytest.fixture
async def several(mesh: Mesh) -> Any:
    """ada with two completed tasks, a cancelled and a queued one, and one in the global queue."""
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        done = [await ada.give("Echo"), await ada.give("Echo")]
        for task_id in done:
            await ada.ended(task_id)
        mesh.store.switches.pause("ada", "human")
        await until(lambda: ada.service.core.paused)
        waiting, shared, off = await ada.give("Echo"), await ada.give("Echo", owner="any"), await ada.give("Echo")
        async with ada.client() as client:
            assert (await client.delete(f"/task/{off}")).status_code == 200
            yield client, {"done": done, "waiting": waiting, "shared": shared, "off": off}


async def test_listing(several: Any) -> None:
    client, ids = several

    async def listed(query: str = "") -> list[str]:
        answer = await client.get(f"/task{query}")
        assert answer.status_code == 200, answer.text
        return [task["id"] for task in answer.json()]

    everything = await listed()
    assert everything[:2] == [ids["waiting"], ids["shared"]], "the open ones as they are served"
    assert everything[2:] == [ids["off"], *reversed(ids["done"])], "then the ended ones, newest first"
    assert await listed("?limit=3") == everything[:3]
    assert set(await listed("?status=completed")) == set(ids["done"])
    assert await listed("?status=completed&limit=1") == [ids["done"][1]]
    assert await listed("?status=queued") == [ids["waiting"], ids["shared"]]
    assert await listed("?status=cancelled") == [ids["off"]]
    assert await listed("?status=failed") == []
    assert await listed("?owner=any") == [ids["shared"]]
    assert await listed("?owner=ada&status=queued") == [ids["waiting"]]
    assert await listed("?owner=dee") == []
    assert_problem(await client.get("/task?owner=nobody"), 404, "unknown-agent")


@at_the_door
@pytest.mark.parametrize(
    ("query", "field"), [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("status=done", "status")]
)
async def test_a_wrong_query(front: Served, query: str, field: str) -> None:
    async with front.client() as client:
        found = assert_problem(await client.get(f"/task?{query}"), 422, "invalid")
    assert [error["field"] for error in found["errors"]] == [field]


async def test_a_filter_finds_what_lies_behind_many_others(mesh: Mesh) -> None:
    """The one failed task is older than a dozen cancelled ones, which lie in the same folder."""

    async def fail(context: Any) -> Any:
        raise RuntimeError("boom")

    mesh.limit(taskAttemptsMax=1)
    mesh.skill("ada", "Fail", fail)
    async with mesh.running("ada") as ada, ada.client() as client:
        failed = await ada.give("Fail")
        await ada.ended(failed, "failed")
        mesh.store.switches.pause("ada", "human")
        await until(lambda: ada.service.core.paused)
        for _ in range(12):
            assert (await client.delete(f"/task/{await ada.give('Echo')}")).status_code == 200
        found = (await client.get("/task?status=failed&limit=1")).json()
    assert [task["id"] for task in found] == [failed]


# -- cancelling


@pytest.mark.parametrize(
    ("caller", "allowed", "why"),
    [
        ("ada", True, "the owner"),
        ("dee", True, "the giver"),
        ("cyd", True, "the orchestrator"),
        ("operator", True, "a person"),
        ("bob", False, "neither"),
    ],
)
async def test_who_may_cancel(mesh: Mesh, caller: str, allowed: bool, why: str) -> None:
    mesh.store.switches.pause("ada", "human")
    async with mesh.running("ada") as ada, ada.client(caller) as client:
        task_id = await ada.give("Echo", "dee")
        answer = await client.delete(f"/task/{task_id}")
        if allowed:
            assert (answer.status_code, answer.json()) == (200, {"cancelled": True}), why
            assert ada.task(task_id)["status"] == "cancelled"
            assert caller in ada.task(task_id)["history"][-1]["reason"]
        else:
            found = assert_problem(answer, 403, "forbidden")
            assert "cyd" in found["detail"], "it says who may"
            assert ada.task(task_id)["status"] == "queued", why


async def test_cancelling_stops_the_work(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada, ada.client() as client:
        task_id = await ada.give("Hold")
        await until(lambda: gate.begun)
        assert (await client.delete(f"/task/{task_id}")).json() == {"cancelled": True}
        task = await ada.ended(task_id, "cancelled", 2.0)
        assert (gate.stopped, task["attempts"], task["result"]) == (1, 1, None)
        await ada.ended(await ada.give("Echo"))


async def test_a_task_can_be_cancelled_at_another_agent(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.all_running("ada", "bob") as (ada, bob):
        task_id = await ada.give("Hold")
        await until(lambda: gate.begun)
        async with bob.client("cyd") as client:
            assert (await client.delete(f"/task/{task_id}")).status_code == 200
        await ada.ended(task_id, "cancelled", 2.0)
        assert gate.stopped == 1


async def test_an_ended_task_stays_as_it_is(ada: Served) -> None:
    task_id = await ada.give("Echo")
    await ada.ended(task_id)
    async with ada.client() as client:
        found = assert_problem(await client.delete(f"/task/{task_id}"), 409, "task-ended")
    assert found["taskId"] == task_id and ada.task(task_id)["status"] == "completed"
