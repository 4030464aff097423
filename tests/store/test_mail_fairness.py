"""A full inbox empties fairly: whoever was turned away gets its turn."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from mesh.limits import DEFAULT
from mesh.policy.admission import admit
from mesh.store import Store
from mesh.store.mail.names import is_mail
from tests.faults.mail_world import at, counted, message

CAP, EACH = 5, 20
SENDERS = ("ada", "bob", "cleo", "dan")
LIMITS = DEFAULT.with_overrides({"messagesPerMinute": None, "inboxWaitingMax": CAP})


def capped(store: Store) -> Store:
    store.mail.sending.admit = lambda facts, letter: admit(facts, letter, LIMITS)
    return store


def waiting(store: Store) -> int:
    return sum(map(is_mail, store.files.names(store.layout.mail("coder").inbox)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("retry_s", [0.05, 2.0])
def test_each_sender_gets_through_in_turn(store: Store, seed: int, retry_s: float) -> None:
    chance = random.Random(seed)
    capped(store)
    for number in range(EACH):
        for sender in SENDERS:
            store.mail.send(message(f"{sender}-{number:02}", sender=sender, timestamp=at(number)), queue=True)
    arrived: dict[str, list[str]] = {sender: [] for sender in SENDERS}
    seen: set[str] = set()

    def look() -> None:
        for found in store.mail.waiting("coder"):
            if found.id not in seen:
                seen.add(found.id)
                arrived[found.from_].append(found.id)

    first = {}
    for _ in range(400):
        store.time.sleep(retry_s)
        for sender in chance.sample(SENDERS, len(SENDERS)):
            store.mail.post_queued(sender)
        look()
        assert waiting(store) <= CAP
        counts = {sender: len(ids) for sender, ids in arrived.items()}
        first = first or counts  # what was there before anybody had to wait
        gained = [counts[sender] - first[sender] for sender in SENDERS if counts[sender] < EACH]
        assert not gained or max(gained) - min(gained) <= 2, counts
        if len(seen) == EACH * len(SENDERS):
            break
        served = store.mail.waiting("coder", 1)[0]
        store.mail.ack("coder", served.id)
    assert {sender: len(ids) for sender, ids in arrived.items()} == dict.fromkeys(SENDERS, EACH), "none is lost"
    everywhere = Counter(
        found.id
        for folder in (store.layout.mail("coder").inbox, store.layout.mail("coder").processed)
        for _, found in store.mail.tracing.messages(folder)
    )
    assert set(everywhere.values()) == {1}, "none is doubled"
    for ids in arrived.values():
        assert ids == sorted(ids), "each sender's come in their order"
    assert all(store.mail.sending.queued(sender) == 0 for sender in SENDERS)
    said, true = counted(store, "coder")
    assert said == true


def test_who_waits_longest_goes_first(store: Store) -> None:
    capped(store)
    store.mail.post([message(f"F{number}", sender="eve") for number in range(CAP)])
    for sender in SENDERS:
        assert store.mail.send(message(f"{sender}-1", sender=sender), queue=True).queued
    store.mail.ack("coder", "F0")
    for sender in reversed(SENDERS):
        (tried,) = store.mail.post_queued(sender)
        assert tried.queued == (sender != "ada")


def test_a_sender_that_no_longer_tries_gives_its_place_up(store: Store) -> None:
    capped(store)
    store.mail.post([message(f"F{number}", sender="eve") for number in range(CAP)])
    store.mail.send(message("ada-1", sender="ada"), queue=True)
    store.mail.ack("coder", "F0")
    assert store.mail.send(message("bob-1", sender="bob"), queue=True).queued, "ada's place"
    store.time.sleep(10.1)
    (tried,) = store.mail.post_queued("bob")
    assert not tried.queued


def test_one_recipient_that_is_full_holds_up_no_other(store: Store) -> None:
    capped(store)
    store.mail.post([message(f"F{number}", sender="eve") for number in range(CAP)])
    store.mail.send(message("A1", sender="ada"), queue=True)
    store.mail.post([message(f"G{number}", "devops", sender="eve") for number in range(CAP)])
    store.mail.send(message("A2", "devops", sender="ada", timestamp=at(1)), queue=True)
    store.mail.ack("devops", "G0")
    assert {entry.message.id: entry.queued for entry in store.mail.post_queued("ada")} == {"A1": True, "A2": False}
