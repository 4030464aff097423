"""Mail through the tools: checking isn't reading, only one's own, and honest about what became of it."""

from __future__ import annotations

import json
import pathlib

from mesh import Mailbox
from tests.interop.mcp.stage import Session, Tools
from tests.service.mail_stage import drop, filed, ids, names, send, written
from tests.service.stage import Mesh, until


def _everything(mesh: Mesh, agent: str) -> dict[str, bytes]:
    """All that lies in the agent's folder, to see whether anything changed."""
    top: pathlib.Path = mesh.root / "agents" / agent
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


async def test_checking_and_reading_change_nothing(mesh: Mesh, bob: Session) -> None:
    id_ = await send(mesh, "ada", "bob", payload={"text": "line one\nline two"}, requires_ack=True, priority="high")
    before = _everything(mesh, "bob")

    inbox = await bob("check_inbox")
    assert inbox["agentId"] == "bob" and inbox["waiting"] == 1
    assert inbox["messages"][0]["id"] == id_
    assert inbox["messages"][0]["from"] == "ada" and inbox["messages"][0]["preview"] == "line one line two"
    message = await bob("read_message", message_id=id_)
    assert message["text"] == "line one\nline two" and message["payload"] == {"text": "line one\nline two"}
    assert (message["place"], message["requiresAck"]) == ("inbox", True)

    assert _everything(mesh, "bob") == before
    assert (await bob("check_inbox"))["waiting"] == 1


async def test_only_an_ack_puts_mail_away_and_again_is_harmless(mesh: Mesh, bob: Session) -> None:
    id_ = await send(mesh, "ada", "bob", payload={"text": "do it"}, requires_ack=True)
    assert await bob("ack_message", message_id=id_, text="done") == {"id": id_, "acked": True}
    assert await bob("ack_message", message_id=id_) == {"id": id_, "acked": True}
    assert ids(mesh, "bob") == [] and ids(mesh, "bob", "processed") == [id_]
    answers = filed(mesh, "ada")
    assert [(answer["type"], answer["replyTo"], answer["payload"]["text"]) for answer in answers] == [
        ("ack", id_, "done")
    ]
    assert (await bob("read_message", message_id=id_))["place"] == "processed"


async def test_urgent_first_and_filters(mesh: Mesh, bob: Session) -> None:
    slow = await send(mesh, "ada", "bob", payload={"text": "slow"}, priority="low")
    fast = await send(mesh, "cyd", "bob", type_="status_request", payload={"text": "?"}, priority="urgent")
    assert [message["id"] for message in (await bob("check_inbox"))["messages"]] == [fast, slow]
    assert [m["id"] for m in (await bob("check_inbox", sender="ada"))["messages"]] == [slow]
    assert [m["id"] for m in (await bob("check_inbox", type="status_request"))["messages"]] == [fast]
    limited = await bob("check_inbox", limit=1)
    assert [m["id"] for m in limited["messages"]] == [fast] and limited["waiting"] == 2


async def test_what_others_got_is_unknown(mesh: Mesh, bob: Session) -> None:
    id_ = await send(mesh, "ada", "cyd", payload={"text": "between us"})
    for tool in ("read_message", "ack_message"):
        assert id_ in await bob.refused(tool, message_id=id_)
        assert "no-such-one" in await bob.refused(tool, message_id="no-such-one")
        assert ".." in await bob.refused(tool, message_id="../../cyd/inbox")
    assert ids(mesh, "cyd") == [id_]


async def test_sending_is_durable_and_in_ones_own_name(mesh: Mesh, bob: Session) -> None:
    sent = await bob("send_message", to="ada", text="hello", priority="high")
    assert (sent["to"], sent["state"]) == ("ada", "written")
    [message] = filed(mesh, "ada")
    assert (message["id"], message["from"], message["type"]) == (sent["id"], "bob", "message")
    assert message["payload"] == {"text": "hello"} and message["priority"] == "high"
    assert (await bob("read_message", message_id=sent["id"]))["place"] == "outbox"


async def test_a_reply_stays_in_the_thread_and_people_can_be_written_to(mesh: Mesh, bob: Session) -> None:
    asked = await send(mesh, "ada", "bob", payload={"text": "how?"})
    await bob("send_message", to="ada", text="so", reply_to=asked)
    [reply] = filed(mesh, "ada")
    assert (reply["replyTo"], reply["threadId"]) == (asked, asked)
    await bob("send_message", to="human", text="look at this")
    assert [message["payload"]["text"] for message in filed(mesh, "human")] == ["look at this"]


async def test_an_id_of_ones_own_sends_once(mesh: Mesh, bob: Session) -> None:
    for _ in range(2):
        assert (await bob("send_message", to="ada", text="once", message_id="mine"))["id"] == "mine"
    assert ids(mesh, "ada") == ["mine"]
    assert "mine" in await bob.refused("send_message", to="ada", text="other words", message_id="mine")


