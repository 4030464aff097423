from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from mesh.errors import UnknownMessage
from mesh.models import HUMAN, MESSAGE_TRANSITIONS, Delivery, DeliveryState, Message
from mesh.store import Store
from mesh.store.codec import encode
from mesh.store.mail.names import file_name
from tests.fakes import MemoryDisk
from tests.faults.disks import Interrupted
from tests.faults.mail_world import at, message, refuse
from tests.faults.world import made_disk, outsider

S = DeliveryState
NAME = file_name(message("M1"))


def send(store: Store) -> None:
    store.mail.send(message("M1"))


def state(store: Store) -> Delivery:
    return store.mail.tracing.delivery_of(message("M1"), NAME)


def copy(store: Store) -> Message:
    (found,) = store.mail.tracing.messages(store.layout.mail("sales").outbox)
    return found[1]


def claim(store: Store) -> None:
    store.mail.receiving.claim("coder", NAME)


def keep(store: Store) -> None:
    store.mail.receiving.keep("coder", NAME, shown=True)


def end(kind: DeliveryState) -> Callable[[Store], object]:
    if kind is S.REJECTED:
        return lambda store: store.mail.reject("coder", NAME, "why")
    return lambda store: store.mail.bury("coder", NAME, message("M1"), kind, "why")


def ack(store: Store) -> None:
    store.mail.ack("coder", "M1")


def revive(store: Store) -> None:
    store.mail.revive("coder", NAME, message("M1"))


@pytest.mark.parametrize(
    ("steps", "expected", "times"),
    [
        ([], S.WRITTEN, {"written": 0}),
        ([claim], S.DELIVERED, {"written": 0, "delivered": 10}),
        ([claim, keep], S.SHOWN, {"written": 0, "delivered": 10, "shown": 20}),
        ([claim, keep, ack], S.ACKED, {"written": 0, "delivered": 10, "shown": 20, "acked": 30}),
        ([ack], S.ACKED, {"written": 0, "delivered": 10, "acked": 10}),
        ([end(S.DEAD)], S.DEAD, {"written": 0, "dead": 10}),
        ([end(S.EXPIRED)], S.EXPIRED, {"written": 0, "expired": 10}),
        ([end(S.REJECTED)], S.REJECTED, {"written": 0, "rejected": 10}),
        ([end(S.DEAD), revive], S.WRITTEN, {"written": 0}),
        (
            [lambda store: store.files.unlink(f"{store.layout.mail('coder').inbox}/{NAME}")],
            S.UNCERTAIN,
            {"written": 0, "uncertain": 10},
        ),
    ],
)
def test_the_state_follows_from_where_it_lies(
    store: Store, steps: list[Callable[[Store], object]], expected: DeliveryState, times: dict[str, float]
) -> None:
    send(store)
    for step in steps:
        store.time.sleep(10)
        step(store)
    found = state(store)
    assert (found.state, found.at) == (expected, {name: at(seconds) for name, seconds in times.items()})
    assert (found.reason == "why") == (expected in (S.DEAD, S.EXPIRED, S.REJECTED))


def test_queued_is_written_and_says_why(store: Store) -> None:
    store.mail.sending.admit = refuse
    store.mail.send(message("M1"), queue=True)
    found = state(store)
    assert (found.state, found.at) == (S.WRITTEN, {"written": at()})
    assert "coder's inbox" in (found.reason or "")


@pytest.mark.parametrize("reason", [None, b"{", b"[]", b"null", b'{"state": 7}'])
def test_a_reason_that_is_missing_or_damaged(store: Store, disk: MemoryDisk, reason: bytes | None) -> None:
    send(store)
    end(S.EXPIRED)(store)
    path = f"{store.layout.mail('coder').dead}/{NAME}.reason.json"
    store.files.unlink(path)
    if reason is not None:
        disk.put(path, reason)
    assert state(store).state is S.DEAD


@pytest.mark.parametrize(
    "steps", [[claim, keep, ack], [claim, end(S.DEAD), revive, claim, ack], [end(S.EXPIRED), revive]]
)
def test_the_copy_keeps_every_time_and_never_goes_back(store: Store, steps: list[Callable[[Store], object]]) -> None:
    send(store)
    assert store.mail.tracing.bring_up_to_date("sales", NAME) == Delivery(at={"written": at()})
    before = S.WRITTEN
    for number, step in enumerate(steps, 1):
        store.time.sleep(10)
        step(store)
        found = store.mail.tracing.bring_up_to_date("sales", NAME)
        assert found is not None
        assert found == copy(store).delivery
        assert found.state is before or found.state in MESSAGE_TRANSITIONS[before]
        assert number == len(steps) or found.at.get(found.state), "when it came to it"
        before = found.state


def transitions() -> list[tuple[DeliveryState, DeliveryState]]:
    return list(itertools.product(S, (S.WRITTEN, S.DELIVERED, S.SHOWN, S.ACKED, S.DEAD, S.EXPIRED, S.REJECTED)))


