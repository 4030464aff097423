"""What the carrier of a tick does for everybody's mail, that of agents that are down included."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mesh import Mailbox
from mesh.clock import SystemClock, iso
from mesh.service import carrier, mail_care
from mesh.service.core import Core
from tests.service.mail_stage import alerts, delivery, drop, filed, folder, ids, names, send, written
from tests.service.stage import Mesh, until


class Later(SystemClock):
    """The host's clocks, but that it is later by so much."""

    def __init__(self) -> None:
        self.by = timedelta(0)

    def wall(self) -> datetime:
        return super().wall() + self.by


@pytest.fixture
def time() -> Later:
    return Later()


@pytest.fixture
def core(mesh: Mesh, time: Later) -> Core:
    """That of cyd, who carries the tick; nobody else runs."""
    mesh.limit(messagesPerMinute=None)
    return mesh.service("cyd", time=time).core


def _pass(core: Core, time: Later, minutes: float = 0.0, address: str = "ada") -> None:
    time.by = timedelta(minutes=minutes)
    mail_care.look_after(core, address)


def _in(minutes: float, time: Later) -> str:
    return iso(time.wall() + timedelta(minutes=minutes))


# -- expiry


async def test_what_expired_undelivered_is_dead_and_its_sender_told_once(mesh: Mesh, core: Core, time: Later) -> None:
    id_ = await send(mesh, "bob", "ada", expires_at=_in(1, time), requires_ack=True)
    _pass(core, time, 0.5)
    assert ids(mesh, "ada") == [id_]
    _pass(core, time, 2)
    assert ids(mesh, "ada") == [] and ids(mesh, "ada", "dead") == [id_]
    (notice,) = filed(mesh, "bob")
    assert (notice["type"], notice["replyTo"], notice["from"], notice["via"]) == ("error", id_, "ada", "mesh")
    assert notice["payload"]["state"] == "expired"
    box = Mailbox(mesh.root, "bob")
    assert (await box.delivery(id_)).state == "expired" and await box.wait_for_ack(id_, 5) is False
    # As after a crash between the notice and the removal, and as two carriers at once.
    (name,) = names(mesh, "ada", "dead")
    await box.ack(notice["id"])
    shutil.copy(folder(mesh, "ada", "dead") / name, folder(mesh, "ada") / name)
    for _ in range(3):
        _pass(core, time, 3)
    assert names(mesh, "bob") == [] and len(names(mesh, "bob", "processed")) == 1


async def test_what_was_taken_in_time_does_not_expire(mesh: Mesh, core: Core, time: Later) -> None:
    id_ = await send(mesh, "bob", "ada", expires_at=_in(1, time))
    mesh.store.mail.receiving.claim("ada", names(mesh, "ada")[0])
    _pass(core, time, 30)
    assert ids(mesh, "ada") == [id_] and names(mesh, "bob") == []


async def test_a_file_that_nobody_really_sent_brings_no_notice(mesh: Mesh, core: Core, time: Later) -> None:
    drop(mesh, written("one", "eve", expiresAt=_in(-1, time)), "1.json")
    drop(mesh, written("two", "bob", to="dee", expiresAt=_in(-1, time)), "2.json")
    _pass(core, time, 1)
    assert not (mesh.root / "agents/eve").exists()
    assert names(mesh, "bob") == [] and names(mesh, "ada") == ["2.json"], "ada's postman rejects that one"


# -- nobody answers


async def test_urgent_mail_goes_to_the_human_once(mesh: Mesh, core: Core, time: Later) -> None:
    id_ = await send(mesh, "bob", "ada", priority="urgent", payload={"text": "it burns"})
    _pass(core, time, 4.8)
    assert alerts(mesh, "mail_unanswered") == []
    for minutes in (5.1, 6, 90):
        _pass(core, time, minutes)
    (alert,) = alerts(mesh, "mail_unanswered")
    assert (alert.agent_id, alert.severity, alert.count) == ("ada", "high", 1)
    assert "it burns" in alert.detail and id_ in alert.next
    mesh.store.alerts.set_status(alert.id, "resolved")
    _pass(core, time, 100)
    assert alerts(mesh, "mail_unanswered") == [] and ids(mesh, "ada") == [id_], "never a second time; it stays"


