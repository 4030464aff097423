"""The routes that look, the buddy's calls and wake: what they take and what they answer."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from mesh.models import AgentState
from tests.service.stage import Gate, Mesh, Served, assert_problem, until

PING = {
    "from": "dee",
    "timestamp": "2026-02-17T10:00:00.000Z",
    "myStatus": {
        "taskQueueLength": 3,
        "currentTask": "monitoring-setup",
        "lastCompletedTask": "2026-02-17T09:45:00.000Z",
        "contextTokens": 45000,
        "errors24h": 0,
    },
}


at_the_door = pytest.mark.asyncio(loop_scope="module")

# -- looking


async def test_health_needs_no_secret(ada: Served) -> None:
    async with ada.client(None) as client:
        answer = await client.get("/health")
    found = answer.json()
    assert answer.status_code == 200
    assert isinstance(found.pop("uptime"), float)
    assert found == {"status": "healthy", "agentId": "ada", "incarnation": 1, "reasons": []}


async def test_an_agent_that_must_end_is_unhealthy(ada: Served) -> None:
    ada.service.core.fatal = "its disk can't be trusted"
    async with ada.client(None) as client:
        answer = await client.get("/health")
    assert answer.status_code == 503
    assert (answer.json()["status"], answer.json()["reasons"]) == ("unhealthy", ["its disk can't be trusted"])


async def test_status_has_all_of_the_state_and_more(ada: Served) -> None:
    async with ada.client() as client:
        found = (await client.get("/status")).json()
    on_disk = ada.mesh.json("agents/ada/state.json")
    assert found.keys() >= on_disk.keys() | {"buddy", "watchedBy", "inboxLength", "root", "registry", "alerts"}
    assert AgentState.model_validate(found).agent_id == "ada"
    assert (found["buddy"], found["watchedBy"]) == ("bob", "dee")
    assert found["root"] == str(ada.mesh.root)
    assert found["registry"] == {"ok": True, "error": None}
    assert (found["inboxLength"], found["alerts"], found["skills"]) == (0, [], ["Echo"])


async def test_status_shows_open_alerts(ada: Served) -> None:
    ada.mesh.store.alerts.raise_alert("disk", "bob", "A disk is failing", "smart says so", severity="high")
    async with ada.client("bob") as client:
        alerts = (await client.get("/status")).json()["alerts"]
    assert [(alert["title"], alert["severity"], alert["agentId"]) for alert in alerts] == [
        ("A disk is failing", "high", "bob")
    ]


async def test_status_shows_the_task_in_hand(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada, ada.client() as client:
        task_id = await ada.give("Hold", description="for a while", estimatedMinutes=5)
        await until(lambda: gate.begun)
        found = (await client.get("/status")).json()
        assert found["status"] == "working"
        assert found["currentTask"]["id"] == task_id and found["currentTask"]["description"] == "for a while"
        assert found["currentTask"]["estimatedCompletion"] > found["currentTask"]["startedAt"]
        gate.opened.set()
        await ada.ended(task_id)
        await until(lambda: ada.service.core.state.current_task is None)
        found = (await client.get("/status")).json()
        assert (found["status"], found["currentTask"]) == ("idle", None)
        assert found["metrics"]["tasksCompleted24h"] == 1


# -- buddies


async def test_ping(ada: Served) -> None:
    async with ada.client("dee") as client:
        answer = await client.post("/buddy/ping", json=PING)
    assert answer.status_code == 200
    assert answer.json() == {
        "agentId": "ada",
        "status": "healthy",
        "taskQueueLength": 0,
        "currentTask": None,
        "concerns": [],
        "needsHelp": False,
    }
    await until(lambda: ada.mesh.events("pinged", "ada"))
    assert ada.mesh.events("pinged", "ada")[0]["watcher"] == "dee"


async def test_a_ping_may_say_less_or_more_of_its_sender(ada: Served) -> None:
    """A newer agent's status may have more keys; what it needs not say, it may leave out."""
    async with ada.client("dee") as client:
        assert (await client.post("/buddy/ping", json={"from": "dee"})).status_code == 200
        more = {"from": "dee", "myStatus": {"taskQueueLength": 1, "mood": "good"}}
        assert (await client.post("/buddy/ping", json=more)).status_code == 200
        bad = {"from": "dee", "myStatus": {"taskQueueLength": -1}}
        found = assert_problem(await client.post("/buddy/ping", json=bad), 422, "invalid")
    assert found["errors"][0]["field"] == "myStatus.taskQueueLength"


