"""What each type of message does, exactly once: also where its process died between the effect and the ack."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mesh import Mailbox
from mesh.models import PAYLOADS
from mesh.service.agent import AgentService
from mesh.service.sorting import Handling
from tests.service.mail_stage import (
    QUICK,
    alerts,
    arrived,
    drop,
    filed,
    ids,
    kill_holder,
    names,
    processed,
    send,
    written,
)
from tests.service.stage import Gate, Mesh, assert_problem, until

COMMENTS = {"pr": "2", "comments": [{"path": "a.py", "line": 3, "body": "why?"}]}


@pytest.fixture(autouse=True)
def quick(mesh: Mesh) -> None:
    mesh.limit(**QUICK)


async def crash_before_ack(mesh: Mesh, agent: str, times: int = 1) -> AgentService:
    """The agent's process carries the effect of its one message out and dies before it acks. So many times."""
    for _ in range(times):
        service = mesh.service(agent)
        (name,) = names(mesh, agent)
        claimed = service.core.store.mail.receiving.claim(agent, name)
        assert claimed.claim is not None
        (message,) = service.core.store.mail.waiting(agent)
        handling = await service.mail.effects(message)
        assert isinstance(handling, Handling)
        await service.core.io(lambda: None)
        kill_holder(mesh, agent, name)
    return service


def _tasks(mesh: Mesh) -> list[dict[str, Any]]:
    found = [task.dump() for task in mesh.store.tasks.open()] + [task.dump() for task in mesh.store.tasks.ended(100)]
    return sorted(found, key=lambda task: task["id"])


def _insights(mesh: Mesh) -> list[Any]:
    return [(insight.agent, insight.topic) for insight in mesh.store.knowledge.insights()]


def _blockers(mesh: Mesh) -> list[Any]:
    return [
        (blocker.agent, blocker.topic, blocker.dump().get("count", 1)) for blocker in mesh.store.knowledge.blockers()
    ]


def _escalations(mesh: Mesh) -> list[Any]:
    return [(alert.severity, alert.detail, alert.count) for alert in alerts(mesh, "escalation")]


#: type → sender, payload, what to look at, what is to be found there, once.
ONCE: dict[str, tuple[str, dict[str, Any], Callable[[Mesh], Any], Any]] = {
    "task_request": (
        "dee",
        {"task": {"title": "Echo", "input": {"a": 1}}},
        lambda mesh: [(t["title"], t["from"], t["status"]) for t in _tasks(mesh)],
        [("Echo", "dee", "completed")],
    ),
    "fix_ci_failure": (
        "dee",
        {"pr": "1", "check": "lint", "error": "E501"},
        lambda mesh: [(t["title"], t["type"], t["status"]) for t in _tasks(mesh)],
        [("Fix CI failure", "fix_ci_failure", "completed")],
    ),
    "fix_review_comments": (
        "cyd",
        COMMENTS,
        lambda mesh: [(t["title"], t["input"]) for t in _tasks(mesh) if t["status"] == "completed"],
        [("Fix review comments", COMMENTS)],
    ),
    "help_request": (
        "bob",
        {"topic": "Echo", "context": "how?"},
        lambda mesh: [(t["type"], t["title"], t["from"]) for t in _tasks(mesh)],
        [("help", "Help: Echo", "bob")],
    ),
    "info_share": ("bob", {"topic": "release", "data": {"v": 1}}, _insights, [("bob", "release")]),
    "blocker_report": ("bob", {"blocker": {"topic": "no disk"}}, _blockers, [("bob", "no disk", 1)]),
    "escalation": ("bob", {"issue": "it burns", "severity": "critical"}, _escalations, [("critical", "it burns", 1)]),
    "status_request": (
        "bob",
        {"text": "?"},
        lambda mesh: [m["type"] for m in filed(mesh, "bob")],
        ["status_response"],
    ),
}


