"""Admission as senders meet it: policies, rate, full inboxes, size; what isn't taken now waits and gets there."""

from __future__ import annotations

import asyncio
import json

import pytest

from mesh import Mailbox
from mesh.errors import Forbidden, MeshError, TooLarge
from tests.service.mail_stage import QUICK, delivery, drop, filed, folder, ids, names, reason_for, send, written
from tests.service.stage import Mesh, assert_problem, until

TASK = {"task": {"title": "Echo"}}


async def _refused(mesh: Mesh, sender: str, to: str, type_: str = "note", **fields: object) -> bool:
    try:
        await send(mesh, sender, to, type_, **fields)
    except Forbidden:
        return True
    return False


# -- policies


async def test_peers(mesh: Mesh) -> None:
    """Messages to anybody; work only to the buddy, along canDelegate, and to and from the orchestrator."""
    for sender, to in (("ada", "dee"), ("bob", "ada"), ("dee", "human")):
        assert not await _refused(mesh, sender, to)
    allowed = [("dee", "ada"), ("dee", "bob"), ("ada", "cyd"), ("cyd", "ada")]
    for sender, to in allowed:
        assert not await _refused(mesh, sender, to, "task_request", payload=TASK), (sender, to)
    for sender, to in (("ada", "dee"), ("bob", "ada"), ("bob", "dee")):
        assert await _refused(mesh, sender, to, "task_request", payload=TASK), (sender, to)
        assert await _refused(mesh, sender, to, "context_handoff", payload={"summary": "s"}), (sender, to)
    assert await _refused(mesh, "bob", "ada", "shutdown") and not await _refused(mesh, "cyd", "ada", "shutdown")


async def test_orchestrator(mesh: Mesh) -> None:
    """Messages from and to the orchestrator, buddies and replies only."""
    mesh.edit(lambda document: document.update(policy="orchestrator"))
    for sender, to in (("bob", "cyd"), ("cyd", "bob"), ("ada", "bob"), ("bob", "ada"), ("ada", "human")):
        assert not await _refused(mesh, sender, to), (sender, to)
    assert await _refused(mesh, "ada", "bob", "shutdown")
    assert await _refused(mesh, "bob", "dee") and await _refused(mesh, "dee", "bob")
    mesh.edit(lambda document: document.update(policy="open"))
    question = await send(mesh, "bob", "dee")
    mesh.edit(lambda document: document.update(policy="orchestrator"))
    assert not await _refused(mesh, "dee", "bob", reply_to=question), "an answer"
    assert await _refused(mesh, "dee", "bob", reply_to="made-up")


async def test_open(mesh: Mesh) -> None:
    mesh.edit(lambda document: document.update(policy="open"))
    for sender in ("ada", "bob", "dee"):
        assert not await _refused(mesh, sender, "cyd", "task_request", payload=TASK)
    assert await _refused(mesh, "ada", "dee", "shutdown"), "an order all the same"