async def test_a_ping_tells_what_is_wrong(mesh: Mesh) -> None:
    mesh.limit(buddyQueueMax=2)
    mesh.store.switches.pause("ada", "human", "for the test")
    async with mesh.running("ada") as ada, ada.client("dee") as client:
        for _ in range(2):
            await ada.give("Echo")
        await until(lambda: ada.service.core.queue_length == 2)
        found = (await client.post("/buddy/ping", json=PING)).json()
    assert found["concerns"] == ["paused", "2 tasks waiting"]
    assert found["taskQueueLength"] == 2
    assert found["needsHelp"] is False, "who was paused by a person needs no help"


async def test_an_overfull_agent_needs_help(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada, ada.client("dee") as client:
        ada.service.core.state.context_tokens = 170_000
        found = (await client.post("/buddy/ping", json=PING)).json()
    assert (found["concerns"], found["needsHelp"]) == (["context over 70%"], True)


async def test_review_answers_the_actions(ada: Served) -> None:
    checks = {"taskQueueNotEmpty": False, "lastActivityWithin2Hours": True, "noRepeatedErrors": True}
    async with ada.client("dee") as client:
        answer = await client.post("/buddy/review", json={"from": "dee", "checkResults": checks})
    assert (answer.status_code, answer.json()) == (200, {"acknowledged": True, "actions": ["look_for_work"]})
    await until(lambda: ada.mesh.events("reviewed", "ada"))
    event = ada.mesh.events("reviewed", "ada")[0]
    assert (event["watcher"], event["checks"]) == ("dee", checks)


async def test_a_review_that_found_errors_is_reported_as_a_blocker_once(ada: Served) -> None:
    body = {"from": "dee", "checkResults": {"noRepeatedErrors": False}}
    async with ada.client("dee") as client:
        for _ in range(2):
            assert (await client.post("/buddy/review", json=body)).json()["actions"] == ["report_errors"]
    blockers = ada.mesh.json("knowledge/blockers.json")["blockers"]
    assert [(blocker["agent"], blocker["topic"]) for blocker in blockers] == [("ada", "Repeated errors")]


@at_the_door
@pytest.mark.parametrize("checks", [None, [], {"taskQueueNotEmpty": "maybe"}, {str(n): True for n in range(51)}])
async def test_a_review_of_the_wrong_shape(front: Served, checks: Any) -> None:
    async with front.client("dee") as client:
        answer = await client.post("/buddy/review", json={"from": "dee", "checkResults": checks})
    assert assert_problem(answer, 422, "invalid")["errors"][0]["field"].startswith("checkResults")


# -- waking


async def test_wake(ada: Served) -> None:
    async with ada.client("dee") as client:
        answer = await client.post("/wake", json={"from": "dee", "reason": "check"})
    assert answer.status_code == 200
    assert answer.json()["awake"] is True and answer.json()["did"]
    await until(lambda: ada.mesh.events("woken", "ada"))
    assert (ada.mesh.events("woken")[0]["by"], ada.mesh.events("woken")[0]["reason"]) == ("dee", "check")


async def test_wake_never_touches_a_running_task(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada, ada.client() as client:
        task_id = await ada.give("Hold")
        await until(lambda: gate.begun)
        before = ada.service.core.clock.tick
        for _ in range(5):
            assert (await client.post("/wake", json={})).status_code == 200
        gate.opened.set()
        task = await ada.ended(task_id)
        assert (gate.begun, gate.stopped, task["attempts"]) == (1, 0, 1)
        assert ada.service.core.clock.tick == before, "nor is it the mesh's tick"


async def test_wake_takes_up_what_was_put_into_the_files(mesh: Mesh) -> None:
    mesh.limit(fileFreshS=2, beatIntervalS=5)  # no beat comes in time: only the wake does it
    async with mesh.running("ada") as ada, ada.client() as client:
        mesh.store.switches.pause("ada", "human", "for the test")
        assert (await client.post("/wake", json={})).status_code == 200
        await until(lambda: ada.service.core.paused, 1.0)


async def test_a_wake_that_finds_a_file_it_cannot_read_kills_nobody(ada: Served) -> None:
    """A file of a newer version is refused untouched; the agent goes on."""
    queue = ada.mesh.root / "tasks" / "queue.json"
    queue.write_text(json.dumps({"schemaVersion": 99, "tasks": []}), encoding="utf-8")
    async with ada.client() as client:
        assert (await client.post("/wake", json={})).status_code == 200
        await until(lambda: ada.service.core.fatal or ada.mesh.events("woken"))
        for _ in range(200):  # the pass that it began has run
            await asyncio.sleep(0.001)
        health = await client.get("/health")
    assert ada.service.core.fatal is None
    assert health.status_code == 200, health.text
    assert json.loads(queue.read_text(encoding="utf-8"))["schemaVersion"] == 99


# -- in whose name

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("/buddy/ping", {}),
    ("/buddy/review", {"checkResults": {}}),
    ("/wake", {}),
    ("/task", {"title": "Echo"}),
]


@at_the_door
@pytest.mark.parametrize(("path", "body"), CALLS)
async def test_from_must_be_the_secrets_owner(front: Served, path: str, body: dict[str, Any]) -> None:
    async with front.client("dee") as client:
        for name in ("cyd", "human"):
            found = assert_problem(await client.post(path, json={**body, "from": name}), 403, "forbidden")
            assert "dee" in found["detail"] and name in found["detail"]


@at_the_door
@pytest.mark.parametrize(("path", "body"), CALLS)
async def test_from_must_be_known(front: Served, path: str, body: dict[str, Any]) -> None:
    for caller in ("dee", "operator"):
        async with front.client(caller) as client:
            found = assert_problem(await client.post(path, json={**body, "from": "zoe"}), 404, "unknown-agent")
        assert "zoe" in found["detail"] and "bob" in found["detail"], "it says who is known"


@pytest.mark.parametrize(("path", "body"), CALLS)
async def test_the_operator_may_name_anybody(ada: Served, path: str, body: dict[str, Any]) -> None:
    async with ada.client() as client:
        for name in ("bob", "human", None):
            named = {**body, "from": name} if name else body
            assert (await client.post(path, json=named)).status_code in (200, 202)


# -- errors and the description


@at_the_door
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/tasks", 404),
        ("PUT", "/task", 405),
        ("POST", "/health", 405),
        ("DELETE", "/wake", 405),
        ("GET", "/buddy/ping", 405),
        ("POST", "/compress", 404),
    ],
)
async def test_unknown_paths_and_methods(front: Served, method: str, path: str, status: int) -> None:
    """`/compress` comes with a later stage; until then it does not exist."""
    async with front.client() as client:
        answer = await client.request(method, path)
    assert_problem(answer, status)
    if status == 405:
        assert answer.headers["allow"]


