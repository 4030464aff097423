from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mesh.errors import Conflict, MeshError, UnknownMessage
from mesh.models import HUMAN, DeliveryState, Message
from mesh.store import Store
from mesh.store.codec import encode
from mesh.store.mail.names import file_name, is_mail
from mesh.store.mailbox import Grip, MailStore
from tests.fakes import MemoryDisk
from tests.faults.disks import Interrupted
from tests.faults.mail_world import at, claims, counted, dead_claim, finish, mail_places, message, refuse
from tests.faults.world import ROOT, agent_store, made_disk, outsider

DEAD = DeliveryState.DEAD


def send(store: Store, id_: str = "M1", **fields: Any) -> str:
    letter = message(id_, **fields)
    store.mail.send(letter)
    return file_name(letter)


def drop(store: Store, name: str, letter: Message) -> None:
    """Put a file into the inbox by hand."""
    store.disk.put(f"{store.layout.mail('coder').inbox}/{name}", encode(letter.filed()))
    store.mail.counting.recount(store.layout.mail("coder"))


def other_mailbox(store: Store) -> MailStore:
    """Another mailbox of this very process."""
    return MailStore(store.files, store.journal, store.layout, store.time)


def bury(store: Store, name: str, letter: Message, reason: str = "no good") -> None:
    store.mail.bury("coder", name, letter, DEAD, reason)


# -- claims


def test_one_claim(store: Store) -> None:
    name = send(store)
    claimed = store.mail.receiving.claim("coder", name)
    assert claimed.grip is Grip.OURS
    assert claimed.claim is not None
    assert (claimed.claim.attempt, claimed.claim.state) == (1, "handling")
    assert store.mail.receiving.claim("coder", name).grip is Grip.OURS, "ours stays ours, at no further attempt"
    assert claims(store) == {name: ("handling", 1, False)}
    assert other_mailbox(store).receiving.claim("coder", name).grip is Grip.HELD
    assert store.mail.receiving.claim("coder", "none.json").grip is Grip.GONE


def test_kept_it_is_left_unless_it_is_wanted(store: Store) -> None:
    name = send(store)
    store.mail.receiving.claim("coder", name)
    store.time.sleep(5)
    kept = store.mail.receiving.keep("coder", name, shown=True, task_id="T1")
    assert kept is not None
    assert (kept.delivered_at, kept.shown_at, kept.task_id) == (at(0), at(5), "T1")
    store.time.sleep(5)
    again = store.mail.receiving.keep("coder", name, shown=True)
    assert again == kept, "when it was shown first, and its task, stay"
    for mail in (store.mail, other_mailbox(store)):
        assert mail.receiving.claim("coder", name).grip is Grip.KEPT
    taken = other_mailbox(store).receiving.claim("coder", name, kept_too=True)
    assert taken.claim is not None
    assert (taken.grip, taken.claim.attempt, taken.claim.shown_at) == (Grip.OURS, 1, at(5))


def test_only_crashes_count(store: Store) -> None:
    name = send(store)
    for attempt in (1, 2, 3):
        dead_claim(store, "M1", attempt)
        claimed = store.mail.receiving.claim("coder", name)
        assert claimed.claim is not None
        assert claimed.claim.attempt == attempt + 1
    store.mail.receiving.release("coder", name)
    assert claims(store) == {}
    dead_claim(store, "M1", 2, state="kept")
    taken = store.mail.receiving.claim("coder", name, kept_too=True)
    assert taken.claim is not None
    assert taken.claim.attempt == 2, "who kept it was done"


def test_release_takes_back_no_other_claim(store: Store) -> None:
    name = send(store)
    other_mailbox(store).receiving.claim("coder", name)
    store.mail.receiving.release("coder", name)
    assert claims(store) == {name: ("handling", 1, False)}


def test_a_damaged_claim_counts_as_none(store: Store, disk: MemoryDisk) -> None:
    name = send(store)
    for damaged in (b"", b"{", b"[]", b'{"pid": "x"}'):
        disk.put(f"{store.layout.mail('coder').claims}/{name}", damaged)
        assert store.mail.receiving.claim("coder", name).grip is Grip.OURS


def test_a_claim_of_another_boot_is_dead(store: Store, disk: MemoryDisk) -> None:
    name = send(store)
    other_mailbox(store).receiving.claim("coder", name)
    disk.time.reboot()
    claimed = outsider(disk, disk.time).mail.receiving.claim("coder", name)
    assert (claimed.grip, claimed.claim and claimed.claim.attempt) == (Grip.OURS, 2)


