"""The mailbox in Python: the mailbox document's tests (section 10), and what the contract promises beyond."""

from __future__ import annotations

import asyncio
import stat
import time
from typing import Any

import pytest

from mesh import Mailbox
from mesh.errors import Conflict, Forbidden, Invalid, TooLarge, UnknownAgent, UnknownAttachment, UnknownMessage
from mesh.models import DeliveryState, Message
from tests.service.mail_stage import NO_SWEEP, QUICK, filed, folder, ids, names, send
from tests.service.stage import Mesh

CI = {"pr": "https://x/1", "check": "lint", "error": "E501"}

# -- the document's unit tests


async def test_sends_a_message_to_the_inbox(mesh: Mesh) -> None:
    id_ = await send(mesh, "bob", "ada", "fix_ci_failure", payload=CI, priority="high", requires_ack=True)
    (name,) = names(mesh, "ada")
    assert id_ in name and name.endswith("-fix_ci_failure.json") and ":" not in name
    (message,) = filed(mesh, "ada")
    assert message.keys() >= {"id", "from", "to", "timestamp", "type", "priority", "requiresAck", "payload"}
    assert (message["from"], message["to"], message["schemaVersion"]) == ("bob", "ada", 1)
    assert (message["priority"], message["requiresAck"], message["payload"]) == ("high", True, CI)
    assert name.startswith(message["timestamp"].replace(":", ""))
    assert ids(mesh, "bob", "outbox") == [id_]
    for place in ("inbox", "claims", "processed", "rejected", "dead", "outbox"):
        assert stat.S_IMODE(folder(mesh, "ada", place).stat().st_mode) == 0o700
    assert stat.S_IMODE((folder(mesh, "ada") / name).stat().st_mode) == 0o600


async def test_receives_messages_and_looking_changes_nothing(mesh: Mesh) -> None:
    box = Mailbox(mesh.root, "ada")
    assert await box.receive() == []
    first = await send(mesh, "bob", "ada", "note", payload={"text": "one"})
    second = await send(mesh, "dee", "ada", "question", payload={"text": "two"}, thread_id="t-1")
    before = {path: path.stat().st_mtime_ns for path in mesh.root.rglob("*") if "agents/ada" in str(path)}
    assert [message.id for message in await box.receive()] == [first, second]
    assert [message.id for message in await box.receive(type="question")] == [second]
    assert [message.id for message in await box.receive(sender="bob")] == [first]
    assert [message.id for message in await box.receive(thread="t-1")] == [second]
    assert [message.id for message in await box.receive(limit=1)] == [first]
    assert [message.id for message in await box.receive()] == [first, second]
    assert before == {path: path.stat().st_mtime_ns for path in mesh.root.rglob("*") if "agents/ada" in str(path)}


async def test_acknowledges_a_message(mesh: Mesh) -> None:
    box = Mailbox(mesh.root, "ada")
    id_ = await send(mesh, "bob", "ada")
    await box.ack(id_)
    assert names(mesh, "ada") == [] and await box.receive() == []
    (message,) = filed(mesh, "ada", "processed")
    assert message["id"] == id_ and message["ackedAt"] >= message["timestamp"]
    await box.ack(id_)  # again is harmless
    assert ids(mesh, "ada", "processed") == [id_]
    assert names(mesh, "bob") == [], "nobody asked for an answer"
    with pytest.raises(UnknownMessage):
        await box.ack("never-was")
    with pytest.raises(UnknownMessage):
        await Mailbox(mesh.root, "dee").ack(id_)