async def test_the_alert_ends_with_the_message(mesh: Mesh, core: Core, time: Later) -> None:
    long_ids = ["x" * 127 + "1", "x" * 127 + "2"]
    for id_ in (*long_ids, "short-"):
        await send(mesh, "bob", "ada", id=id_, priority="urgent")
    _pass(core, time, 6)
    assert len(alerts(mesh, "mail_unanswered")) == 3
    await Mailbox(mesh.root, "ada").ack(long_ids[0])
    _pass(core, time, 7)
    assert len(alerts(mesh, "mail_unanswered")) == 2 and len(alerts(mesh, "mail_unanswered", "resolved")) == 1


async def test_age_counts_from_arrival_whatever_its_timestamp_says(mesh: Mesh, core: Core, time: Later) -> None:
    drop(mesh, written(priority="urgent"))  # written months ago, says who dropped it now
    _pass(core, time, 4)
    assert alerts(mesh, "mail_unanswered") == []
    _pass(core, time, 6)
    assert len(alerts(mesh, "mail_unanswered")) == 1


async def test_a_copy_that_is_brought_up_to_date_makes_nothing_younger(mesh: Mesh, core: Core, time: Later) -> None:
    id_ = await send(mesh, "bob", "ada", priority="urgent")
    (name,) = names(mesh, "ada")
    mesh.store.mail.receiving.claim("ada", name)
    time.by = timedelta(minutes=-6)  # as if all that had been six minutes ago
    claim = folder(mesh, "ada", "claims") / name
    claim.write_text(json.dumps({**json.loads(claim.read_text()), "deliveredAt": iso(time.wall())}))
    await Mailbox(mesh.root, "bob").delivery(id_)
    assert delivery(mesh, "bob", id_)["state"] == "delivered"
    _pass(core, time)
    assert len(alerts(mesh, "mail_unanswered")) == 1


async def test_other_mail_is_marked_stale_once(mesh: Mesh, core: Core, time: Later) -> None:
    id_ = await send(mesh, "bob", "ada")
    due = await send(mesh, "bob", "ada", requires_ack=True, ack_by=_in(10, time))
    for minutes in (9.5, 10.5, 11.5, 12.5, 59.5, 60.5, 61.5, 200):
        _pass(core, time, minutes)
    stale = mesh.events("mail_stale", "ada")
    assert [event["messageId"] for event in stale] == [due, id_]
    assert "its ack was due by" in stale[0]["reason"] and alerts(mesh, "mail_unanswered") == []


async def test_urgent_mail_whose_ack_is_due(mesh: Mesh, core: Core, time: Later) -> None:
    await send(mesh, "bob", "ada", priority="urgent", requires_ack=True, ack_by=_in(1, time))
    _pass(core, time, 2)
    assert "its ack was due by" in alerts(mesh, "mail_unanswered")[0].detail


# -- alarms


async def test_a_growing_inbox_is_alerted_and_resolved(mesh: Mesh, core: Core, time: Later) -> None:
    sender = Mailbox(mesh.root, "bob")
    many = [{"to": "ada", "type": "note", "requires_ack": number < 11} for number in range(51)]
    sent = await sender.send_many(many[1:])
    _pass(core, time)
    assert alerts(mesh, "inbox_growing") == alerts(mesh, "mail_unacked") == [], "50 and 10 are still well"
    sent += await sender.send_many(many[:1])
    _pass(core, time)
    (growing,), (unacked,) = alerts(mesh, "inbox_growing"), alerts(mesh, "mail_unacked")
    assert growing.title.startswith("51 messages") and unacked.title.startswith("11 messages")
    await Mailbox(mesh.root, "ada").ack(sent[0])
    await Mailbox(mesh.root, "ada").ack(sent[-1])
    _pass(core, time)
    assert alerts(mesh, "inbox_growing") == alerts(mesh, "mail_unacked") == []


