"""An agent's rounds: pings and reviews of its buddy, and the hourly sync, over real sockets where it matters."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from mesh.errors import PeerUnavailable
from mesh.service.server import AgentServer
from tests.service.sockets import free_ports, listening
from tests.service.stage import Gate, Mesh, until

SELF = "tasksCompleted currentTask blockers contextUsage idleMinutes".split()
ENVIRONMENT = "globalQueueLength myInboxLength systemAlerts".split()


@asynccontextmanager
async def listening_pair(mesh: Mesh, **options: Any) -> AsyncIterator[tuple[AgentServer, AgentServer]]:
    """ada and bob behind real sockets."""
    free_ports(mesh)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(listening(mesh, agent, **options)) for agent in ("ada", "bob")]
        yield servers[0], servers[1]


async def test_a_ping_is_really_exchanged(mesh: Mesh) -> None:
    async with listening_pair(mesh) as (ada, bob):
        core = ada.service.core
        await ada.service.rounds.ping()
        assert core.state.buddy_seen is not None
        assert ada.service.rounds.buddy_answer["agentId"] == "bob"
        assert ada.service.rounds.buddy_answer["healthy"] is True
        assert core.situation().buddy_answer_min is not None
        await until(lambda: mesh.events("pinged", "bob") and mesh.events("buddy_pinged", "ada"))
        assert mesh.events("pinged", "bob")[0]["watcher"] == "ada"
        assert bob.service.core.fatal is None


async def test_a_review_is_really_exchanged(mesh: Mesh) -> None:
    async with listening_pair(mesh) as (ada, _):
        await ada.service.rounds.review()
        expected = {
            "taskQueueNotEmpty": False,
            "lastActivityWithin2Hours": True,
            "noRepeatedErrors": True,
            "contextUnderLimit": True,
        }
        assert ada.service.core.state.buddy_review == expected
        await until(lambda: mesh.events("reviewed", "bob") and mesh.events("buddy_reviewed", "ada"))
        event = mesh.events("buddy_reviewed", "ada")[0]
        assert (event["buddy"], event["actions"], event["reason"]) == (
            "bob",
            ["look_for_work"],
            "not well: taskQueueNotEmpty",
        )
        assert mesh.events("reviewed", "bob")[0]["checks"] == expected


async def test_pings_and_syncs_come_by_themselves(mesh: Mesh) -> None:
    """With short ticks: a mesh hour passes in seconds."""
    mesh.limit(pingEveryTicks=5)
    async with listening_pair(mesh, tick_seconds=0.05):
        await until(lambda: mesh.events("buddy_pinged", "ada") and mesh.events("synced", "ada"), 15.0)
        await until(lambda: mesh.events("buddy_reviewed", "ada"))
    assert list((mesh.root / "system/syncs").glob("*-ada.json"))


async def test_the_sync_report_has_every_field_of_the_protocol(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with listening_pair(mesh) as (ada, _):
        core = ada.service.core
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {mesh.secret('operator')}"}) as client:
            url = f"http://127.0.0.1:{core.registry.entry('ada').port}/task"
            for body in ({"title": "Echo"}, {"title": "Hold"}, {"title": "Echo"}):
                assert (await client.post(url, json=body)).status_code == 202
            held = {"title": "Echo", "owner": "any", "needs": ["cyd-things", "chores"]}
            assert (await client.post(url, json=held)).status_code in (202, 409)
        await until(lambda: gate.begun)
        await until(lambda: core.queue_length == 1)
        mesh.store.alerts.raise_alert("disk", "dee", "A disk is failing", "smart says so", severity="high")
        await ada.service.rounds.sync()
        names = [path.name for path in (mesh.root / "system/syncs").iterdir()]
        assert len(names) == 1 and names[0].endswith("-ada.json")
        report = mesh.json(f"system/syncs/{names[0]}")
        gate.opened.set()

    assert (report["schemaVersion"], report["agentId"]) == (1, "ada")
    assert report["timestamp"].endswith("Z") and isinstance(report["tick"], int)
    assert list(report["self"]) == SELF and list(report["environment"]) == ENVIRONMENT
    assert report["self"]["tasksCompleted"] == 1
    assert report["self"]["currentTask"]["title"] == "Hold"
    assert report["self"]["blockers"] == [] and report["self"]["contextUsage"] == 0
    assert report["environment"]["myInboxLength"] == 1
    assert report["environment"]["systemAlerts"] == ["A disk is failing"]
    buddy = report["buddy"]
    assert (buddy["agentId"], buddy["healthy"], buddy["status"], buddy["concerns"]) == ("bob", True, "healthy", [])
    assert len(report["selfCheck"]) == 6 and len(report["buddyCheck"]) == 4
    for entry in report["selfCheck"] + report["buddyCheck"]:
        assert entry["question"].endswith("?") and isinstance(entry["answer"], bool) and isinstance(entry["ok"], bool)
    answers = {entry["question"]: entry["answer"] for entry in report["selfCheck"] + report["buddyCheck"]}
    assert answers["Do I have tasks in my queue?"] is True
    assert answers["Is my buddy alive and responsive?"] is True
    assert answers["Are there system alerts I should address?"] is True
    assert answers["Has my buddy responded to ping in last 15 min?"] is True
    assert answers["Is their task queue reasonable (not 0, not 100+)?"] is False


async def test_a_sync_with_the_buddy_down(mesh: Mesh) -> None:
    free_ports(mesh)
    mesh.limit(pingRetries=1, pingRetryPauseS=0)
    async with listening(mesh, "ada") as ada:
        await ada.service.rounds.sync()
        [name] = [path.name for path in (mesh.root / "system/syncs").iterdir()]
        report = mesh.json(f"system/syncs/{name}")
        await until(lambda: mesh.events("buddy_silent", "ada"))
    assert (report["buddy"]["agentId"], report["buddy"]["healthy"]) == ("bob", False)
    assert report["buddy"]["problem"]
    answers = {entry["question"]: entry["answer"] for entry in report["selfCheck"]}
    assert answers["Is my buddy alive and responsive?"] is False


async def test_tasks_are_counted_from_one_sync_to_the_next(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        ada.service.core.registry.agents["ada"].buddy = "ada"  # nobody else listens in this test
        mesh.limit(pingRetries=0)
        counts = []
        for given in (2, 1, 0):
            for _ in range(given):
                await ada.ended(await ada.give("Echo"))
            await until(lambda: ada.service.core.state.current_task is None)
            report = await ada.service.rounds._report()
            ada.service.core.state.last_sync = report["timestamp"]
            counts.append(report["self"]["tasksCompleted"])
    assert counts == [2, 1, 0]


class Flaky:
    """A peer that fails so many times before it answers."""

    def __init__(self, times: int, failure: Any) -> None:
        self.times, self.failure, self.calls = times, failure, 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        if self.calls <= self.times:
            if isinstance(self.failure, Exception):
                raise self.failure
            return self.failure  # type: ignore[no-any-return]
        answer = {"status": "healthy", "taskQueueLength": 0, "currentTask": None, "concerns": [], "needsHelp": False}
        return httpx.Response(200, json=answer)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (httpx.ConnectError("refused"), "refused"),
        (httpx.ReadTimeout("slow"), "timeout"),
        (httpx.RemoteProtocolError("gone"), "refused"),
        (httpx.Response(500), "answer"),
    ],
)
async def test_a_ping_is_tried_again_three_times(mesh: Mesh, failure: Any, reason: str) -> None:
    mesh.limit(pingRetryPauseS=0)
    async with mesh.running("ada") as ada:
        client = ada.service.client
        body = {"from": "ada", "myStatus": {}}
        for times, works in ((3, True), (4, False)):
            peer = Flaky(times, failure)
            async with httpx.AsyncClient(transport=httpx.MockTransport(peer)) as http:
                client._http = http
                if works:
                    assert (await client.ping("bob", body)).status == "healthy"
                else:
                    with pytest.raises(PeerUnavailable) as caught:
                        await client.ping("bob", body)
                    assert (caught.value.facts["agentId"], caught.value.facts["reason"]) == ("bob", reason)
            client._http = None
            assert peer.calls == 4


@pytest.mark.parametrize(
    "nonsense",
    [
        httpx.Response(200, json={"status": 5}),
        httpx.Response(200, json=[1]),
        httpx.Response(200, text="hello"),
    ],
)
async def test_what_answers_something_else_is_not_unreachable(mesh: Mesh, nonsense: httpx.Response) -> None:
    """Another program on the port, or a broken agent: a restart is not what it needs, so the reason must tell."""
    mesh.limit(pingRetryPauseS=0)
    async with mesh.running("ada") as ada:
        async with httpx.AsyncClient(transport=httpx.MockTransport(Flaky(9, nonsense))) as http:
            ada.service.client._http = http
            with pytest.raises(PeerUnavailable) as caught:
                await ada.service.client.ping("bob", {"from": "ada"})
        ada.service.client._http = None
    assert caught.value.facts["reason"] == "answer"


async def test_between_tries_a_restarting_buddy_gets_time(mesh: Mesh) -> None:
    """`pingRetryPauseS` is a limit with a reason: tries without a pause are one try."""
    mesh.limit(pingRetries=1, pingRetryPauseS=0.2)
    async with mesh.running("ada") as ada:
        moments: list[float] = []

        def note(request: httpx.Request) -> httpx.Response:
            moments.append(ada.service.core.time.monotonic())
            raise httpx.ConnectError("refused")

        async with httpx.AsyncClient(transport=httpx.MockTransport(note)) as http:
            ada.service.client._http = http
            with pytest.raises(PeerUnavailable):
                await ada.service.client.ping("bob", {"from": "ada"})
        ada.service.client._http = None
    assert len(moments) == 2 and moments[1] - moments[0] >= 0.19


async def test_a_buddy_that_accepts_and_says_nothing_is_a_timeout(mesh: Mesh) -> None:
    mesh.limit(pingTimeoutS=0.1, pingRetries=0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mesh.edit(lambda document: document["agents"]["bob"].update(port=mute.getsockname()[1]))
        async with mesh.running("ada") as ada:
            await ada.service.rounds.ping()
            assert ada.service.rounds.buddy_answer["healthy"] is False
            await until(lambda: mesh.events("buddy_silent", "ada"))
            assert mesh.events("buddy_silent", "ada")[0]["how"] == "timeout"
            assert ada.service.core.state.buddy_seen is None