async def test_a_dropped_file_obeys_the_policy(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    mesh.edit(lambda document: document.update(policy="orchestrator"))
    async with mesh.running("dee"):
        drop(mesh, written(from_="bob", to="dee", type="note"), address="dee")
        assert "may not write" in await reason_for(mesh, "dee", "test.json")


# -- rate


async def test_over_the_rate_it_waits_with_its_sender(mesh: Mesh) -> None:
    mesh.limit(messagesPerMinute=2, **QUICK)
    sender = Mailbox(mesh.root, "bob")
    sent = [await sender.send("ada", type="note") for _ in range(4)]
    assert sorted(ids(mesh, "ada")) == sorted(sent[:2])
    assert ids(mesh, "bob", "outbox/queued") == sent[2:], "nothing is lost"
    waits = await sender.delivery(sent[2])
    assert waits.state == "written" and waits.reason and "waits in the outbox" in waits.reason
    await asyncio.sleep(0.3)
    assert len(names(mesh, "ada")) == 2, "however often it is tried"
    # Another sender, another recipient, and the protocol's own types are not held up.
    await send(mesh, "dee", "ada")
    await sender.send("dee", type="note")
    await sender.send("ada", type="info_share", payload={"topic": "t"})
    await sender.send("ada", type="status_response")
    assert len(names(mesh, "ada")) == 5 and len(names(mesh, "dee")) == 1
    mesh.limit(messagesPerMinute=None)
    await sender.send("dee", type="note")  # as it sends, it reads the edit
    await until(lambda: set(sent) <= set(ids(mesh, "ada")) and not names(mesh, "bob", "outbox/queued"))
    await sender.close()


async def test_ten_a_minute(mesh: Mesh) -> None:
    sender = Mailbox(mesh.root, "bob")
    for _ in range(11):
        await sender.send("ada", type="note")
    assert len(names(mesh, "ada")) == 10 and len(names(mesh, "bob", "outbox/queued")) == 1
    await sender.close()


# -- a full inbox


async def test_a_full_inbox_empties_into_place_in_order(mesh: Mesh) -> None:
    mesh.limit(inboxWaitingMax=3, messagesPerMinute=None, **QUICK)
    sender, box = Mailbox(mesh.root, "bob"), Mailbox(mesh.root, "ada")
    sent = [await sender.send("ada", type="note", payload={"n": n}) for n in range(6)]
    seen = []
    for _ in sent:
        await until(lambda: len(names(mesh, "ada")) == min(3, len(sent) - len(seen)))
        first = (await box.receive())[0].id
        await box.ack(first)
        seen.append(first)
    assert seen == sent
    await until(lambda: names(mesh, "bob", "outbox/queued") == [])
    assert sorted(ids(mesh, "bob", "outbox")) == sorted(sent)
    await sender.close()


async def test_the_queue_survives_the_mailbox_and_the_service_takes_it_up(mesh: Mesh) -> None:
    mesh.limit(inboxWaitingMax=1, **QUICK)
    sender = Mailbox(mesh.root, "bob")
    first = await sender.send("ada", type="note")
    second = await sender.send("ada", type="note")
    await sender.close()  # its process ends
    other = Mailbox(mesh.root, "bob")
    assert (await other.delivery(second)).state == "written"
    await Mailbox(mesh.root, "ada").ack(first)
    await asyncio.sleep(0.1)
    assert names(mesh, "ada") == []
    async with mesh.running("bob"):
        await until(lambda: ids(mesh, "ada") == [second])
    await other.close()


async def test_a_full_inbox_is_shared_fairly(mesh: Mesh) -> None:
    """Whoever was turned away first gets the next place, however eagerly others try."""
    mesh.limit(inboxWaitingMax=2, messagesPerMinute=None, **QUICK)
    box = Mailbox(mesh.root, "ada")
    async with mesh.all_running("bob", "dee"):
        for sender in ("bob", "bob", "dee", "bob", "dee", "bob", "dee", "dee"):
            await send(mesh, sender, "ada")
        seen: list[str] = []
        for _ in range(8):
            await until(lambda: names(mesh, "ada"))
            message = (await box.receive())[0]
            await box.ack(message.id)
            seen.append(message.from_)
            if len(seen) < 6:
                await until(lambda: len(names(mesh, "ada")) == 2)
        assert seen.count("bob") == seen.count("dee") == 4
        assert max(len(run) for run in "".join(name[0] for name in seen[2:]).split("d")) <= 2
        assert max(len(run) for run in "".join(name[0] for name in seen[2:]).split("b")) <= 2


# -- size


@pytest.mark.parametrize("text", ["x" * 1_000_001, "é" * 500_001, "\u4e2d" * 334_000])
async def test_a_message_is_at_most_a_megabyte(mesh: Mesh, text: str) -> None:
    with pytest.raises(TooLarge):
        await send(mesh, "bob", "ada", payload={"text": text})
    assert names(mesh, "ada") == names(mesh, "bob", "outbox") == []


async def test_what_is_accepted_is_never_rejected_for_its_size(mesh: Mesh) -> None:
    """A file is indented, and so larger than what was sent: that must be known before it is accepted."""
    mesh.limit(messageBytesMax=20_000, resultBytesMax=100_000, **QUICK)
    async with mesh.running("ada") as ada, ada.client("bob") as client:
        accepted = []
        for count in (1_000, 3_000, 5_000, 6_000, 9_000):
            answer = await client.post("/message", json={"type": "note", "payload": {"n": [0] * count}})
            if answer.status_code == 202:
                accepted.append(answer.json()["id"])
            else:
                assert_problem(answer, 413, "too-large")
        assert 2 <= len(accepted) < 5
        await until(lambda: len(names(mesh, "ada", "claims")) == len(accepted))
        assert sorted(ids(mesh, "ada")) == sorted(accepted) and names(mesh, "ada", "rejected") == []


async def test_an_agent_that_takes_more_than_the_others(mesh: Mesh) -> None:
    mesh.edit(lambda document: document["agents"]["ada"].update(limits={"messageBytesMax": 3_000_000}))
    mesh.limit(**QUICK)
    async with mesh.running("ada") as ada:
        id_ = await send(mesh, "bob", "ada", payload={"text": "x" * 2_000_000})
        await until(lambda: names(mesh, "ada", "claims"))
        async with ada.client() as client:
            (listed,) = (await client.get("/message")).json()
        assert listed["id"] == id_
    assert [message.id for message in await Mailbox(mesh.root, "ada").receive()] == [id_]


# -- the count


async def test_the_count_is_kept_without_a_scan_and_put_right(mesh: Mesh) -> None:
    mesh.limit(inboxWaitingMax=2, **QUICK)
    admission = folder(mesh, "ada") / ".admission"
    first = await send(mesh, "bob", "ada")
    assert json.loads(admission.read_text())["waiting"] == 1
    await Mailbox(mesh.root, "ada").ack(first)
    assert json.loads(admission.read_text())["waiting"] == 0
    record = json.loads(admission.read_text())
    admission.write_text(json.dumps({**record, "waiting": 50}))  # as processes that died may have left it
    await send(mesh, "bob", "ada")
    assert names(mesh, "ada") == [] and len(names(mesh, "bob", "outbox/queued")) == 1
    async with mesh.all_running("ada", "bob"):
        await until(lambda: len(names(mesh, "ada")) == 1)
    admission.unlink()
    await send(mesh, "bob", "ada")
    assert json.loads(admission.read_text())["waiting"] == 2


async def test_over_http_nothing_waits_it_is_refused(mesh: Mesh) -> None:
    mesh.limit(inboxWaitingMax=1)
    async with mesh.running("ada") as ada, ada.client("bob") as client:
        assert (await client.post("/message", json={"type": "note"})).status_code == 202
        answer = await client.post("/message", json={"type": "note"})
        found = assert_problem(answer, 429, "inbox-full")
        assert int(answer.headers["retry-after"]) >= 1 and found["retryAfterS"] > 0
    assert len(filed(mesh, "ada")) == 1 and names(mesh, "bob", "outbox/queued") == []
    assert len(names(mesh, "bob", "outbox")) == 1


async def test_queued_mail_to_who_was_removed_is_in_nobodys_way(mesh: Mesh) -> None:
    mesh.limit(inboxWaitingMax=1, **QUICK)
    sender = Mailbox(mesh.root, "bob")
    await sender.send("ada", type="note")
    stuck = await sender.send("ada", type="note")
    await sender.send("dee", type="note")
    other = await sender.send("dee", type="note")
    await sender.close()

    def without_ada(document: dict) -> None:  # type: ignore[type-arg]
        del document["agents"]["ada"]
        document["agents"]["dee"]["buddy"] = "bob"

    mesh.edit(without_ada)
    box = Mailbox(mesh.root, "dee")
    await box.ack((await box.receive())[0].id)
    async with mesh.running("bob"):
        await until(lambda: ids(mesh, "dee") == [other])
    assert stuck in ids(mesh, "bob", "outbox/queued")
    with pytest.raises(MeshError):
        await Mailbox(mesh.root, "bob").send("ada", type="note")
    assert delivery(mesh, "bob", other)["state"] == "written"
