"""Bad mail: out of the way with a reason and an alert, and the next message is handled all the same."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mesh.clock import iso
from mesh.models import DeliveryState
from tests.service.mail_stage import (
    QUICK,
    alerts,
    delivery,
    drop,
    drop_as,
    filed,
    folder,
    ids,
    lies_there,
    names,
    processed,
    reason_for,
    send,
    written,
)
from tests.service.stage import Mesh, until

NEXT = written("the-next-one", type="info_share", payload={"topic": "next"})


@pytest.fixture(autouse=True)
def quick(mesh: Mesh) -> None:
    mesh.limit(**QUICK)


async def _rejected(mesh: Mesh, name: str = "test.json") -> str:
    """Why the file of that name was rejected; alerted once, and the next message handled."""
    reason = await reason_for(mesh, "ada", name)
    await until(lambda: alerts(mesh, "mail_rejected"))
    (alert,) = alerts(mesh, "mail_rejected")
    assert alert.agent_id == "ada" and alert.count == 1
    assert not lies_there(folder(mesh, "ada") / name)
    drop(mesh, NEXT, "zz-next.json")
    await processed(mesh, "ada", "the-next-one")
    assert (await _events(mesh)) == 1
    return reason


async def _events(mesh: Mesh) -> int:
    return len(await until(lambda: mesh.events("mail_rejected", "ada")))


DEEP = "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "not JSON"),
        ("not json at all", "not JSON"),
        ('{"id": "test-123", "from": "bob"', "not JSON"),
        (b"\xff\xfe\x00\x00", "not JSON"),
        (DEEP, "not JSON"),
        ("[]", "dictionary"),
        ("null", "dictionary"),
        ({"hello": "world"}, "id"),
        ({k: v for k, v in written().items() if k != "payload"}, "payload"),
        (written(type="Status Request"), "type"),
        (written("../../../etc/passwd"), "id"),
        (written(timestamp="yesterday"), "timestamp"),
        (written(timestamp="0001-01-01T00:00:00+23:00"), "time"),
        (written(payload=[]), "payload"),
        (written(type="fix_ci_failure", payload={"pr": "1"}), "payload."),
        (written(priority="whenever"), "priority"),
        (written(payload={"text": "x" * 1_100_000}), "larger than"),
        (written(to="dee"), "addressed to 'dee'"),
        (written(from_="eve"), "no agent is called so"),
        (written(from_="mesh"), "no agent is called so"),
        (written(from_="human"), "no copy of it lies in the human's outbox"),
        (written(from_="human", via="mesh"), "no copy of it lies in the human's outbox"),
        (written(type="shutdown", payload={}, via="mesh"), "may not shut down"),
        (written(type="task_request", payload={"task": {"title": "Echo"}}, via="operator"), "may not give"),
        (written(timestamp="2999-01-01T00:00:00Z"), "still to come"),
    ],
)
async def test_bad_content(mesh: Mesh, content: Any, expected: str) -> None:
    async with mesh.running("ada"):
        drop(mesh, content)
        assert expected in await _rejected(mesh)
        assert mesh.store.tasks.open() == []


async def test_a_forged_operator_gets_no_task_done(mesh: Mesh) -> None:
    """`via` is the mesh's to tell: with it a file must not get what its sender may not ask for."""
    mesh.skill("ada", "Fix CI failure", mesh.roles["ada"].skills["Echo"])
    fix = {"pr": "1", "check": "c", "error": "e"}
    async with mesh.running("ada"):
        drop(mesh, written(type="fix_ci_failure", payload=fix, via="operator"))
        message = await processed(mesh, "ada", "test-123")
        assert "via" not in message
        await until(lambda: [m["type"] for m in filed(mesh, "bob")] == ["task_failed"])
        assert mesh.store.tasks.open() == mesh.store.tasks.ended(10) == []


