from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mesh.errors import Conflict, InboxFull, MeshError, RateExceeded
from mesh.models import HUMAN, InboxFacts, Message, Refusal
from mesh.store import Store
from mesh.store.mail.names import file_name, is_mail
from mesh.store.mailbox import Again, Posted
from tests.fakes import MemoryDisk
from tests.faults.mail_world import at, counted, mail_places, message, refuse
from tests.faults.world import ROOT, outsider


def post(store: Store, letter: Message, again: Again = Again.BY_ID, *, queue: bool = False) -> Posted:
    return store.mail.post([letter], again=again, queue=queue)[0]


def events(store: Store) -> list[str]:
    return [event["event"] for event in store.journal.read_events()]


def refusing(store: Store) -> Callable[[], None]:
    before, store.mail.sending.admit = store.mail.sending.admit, refuse

    def stop() -> None:
        store.mail.sending.admit = before

    return stop


def test_the_inbox_file_and_the_outbox_copy_are_one(store: Store, disk: MemoryDisk) -> None:
    letter = message("M1", requiresAck=True, threadId="T1")
    posted = post(store, letter, Again.NEVER)
    assert (posted.error, posted.queued, posted.duplicate) == (None, False, False)
    name = file_name(letter)
    inbox, copy = f"{store.layout.mail('coder').inbox}/{name}", f"{store.layout.mail('sales').outbox}/{name}"
    one, two = disk.look(inbox), disk.look(copy)
    assert one is not None
    assert two is not None
    assert one.inode == two.inode
    assert store.files.names(store.layout.scratch) == []
    assert [found.filed() for found in store.mail.waiting("coder")] == [letter.filed()]
    assert events(store) == ["mail_sent"]


def test_one_answer_a_message_in_their_order(store: Store) -> None:
    def admit(facts: InboxFacts, letter: Message) -> Refusal | None:
        return Refusal("rate", "too many", 7.0) if letter.id in ("B", "D") else None

    store.mail.sending.admit = admit
    letters = [
        message(id_, to) for id_, to in zip("ABCDE", ["devops", "coder", "devops", "sales", "coder"], strict=True)
    ]
    posted = store.mail.post(letters)
    assert [entry.message.id for entry in posted] == list("ABCDE")
    assert [entry.error is None for entry in posted] == [True, False, True, False, True]
    error = posted[1].error
    assert isinstance(error, RateExceeded)
    assert error.facts == {"agentId": "coder", "messageId": "B", "retryAfterS": 7.0}
    assert mail_places(store, "B") == mail_places(store, "D") == []
    assert counted(store, "coder") == (1, 1)
    assert store.files.names(store.layout.scratch) == [], "what was refused leaves nothing"


def test_one_message_that_cant_be_written_fails_alone(disk: MemoryDisk) -> None:
    class Failing:
        """The disk, but the second file can't be made."""

        made = 0

        def __getattr__(self, name: str) -> Any:
            if name == "create":
                Failing.made += 1
                if Failing.made == 2:
                    raise OSError(5, "Input/output error")
            return getattr(disk, name)

    store = outsider(Failing(), disk.time)
    posted = store.mail.post([message(id_) for id_ in "ABC"])
    assert [entry.error is None for entry in posted] == [True, False, True]
    assert counted(store, "coder") == (2, 2)


def test_a_flush_shared_by_many(disk: MemoryDisk) -> None:
    flushes = []

    class Watching:
        def __getattr__(self, name: str) -> Any:
            if name == "flush_folder":
                return lambda path: (flushes.append(path), disk.flush_folder(path))
            return getattr(disk, name)

    store = outsider(Watching(), disk.time)
    store.mail.post([message(f"M{number}", to) for number in range(50) for to in ("coder", "devops")])
    assert sorted(flushes) == [store.layout.mail("coder").inbox, store.layout.mail("devops").inbox]


def test_the_first_mail_to_an_address_makes_its_folders(store: Store) -> None:
    store.mail.send(message("M1", to="newcomer", sender="another"))
    assert [found.id for found in store.mail.waiting("newcomer")] == ["M1"]


# -- again


@pytest.mark.parametrize("acked", [False, True])
def test_the_same_id_again_is_the_same_message(store: Store, acked: bool) -> None:
    assert not post(store, message("M1")).duplicate
    if acked:
        store.mail.ack("coder", "M1")
    for second in (1, 2):
        posted = post(store, message("M1", timestamp=at(second), threadId="M1"))
        assert (posted.error, posted.duplicate, posted.queued) == (None, True, False)
        assert posted.message.timestamp == at(0), "the one that was accepted"
    assert mail_places(store, "M1") == ["coder/processed" if acked else "coder/inbox"]
    assert counted(store, "coder") == ((0, 0) if acked else (1, 1))
    copies = [name for name in store.files.names(store.layout.mail("sales").outbox) if is_mail(name)]
    assert len(copies) == 1


