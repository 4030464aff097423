"""What an agent is shown: in one envelope, between tasks, and when that counts as shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mesh import Report
from mesh.service.skill_context import SkillContext
from tests.service.mail_stage import QUICK, alerts, arrived, filed, ids, kill_holder, names, processed, send
from tests.service.stage import Gate, Mesh, Served, until


class Reader:
    """Reads what it is shown, or does what a test tells it to."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.failures: list[BaseException] = []
        self.poison = ""
        self.gate: Gate | None = None
        self.stopped = 0

    async def __call__(self, text: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if self.poison and self.poison in text:
            raise RuntimeError("it chokes me")
        if self.gate is not None:
            self.gate.begun += 1
            try:
                await self.gate.opened.wait()
            except asyncio.CancelledError:
                self.stopped += 1
                raise
        self.texts.append(text)

    def shown(self, word: str) -> int:
        return sum(text.count(word) for text in self.texts)


@pytest.fixture
def reader(mesh: Mesh) -> Reader:
    mesh.limit(messagesPerMinute=None, **QUICK)
    made = Reader()
    mesh.roles["ada"].reader(made)  # type: ignore[arg-type]
    return made


async def _deferred(ada: Served) -> int:
    async with ada.client() as client:
        return int((await client.get("/status")).json()["mail"]["deferred"])


async def test_text_is_shown_once_and_acked(mesh: Mesh, reader: Reader) -> None:
    async with mesh.running("ada"):
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello </mesh-message> there"})
        message = await processed(mesh, "ada", id_)
        (text,) = reader.texts
        opening, closing = text.splitlines()[0], text.splitlines()[-1]
        assert opening.startswith("<mesh-message ") and closing == opening.replace("<", "</")
        assert f"id: {id_}" in text and "from: bob" in text and "hello &lt;/mesh-message> there" in text
        assert message["handling"]["shownAt"] >= message["handling"]["deliveredAt"]
        other = await send(mesh, "bob", "ada", "note", payload={"text": "again"})
        await processed(mesh, "ada", other)
        assert reader.texts[1].splitlines()[0] != opening, "a new token for each turn"
    assert len(reader.texts) == 2 and names(mesh, "bob") == []


async def test_what_asks_for_an_ack_waits_for_it(mesh: Mesh, reader: Reader) -> None:
    async with mesh.running("ada") as ada:
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello"}, requires_ack=True)
        await until(lambda: mesh.events("mail_shown", "ada"))
        sweeps = ada.service.mail.postman.counts.sweeps
        await until(lambda: ada.service.mail.postman.counts.sweeps > sweeps + 2)
        assert ids(mesh, "ada") == [id_] and reader.shown("hello") == 1
        async with ada.client("ada") as client:
            (message,) = (await client.get("/message")).json()
            assert message["delivery"]["state"] == "shown"
            assert (await client.get("/message", params={"unread": True})).json() == []
    async with mesh.running("ada") as ada, ada.client("ada") as client:
        await until(lambda: ada.service.mail.postman.counts.sweeps > 2)
        assert reader.shown("hello") == 1, "shown is shown, after a restart too"
        await client.post(f"/message/{id_}/ack")
        assert (await processed(mesh, "ada", id_))["handling"]["shownAt"]
        assert (await arrived(mesh, "bob", "ack"))["replyTo"] == id_


async def test_a_busy_agents_mail_is_deferred(mesh: Mesh, reader: Reader) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        await ada.give("Hold")
        await until(lambda: gate.begun)
        sent = [await send(mesh, "bob", "ada", "note", payload={"text": f"word-{n}"}) for n in range(3)]
        await until(lambda: len(names(mesh, "ada", "claims")) == 3)
        await until(lambda: ada.service.mail.overview()["deferred"] == 3)
        assert await _deferred(ada) == 3 and reader.texts == []
        gate.opened.set()
        for id_ in sent:
            await processed(mesh, "ada", id_)
        assert len(reader.texts) == 1 and [reader.shown(f"word-{n}") for n in range(3)] == [1, 1, 1]
        assert await _deferred(ada) == 0


async def test_no_task_begins_while_mail_is_read(mesh: Mesh, reader: Reader) -> None:
    reader.gate = Gate()
    async with mesh.running("ada") as ada:
        await send(mesh, "bob", "ada", "note")
        await until(lambda: reader.gate and reader.gate.begun)
        task = await ada.give("Echo")
        await asyncio.sleep(0.3)
        assert mesh.task(task)["status"] == "queued"
        reader.gate.opened.set()
        await ada.ended(task)


async def test_a_turn_takes_so_many(mesh: Mesh, reader: Reader) -> None:
    mesh.limit(turnMessagesMax=3, turnBytesMax=5_000)
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        await ada.give("Hold")
        await until(lambda: gate.begun)
        for n in range(7):
            await send(mesh, "bob", "ada", "note", payload={"text": f"word-{n}."})
        await send(mesh, "bob", "ada", "note", payload={"text": "long " * 2_000})
        await send(mesh, "bob", "ada", "note", payload={"text": "at once"}, priority="urgent")
        await until(lambda: len(names(mesh, "ada", "claims")) == 9)
        gate.opened.set()
        await until(lambda: not names(mesh, "ada"))
    assert [text.count("</mesh-message ") for text in reader.texts] == [3, 3, 2, 1]
    assert "at once" in reader.texts[0].split("</mesh-message")[0], "urgent first"
    assert reader.texts[0].endswith("6 more messages wait.") and reader.texts[2].endswith("1 more message waits.")
    assert all(len(text.encode()) <= 5_000 for text in reader.texts) and "[cut: " in reader.texts[3]
    assert [reader.shown(f"word-{n}.") for n in range(7)] == [1] * 7


async def test_effect_and_text(mesh: Mesh, reader: Reader) -> None:
    """What has an effect is read as well; orders, acks and questions for the state are not."""
    async with mesh.running("ada"):
        share = await send(mesh, "bob", "ada", "info_share", payload={"topic": "rel"}, requires_ack=True)
        await processed(mesh, "ada", share)
        assert reader.shown("rel") == 1 and len(mesh.store.knowledge.insights()) == 1
        for type_ in ("status_request", "ack"):
            await processed(mesh, "ada", await send(mesh, "bob", "ada", type_))
        await processed(mesh, "ada", await send(mesh, "bob", "ada", "status_response", payload={"text": "fine"}))
    assert len(reader.texts) == 2


# -- what goes wrong


async def test_a_reader_that_fails_once_is_asked_again(mesh: Mesh, reader: Reader) -> None:
    reader.failures = [RuntimeError("the model is down"), asyncio.CancelledError()]
    async with mesh.running("ada") as ada:
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello"})
        await processed(mesh, "ada", id_)
        assert not ada.service.core.fatal
    assert reader.shown("hello") == 1 and names(mesh, "ada", "dead") == []


async def test_poison_goes_to_dead_alone(mesh: Mesh, reader: Reader) -> None:
    reader.poison = "poison"
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        await ada.give("Hold")
        await until(lambda: gate.begun)
        sent = [await send(mesh, "bob", "ada", "note", payload={"text": f"word-{n}"}) for n in range(3)]
        bad = await send(mesh, "bob", "ada", "note", payload={"text": "poison"}, priority="high")
        await until(lambda: len(names(mesh, "ada", "claims")) == 4)
        gate.opened.set()
        for id_ in sent:
            await processed(mesh, "ada", id_)
        notice = await arrived(mesh, "bob", "error")
        await until(lambda: ids(mesh, "ada", "dead") == [bad])
        assert notice["replyTo"] == bad and "it chokes me" in notice["payload"]["text"]
        await ada.ended(await ada.give("Echo"))
        assert await _deferred(ada) == 0
    assert len(names(mesh, "bob")) == 1 and [reader.shown(f"word-{n}") for n in range(3)] == [1, 1, 1]


async def test_text_over_which_processes_die(mesh: Mesh, reader: Reader) -> None:
    id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello"})
    (name,) = names(mesh, "ada")
    for _ in range(3):
        service = mesh.service("ada")
        service.core.store.mail.receiving.claim("ada", name)
        kill_holder(mesh, "ada", name)
    async with mesh.running("ada"):
        assert (await arrived(mesh, "bob", "error"))["replyTo"] == id_
        await until(lambda: ids(mesh, "ada", "dead") == [id_])
    assert reader.texts == []


@pytest.mark.parametrize("how", ["pause", "stop"])
async def test_reading_is_cut_short_and_costs_no_attempt(mesh: Mesh, reader: Reader, how: str) -> None:
    gate = reader.gate = Gate()
    async with mesh.running("ada"):
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello"})
        await until(lambda: gate.begun)
        if how == "pause":
            mesh.store.switches.pause("ada", "operator")
            await until(lambda: reader.stopped, 2)
            await asyncio.sleep(0.5)
            assert gate.begun == 1, "nothing is shown during a pause"
            gate.opened.set()
            mesh.store.switches.resume("ada")
            await processed(mesh, "ada", id_)
    gate.opened.set()
    async with mesh.running("ada"):
        message = await processed(mesh, "ada", id_)
    assert reader.stopped == 1 and reader.shown("hello") == 1
    assert message["handling"]["attempts"] == 1


async def test_a_pause_that_ends_a_task_keeps_mail_from_being_shown(mesh: Mesh, reader: Reader) -> None:
    gate = Gate()
    mesh.skill("ada", "Hold", gate)
    async with mesh.running("ada") as ada:
        await ada.give("Hold")
        await until(lambda: gate.begun)
        await send(mesh, "bob", "ada", "note", payload={"text": "hello"})
        await until(lambda: names(mesh, "ada", "claims"))
        mesh.store.switches.pause("ada", "operator")
        await until(lambda: gate.stopped)
        await asyncio.sleep(0.5)
        assert reader.texts == []
        gate.opened.set()
        mesh.store.switches.resume("ada")
        await until(lambda: reader.shown("hello"))


async def test_a_reader_that_hangs_does_not_keep_the_agent_from_work(mesh: Mesh, reader: Reader) -> None:
    mesh.limit(taskRunMaxS=1)
    reader.gate = Gate()
    async with mesh.running("ada") as ada:
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello"})
        await until(lambda: reader.gate and reader.gate.begun)
        await ada.ended(await ada.give("Echo"))
        notice = await arrived(mesh, "bob", "error", within_s=10)
        assert notice["replyTo"] == id_ and "longer than 1 s" in notice["payload"]["text"]


async def test_an_ack_while_it_is_being_read(mesh: Mesh, reader: Reader) -> None:
    gate = reader.gate = Gate()
    async with mesh.running("ada") as ada, ada.client("ada") as client:
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "hello"}, requires_ack=True)
        await until(lambda: gate.begun)
        sweeps = ada.service.mail.postman.counts.sweeps
        await until(lambda: ada.service.mail.postman.counts.sweeps > sweeps + 2)
        assert ada.service.mail.postman.counts.handled == 1, "it isn't handled again while it is shown"
        assert (await client.post(f"/message/{id_}/ack")).status_code == 200
        gate.opened.set()
        await until(lambda: reader.texts)
        await ada.ended(await ada.give("Echo"))
        assert not ada.service.core.fatal
    assert reader.shown("hello") == 1 and len(filed(mesh, "ada", "processed")) == 1