def test_what_is_gone_can_be_neither_kept_nor_claimed(store: Store) -> None:
    name = send(store)
    store.mail.receiving.claim("coder", name)
    store.mail.ack("coder", "M1")
    assert store.mail.receiving.keep("coder", name) is None
    assert store.mail.receiving.claim("coder", name).grip is Grip.GONE
    assert claims(store) == {}


@pytest.mark.parametrize("act", ["claim", "keep", "ack", "bury", "reject"])
def test_an_incarnation_that_was_replaced_changes_nothing(disk: MemoryDisk, act: str) -> None:
    old, _ = Store.become(ROOT, "coder", disk=disk, time=disk.time)
    name = send(outsider(disk, disk.time))
    if act != "claim":
        old.mail.receiving.claim("coder", name)
    Store.become(ROOT, "coder", disk=disk, time=disk.time)
    before = files_of_coder(disk)
    acts: dict[str, Callable[[], object]] = {
        "claim": lambda: old.mail.receiving.claim("coder", name),
        "keep": lambda: old.mail.receiving.keep("coder", name, shown=True),
        "ack": lambda: old.mail.ack("coder", "M1"),
        "bury": lambda: bury(old, name, message("M1")),
        "reject": lambda: old.mail.reject("coder", name, "no good"),
    }
    with pytest.raises(MeshError) as caught:
        acts[act]()
    assert caught.value.slug == "fenced"
    assert files_of_coder(disk) == before


def files_of_coder(disk: MemoryDisk) -> dict[str, bytes]:
    tree = disk.tree().items()
    return {path: data for path, data in tree if path.startswith(f"{ROOT}/agents/coder/") and ".lock" not in path}


def test_the_successor_takes_over_though_the_old_process_lives(disk: MemoryDisk) -> None:
    Store.become(ROOT, "coder", disk=disk, time=disk.time)
    name = send(outsider(disk, disk.time))
    agent_store(disk, disk.time, "coder", 1).mail.receiving.claim("coder", name)
    assert agent_store(disk, disk.time, "coder", 1).mail.receiving.claim("coder", name).grip is Grip.HELD
    new, _ = Store.become(ROOT, "coder", disk=disk, time=disk.time)
    claimed = new.mail.receiving.claim("coder", name)
    assert (claimed.grip, claimed.claim and claimed.claim.attempt) == (Grip.OURS, 2)


# -- acks


def test_ack_moves_it_and_tells_what_the_claim_knew(store: Store) -> None:
    name = send(store)
    store.mail.receiving.claim("coder", name)
    store.time.sleep(1)
    store.mail.receiving.keep("coder", name, shown=True)
    store.time.sleep(1)
    acked = store.mail.ack("coder", "M1")
    assert (acked.acked_at, acked.delivery) == (at(2), None)
    assert acked.handling is not None
    assert (acked.handling.delivered_at, acked.handling.shown_at, acked.handling.attempts) == (at(0), at(1), 1)
    filed = json.loads(store.files.read(f"{store.layout.mail('coder').processed}/{name}") or b"")
    assert filed["ackedAt"] == at(2)
    assert mail_places(store, "M1") == ["coder/processed"]
    assert counted(store, "coder") == (0, 0)
    assert store.mail.waiting("sales") == [], "no answer was asked for"


def test_an_answer_goes_out_once_and_is_not_acked_itself(store: Store) -> None:
    send(store, requiresAck=True, priority="high", threadId="T1")
    first = store.mail.ack("coder", "M1", "on it")
    store.time.sleep(60)
    assert store.mail.ack("coder", "M1", "again") == first
    (answer,) = store.mail.waiting("sales")
    assert (answer.id, answer.type, answer.reply_to, answer.thread_id) == ("M1-ack", "ack", "M1", "T1")
    assert (answer.from_, answer.to, answer.timestamp, answer.via) == ("coder", "sales", first.acked_at, "mesh")
    assert (answer.payload, answer.priority) == ({"text": "on it"}, "high")
    store.mail.ack("sales", "M1-ack")
    store.mail.ack("sales", "M1-ack")
    assert store.mail.waiting("coder") == []
    assert store.mail.ack("coder", "M1") == first
    assert store.mail.waiting("sales") == [], "also after the answer was acked"


@pytest.mark.parametrize("fields", [{"type": "ack"}, {"sender": HUMAN}])
def test_who_gets_no_answer(store: Store, fields: dict[str, Any]) -> None:
    send(store, requiresAck=True, **fields)
    store.mail.ack("coder", "M1")
    assert store.mail.waiting("sales") == store.mail.waiting(HUMAN) == []


