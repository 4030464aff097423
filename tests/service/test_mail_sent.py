"""What senders know of what they sent, and that mail makes no more mail than it should."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from mesh import Mailbox
from mesh.clock import iso
from mesh.models import DeliveryState
from mesh.service.sorting import end_message
from tests.service.mail_stage import (
    QUICK,
    arrived,
    delivery,
    drop,
    filed,
    folder,
    ids,
    names,
    processed,
    send,
    written,
)
from tests.service.stage import Mesh, until


@pytest.fixture(autouse=True)
def quick(mesh: Mesh) -> None:
    mesh.limit(**QUICK)


async def _becomes(mesh: Mesh, id_: str, state: str, sender: str = "bob") -> list[str]:
    """The states that the sender's copy knows, once it has come to this one: within a sweep or two."""
    await until(lambda: delivery(mesh, sender, id_)["state"] == state, 1.5)
    return list(delivery(mesh, sender, id_)["at"])


async def test_the_copy_follows_the_message(mesh: Mesh) -> None:
    async with mesh.running("bob"):
        id_ = await send(mesh, "bob", "ada", requires_ack=True)
        assert await _becomes(mesh, id_, "written") == ["written"]
        async with mesh.running("ada"):
            assert await _becomes(mesh, id_, "delivered") == ["written", "delivered"]
        (name,) = names(mesh, "ada")
        mesh.store.mail.receiving.keep("ada", name, shown=True)
        assert await _becomes(mesh, id_, "shown") == ["written", "delivered", "shown"]
        await Mailbox(mesh.root, "ada").ack(id_)
        assert await _becomes(mesh, id_, "acked") == ["written", "delivered", "shown", "acked"]
        times = list(delivery(mesh, "bob", id_)["at"].values())
        assert times == sorted(times) and all(time.endswith("Z") for time in times)


@pytest.mark.parametrize("state", ["dead", "rejected", "expired", "uncertain"])
async def test_the_copy_knows_other_ends(mesh: Mesh, state: str) -> None:
    async with mesh.running("bob"):
        id_ = await send(mesh, "bob", "ada")
        (name,) = names(mesh, "ada")
        if state == "rejected":
            mesh.store.mail.reject("ada", name, "why not")
        elif state == "uncertain":
            (folder(mesh, "ada") / name).unlink()
        else:
            mesh.store.mail.bury("ada", name, mesh.store.mail.waiting("ada")[0], DeliveryState(state), "why not")
        assert state in await _becomes(mesh, id_, state)
        assert delivery(mesh, "bob", id_)["reason"] == (
            "it lies nowhere any more" if state == "uncertain" else "why not"
        )


async def test_what_is_dead_and_put_back_is_written_again(mesh: Mesh) -> None:
    async with mesh.running("bob"):
        id_ = await send(mesh, "bob", "ada")
        (name,) = names(mesh, "ada")
        (message,) = mesh.store.mail.waiting("ada")
        mesh.store.mail.bury("ada", name, message, DeliveryState.DEAD, "why not")
        await _becomes(mesh, id_, "dead")
        mesh.store.mail.revive("ada", name, message)
        box = Mailbox(mesh.root, "bob")
        assert (await box.delivery(id_)).state == "written"
        await Mailbox(mesh.root, "ada").ack(id_)
        assert await box.wait_for_ack(id_, timeout_s=5) is True


async def test_queued_mail_is_tried_at_growing_intervals(mesh: Mesh) -> None:
    mesh.limit(inboxWaitingMax=1, messagesPerMinute=None, mailRetryS=0.02, mailRetryMaxS=0.4)
    async with mesh.running("bob") as bob:
        first = await send(mesh, "bob", "ada")
        waiting = [await send(mesh, "bob", "ada") for _ in range(3)]
        await until(lambda: bob.service.mail.sent.queued == 3)
        tries = 0
        real = bob.service.core.store.mail.post_queued

        def counted(sender: str) -> object:
            nonlocal tries
            tries += 1
            return real(sender)

        bob.service.core.store.mail.post_queued = counted  # type: ignore[assignment, method-assign]
        await asyncio.sleep(1.2)
        assert 2 <= tries <= 12
        box, came = Mailbox(mesh.root, "ada"), [first]
        await box.ack(first)
        for _ in waiting:
            await until(lambda: names(mesh, "ada"))
            (id_,) = ids(mesh, "ada")
            came.append(id_)
            await box.ack(id_)
        assert came == [first, *waiting], "in the order in which they were sent"
        await until(lambda: bob.service.mail.sent.queued == 0)