@pytest.mark.parametrize(("known", "now"), transitions())
def test_the_copy_obeys_the_lifecycle(store: Store, disk: MemoryDisk, known: DeliveryState, now: DeliveryState) -> None:
    send(store)
    letter = copy(store)
    letter.delivery = Delivery(state=known, at={known: at(1), "written": at()})
    disk.put(f"{store.layout.mail('sales').outbox}/{NAME}", encode(letter.filed()))
    steps = {S.WRITTEN: [], S.DELIVERED: [claim], S.SHOWN: [claim, keep], S.ACKED: [ack]}
    for step in steps.get(now, [end(now)]):
        step(store)
    found = store.mail.tracing.bring_up_to_date("sales", NAME)
    assert found is not None
    assert found.state is (now if now in MESSAGE_TRANSITIONS[known] else known)
    assert {"written", known, found.state} <= set(found.at), "every time that was known stays"
    assert copy(store).delivery == found


def test_no_copy_no_state(store: Store, disk: MemoryDisk) -> None:
    assert store.mail.tracing.bring_up_to_date("sales", NAME) is None
    send(store)
    path = f"{store.layout.mail('sales').outbox}/{NAME}"
    disk.put(path, b"")
    assert store.mail.tracing.bring_up_to_date("sales", NAME) is None
    assert store.mail.tracing.is_from_sender(message("M1"), NAME)
    store.files.unlink(path)
    assert not store.mail.tracing.is_from_sender(message("M1"), NAME)
    claim(store)
    store.mail.tracing.restore_copy(message("M1"), NAME)
    found = store.mail.tracing.bring_up_to_date("sales", NAME)
    assert found is not None
    assert found.state is S.DELIVERED


def test_a_message_on_the_move_is_never_lost_sight_of() -> None:
    """It moves to a place that was looked at already; that must not make it uncertain."""

    def move(disk: MemoryDisk) -> None:
        ack(outsider(disk, disk.time))

    def back(disk: MemoryDisk) -> None:
        revive(outsider(disk, disk.time))

    def arrive(disk: MemoryDisk) -> None:
        outsider(disk, disk.time).mail.post_queued("sales")

    for act, prepare in ((move, send), (back, lambda store: (send(store), end(S.DEAD)(store))), (arrive, queue)):
        for step in range(1, 30):
            disk = made_disk()
            prepare(outsider(disk, disk.time))
            looking: Any = Interrupted(disk, step, lambda disk=disk, act=act: act(disk))
            assert state(outsider(looking, disk.time)).state is not S.UNCERTAIN
            if looking.count < step:
                break
        assert step > 3


def queue(store: Store) -> None:
    store.mail.sending.admit = refuse
    store.mail.send(message("M1"), queue=True)


# -- looking


def everything(store: Store) -> None:
    store.mail.send(message("M1", threadId="T1"))
    store.mail.send(message("M2", requiresAck=True))
    store.mail.ack("coder", "M2")
    store.mail.send(message("M3"))
    store.mail.bury("coder", file_name(message("M3")), message("M3"), S.DEAD, "why")
    store.mail.receiving.claim("coder", NAME)
    store.disk.put(f"{store.layout.mail('coder').inbox}/bad.json", b"{")


def test_looking_changes_nothing(store: Store, disk: MemoryDisk) -> None:
    everything(store)
    before = disk.tree()
    mail = store.mail
    for _ in range(2):
        mail.waiting("coder")
        mail.waiting("coder", 1)
        mail.find("M1", ["coder", "sales"])
        mail.find("M2", ["coder", "sales"])
        mail.find_waiting("coder", "M1")
        mail.tracing.thread("coder", "T1")
        mail.tracing.thread("sales", "M2")
        mail.tracing.delivery_of(message("M1"), NAME)
        mail.tracing.was_processed("coder", "M2", "x")
        mail.tracing.is_from_sender(message("M1"), NAME)
        mail.receiving.look("coder", NAME)
        mail.counting.waiting(store.layout.mail("coder"))
        mail.sending.queued("sales")
        with pytest.raises(UnknownMessage):
            mail.find("none", ["coder", "sales", HUMAN])
    assert disk.tree() == before


@pytest.mark.parametrize(
    ("id_", "place"), [("M1", "inbox"), ("M2", "processed"), ("M3", "dead"), ("M2-ack", "inbox"), ("Q1", "queued")]
)
def test_found_wherever_it_lies(store: Store, id_: str, place: str) -> None:
    everything(store)
    store.mail.sending.admit = refuse
    store.mail.send(message("Q1"), queue=True)
    found = store.mail.find(id_, ["coder", "sales"])
    assert (found.message.id, found.place) == (id_, place)
    with pytest.raises(UnknownMessage):
        store.mail.find(id_, ["devops"])


def test_a_thread_is_what_one_sent_and_got_oldest_first(store: Store) -> None:
    store.mail.send(message("A"))
    store.mail.send(message("B", "sales", "coder", timestamp=at(1), threadId="A", replyTo="A"))
    store.mail.send(message("C", timestamp=at(2), threadId="A"))
    store.mail.send(message("D", timestamp=at(3), payload={"text": "A is mentioned"}))
    store.mail.send(message("E", "devops", "coder", timestamp=at(4), threadId="A"))
    assert [found.id for found in store.mail.tracing.thread("coder", "A")] == ["A", "B", "C", "E"]
    assert [found.id for found in store.mail.tracing.thread("sales", "A")] == ["A", "B", "C"]
    assert [found.id for found in store.mail.tracing.thread("devops", "A")] == ["E"]
    assert store.mail.tracing.thread("sales", "none") == []
    first = store.mail.tracing.thread("coder", "A")[0]
    assert first.acked_at is not None, "where it has come to is what is shown"