@pytest.mark.parametrize("crashes", [0, 1, 2])
@pytest.mark.parametrize("type_", ONCE)
async def test_the_effect_is_carried_out_exactly_once(mesh: Mesh, type_: str, crashes: int) -> None:
    sender, payload, look, expected = ONCE[type_]
    for title in ("Fix CI failure", "Fix review comments"):
        mesh.skill("ada", title, mesh.roles["ada"].skills["Echo"])
    id_ = await send(mesh, sender, "ada", type_, payload=payload)
    if crashes:
        await crash_before_ack(mesh, "ada", crashes)
    async with mesh.running("ada"):
        message = await processed(mesh, "ada", id_)
        await until(lambda: look(mesh) == expected)
        assert message["handling"]["attempts"] == crashes + 1
        # The same file once more, as a hand that restores a backup puts it there.
        if crashes == 0:
            drop(mesh, {k: v for k, v in message.items() if k not in ("ackedAt", "handling")}, "again.json")
            await until(lambda: names(mesh, "ada", "rejected") or not names(mesh, "ada"))
    assert look(mesh) == expected and names(mesh, "ada", "dead") == []


async def test_a_third_crash_is_the_last(mesh: Mesh) -> None:
    id_ = await send(mesh, "bob", "ada", "info_share", payload={"topic": "poison"}, requires_ack=True)
    await crash_before_ack(mesh, "ada", 3)
    async with mesh.running("ada"):
        notice = await arrived(mesh, "bob", "error")
        await until(lambda: ids(mesh, "ada", "dead") == [id_])
    assert (notice["replyTo"], notice["payload"]["state"]) == (id_, "dead") and len(names(mesh, "bob")) == 1


# -- the state


async def test_status_is_answered_from_state(mesh: Mesh) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        await ada.give("Hold")
        await until(lambda: gate.begun)
        id_ = await send(mesh, "bob", "ada", "status_request", payload={"text": "?"}, requires_ack=True)
        answer = await arrived(mesh, "bob", "status_response")
        assert (answer["replyTo"], answer["via"], answer["from"]) == (id_, "mesh", "ada")
        assert answer["payload"]["currentTask"]["title"] == "Hold" and "Hold" in answer["payload"]["text"]
        await processed(mesh, "ada", id_)
        gate.opened.set()
    assert sorted(m["type"] for m in filed(mesh, "bob")) == ["ack", "status_response"]


# -- shutdown


@pytest.mark.parametrize("sender", ["human", "cyd"])
async def test_shutdown(mesh: Mesh, sender: str) -> None:
    gate, called = Gate(), []
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        task = await ada.give("Hold")
        await until(lambda: gate.begun)
        ada.service.on_shutdown = called.append
        if sender == "human":
            id_ = await ada.tell("shutdown", payload={"reason": "enough"})
        else:
            id_ = await send(mesh, sender, "ada", "shutdown", payload={"reason": "enough"})
        await processed(mesh, "ada", id_)
        assert called == ["enough"]
        assert mesh.store.switches.is_stopped("ada")
    note = json.loads((mesh.root / "agents/ada/stopped").read_text())
    assert (note["reason"], note["by"]) == ("enough", "operator" if sender == "human" else sender)
    assert gate.stopped == 1 and mesh.task(task)["status"] == "queued", "its work is saved"


@pytest.mark.parametrize("sender", ["bob", "ada", "dee"])
async def test_nobody_else_shuts_an_agent_down(mesh: Mesh, sender: str) -> None:
    async with mesh.running("ada") as ada:
        async with ada.client(sender) as client:
            assert_problem(await client.post("/message", json={"type": "shutdown"}), 403, "forbidden")
        drop(mesh, written(from_=sender, type="shutdown", payload={}, via="operator"))
        await until(lambda: names(mesh, "ada", "rejected"))
        drop(mesh, written("t-2", "human", type="shutdown", payload={}, via="operator"), "2.json")
        await until(lambda: len(names(mesh, "ada", "rejected")) == 2)
    assert not mesh.store.switches.is_stopped("ada")