@at_the_door
async def test_the_openapi_document_has_every_route_with_examples(front: Served) -> None:
    async with front.client() as client:
        document = (await client.get("/openapi.json")).json()
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert routes == {
        ("GET", "/health"),
        ("GET", "/status"),
        ("POST", "/task"),
        ("GET", "/task"),
        ("GET", "/task/{task_id}"),
        ("DELETE", "/task/{task_id}"),
        ("POST", "/buddy/ping"),
        ("POST", "/buddy/review"),
        ("POST", "/wake"),
        ("POST", "/message"),
        ("GET", "/message"),
        ("POST", "/message/{message_id}/ack"),
        ("POST", "/attachment"),
        ("GET", "/attachment/{sha256}"),
        ("POST", "/task/{task_id}/progress"),
        ("POST", "/task/{task_id}/complete"),
        ("POST", "/task/{task_id}/fail"),
        ("POST", "/hook"),
        ("POST", "/hook/shown"),
        ("POST", "/webhook/github"),
    }
    schemas = document["components"]["schemas"]
    asked = "TaskRequest PingRequest ReviewRequest WakeRequest MessageRequest AckRequest"
    for name in (*asked.split(), "ProgressTold", "CompletionTold", "FailureTold"):
        assert schemas[name]["examples"], name