async def test_a_second_link_makes_no_human(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        hidden = folder(mesh, "ada") / ".hidden"
        hidden.write_text(json.dumps(written(from_="human", type="shutdown", payload={})), encoding="utf-8")
        os.link(hidden, folder(mesh, "ada") / "test.json")
        assert "no copy of it lies" in await _rejected(mesh)
        assert not mesh.store.switches.is_stopped("ada")


async def test_a_little_ahead_of_time_is_no_mistake(mesh: Mesh) -> None:
    async with mesh.running("ada"):
        soon = iso(mesh.store.time.wall() + timedelta(minutes=2))
        drop(mesh, written(type="info_share", payload={"topic": "t"}, timestamp=soon))
        await processed(mesh, "ada", "test-123")


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "full folder", "pipe"])
async def test_what_is_no_file(mesh: Mesh, kind: str, tmp_path: Path) -> None:
    path = folder(mesh, "ada") / "test.json"
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps(written()), encoding="utf-8")
    async with mesh.running("ada"):
        if kind == "link":
            path.symlink_to(elsewhere)
        elif kind == "dangling":
            path.symlink_to(tmp_path / "nowhere")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
            if kind == "full folder":
                (path / "inner.json").write_text("{}", encoding="utf-8")
        assert "regular file" in await _rejected(mesh)
        assert elsewhere.exists(), "what it leads to is left alone"


@pytest.mark.parametrize(
    "name", [b"\xff\xfe.json", b"new\nline.json", b"a" * 250 + b".json", "\u202egnp.json".encode(), b"-rf --.json"]
)
async def test_bad_content_under_a_strange_name(mesh: Mesh, name: bytes) -> None:
    async with mesh.running("ada") as ada:
        path = drop_as(mesh, name, b"no mail")
        await until(lambda: not lies_there(path))
        await until(lambda: alerts(mesh, "mail_rejected"))
        drop(mesh, NEXT, "zz-next.json")
        await processed(mesh, "ada", "the-next-one")
        async with ada.client() as client:
            assert (await client.get("/status")).status_code == 200
    assert not ada.service.core.fatal


async def test_good_mail_under_a_strange_name(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        path = drop_as(mesh, b"\xff\xfe.json", json.dumps(NEXT).encode())
        await until(lambda: not lies_there(path))
        await until(lambda: mesh.store.knowledge.insights())
        assert not ada.service.core.fatal


# -- duplicates


@pytest.mark.parametrize("name", ["zz.json", "000.json"])
async def test_a_copy_of_what_waits(mesh: Mesh, name: str) -> None:
    """Whatever its name: the message that was really sent stays, and is the only one."""
    async with mesh.running("ada"):
        id_ = await send(mesh, "bob", "ada", "note", payload={"text": "once"})
        await until(lambda: names(mesh, "ada", "claims"))
        (message,) = filed(mesh, "ada")
        drop(mesh, {**message, "payload": {"text": "twice"}}, name)
        assert "already that of" in await _rejected(mesh, name)
        assert [m["payload"] for m in filed(mesh, "ada")] == [{"text": "once"}] and ids(mesh, "ada") == [id_]


async def test_two_copies_that_both_were_dropped(mesh: Mesh) -> None:
    drop(mesh, written(type="info_share", payload={"topic": "one"}), "a.json")
    drop(mesh, written(type="info_share", payload={"topic": "one"}), "b.json")
    async with mesh.running("ada"):
        await until(lambda: not names(mesh, "ada"))
    assert len(mesh.store.knowledge.insights()) == 1


@pytest.mark.parametrize("name", ["test.json", "other.json"])
async def test_a_copy_of_what_was_handled(mesh: Mesh, name: str) -> None:
    async with mesh.running("ada"):
        share = written(type="info_share", payload={"topic": "t"})
        drop(mesh, share)
        await processed(mesh, "ada", "test-123")
        await until(lambda: not names(mesh, "ada"))
        drop(mesh, {**share, "payload": {"topic": "changed"}}, name)
        assert "which was handled" in await _rejected(mesh, name)
    assert [insight.topic for insight in mesh.store.knowledge.insights()] == ["t", "next"]


async def test_many_bad_files_are_one_alert_with_a_count(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada:
        for number in range(20):
            drop(mesh, "bad", f"{number}.json")
        await until(lambda: len(names(mesh, "ada", "rejected")) == 20)
        await until(lambda: ada.service.mail.postman.counts.rejected == 20)
        await until(lambda: sum(alert.count for alert in alerts(mesh, "mail_rejected")) == 20)
    assert len(alerts(mesh, "mail_rejected")) == 1


async def test_the_sender_of_a_rejected_message_can_tell(mesh: Mesh) -> None:
    async with mesh.running("bob"):
        id_ = await send(mesh, "bob", "ada")
        mesh.store.mail.reject("ada", names(mesh, "ada")[0], "for a test")
        await until(lambda: delivery(mesh, "bob", id_)["state"] == DeliveryState.REJECTED)
        assert delivery(mesh, "bob", id_)["reason"] == "for a test"