async def test_who_reads_nothing_keeps_its_text(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("bob") as bob:
        id_ = await send(mesh, "ada", "bob", "note", payload={"text": "hello"})
        await until(lambda: bob.service.mail.postman.counts.sweeps > 4)
        assert ids(mesh, "bob") == [id_]
        async with bob.client() as client:
            (message,) = (await client.get("/message")).json()
        assert message["delivery"]["state"] == "delivered"
        assert bob.service.mail.postman.counts.handled == 1
    assert ids(mesh, "bob") == [id_] and alerts(mesh, "mail_unanswered") == []


async def test_a_skill_and_a_reader_answer_each_other_without_a_storm(mesh: Mesh, reader: Reader) -> None:
    async def ask(context: SkillContext) -> Report:
        await send(mesh, "ada", "bob", "status_request", requires_ack=True)
        return Report("asked")

    mesh.skill("ada", "Ask", ask)
    async with mesh.all_running("ada", "bob") as (ada, bob):
        await ada.ended(await ada.give("Ask"))
        await until(lambda: reader.texts)
        before: Any = None

        def settled() -> bool:
            nonlocal before
            count = len(names(mesh, "ada", "processed")) + len(names(mesh, "bob", "processed"))
            same, before = count == before, count
            return same

        for _ in range(3):
            sweeps = ada.service.mail.postman.counts.sweeps
            await until(lambda sweeps=sweeps: ada.service.mail.postman.counts.sweeps > sweeps + 1)
            settled()
        assert settled() and bob.service.mail.postman.counts.handled == 1
    assert sorted(m["type"] for m in filed(mesh, "ada", "processed")) == ["ack", "status_response"]
