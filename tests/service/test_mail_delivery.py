"""How mail is noticed and brought: dropped files, missed events, pauses, bugs, order."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from mesh.clock import iso
from mesh.errors import StoreUnavailable
from mesh.models import Message
from mesh.service import folder_events as events_module
from mesh.service import mail_care
from mesh.service.folder_events import folder_events
from mesh.service.sorting import Handling
from tests.service.mail_stage import (
    NO_SWEEP,
    QUICK,
    alerts,
    arrived,
    delivery,
    drop,
    filed,
    folder,
    ids,
    kill_holder,
    names,
    processed,
    send,
    written,
)
from tests.service.stage import Gate, Mesh, Served, until

# -- files that people put there


async def test_the_documents_own_example_is_delivered(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    async with mesh.running("ada"):
        text = """{
  "id": "test-123",
  "from": "bob",
  "to": "ada",
  "timestamp": "2026-02-16T21:00:00Z",
  "type": "status_request",
  "payload": { "text": "Test message" },
  "priority": "normal",
  "requiresAck": false
}
"""
        drop(mesh, text)
        message = await processed(mesh, "ada", "test-123")
        assert names(mesh, "ada", "processed") == ["test.json"] and message["ackedAt"]
        answer = await arrived(mesh, "bob", "status_response")
        assert answer["replyTo"] == "test-123"


@pytest.mark.parametrize("name", ["x.json", "001-fix-ci.json", "ein Name mit Ä und 'X'.json", "a" * 250 + ".json"])
async def test_any_name_will_do(mesh: Mesh, name: str) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("ada"):
        extra = {"timestamp": "2026-02-16T22:00:00+01:00", "future": {"key": 1}, "requiresAck": True}
        drop(mesh, written(type="info_share", payload={"topic": "t"}, **extra), name)
        message = await processed(mesh, "ada", "test-123")
        assert message["future"] == {"key": 1}, "what a newer version wrote survives"
        await arrived(mesh, "bob", "ack")


async def test_half_a_character_in_a_key_of_ones_own(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("ada") as ada, ada.client() as client:
        drop(mesh, json.dumps(written("t-1", type="note", mark="\ud800", requiresAck=True)), "1.json")
        drop(mesh, json.dumps(written("t-2", type="note")), "2.json")
        await until(lambda: len(names(mesh, "ada", "claims")) == 2)
        assert [message["id"] for message in (await client.get("/message")).json()] == ["t-1", "t-2"]
        for id_ in ("t-1", "t-2"):
            assert (await client.post(f"/message/{id_}/ack")).status_code == 200
        assert (await arrived(mesh, "bob", "ack"))["replyTo"] == "t-1" and not ada.service.core.fatal


async def test_what_is_not_meant_as_mail_stays_where_it_is(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    others = ["notes.txt", ".hidden.json", "test.json.tmp", "half.json~"]
    async with mesh.running("ada") as ada:
        for name in others:
            drop(mesh, "no mail", name)
        await until(lambda: ada.service.mail.postman.counts.sweeps > 4)
    assert all((folder(mesh, "ada") / name).exists() for name in others) and not names(mesh, "ada", "rejected")


async def test_a_file_that_is_half_written_gets_its_moment(mesh: Mesh) -> None:
    mesh.limit(**{**QUICK, "mailSettleS": 1.0, "mailSweepS": 0.05})
    text = json.dumps(written(type="info_share", payload={"topic": "t"}))
    async with mesh.running("ada") as ada:
        path = folder(mesh, "ada") / "slow.json"
        with path.open("w", encoding="utf-8") as file:
            for part in (text[:40], text[40:90], text[90:]):
                file.write(part)
                file.flush()
                seen = ada.service.mail.postman.counts.sweeps
                await until(lambda seen=seen: ada.service.mail.postman.counts.sweeps > seen + 3)
        await processed(mesh, "ada", "test-123")
    assert names(mesh, "ada", "rejected") == [] and alerts(mesh, "mail_rejected") == []


async def test_what_lay_there_before_the_start_is_found(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    dropped = drop(mesh, written(type="info_share", payload={"topic": "dropped"}))
    sent = await send(mesh, "bob", "ada", "info_share", payload={"topic": "sent"})
    async with mesh.running("ada"):
        await until(lambda: not dropped.exists() and sent in ids(mesh, "ada", "processed"))
    assert sorted(insight.topic for insight in mesh.store.knowledge.insights()) == ["dropped", "sent"]


# -- events that never come


async def test_without_a_hint_the_sweep_finds_it(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("ada") as ada:
        postman = ada.service.mail.postman
        monkeypatch.setattr(events_module.Watch, "hint", lambda self, name: None)
        hints = postman.counts.hints
        id_ = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
        await processed(mesh, "ada", id_, within_s=1.0)
        assert postman.counts.hints == hints


async def test_with_a_hint_no_sweep_is_needed(mesh: Mesh) -> None:
    mesh.limit(**NO_SWEEP)
    async with mesh.running("ada") as ada:
        await until(lambda: ada.service.mail.postman.counts.sweeps == 1)
        for _ in range(5):
            id_ = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
            await processed(mesh, "ada", id_, within_s=1.0)
        assert ada.service.mail.postman.counts.sweeps == 1


async def test_a_dead_watcher_is_restarted_and_alerted(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("ada"):
        reader = folder_events()._reader
        assert reader is not None and reader._task is not None
        reader._task.cancel()
        await until(lambda: alerts(mesh, "mail_watcher") + alerts(mesh, "mail_watcher", "resolved"), 2)
        await until(lambda: folder_events()._reader is not reader and folder_events().problem is None)
        assert mesh.events("mail_watcher", "ada") and folder_events().restarts == 1
        mesh.limit(**NO_SWEEP)
        id_ = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
        await processed(mesh, "ada", id_)


async def test_a_host_without_watches_still_gets_its_mail(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any) -> None:
        raise OSError(24, "Too many open files")

    mesh.limit(**QUICK)
    monkeypatch.setattr(events_module, "InotifyReader", none)
    async with mesh.running("ada") as ada, ada.client() as client:
        (alert,) = await until(lambda: alerts(mesh, "mail_watcher"))
        assert "max_user_instances" in alert.detail
        id_ = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
        await processed(mesh, "ada", id_, within_s=1.0)
        assert "max_user_instances" in (await client.get("/status")).json()["mail"]["watcher"]
        monkeypatch.undo()
        await until(lambda: alerts(mesh, "mail_watcher", "resolved"))


# -- claims


async def test_a_message_that_another_process_handles_is_left_to_it(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    id_ = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
    (name,) = names(mesh, "ada")
    mesh.store.mail.receiving.claim("ada", name)
    async with mesh.running("ada") as ada:
        await until(lambda: ada.service.mail.postman.counts.sweeps > 3)
        assert ids(mesh, "ada") == [id_]
        kill_holder(mesh, "ada", name)
        message = await processed(mesh, "ada", id_, within_s=2.0)
    assert message["handling"]["attempts"] == 2


async def test_an_expired_message_is_not_handled_by_who_starts_too_late(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh.limit(**QUICK)
    monkeypatch.setattr(mail_care, "look_after", lambda core, address: None)  # nobody buries it first
    expires = iso(mesh.store.time.wall() + timedelta(seconds=0.05))
    late = await send(mesh, "bob", "ada", "info_share", payload={"topic": "late"}, expires_at=expires)
    await asyncio.sleep(0.1)
    async with mesh.running("ada"):
        notice = await arrived(mesh, "bob", "error")
        await until(lambda: ids(mesh, "ada", "dead") == [late])
        assert (notice["replyTo"], notice["payload"]["state"]) == (late, "expired")
    assert mesh.store.knowledge.insights() == [] and len(names(mesh, "bob")) == 1


# -- bugs in handlers


async def test_a_bug_costs_three_tries_and_one_message(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh.limit(**QUICK)
    calls = 0

    async def buggy(message: Message, payload: Any) -> Handling:
        nonlocal calls
        calls += 1
        raise KeyError("a bug")

    async with mesh.running("ada") as ada:
        monkeypatch.setitem(ada.service.mail.effects._effects, "info_share", buggy)
        bad = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
        good = await send(mesh, "bob", "ada", "status_request")
        await processed(mesh, "ada", good)
        notice = await arrived(mesh, "bob", "error")
        await until(lambda: ids(mesh, "ada", "dead") == [bad])
        assert calls == 3 and notice["replyTo"] == bad and "a bug" in notice["payload"]["text"]
        await until(lambda: delivery(mesh, "bob", bad)["state"] == "written")  # bob's service isn't there to see it
        await ada.ended(await ada.give("Echo"))
    assert [m["type"] for m in filed(mesh, "bob")].count("error") == 1


async def test_what_a_full_disk_holds_up_is_no_attempt(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh.limit(**QUICK)
    tries = 0

    async with mesh.running("ada") as ada:
        real = ada.service.mail.effects._effects["info_share"]

        async def held_up(message: Message, payload: Any) -> Handling:
            nonlocal tries
            tries += 1
            if tries < 6:
                raise StoreUnavailable("The disk takes nothing.")
            return await real(message, payload)

        monkeypatch.setitem(ada.service.mail.effects._effects, "info_share", held_up)
        id_ = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
        message = await processed(mesh, "ada", id_)
    assert tries == 6 and message["handling"]["attempts"] == 1


# -- pause, order


async def _paused(ada: Served) -> None:
    ada.mesh.store.switches.pause("ada", "operator", "a break")
    await until(lambda: ada.service.core.paused is not None)


async def test_a_paused_agent_obeys_and_answers_and_does_the_rest_later(mesh: Mesh) -> None:
    mesh.limit(**QUICK)
    async with mesh.running("ada") as ada:
        await _paused(ada)
        work = await send(mesh, "bob", "ada", "info_share", payload={"topic": "t"})
        text = await send(mesh, "bob", "ada", "note")
        for type_ in ("status_request", "ack"):
            await processed(mesh, "ada", await send(mesh, "bob", "ada", type_))
        assert sorted(ids(mesh, "ada")) == sorted([work, text]) and names(mesh, "ada", "claims") == []
        mesh.store.switches.resume("ada")
        await processed(mesh, "ada", work)
        await until(lambda: names(mesh, "ada", "claims"))
        await _paused(ada)
        await send(mesh, "cyd", "ada", "shutdown")
        await until(lambda: mesh.store.switches.is_stopped("ada"))


async def test_urgent_overtakes(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh.limit(messagesPerMinute=None, **NO_SWEEP)
    order: list[str] = []
    gate = Gate()
    async with mesh.running("ada") as ada:

        async def slow(message: Message, payload: Any) -> Handling:
            order.append(message.id)
            if len(order) == 1:
                await gate.opened.wait()
            return await real(message, payload)

        real = ada.service.mail.effects._effects["info_share"]
        monkeypatch.setitem(ada.service.mail.effects._effects, "info_share", slow)
        share: dict[str, Any] = {"type": "info_share", "payload": {"topic": "t"}}
        for number in range(30):
            await ada.tell(id=f"n{number:02}", caller="bob", type_="info_share", payload={"topic": "t"})
        await until(lambda: order)
        await ada.tell("info_share", "bob", share["payload"], id="urgent", priority="urgent")
        await ada.tell("info_share", "bob", share["payload"], id="high", priority="high")
        gate.opened.set()
        await until(lambda: len(order) == 32)
    assert order[1:3] == ["urgent", "high"] and order[3:] == [f"n{n:02}" for n in range(1, 30)]