async def test_wrong_input_says_what_is_wrong(mesh: Mesh, bob: Session) -> None:
    assert "No agent is called 'eve'" in await bob.refused("send_message", to="eve", text="hello")
    assert "either 'text' or 'payload'" in await bob.refused("send_message", to="ada")
    assert "either 'text' or 'payload'" in await bob.refused("send_message", to="ada", text="a", payload={"text": "b"})
    assert "payload.topic" in await bob.refused("send_message", to="ada", type="info_share", payload={"data": 1})
    assert "priority" in await bob.refused("send_message", to="ada", text="a", priority="now")
    assert "expiresAt" in await bob.refused("send_message", to="ada", text="a", expires_at="soon")
    assert "may not shut down" in await bob.refused("send_message", to="ada", type="shutdown", payload={})
    assert "recipient" in await bob.refused("send_message", to="ada", text="a", recipient="ada")
    assert "limit" in await bob.refused("check_inbox", limit=0)
    assert "message_id" in await bob.refused("read_message")
    assert names(mesh, "ada") == []


async def test_more_than_the_rate_waits_in_the_outbox_and_says_so(mesh: Mesh, bob: Session) -> None:
    states = [await bob("send_message", to="ada", text=f"number {number}") for number in range(11)]
    assert [state["reason"] for state in states[:10]] == [None] * 10
    assert states[10]["state"] == "written" and "outbox" in states[10]["reason"]
    assert len(names(mesh, "ada")) == 10 and len(names(mesh, "bob", "outbox/queued")) == 1
    assert (await bob("read_message", message_id=states[10]["id"]))["place"] == "queued"


async def test_broadcasts(mesh: Mesh, bob: Session) -> None:
    done = await bob("broadcast", text="to all")
    assert sorted(copy["to"] for copy in done["messages"]) == ["ada", "cyd", "dee"]
    assert {message["broadcastId"] for agent in ("ada", "cyd", "dee") for message in filed(mesh, agent)} == {
        done["broadcastId"]
    }
    some = await bob("broadcast", text="to some", to=["ada", "dee"])
    assert sorted(copy["to"] for copy in some["messages"]) == ["ada", "dee"]
    by_duty = await bob("broadcast", text="to one", responsibility="cyd-things")
    assert [copy["to"] for copy in by_duty["messages"]] == ["cyd"]
    assert "names nobody" in await bob.refused("broadcast", text="x", to=[])
    assert "eve" in await bob.refused("broadcast", text="x", to=["eve"])
    assert "flying" in await bob.refused("broadcast", text="x", responsibility="flying")


async def test_mail_that_somebody_dropped_by_hand(mesh: Mesh, bob: Session) -> None:
    drop(mesh, written("by-hand", from_="ada", to="bob"), name="anything.json", address="bob")
    assert [message["id"] for message in (await bob("check_inbox"))["messages"]] == ["by-hand"]
    assert "Test message" in (await bob("read_message", message_id="by-hand"))["text"]
    await bob("ack_message", message_id="by-hand")
    assert names(mesh, "bob") == [] and ids(mesh, "bob", "processed") == ["by-hand"]


async def test_a_large_message_is_cut_rather_than_flooding_the_context(mesh: Mesh, bob: Session) -> None:
    id_ = await send(mesh, "ada", "bob", payload={"text": "x" * 300_000})
    message = await bob("read_message", message_id=id_)
    assert len(message["text"]) == 100_000 and message["text"].endswith("…") and message["payload"] is None
    inbox = await bob("check_inbox")
    assert len(json.dumps(inbox)) < 2_000


async def test_hidden_characters_are_not_shown(mesh: Mesh, bob: Session) -> None:
    id_ = await send(mesh, "ada", "bob", payload={"text": "good\x1b[2Jbye\u202e"})
    assert (await bob("read_message", message_id=id_))["text"] == "goodbye"


async def test_each_acts_as_itself(mesh: Mesh, tools: Tools, bob: Session) -> None:
    async with tools.of("dee") as dee:
        await dee("send_message", to="bob", text="from dee")
        assert (await dee("whoami"))["agentId"] == "dee"
        assert (await dee("check_inbox"))["waiting"] == 0
    assert [message["from"] for message in (await bob("check_inbox"))["messages"]] == ["dee"]


async def test_what_is_queued_goes_out_when_there_is_room(mesh: Mesh, bob: Session) -> None:
    mesh.limit(inboxWaitingMax=1, mailRetryS=0.02, mailRetryMaxS=0.05)
    first = await bob("send_message", to="ada", text="one")
    second = await bob("send_message", to="ada", text="two")
    assert "outbox" in second["reason"]
    box = Mailbox(mesh.root, "ada")
    await box.ack(first["id"])
    await until(lambda: ids(mesh, "ada") == [second["id"]])
    await box.close()
    await until(lambda: names(mesh, "bob", "outbox/queued") == [])