async def test_the_humans_mail_is_looked_after_too(mesh: Mesh, core: Core, time: Later) -> None:
    for number in range(12):
        await send(mesh, "bob", "human", requires_ack=True, priority="urgent", payload={"number": number})
    expired = await send(mesh, "bob", "human", expires_at=_in(1, time))
    _pass(core, time, 10, "human")
    assert len(alerts(mesh, "mail_unacked")) == 1 and alerts(mesh, "mail_unanswered") == []
    assert ids(mesh, "human", "dead") == [expired] and len(names(mesh, "human")) == 12


async def test_the_carrier_looks_after_all(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a mesh that runs: whoever carries the tick does it for agents that are down, in mesh minutes."""
    mesh.limit(urgentUnackedMin=1)
    await send(mesh, "ada", "bob", priority="urgent")
    async with mesh.running("dee", tick_seconds=0.2):
        (alert,) = await until(lambda: alerts(mesh, "mail_unanswered"))
        assert alert.agent_id == "bob"


async def test_one_bad_inbox_keeps_nobody_from_care(mesh: Mesh, core: Core, time: Later) -> None:
    await send(mesh, "bob", "dee", priority="urgent")
    shutil.rmtree(folder(mesh, "ada"))
    (mesh.root / "agents/ada/inbox").write_text("not a folder")
    time.by = timedelta(minutes=6)
    await carrier._look_after_mail(core)
    assert [alert.agent_id for alert in alerts(mesh, "mail_unanswered")] == ["dee"]


# -- keeping house


async def test_retention(mesh: Mesh, core: Core, time: Later) -> None:
    ada = Mailbox(mesh.root, "ada")
    kept, lost = await ada.attach(b"kept", "kept.txt"), await ada.attach(b"lost", "lost.txt")
    waits = await send(mesh, "bob", "ada", attachments=[kept])
    done = await send(mesh, "bob", "ada", payload={"text": "done"})
    await ada.ack(done)
    assert mail_care.keep_house(core) == {}
    time.by = timedelta(days=31)
    found: dict[str, Any] = mail_care.keep_house(core)
    assert found["attachments"] == 1 and sum(found.values()) > 1
    attachments = [path.name for path in (mesh.root / "knowledge/attachments").iterdir()]
    assert attachments == [kept.sha256] and lost.sha256 not in attachments
    assert ids(mesh, "ada") == [waits], "what waits is never touched"
    assert names(mesh, "ada", "processed") == []
    (archive,) = folder(mesh, "ada", "archive").glob("*.jsonl.gz")
    lines = [json.loads(line) for line in gzip.decompress(archive.read_bytes()).splitlines()]
    assert done in json.dumps(lines)
    copies = {message["id"]: message["delivery"]["state"] for message in filed(mesh, "bob", "outbox")}
    assert copies.get(done, "acked") == "acked", "what became of it was noted while it could be seen"
    time.by = timedelta(days=31 + 123)
    mail_care.keep_house(core)
    assert list(folder(mesh, "ada", "archive").glob("*.jsonl.gz")) == []
    assert ids(mesh, "ada") == [waits]


async def test_the_house_is_kept_in_the_maintenance_phase(core: Core) -> None:
    now = core.clock.model_copy()
    at = datetime(2026, 2, 16, 3, 5, tzinfo=UTC)
    assert not mail_care.due(now.model_copy(update={"phase": "work"}), at)
    maintenance = now.model_copy(update={"phase": "maintenance"})
    assert mail_care.due(maintenance, at) and mail_care.due(maintenance, at.replace(minute=0))
    assert not mail_care.due(maintenance, at.replace(minute=3))
