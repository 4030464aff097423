"""The HTTP routes of mail, as the contract fixes them."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import httpx
import pytest

from mesh import Mailbox
from mesh.store.socket_file import short_path
from tests.service.mail_stage import NO_SWEEP, QUICK, filed, folder, ids, names, processed, send
from tests.service.sockets import free_ports, listening
from tests.service.stage import TIMEOUT_S, Mesh, Served, assert_problem, until

NOTE: dict[str, Any] = {"type": "note", "payload": {"text": "hello"}}


def _lies_about(mesh: Mesh) -> list[str]:
    """Every file of mail in the mesh."""
    places = ("inbox", "processed", "rejected", "dead", "outbox", "outbox/queued")
    return [name for agent in mesh.roles for place in places for name in names(mesh, agent, place)]


# -- POST /message


async def test_a_message_is_taken_in_durably(ada: Served) -> None:
    async with ada.client("bob") as client:
        answer = await client.post("/message", json={**NOTE, "from": "bob", "priority": "high", "requiresAck": True})
    assert answer.status_code == 202
    found = answer.json()
    assert found == {"received": True, "id": found["id"]}
    (message,) = filed(ada.mesh, "ada")
    assert (message["id"], message["from"], message["to"], message["priority"]) == (found["id"], "bob", "ada", "high")
    assert "via" not in message and message["requiresAck"] is True
    assert ids(ada.mesh, "bob", "outbox") == [found["id"]]
    as_cyd = await ada.tell("note", **{"from": "cyd"})
    own = await ada.tell("note")
    by_id = {message["id"]: message for message in filed(ada.mesh, "ada")}
    assert (by_id[as_cyd]["from"], by_id[as_cyd]["via"]) == ("cyd", "operator")
    assert (by_id[own]["from"], by_id[own]["via"]) == ("human", "operator")
    assert own in ids(ada.mesh, "human", "outbox")


async def test_a_status_request_is_answered_at_once(ada: Served) -> None:
    async with ada.client("bob") as client:
        answer = await client.post("/message", json={"type": "status_request", "payload": {"text": "?"}})
    response = answer.json()["response"]
    assert response["agentId"] == "ada" and response["status"] == "idle" and "ada" in response["text"]
    await processed(ada.mesh, "ada", answer.json()["id"])


@pytest.mark.parametrize(
    ("caller", "body", "status", "slug", "field"),
    [
        ("bob", {**NOTE, "from": "cyd"}, 403, "forbidden", None),
        ("bob", {**NOTE, "from": "human"}, 403, "forbidden", None),
        ("bob", {**NOTE, "from": "eve"}, 404, "unknown-agent", None),
        ("bob", {"type": "shutdown"}, 403, "forbidden", None),
        ("bob", {"type": "task_request", "payload": {"task": {"title": "Echo"}}}, 403, "forbidden", None),
        ("bob", {"type": "fix_ci_failure", "payload": {"pr": "1", "check": "c"}}, 422, "invalid", "payload.error"),
        ("bob", {"type": "fix_review_comments", "payload": {"pr": "1", "comments": []}}, 422, "invalid", None),
        ("bob", {"type": "error", "payload": {}}, 422, "invalid", "payload.text"),
        ("dee", {"type": "task_request", "payload": {"task": {}}}, 422, "invalid", "payload.task.title"),
        (
            "bob",
            {"type": "task_update", "payload": {"taskId": "t", "progress": 2, "status": "s"}},
            422,
            "invalid",
            None,
        ),
        ("bob", {"type": "help_request", "payload": {"topic": ""}}, 422, "invalid", "payload.topic"),
        ("bob", {"type": "info_share", "payload": {}}, 422, "invalid", "payload.topic"),
        ("bob", {"type": "blocker_report", "payload": {"blocker": {}}}, 422, "invalid", "payload.blocker.topic"),
        ("bob", {"type": "blocker_resolved", "payload": {}}, 422, "invalid", "payload.blockerId"),
        ("bob", {"type": "escalation", "payload": {"issue": "x", "severity": "x"}}, 422, "invalid", "payload.severity"),
        ("dee", {"type": "context_handoff", "payload": {}}, 422, "invalid", "payload.summary"),
        ("bob", {"type": "Note"}, 422, "invalid", "type"),
        ("bob", {}, 422, "invalid", "type"),
        ("bob", {**NOTE, "via": "operator"}, 422, "invalid", "via"),
        ("bob", {**NOTE, "expiresAt": "soon"}, 422, "invalid", "expiresAt"),
        ("bob", {**NOTE, "payload": []}, 422, "invalid", "payload"),
        ("bob", {**NOTE, "payload": {"x": "y" * 1_000_001}}, 413, "too-large", None),
        (None, NOTE, 401, "unauthenticated", None),
    ],
)
async def test_what_is_refused_leaves_nothing(
    ada: Served, caller: str | None, body: dict[str, Any], status: int, slug: str, field: str | None
) -> None:
    async with ada.client(caller) as client:
        found = assert_problem(await client.post("/message", json=body), status, slug)
    if field is not None:
        assert found["errors"][0]["field"] == field
    assert _lies_about(ada.mesh) == []


async def test_the_same_id_again_and_with_another_body(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("ada") as ada, ada.client("bob") as client:
        for _ in range(2):
            answer = await client.post("/message", json={**NOTE, "id": "mine.1"})
            assert (answer.status_code, answer.json()) == (202, {"received": True, "id": "mine.1"})
        async with ada.client("ada") as own:
            assert (await own.post("/message/mine.1/ack")).json() == {"acked": True}
        assert (await client.post("/message", json={**NOTE, "id": "mine.1"})).status_code == 202
        found = assert_problem(await client.post("/message", json={"type": "other", "id": "mine.1"}), 409, "conflict")
        assert found["messageId"] == "mine.1"
        found = assert_problem(await client.post("/message", json={**NOTE, "id": ".."}), 422, "invalid")
        assert names(mesh, "ada") == [] and ids(mesh, "ada", "processed") == ["mine.1"]


async def test_over_the_rate(mesh: Mesh) -> None:
    mesh.limit(messagesPerMinute=2)
    async with mesh.running("ada") as ada, ada.client("bob") as client:
        for _ in range(2):
            assert (await client.post("/message", json=NOTE)).status_code == 202
        before = _lies_about(mesh)
        answer = await client.post("/message", json={**NOTE, "id": "over"})
        assert_problem(answer, 429, "rate-exceeded")
        assert 50 <= int(answer.headers["retry-after"]) <= 60
        assert _lies_about(mesh) == before
        assert not (folder(mesh, "ada", "ids") / "over").exists()
        share = {"type": "info_share", "payload": {"topic": "t"}}
        assert (await client.post("/message", json=share)).status_code == 202, "the protocol's own types apart"
        async with ada.client("dee") as dee:
            assert (await dee.post("/message", json=NOTE)).status_code == 202


# -- GET /message, ack


async def test_what_waits(ada: Served) -> None:
    first = await ada.tell("note", "bob", {"text": "1"}, threadId="t")
    second = await ada.tell("question", "dee", {"text": "2"}, priority="urgent", requiresAck=True)
    await until(lambda: len(names(ada.mesh, "ada", "claims")) == 2)
    async with ada.client("ada") as client:

        async def listed(**params: Any) -> list[str]:
            answer = await client.get("/message", params=params)
            assert answer.status_code == 200, answer.text
            return [message["id"] for message in answer.json()]

        assert await listed() == [second, first]
        assert await listed(type="note") == await listed(sender="bob") == await listed(thread="t") == [first]
        assert await listed(limit=1) == [second] and await listed(unread=True) == [second, first]
        assert await listed(thread="none") == []
        message = (await client.get("/message")).json()[0]
        assert message["payload"] == {"text": "2"} and message["delivery"]["state"] == "delivered"
        assert message["delivery"]["at"].keys() == {"written", "delivered"}
        for wrong in ({"limit": 0}, {"type": "No"}, {"unread": "perhaps"}, {"sender": "../x"}):
            assert_problem(await client.get("/message", params=wrong), 422, "invalid")
    async with ada.client("bob") as client:
        assert_problem(await client.get("/message"), 403, "forbidden")


async def test_who_may_ack(ada: Served) -> None:
    mesh = ada.mesh
    first, second = await ada.tell("note", "bob", requiresAck=True), await ada.tell("note", "dee")
    for stranger in ("bob", "dee", "cyd"):
        async with ada.client(stranger) as client:
            assert_problem(await client.post(f"/message/{first}/ack"), 403, "forbidden")
    async with ada.client("ada") as client:
        for _ in range(2):
            answer = await client.post(f"/message/{first}/ack", json={"text": "done"})
            assert (answer.status_code, answer.json()) == (200, {"acked": True})
        for unknown in ("never-was", "..%2f..%2fsecret", "a" * 300):
            assert_problem(await client.post(f"/message/{unknown}/ack"), 404)
        assert_problem(await client.post(f"/message/{second}/ack", json={"txt": "x"}), 422, "invalid")
    async with ada.client() as operator:
        assert (await operator.post(f"/message/{second}/ack")).json() == {"acked": True}
    assert ids(mesh, "ada", "processed") == [first, second]
    assert [(m["replyTo"], m["payload"]) for m in filed(mesh, "bob")] == [(first, {"text": "done"})], "told once"
    assert names(mesh, "dee") == [], "who didn't ask isn't told"


async def test_an_ack_over_http_wakes_who_waits(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    sender = Mailbox(mesh.root, "bob")
    async with mesh.running("ada") as ada, ada.client("ada") as client:
        id_ = await sender.send("ada", type="note", requires_ack=True)
        waiting = asyncio.ensure_future(sender.wait_for_ack(id_, timeout_s=20))
        await until(lambda: names(mesh, "ada", "claims"))
        assert not waiting.done()
        await client.post(f"/message/{id_}/ack")
        assert await asyncio.wait_for(waiting, 2) is True


async def test_a_reply_closes_what_it_replies_to(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    async with mesh.all_running("ada", "bob") as (ada, bob):
        question = await ada.tell("question", "bob", {"text": "?"}, requiresAck=True)
        await until(lambda: names(mesh, "ada", "claims"))
        other = await ada.tell("question", "dee", requiresAck=True)
        for id_ in (question, other):
            async with bob.client("ada") as client:
                body = {"type": "answer", "payload": {"text": "!"}, "replyTo": id_}
                assert (await client.post("/message", json=body)).status_code == 202
        assert ids(mesh, "ada", "processed") == [question], "what dee asked isn't answered by telling bob"
        assert ids(mesh, "ada") == [other]
        answer = filed(mesh, "bob")[0]
        assert (answer["replyTo"], answer["threadId"]) == (question, question)
        assert [m["type"] for m in filed(mesh, "bob")] == ["answer", "answer"], "an answer is no reason for an ack"


# -- attachments


async def test_attachments(ada: Served) -> None:
    data = bytes(range(256)) * 40
    digest = hashlib.sha256(data).hexdigest()
    async with ada.client("bob") as client:
        for kind in ("image/png", "text/html; charset=x", "application/json", ""):
            headers = {"Content-Type": kind} if kind else {}
            answer = await client.post("/attachment", params={"name": "a.bin"}, content=data, headers=headers)
            assert answer.status_code == 201, answer.text
            assert answer.json()["sha256"] == digest and answer.json()["bytes"] == len(data)
            assert answer.json()["type"] == (kind.partition(";")[0] or "application/octet-stream")
        body = {**NOTE, "attachments": [{**answer.json(), "name": "a.bin"}]}
        assert (await client.post("/message", json=body)).status_code == 202
        found = await client.get(f"/attachment/{digest}")
        assert found.content == data and found.headers["content-type"] == "application/octet-stream"
        assert found.headers["content-disposition"] == "attachment"
        assert_problem(await client.get(f"/attachment/{'0' * 64}"), 404, "unknown-attachment")
        for trick in ("..%2f..%2foperator.header", "../secret", digest[:-1], "%2fetc%2fpasswd", digest.upper() + "x"):
            assert (await client.get(f"/attachment/{trick}")).status_code in (404, 422)
        for name in ("", "..", "a\nb", "x" * 300):
            answer = await client.post("/attachment", params={"name": name}, content=data)
            assert_problem(answer, 422, "invalid")
        assert (await client.post("/attachment", params={"name": "../../etc/x"}, content=b"1")).json()["name"] == "x"
        assert_problem(await client.post("/attachment", params={"name": "empty"}), 422, "invalid")
    async with ada.client(None) as nobody:
        assert_problem(await nobody.get(f"/attachment/{digest}"), 401)
        assert_problem(await nobody.post("/attachment", params={"name": "a"}, content=b"1"), 401)


async def test_attachments_have_a_limit(ada: Served) -> None:
    async with ada.client("bob") as client:
        big = await client.post("/attachment", params={"name": "a"}, content=b"x" * 10_000_000)
        assert big.status_code == 201
        assert_problem(await client.post("/attachment", params={"name": "a"}, content=b"x" * 10_000_001), 413)


# -- the Unix socket


async def test_the_socket_is_a_doorbell_without_a_secret(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    free_ports(mesh)
    path = mesh.root / "agents/ada/agent.sock"
    async with listening(mesh, "ada"):
        with short_path(str(path)) as address:
            transport = httpx.AsyncHTTPTransport(uds=address)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=TIMEOUT_S) as client:
                found = assert_problem(await client.post("/message", json=NOTE), 422, "invalid")
                assert found["errors"][0]["field"] == "from"
                assert_problem(await client.post("/message", json={**NOTE, "from": "human"}), 403, "forbidden")
                assert _lies_about(mesh) == []
                answer = await client.post("/message", json={**NOTE, "from": "bob"})
                assert answer.status_code == 202
                (message,) = filed(mesh, "ada")
                assert (message["from"], message["via"]) == ("bob", "local")
                assert len((await client.get("/message")).json()) == 1
                assert (await client.post(f"/message/{message['id']}/ack")).json() == {"acked": True}
                secret = {"Authorization": f"Bearer {mesh.secret('operator')}"}
                assert (await client.post("/message", json=NOTE, headers=secret)).status_code == 202
                assert filed(mesh, "ada")[0]["from"] == "human"


async def test_status_tells_how_the_mail_stands(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("ada") as ada, ada.client() as client:
        await send(mesh, "bob", "ada")
        await until(lambda: names(mesh, "ada", "claims"))
        mail = (await client.get("/status")).json()["mail"]
    assert (mail["waiting"], mail["handled"], mail["deferred"], mail["rejected"]) == (1, 1, 0, 0)
    assert (mail["watcher"], mail["readsMail"]) == ("ok", False)