@pytest.mark.parametrize("other", [{"payload": {"text": "other"}}, {"sender": "devops"}, {"type": "other"}])
def test_the_same_id_for_another_message_is_a_conflict(store: Store, other: dict[str, Any]) -> None:
    post(store, message("M1"))
    posted = post(store, message("M1", timestamp=at(1), **other))
    assert isinstance(posted.error, Conflict)
    assert posted.error.facts == {"messageId": "M1"}
    assert counted(store, "coder") == (1, 1)
    assert post(store, message("M1", "devops", **other)).error is None, "ids are the recipient's"


def test_a_refused_id_may_be_sent_again(store: Store) -> None:
    stop = refusing(store)
    assert isinstance(post(store, message("M1")).error, InboxFull)
    assert store.files.names(store.layout.mail("coder").ids) == []
    stop()
    assert not post(store, message("M1", payload={"text": "other"})).duplicate
    assert mail_places(store, "M1") == ["coder/inbox"]


def test_a_full_inbox_does_not_refuse_what_it_has(store: Store) -> None:
    post(store, message("M1"))
    store.mail.tell(message("M2"))
    store.mail.ack("coder", "M2")
    refusing(store)
    assert post(store, message("M1", timestamp=at(1))).duplicate
    assert post(store, message("M2"), Again.BY_NAME).duplicate
    assert store.mail.sending.queued("sales") == 0


def test_the_same_id_twice_in_one_go(store: Store) -> None:
    letters = [message("M1", timestamp=at(0)), message("M1", timestamp=at(1)), message("M2")]
    letters.append(message("M1", timestamp=at(2), payload={"text": "other"}))
    posted = store.mail.post(letters, again=Again.BY_ID)
    assert [entry.duplicate for entry in posted] == [False, True, False, False]
    assert isinstance(posted[3].error, Conflict)
    assert counted(store, "coder") == (2, 2)


def test_told_again_it_changes_nothing(store: Store) -> None:
    for _ in range(3):
        store.mail.tell(message("M1"))
    store.mail.ack("coder", "M1")
    store.mail.tell(message("M1"))
    assert mail_places(store, "M1") == ["coder/processed"]
    assert events(store) == ["mail_sent", "mail_acked"]


def test_told_again_it_mends_the_outbox_copy(store: Store) -> None:
    store.mail.tell(message("M1"))
    copy = f"{store.layout.mail('sales').outbox}/{file_name(message('M1'))}"
    store.files.unlink(copy)
    store.mail.tell(message("M1"))
    assert store.files.exists(copy)
    assert store.files.names(store.layout.scratch) == []


# -- queued


def test_queued_it_waits_with_its_sender_and_arrives_later(store: Store) -> None:
    stop = refusing(store)
    assert post(store, message("M1"), Again.NEVER, queue=True).queued
    assert mail_places(store, "M1") == ["sales/queued"]
    (tried,) = store.mail.post_queued("sales")
    assert tried.queued
    stop()
    (tried,) = store.mail.post_queued("sales")
    assert (tried.queued, tried.error, tried.duplicate) == (False, None, False)
    assert mail_places(store, "M1") == ["coder/inbox"]
    assert [name for name in store.files.names(store.layout.mail("sales").outbox) if is_mail(name)]
    assert store.mail.post_queued("sales") == []
    assert events(store) == ["mail_queued", "mail_sent"]


def test_queued_and_sent_again(store: Store) -> None:
    stop = refusing(store)
    assert post(store, message("M1"), queue=True).queued
    again = post(store, message("M1", timestamp=at(1)), queue=True)
    assert (again.queued, again.duplicate, again.message.timestamp) == (True, True, at(0))
    stop()
    again = post(store, message("M1", timestamp=at(2)), queue=True)
    assert (again.queued, again.duplicate) == (True, True), "those who come first go first"
    assert isinstance(post(store, message("M1", payload={"text": "other"}), queue=True).error, Conflict)
    store.mail.post_queued("sales")
    assert mail_places(store, "M1") == ["coder/inbox"]
    store.mail.ack("coder", "M1")
    assert post(store, message("M1", timestamp=at(3)), queue=True).duplicate, "the id is known from then on"
    assert mail_places(store, "M1") == ["coder/processed"]


@pytest.mark.parametrize("first", [0, 1])
def test_two_with_one_id_in_the_outbox_arrive_once(store: Store, disk: MemoryDisk, first: int) -> None:
    """Two processes send the same id at the same moment, and both find no room."""
    stop = refusing(store)
    post(store, message("M1", timestamp=at(first)), queue=True)
    queued = store.layout.mail("sales").queued
    (name,) = store.files.names(queued)
    hidden = disk.read(f"{queued}/{name}")
    store.files.unlink(f"{queued}/{name}")
    post(store, message("M1", timestamp=at(1 - first)), queue=True)
    disk.put(f"{queued}/{name}", hidden)
    stop()
    tried = store.mail.post_queued("sales")
    assert [entry.duplicate for entry in tried] == [False, True]
    assert mail_places(store, "M1") == ["coder/inbox"]
    assert store.mail.sending.queued("sales") == 0
    assert len([name for name in store.files.names(store.layout.mail("sales").outbox) if is_mail(name)]) == 1