def test_two_that_only_acknowledge_each_other_stop(store: Store) -> None:
    send(store, type="ack", requiresAck=True)
    for _ in range(5):
        for address in ("coder", "sales"):
            for found in store.mail.waiting(address):
                store.mail.ack(address, found.id)
    assert counted(store, "coder") == counted(store, "sales") == (0, 0)
    assert len([name for name in store.files.names(store.layout.mail("coder").outbox) if is_mail(name)]) == 0


def test_a_full_inbox_of_the_sender_keeps_the_answer_waiting(store: Store) -> None:
    send(store, requiresAck=True)
    store.mail.sending.admit = refuse
    store.mail.ack("coder", "M1")
    assert mail_places(store, "M1-ack") == ["coder/queued"]


def test_unknown_ids(store: Store) -> None:
    for call in (store.mail.ack, store.mail.find_waiting):
        with pytest.raises(UnknownMessage) as caught:
            call("coder", "none")  # type: ignore[operator]
        assert caught.value.facts == {"messageId": "none", "agentId": "coder"}


def test_ack_of_what_was_buried_meanwhile(store: Store) -> None:
    """Found, then buried by another process: it must not come to lie in two places."""
    name = send(store)
    bury(store, name, message("M1"))
    with pytest.raises(UnknownMessage):
        store.mail.ack_file("coder", name, message("M1"))
    assert mail_places(store, "M1") == ["coder/dead"]


@pytest.mark.parametrize("other", ["ack", "bury", "claim"])
@pytest.mark.parametrize("call", ["ack", "bury", "claim", "keep"])
def test_two_at_once_leave_it_in_one_place(call: str, other: str) -> None:
    """Whatever another process does before any step, each message lies in one place, and what is acked is told."""
    acts: dict[str, Callable[[Store], object]] = {
        "ack": lambda store: store.mail.ack("coder", "M1"),
        "bury": lambda store: bury(store, file_name(message("M1")), message("M1")),
        "claim": lambda store: store.mail.receiving.claim("coder", file_name(message("M1"))),
        "keep": lambda store: store.mail.receiving.keep("coder", file_name(message("M1")), shown=True),
    }
    for step in range(1, 200):
        disk = made_disk()
        send(outsider(disk, disk.time), requiresAck=True)
        outsider(disk, disk.time).mail.receiving.claim("coder", file_name(message("M1")))

        def meanwhile(disk: MemoryDisk = disk) -> None:
            try:
                acts[other](outsider(disk, disk.time))
            except MeshError:
                return  # it is locked, or gone

        interrupted = Interrupted(disk, step, meanwhile)
        try:
            acts[call](outsider(interrupted, disk.time))
        except MeshError as error:
            assert error.slug in ("unknown-message", "inbox-busy", "store-unavailable", "lock-timeout"), error
        store = outsider(disk, disk.time)
        finish(store)
        (place,) = mail_places(store, "M1")
        assert place in ("coder/inbox", "coder/processed", "coder/dead")
        assert mail_places(store, "M1-ack") == (["sales/inbox"] if place == "coder/processed" else [])
        assert len(claims(store)) <= (place == "coder/inbox")
        if interrupted.count < step:
            break
    assert step > 5


def test_copies_of_what_is_acked_go_with_it(store: Store) -> None:
    send(store)
    drop(store, "copy.json", message("M1"))
    store.mail.waiting("coder")
    store.mail.ack("coder", "M1")
    assert store.mail.waiting("coder") == []
    assert counted(store, "coder") == (0, 0)


# -- replies


def test_a_reply_closes_what_it_replies_to(store: Store) -> None:
    send(store, requiresAck=True)
    store.mail.send(message("R1", "sales", "coder", replyTo="M1"))
    assert mail_places(store, "M1") == ["coder/processed"]
    assert [found.id for found in store.mail.waiting("sales")] == ["R1"], "the reply is the answer"


@pytest.mark.parametrize(
    "reply",
    [
        {"to": "devops", "sender": "coder", "replyTo": "M1"},
        {"to": "sales", "sender": "devops", "replyTo": "M1"},
        {"to": "sales", "sender": "coder", "replyTo": "M1", "via": "mesh"},
        {"to": "sales", "sender": "coder", "replyTo": "M2"},
    ],
    ids=["to somebody else", "by somebody else", "by the mesh", "to another"],
)
def test_what_closes_nothing(store: Store, reply: dict[str, Any]) -> None:
    send(store)
    store.mail.send(message("R1", **reply))
    assert mail_places(store, "M1") == ["coder/inbox"]


# -- names that people use again