async def test_an_operator_may_speak_for_the_orchestrator_only(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada, ada.client() as client:
        answer = await client.post("/message", json={"type": "shutdown", "from": "bob"})
        assert_problem(answer, 403, "forbidden")
        assert (await client.post("/message", json={"type": "shutdown", "from": "cyd"})).status_code == 202
        await until(lambda: mesh.store.switches.is_stopped("ada"))


# -- ack, error: they close


@pytest.mark.parametrize("type_", ["ack", "error", "anything"])
@pytest.mark.parametrize("by_hand", [False, True])
async def test_an_answer_closes_its_question_and_is_not_answered(mesh: Mesh, type_: str, by_hand: bool) -> None:
    async with mesh.all_running("ada", "bob"):
        question = await send(mesh, "bob", "ada", "question", requires_ack=True)
        await until(lambda: names(mesh, "ada", "claims"))
        if by_hand:
            answer = written("an-answer", "ada", "bob", type=type_, payload={"text": "no"}, replyTo=question)
            drop(mesh, answer, address="bob")
        else:
            await send(mesh, "ada", "bob", type_, payload={"text": "no"}, reply_to=question)
        await processed(mesh, "ada", question)
        if type_ == "ack":
            await until(lambda: not names(mesh, "bob"))
        else:
            await until(lambda: names(mesh, "bob", "claims"))
            assert [m["type"] for m in filed(mesh, "bob")] == [type_], "text stays until somebody acks it"
        assert names(mesh, "ada") == []


async def test_a_forged_answer_closes_nothing(mesh: Mesh) -> None:
    async with mesh.all_running("ada", "bob"):
        question = await send(mesh, "dee", "ada", "question", requires_ack=True)
        await send(mesh, "ada", "bob", "ack", reply_to=question)
        await send(mesh, "bob", "dee", "ack", reply_to=question)
        await until(lambda: not names(mesh, "bob"))
        assert ids(mesh, "ada") == [question]


# -- knowledge


async def test_a_blocker_is_reported_and_resolved(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        report = {"blocker": {"id": "b1", "topic": "disk", "description": "full", "needs": ["x"], "severity": "high"}}
        await send(mesh, "bob", "ada", "blocker_report", payload=report)
        (blocker,) = await until(lambda: mesh.store.knowledge.blockers())
        assert (blocker.id, blocker.agent, blocker.description, blocker.severity) == ("b1", "bob", "full", "high")
        await send(mesh, "dee", "ada", "blocker_resolved", payload={"blockerId": "b1"})
        await until(lambda: not mesh.store.knowledge.blockers())
        unknown = await send(mesh, "dee", "ada", "blocker_resolved", payload={"blockerId": "never"})
        await processed(mesh, "ada", unknown)
        (blocker,) = mesh.store.knowledge.blockers(unresolved=False)
        assert blocker.resolved_at


async def test_two_escalations_are_two_alerts(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        for id_ in ("e" * 128, "e" * 127 + "f"):
            await send(mesh, "bob", "ada", "escalation", id=id_, payload={"issue": "fire", "severity": "high"})
        await until(lambda: len(names(mesh, "ada", "processed")) == 2)
    assert len(alerts(mesh, "escalation")) == 2


async def test_an_unknown_type_is_free_and_waits_for_an_ack(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        id_ = await send(mesh, "bob", "ada", "my_own_type2", payload={"whatever": [1, {"x": None}]})
        await until(lambda: names(mesh, "ada", "claims"))
        (message,) = await Mailbox(mesh.root, "ada").receive()
        assert (message.id, message.payload) == (id_, {"whatever": [1, {"x": None}]})


def test_every_type_of_the_contract_is_known() -> None:
    service_types = set(ONCE) | {"status_response", "shutdown", "error", "ack", "task_update", "task_complete"}
    assert set(PAYLOADS) == service_types | {"task_failed", "blocker_resolved", "context_handoff"}