def test_queued_without_the_lock_while_the_id_was_taken(store: Store, disk: MemoryDisk) -> None:
    """Its sender could not ask whether the id is known. Sent again meanwhile, the first must not arrive as well."""
    folders = store.layout.mail("coder")
    with store.mail.counting.hold(folders):
        assert post(store, message("M1"), queue=True).queued
    queued = store.layout.mail("sales").queued
    (name,) = store.files.names(queued)
    hidden = disk.read(f"{queued}/{name}")
    store.files.unlink(f"{queued}/{name}")
    assert not post(store, message("M1", timestamp=at(5))).duplicate
    disk.put(f"{queued}/{name}", hidden)
    (tried,) = store.mail.post_queued("sales")
    assert tried.duplicate
    assert mail_places(store, "M1") == ["coder/inbox"]
    assert store.mail.sending.queued("sales") == 0


def test_what_arrived_and_still_lies_in_the_outbox_is_only_dropped(store: Store, disk: MemoryDisk) -> None:
    """Its sender was killed before it left the outbox."""
    store.mail.send(message("M1"))
    store.mail.ack("coder", "M1")
    folders = store.layout.mail("sales")
    disk.link(f"{folders.outbox}/{file_name(message('M1'))}", f"{folders.queued}/{file_name(message('M1'))}")
    refusing(store)
    (tried,) = store.mail.post_queued("sales")
    assert tried.duplicate
    assert mail_places(store, "M1") == ["coder/processed"]
    assert store.mail.sending.queued("sales") == 0


def test_a_bad_file_in_the_outbox_is_in_nobodys_way(store: Store, disk: MemoryDisk) -> None:
    stop = refusing(store)
    disk.put(f"{store.layout.mail('sales').queued}/0.json", b"{")
    disk.put(f"{store.layout.mail('sales').queued}/README", b"{")
    post(store, message("M1"), queue=True)
    assert store.mail.sending.queued("sales") == 2
    stop()
    assert [entry.message.id for entry in store.mail.post_queued("sales")] == ["M1"]


def test_sending_by_a_person_that_fails_leaves_no_copy(disk: MemoryDisk) -> None:
    class Failing:
        def __getattr__(self, name: str) -> Any:
            if name == "link":
                return self.link
            return getattr(disk, name)

        def link(self, old: str, new: str) -> None:
            if "/inbox/" in new:
                raise OSError(5, "Input/output error")
            disk.link(old, new)

    store = outsider(Failing(), disk.time)
    with pytest.raises(MeshError):
        store.mail.send(message("M1", sender=HUMAN))
    assert store.files.names(store.layout.mail(HUMAN).outbox) == ["queued"]
    assert counted(store, "coder") == (0, 0)


# -- counting


def test_a_damaged_record_is_counted_anew_at_once(store: Store, disk: MemoryDisk) -> None:
    store.mail.post([message(f"M{number}") for number in range(3)])
    for damaged in (
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"waiting": 0}',
        b'{"waiting": "x", "bootId": "boot-1"}',
        b"\xff" * 99,
    ):
        disk.put(store.layout.mail("coder").admission, damaged)
        assert counted(store, "coder") == (3, 3)
    assert store.mail.counting.recount(store.layout.mail("coder")) == (3, 3)
    assert store.mail.counting.waiting(store.layout.mail("coder")) == 3


def test_very_many_stamps_leave_the_count_right(store: Store) -> None:
    store.mail.sending.is_rated = lambda letter: True
    folders = store.layout.mail("coder")
    with store.mail.counting.hold(folders) as count:
        count._sent = {f"agent-{number}": [store.time.boottime()] * 100 for number in range(100)}
        count.save()
    store.mail.post([message(f"M{number}") for number in range(5)])
    assert counted(store, "coder") == (5, 5)
    assert store.mail.counting.waiting(folders) == 5


def test_what_could_not_be_linked_counts_neither_as_waiting_nor_as_sent(store: Store) -> None:
    seen: list[InboxFacts] = []

    def admit(facts: InboxFacts, letter: Message) -> None:
        seen.append(facts)

    store.mail.sending.admit = admit
    store.mail.sending.is_rated = lambda letter: True
    post(store, message("M1"), Again.NEVER)
    post(store, message("M1"), Again.NEVER)  # its name is taken
    post(store, message("M2"), Again.NEVER)
    assert [(facts.waiting, len(facts.sent_s)) for facts in seen] == [(0, 0), (1, 1), (1, 1)]


def test_an_agent_that_was_replaced_sends_nothing(disk: MemoryDisk) -> None:
    old, _ = Store.become(ROOT, "sales", disk=disk, time=disk.time)
    stop = refusing(old)
    old.mail.send(message("Q1"), queue=True)
    stop()
    Store.become(ROOT, "sales", disk=disk, time=disk.time)
    for again in Again:
        assert post(old, message("M1"), again).error is not None
        assert mail_places(old, "M1") == []
    (tried,) = old.mail.post_queued("sales")
    assert tried.error is not None
    assert mail_places(old, "Q1") == ["sales/queued"]