async def test_a_stop_does_not_wait_for_the_next_try(mesh: Mesh) -> None:
    mesh.limit(inboxWaitingMax=1, mailRetryS=8, mailRetryMaxS=8)
    loop = asyncio.get_running_loop()
    async with mesh.running("bob") as bob:
        for _ in range(2):
            await send(mesh, "bob", "ada")
        await until(lambda: bob.service.mail.sent.queued == 1)
        began_s = loop.time()
    assert loop.time() - began_s < 1.5
    assert len(names(mesh, "bob", "outbox/queued")) == 1


# -- no storms


async def test_two_that_only_acknowledge_each_other(mesh: Mesh) -> None:
    """Every message asks for an ack, acks by hand among them: each is answered at most once, acks never."""
    async with mesh.all_running("ada", "bob") as (ada, bob):
        first = await send(mesh, "ada", "bob", "info_share", payload={"topic": "t"}, requires_ack=True)
        await processed(mesh, "bob", first)  # its effect acks it; what bob sends by hand is one more
        second = await send(mesh, "bob", "ada", "ack", reply_to=first, requires_ack=True)
        third = await send(mesh, "ada", "bob", "ack", reply_to=second, requires_ack=True)
        drop(mesh, written("by-hand", "bob", type="ack", payload={}, requiresAck=True, replyTo=third))
        await processed(mesh, "ada", "by-hand")
        for agent in (ada, bob):
            sweeps = agent.service.mail.postman.counts.sweeps
            await until(lambda agent=agent, sweeps=sweeps: agent.service.mail.postman.counts.sweeps > sweeps + 3)
        total = [len(names(mesh, a, p)) for a in ("ada", "bob") for p in ("inbox", "processed", "dead", "rejected")]
        assert names(mesh, "ada") == names(mesh, "bob") == [] and sum(total) == 5
    answers = [m for a in ("ada", "bob") for m in filed(mesh, a, "processed") if m.get("via") == "mesh"]
    assert [(m["type"], m["replyTo"]) for m in answers] == [("ack", first)]


async def test_no_notice_of_a_notice(mesh: Mesh) -> None:
    """The notice that a message has ended is itself buried without another one."""
    expires = iso(mesh.store.time.wall() + timedelta(seconds=0.01))
    await send(mesh, "bob", "ada", expires_at=expires)
    async with mesh.running("ada"):
        notice = await arrived(mesh, "bob", "error")
    (name,) = names(mesh, "bob")
    (message,) = mesh.store.mail.waiting("bob")
    end_message(mesh.store, name, message, DeliveryState.DEAD, "a test")
    assert ids(mesh, "bob", "dead") == [notice["id"]] and names(mesh, "ada") == []


async def test_two_readers_that_acknowledge_politely(mesh: Mesh) -> None:
    """Each sends an ack for whatever it is shown: acks are shown to nobody, so it ends there."""
    for agent, other in (("ada", "bob"), ("bob", "ada")):

        async def polite(text: str, agent: str = agent, other: str = other) -> None:
            id_ = next(line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: "))
            await send(mesh, agent, other, "ack", reply_to=id_, requires_ack=True)

        mesh.roles[agent].reader(polite)
    async with mesh.all_running("ada", "bob") as (ada, bob):
        hello = await send(mesh, "ada", "bob", "note", payload={"text": "hello"}, requires_ack=True)
        await processed(mesh, "bob", hello)
        for agent in (ada, bob):
            sweeps = agent.service.mail.postman.counts.sweeps
            await until(lambda agent=agent, sweeps=sweeps: agent.service.mail.postman.counts.sweeps > sweeps + 3)
    everything = [m["type"] for a in ("ada", "bob") for p in ("inbox", "processed") for m in filed(mesh, a, p)]
    assert sorted(everything) == ["ack", "note"]