async def test_waits_for_acknowledgment_and_is_woken_by_it(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    sender, box = Mailbox(mesh.root, "bob"), Mailbox(mesh.root, "ada")
    id_ = await sender.send("ada", type="note", requires_ack=True)
    waiting = asyncio.ensure_future(sender.wait_for_ack(id_, timeout_s=20))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    began_s = time.monotonic()
    await box.ack(id_, "will do")
    assert await waiting is True
    assert time.monotonic() - began_s < 0.5, "woken, not polled"
    assert (await sender.delivery(id_)).state is DeliveryState.ACKED
    # The answer was asked for, and who waited for it need not look at it any more.
    (answer,) = filed(mesh, "bob", "processed")
    assert (answer["type"], answer["replyTo"], answer["payload"]["text"]) == ("ack", id_, "will do")
    assert names(mesh, "bob") == []
    assert await sender.wait_for_ack(id_, timeout_s=0) is True, "and at once when it was acked before"


@pytest.mark.parametrize("state", ["timeout", "dead", "rejected", "expired"])
async def test_waits_in_vain(mesh: Mesh, state: str) -> None:
    mesh.limit(**QUICK)
    sender = Mailbox(mesh.root, "bob")
    id_ = await sender.send("ada", type="note", requires_ack=True)
    (name,) = names(mesh, "ada")
    waiting = asyncio.ensure_future(sender.wait_for_ack(id_, timeout_s=0.3 if state == "timeout" else 20))
    await asyncio.sleep(0.02)
    store = mesh.store.mail
    if state == "rejected":
        store.reject("ada", name, "for a test")
    elif state != "timeout":
        store.bury("ada", name, store.waiting("ada")[0], DeliveryState(state), "for a test")
    began_s = time.monotonic()
    assert await waiting is False
    assert time.monotonic() - began_s < 2
    assert (await sender.delivery(id_)).state == ("written" if state == "timeout" else state)
    with pytest.raises(UnknownMessage):
        await sender.wait_for_ack("never-sent", timeout_s=0)


async def test_uses_atomic_writes(mesh: Mesh) -> None:
    """A reader that lists and reads as fast as it can never meets half a message."""
    sender, inbox = Mailbox(mesh.root, "bob"), folder(mesh, "ada")
    mesh.limit(messagesPerMinute=None)
    halves: list[str] = []
    done = asyncio.Event()

    def read_all() -> None:
        while not done.is_set():
            for path in inbox.glob("*.json"):
                try:
                    Message.model_validate_json(path.read_text(encoding="utf-8"))
                except FileNotFoundError:
                    continue
                except ValueError:
                    halves.append(path.name)

    reading = asyncio.create_task(asyncio.to_thread(read_all))
    for number in range(40):
        await sender.send("ada", type="note", payload={"text": "x" * 5000, "number": number})
    done.set()
    await reading
    assert halves == [] and len(names(mesh, "ada")) == 40
    assert list((mesh.root / "system/scratch").iterdir()) == []


# -- the document's integration test


async def test_orchestrator_sends_session_receives_and_acks(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    orchestrator, session = Mailbox(mesh.root, "cyd"), Mailbox(mesh.root, "ada")
    id_ = await orchestrator.send(
        "ada", type="status_request", payload={"text": "What's your status?"}, priority="normal", requires_ack=True
    )
    (message,) = await session.receive()
    assert message.type == "status_request"
    waiting = asyncio.ensure_future(orchestrator.wait_for_ack(id_, timeout_s=5))
    # An ack is a message that replies: it closes what it replies to.
    await session.send("cyd", type="ack", payload={"text": "Working on PR #123, tests passing"}, reply_to=id_)
    assert await waiting is True
    assert await session.receive() == []
    (ack,) = await orchestrator.receive()
    assert (ack.type, ack.reply_to, ack.thread) == ("ack", id_, id_)
    assert [m.id for m in await session.thread(ack.id)] == [id_, ack.id]
    assert [m.id for m in await orchestrator.thread(id_)] == [id_, ack.id]


# -- order


async def test_urgent_first_then_by_time_then_by_id(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Mailbox(mesh.root, "bob")
    now = sender.store.time.wall()
    monkeypatch.setattr(type(sender.store.time), "wall", lambda self: now)  # all of them in one millisecond
    for id_, priority in (("c", "normal"), ("a", "normal"), ("b", "normal"), ("l", "low"), ("u", "urgent")):
        await sender.send("ada", type="note", id=id_, priority=priority)
    monkeypatch.undo()
    await sender.send("ada", type="note", id="later", priority="normal")
    await sender.send("ada", type="note", id="h", priority="high")
    found = [message.id for message in await Mailbox(mesh.root, "ada").receive()]
    assert found == ["u", "h", "a", "b", "c", "later", "l"]


# -- the same id again


async def test_the_same_id_again_is_harmless(mesh: Mesh) -> None:
    sender, box = Mailbox(mesh.root, "bob"), Mailbox(mesh.root, "ada")
    fields: dict[str, Any] = {"type": "note", "payload": {"n": 1}, "id": "mine"}
    assert [await sender.send("ada", **fields) for _ in range(3)] == ["mine"] * 3
    assert len(names(mesh, "ada")) == 1
    await box.ack("mine")
    assert await Mailbox(mesh.root, "bob").send("ada", **fields) == "mine", "after it was processed, too"
    assert await sender.send_many([{"to": "ada", **fields}, {"to": "ada", "type": "note"}])
    assert len(names(mesh, "ada")) == 1 and ids(mesh, "ada", "processed") == ["mine"]
    with pytest.raises(Conflict):
        await sender.send("ada", type="note", payload={"n": 2}, id="mine")
    assert len(names(mesh, "ada")) == 1
    await sender.send("dee", **fields)  # to somebody else it is another message
    assert ids(mesh, "dee") == ["mine"]


# -- who, what


async def test_whom_one_cannot_write_to(mesh: Mesh) -> None:
    sender = Mailbox(mesh.root, "bob")
    with pytest.raises(UnknownAgent) as caught:
        await sender.send("eve", type="note")
    assert all(name in caught.value.detail for name in ("ada", "bob", "cyd", "dee", "human"))
    with pytest.raises(UnknownAgent):
        Mailbox(mesh.root, "eve")
    with pytest.raises(Forbidden):
        Mailbox(mesh.root, "human")
    with pytest.raises(Forbidden):
        await sender.send_many([{"to": "ada", "type": "note", "from": "cyd"}])
    assert names(mesh, "ada") == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"type": "fix_ci_failure", "payload": {"pr": "1", "check": "lint"}}, "payload.error"),
        ({"type": "Not A Type"}, "type"),
        ({"type": "note", "priority": "whenever"}, "priority"),
        ({"type": "note", "expires_at": "tomorrow"}, "expiresAt"),
        ({"type": "note", "payload": {"x": float("nan")}}, "payload"),
        ({"type": "note", "id": "../../up"}, "id"),
        ({"type": "note", "colour": "red"}, "colour"),
        ({"type": "note", "attachments": [{"sha256": "0" * 64, "name": "a", "bytes": 1}]}, "attachments"),
    ],
)
async def test_what_is_refused(mesh: Mesh, fields: dict[str, Any], field: str) -> None:
    sender = Mailbox(mesh.root, "bob")
    with pytest.raises(Invalid) as caught:
        await sender.send("ada", **fields)
    assert caught.value.facts["errors"][0]["field"] == field
    with pytest.raises(Invalid):
        await sender.send_many([{"type": "note"}])
    assert names(mesh, "ada") == names(mesh, "bob", "outbox") == []