def test_a_name_that_was_used_before_is_another_message(store: Store) -> None:
    for turn in range(3):
        drop(store, "note.json", message(f"M{turn}", requiresAck=True))
        assert store.mail.receiving.claim("coder", "note.json").grip is Grip.OURS
        assert store.mail.ack("coder", f"M{turn}").id == f"M{turn}"
    folder = store.layout.mail("coder").processed
    assert store.files.names(folder) == ["note.2.json", "note.3.json", "note.json"]
    assert [mail_places(store, f"M{turn}") for turn in range(3)] == [["coder/processed"]] * 3
    assert len(store.mail.waiting("sales")) == 3
    for turn in range(3):
        assert store.mail.ack("coder", f"M{turn}").id == f"M{turn}", "acked again"


def test_a_name_that_was_used_before_after_crashes(store: Store, disk: MemoryDisk) -> None:
    """The removal that a killed process left is finished for the very message, whatever the number of its place."""
    folders = store.layout.mail("coder")
    drop(store, "note.json", message("M1"))
    store.mail.ack("coder", "M1")
    drop(store, "note.json", message("M2"))
    data = disk.read(f"{folders.inbox}/note.json")
    store.mail.ack("coder", "M2")
    disk.put(f"{folders.inbox}/note.json", data)
    assert store.mail.receiving.claim("coder", "note.json").grip is Grip.GONE
    assert mail_places(store, "M2") == ["coder/processed"]
    drop(store, "note.json", message("M3"))
    bury(store, "note.json", message("M3"))
    drop(store, "note.json", message("M4"))
    bury(store, "note.json", message("M4"))
    disk.link(f"{folders.dead}/note.2.json", f"{folders.inbox}/note.json")
    assert store.mail.receiving.claim("coder", "note.json").grip is Grip.GONE
    assert mail_places(store, "M4") == ["coder/dead"]


def test_duplicates_of_what_was_handled_are_found(store: Store) -> None:
    tracing = store.mail.tracing
    name = send(store)
    assert tracing.was_processed("coder", "M1", "copy.json") is None
    store.mail.ack("coder", "M1")
    assert tracing.was_processed("coder", "M1", "copy.json") == name
    drop(store, "note.json", message("M2"))
    store.mail.ack("coder", "M2")
    assert tracing.was_processed("coder", "M2", "other.json") == "note.json"
    assert tracing.was_processed("coder", "M2", "note.json") == "note.json", "another file of that name"
    bury(store, send(store, "M3"), message("M3"))
    assert tracing.was_processed("coder", "M3", "copy.json") == file_name(message("M3"))
    assert tracing.was_processed("coder", "M3", file_name(message("M3"))) is None, "put back by a person"
    assert tracing.was_processed("coder", "M", "x.json") is None


# -- dead


def test_buried_with_its_reason_and_revived(store: Store) -> None:
    name = send(store)
    for attempt in (3, 3):
        dead_claim(store, "M1", attempt)
        claim_path = f"{store.layout.mail('coder').claims}/{name}"
        claim = store.files.read(claim_path) or b""
        bury(store, name, message("M1"), f"{attempt} crashes")
        folder = store.layout.mail("coder").dead
        assert store.files.names(folder) == [name, f"{name}.reason.json"]
        note = json.loads(store.files.read(f"{folder}/{name}.reason.json") or b"")
        assert (note["state"], note["reason"], note["at"]) == ("dead", "3 crashes", at(0))
        assert (claims(store), counted(store, "coder")) == ({}, (0, 0))
        store.files.replace(claim_path, claim)  # a power cut brought the old one back
        store.mail.revive("coder", name, message("M1"))
        assert store.files.names(folder) == []
        assert (claims(store), counted(store, "coder")) == ({}, (1, 1))
        claimed = store.mail.receiving.claim("coder", name)
        assert claimed.claim is not None
        assert claimed.claim.attempt == 1, "its attempts are forgotten"
        store.mail.receiving.release("coder", name)


def test_reviving_what_is_not_there_or_in_the_way(store: Store) -> None:
    with pytest.raises(UnknownMessage):
        store.mail.revive("coder", "none.json", message("M1"))
    drop(store, "note.json", message("M1"))
    bury(store, "note.json", message("M1"))
    drop(store, "note.json", message("M2"))
    with pytest.raises(Conflict):
        store.mail.revive("coder", "note.json", message("M1"))
    assert [mail_places(store, id_) for id_ in ("M1", "M2")] == [["coder/dead"], ["coder/inbox"]]
    assert counted(store, "coder") == (1, 1)


def test_buried_twice_is_once(store: Store) -> None:
    name = send(store)
    bury(store, name, message("M1"))
    bury(store, name, message("M1"))
    assert not store.mail.reject("coder", name, "no good")
    assert [event["event"] for event in store.journal.read_events()] == ["mail_sent", "mail_dead"]