async def test_the_examples_work(mesh: Mesh) -> None:
    """As printed, but for the names of the shipped agents."""
    mesh.skill("ada", "Code Review Queue", Gate())
    async with mesh.running("ada") as ada, ada.client() as client:
        document = (await client.get("/openapi.json")).json()
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if "requestBody" not in operation:
                    continue
                reference = operation["requestBody"]["content"]["application/json"]["schema"].get("$ref", "")
                if not reference or "{task_id}" in path:  # what GitHub says; what is said of a task in hand
                    continue
                for example in document["components"]["schemas"][reference.rpartition("/")[2]]["examples"]:
                    body = {**example, **({"from": "dee"} if "from" in example else {})}
                    if body.get("owner") == "any":
                        body |= {"title": "Echo", "needs": ["chores"]}
                    url = path.replace("{message_id}", await ada.tell("a_note"))
                    answer = await client.request(method, url, json=body)
                    assert answer.status_code in (200, 202), (path, body, answer.text)


@at_the_door
async def test_no_interactive_pages(front: Served) -> None:
    """They load scripts from elsewhere."""
    async with front.client() as client:
        for path in ("/docs", "/redoc"):
            assert_problem(await client.get(path), 404)


# -- a full disk


async def test_a_full_disk(mesh: Mesh) -> None:
    """Nothing new starts, everybody can see why, and it is over by itself when there is room again."""
    async with mesh.running("ada") as ada, ada.client() as client:
        mesh.limit(diskFreeMinMb=10**9)
        await until(lambda: ada.service.core.disk_low)
        health = await client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert "disk" in health.json()["reasons"][0]

        refused = await client.post("/task", json={"title": "Echo", "id": "during"})
        found = assert_problem(refused, 507, "disk-full")
        assert found["accepted"] is False and refused.headers["retry-after"]
        await until(lambda: ada.service.core.state.status == "blocked")
        assert "disk" in ada.service.core.state.reason
        ping = (await client.post("/buddy/ping", json={})).json()
        assert ping["concerns"] and ping["needsHelp"]

        mesh.limit(diskFreeMinMb=0)
        await until(lambda: not ada.service.core.disk_low)
        assert (await client.get("/health")).json()["status"] == "healthy"
        await ada.ended(await ada.give("Echo", id="during"))
        await until(lambda: ada.service.core.state.status == "idle")
    assert [event["event"] for event in mesh.events() if event["event"].startswith("disk_")] == ["disk_low", "disk_ok"]


async def test_waiting_work_is_not_begun_on_a_full_disk(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        running = await ada.give("Hold")
        waiting = await ada.give("Echo")
        await until(lambda: gate.begun)
        mesh.limit(diskFreeMinMb=10**9)
        await until(lambda: ada.service.core.disk_low)
        gate.opened.set()
        await ada.ended(running)
        await until(lambda: ada.service.core.state.current_task is None)
        assert ada.task(waiting)["status"] == "queued"
        mesh.limit(diskFreeMinMb=0)
        await ada.ended(waiting)


async def test_health_is_answered_while_the_disk_refuses_everything(ada: Served, monkeypatch: Any) -> None:
    def refuse(*args: Any) -> Any:
        raise OSError(28, os.strerror(28))

    for name in ("create", "append", "rename", "link"):
        monkeypatch.setattr(ada.service.core.store.disk, name, refuse)
    async with ada.client() as client:
        answer = await client.post("/task", json={"title": "Echo"})
        assert_problem(answer, 507, "disk-full")
        health = await client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
    monkeypatch.undo()
