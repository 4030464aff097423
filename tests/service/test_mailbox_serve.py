"""`Mailbox.serve`: a handler of one's own, beside the agent's service or without one."""

from __future__ import annotations

import asyncio
import json

import pytest

from mesh import Mailbox
from mesh.errors import UnknownAgent
from mesh.models import Message
from tests.service.mail_stage import NO_SWEEP, QUICK, arrived, filed, folder, ids, kill_holder, names, send
from tests.service.stage import Mesh, until


async def test_serve_handles_and_acks_until_closed(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    box, sender = Mailbox(mesh.root, "ada"), Mailbox(mesh.root, "bob")
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.id)

    early = await sender.send("ada", type="note")
    serving = asyncio.ensure_future(box.serve(handler))
    await until(lambda: seen == [early])
    late = await sender.send("ada", type="note", requires_ack=True)
    assert await sender.wait_for_ack(late, timeout_s=5) is True
    assert seen == [early, late]
    await box.close()
    await asyncio.wait_for(serving, 2)
    await sender.send("ada", type="note")
    assert len(names(mesh, "ada")) == 1 and len(seen) == 2


async def test_serve_gives_up_what_its_handler_fails_on(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    box, calls = Mailbox(mesh.root, "ada"), 0

    async def handler(message: Message) -> None:
        nonlocal calls
        if message.type == "poison":
            calls += 1
            raise FileNotFoundError("no such thing") if calls == 2 else UnknownAgent("no such agent")

    serving = asyncio.ensure_future(box.serve(handler))
    bad = await send(mesh, "bob", "ada", "poison")
    good = await send(mesh, "bob", "ada", "note")
    await until(lambda: good in ids(mesh, "ada", "processed"))
    notice = await arrived(mesh, "bob", "error")
    assert calls == 3 and notice["replyTo"] == bad and notice["payload"]["state"] == "dead"
    await until(lambda: ids(mesh, "ada", "dead") == [bad])
    await box.close()
    await serving


async def test_serve_beside_the_agents_service_gets_its_text(mesh: Mesh) -> None:
    """The service of an agent that reads no mail takes text in; who serves it elsewhere gets it all the same."""
    mesh.limit(**QUICK)
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.id)

    async with mesh.running("ada"):
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello"})
        await until(lambda: names(mesh, "ada", "claims"))
        box = Mailbox(mesh.root, "ada")
        serving = asyncio.ensure_future(box.serve(handler))
        await until(lambda: id_ in ids(mesh, "ada", "processed"))
        await box.close()
        await serving
    assert seen == [id_]


async def test_serve_that_is_cancelled_gives_back_what_it_had(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    began = asyncio.Event()

    async def slow(message: Message) -> None:
        began.set()
        await asyncio.Event().wait()

    id_ = await send(mesh, "bob", "ada")
    serving = asyncio.ensure_future(Mailbox(mesh.root, "ada").serve(slow))
    await began.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    seen: list[str] = []

    async def handler(message: Message) -> None:
        seen.append(message.id)

    other = Mailbox(mesh.root, "ada")
    again = asyncio.ensure_future(other.serve(handler))
    await until(lambda: seen == [id_])
    await other.close()
    await again
    (message,) = filed(mesh, "ada", "processed")
    assert message["handling"]["attempts"] == 1, "being cancelled costs no attempt"


async def test_a_claim_of_a_dead_process_is_taken_over(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    id_ = await send(mesh, "bob", "ada")
    (name,) = names(mesh, "ada")
    dead, seen = Mailbox(mesh.root, "ada"), list[str]()
    assert dead.store.mail.receiving.claim("ada", name).claim is not None

    async def handler(message: Message) -> None:
        seen.append(message.id)

    box = Mailbox(mesh.root, "ada")
    serving = asyncio.ensure_future(box.serve(handler))
    await asyncio.sleep(0.5)
    assert seen == [], "its holder lives"
    kill_holder(mesh, "ada", name)
    await until(lambda: seen == [id_])
    await box.close()
    await serving
    assert json.loads((folder(mesh, "ada", "processed") / name).read_text())["handling"]["attempts"] == 2