# -- broadcast, many


async def test_broadcast(mesh: Mesh) -> None:
    sender = Mailbox(mesh.root, "bob")
    everybody = await sender.broadcast(type="note", payload={"text": "all"})
    assert [len(names(mesh, agent)) for agent in ("ada", "bob", "cyd", "dee")] == [1, 0, 1, 1]
    copies = [filed(mesh, agent)[0] for agent in ("ada", "cyd", "dee")]
    assert len({copy["broadcastId"] for copy in copies}) == 1
    assert {copy["id"] for copy in copies} == set(everybody) and len(set(everybody)) == 3
    assert len(await sender.broadcast(["ada", "dee", "ada"], type="note")) == 2, "one copy each"
    assert await sender.broadcast(responsibility="dee-things", type="hint", payload={"text": "dee"})
    assert [message["type"] for message in filed(mesh, "dee")] == ["note", "note", "hint"]
    assert len(names(mesh, "ada")) == 2
    for nobody in ({"responsibility": "flying"}, {"to": []}, {"to": ["eve"]}):
        with pytest.raises(UnknownAgent):
            await sender.broadcast(type="note", **nobody)


async def test_a_broadcast_that_is_sent_again(mesh: Mesh) -> None:
    sender = Mailbox(mesh.root, "bob")
    first = await sender.broadcast(type="note", id="news")
    assert await sender.broadcast(type="note", id="news") == first
    assert sorted(first) == ["news-ada", "news-cyd", "news-dee"]
    assert [len(names(mesh, agent)) for agent in ("ada", "cyd", "dee")] == [1, 1, 1]
    assert filed(mesh, "ada")[0]["broadcastId"] == "news"
    await Mailbox(mesh.root, "dee").ack("news-dee")
    assert await sender.wait_for_ack("news-dee", timeout_s=0) is True
    assert await sender.wait_for_ack("news-ada", timeout_s=0) is False


async def test_send_many_sends_the_good_ones(mesh: Mesh) -> None:
    mesh.limit(messagesPerMinute=None)
    sender = Mailbox(mesh.root, "bob")
    sent = await sender.send_many([{"to": "ada", "type": "note", "payload": {"n": n}} for n in range(30)])
    assert [message.id for message in await Mailbox(mesh.root, "ada").receive()] == sent
    await sender.send("ada", type="note", id="known")
    mixed = [{"to": "ada", "type": "note", "id": "known", "payload": {"other": 1}}, {"to": "dee", "type": "note"}]
    with pytest.raises(Conflict):
        await sender.send_many(mixed)
    assert len(names(mesh, "dee")) == 1


async def test_senders_at_once_share_flushes_and_lose_nothing(mesh: Mesh) -> None:
    mesh.limit(messagesPerMinute=None)
    senders = [Mailbox(mesh.root, agent) for agent in ("bob", "cyd", "dee")]
    sent = await asyncio.gather(*(box.send("ada", type="note") for box in senders for _ in range(20)))
    assert sorted(ids(mesh, "ada")) == sorted(sent) and len(set(sent)) == 60


# -- attachments


async def test_attachments(mesh: Mesh, tmp_path: Any) -> None:
    sender, box = Mailbox(mesh.root, "bob"), Mailbox(mesh.root, "ada")
    picture = tmp_path / "plan.png"
    picture.write_bytes(b"\x89PNG" + b"x" * 100)
    first = await sender.attach(picture)
    assert (first.name, first.type, first.bytes) == ("plan.png", "image/png", 104)
    assert await sender.attach(picture.read_bytes(), "again.png") == first.model_copy(update={"name": "again.png"})
    assert [path.name for path in (mesh.root / "knowledge/attachments").iterdir()] == [first.sha256], "stored once"
    await sender.send("ada", type="note", attachments=[first])
    (message,) = await box.receive()
    assert await box.read_attachment(message.attachments[0].sha256) == picture.read_bytes()
    with pytest.raises(UnknownAttachment):
        await box.read_attachment("0" * 64)
    with pytest.raises(TooLarge):
        await sender.attach(b"x" * 10_000_001)
    with pytest.raises(Invalid):
        await sender.attach(tmp_path / "missing.txt")
