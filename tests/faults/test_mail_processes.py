"""The mail store between real processes on the real disk: claims, admission, killed and stopped holders."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mesh.errors import InboxBusy, RateExceeded
from mesh.limits import DEFAULT
from mesh.models import Message
from mesh.policy.admission import admit, is_rated
from mesh.store import Store
from mesh.store.mailbox import Grip
from tests.faults.mail_world import counted, mail_places, message
from tests.faults.processes import real_root, running

CLAIMER = """
import sys, time
from mesh.store import Store
from mesh.store.mailbox import Grip

store = Store(sys.argv[1])
index = store.mail.index("coder")
index.refresh()
names = [listed.name for listed in index.first(None)]
print("ready", flush=True)
for name in names:
    if store.mail.receiving.claim("coder", name).grip is Grip.OURS:
        print("claimed", name, flush=True)
print("done", flush=True)
time.sleep(600)
"""

HOLDER = """
import sys, time
from mesh.store import Store
store = Store(sys.argv[1])
index = store.mail.index("coder")
index.refresh()
for listed in index.first(None):
    claimed = store.mail.receiving.claim("coder", listed.name)
    print("ready", flush=True)
    print(claimed.claim.attempt, flush=True)
    if sys.argv[2] == "release":
        store.mail.receiving.release("coder", listed.name)
        print("released", flush=True)
time.sleep(600)
"""

SENDER = """
import itertools, sys, time
from mesh.limits import DEFAULT
from mesh.policy.admission import admit, is_rated
from mesh.store import Store
from tests.faults.mail_world import message

root, name = sys.argv[1], sys.argv[2]
store = Store(root)
limits = DEFAULT.with_overrides({"messagesPerMinute": None})
store.mail.sending.admit = lambda facts, letter: admit(facts, letter, limits)
print("ready", flush=True)
for number in itertools.count():
    entry, = store.mail.post([message(f"{name}-{number}", sender=name)])
    if entry.error is None:
        print("accepted", entry.message.id, flush=True)
    else:
        time.sleep(0.002)
"""

ADMISSION_HOLDER = """
import sys, time
from mesh.store import Store
store = Store(sys.argv[1])
with store.mail.counting.hold(store.layout.mail("coder"), 5.0):
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
print("free", flush=True)
time.sleep(600)
"""


def filled(tmp_path: Path, count: int) -> tuple[str, Store]:
    root = real_root(tmp_path)
    store = Store(root)
    for posted in store.mail.post([message(f"M{number:03}") for number in range(count)]):
        assert posted.error is None
    return root, store


def only_name(store: Store) -> str:
    return store.mail.find_waiting("coder", "M000").name


def test_one_claim_a_message_across_processes(tmp_path: Path) -> None:
    root, store = filled(tmp_path, 200)
    with ExitStack() as stack:
        workers = [stack.enter_context(running(CLAIMER, root)) for _ in range(4)]
        claimed: Counter[str] = Counter()
        for worker in workers:
            while (line := worker.line()) != "done":
                claimed[line.split()[1]] += 1
        # while they live; what a dead one held is free
        assert len(claimed) == 200
        assert set(claimed.values()) == {1}
        assert store.mail.receiving.claim("coder", next(iter(claimed))).grip is Grip.HELD


def test_claim_of_a_killed_process_is_taken_over_and_three_crashes_are_counted(tmp_path: Path) -> None:
    root, store = filled(tmp_path, 1)
    for attempt in (1, 2, 3):
        with running(HOLDER, root, "hold") as holder:
            assert holder.line() == str(attempt)
            held = store.mail.receiving.claim("coder", only_name(store))
            assert held.grip is Grip.HELD
            assert held.claim is not None
            assert held.claim.pid == holder.pid
    taken = store.mail.receiving.claim("coder", only_name(store))
    assert (taken.grip, taken.claim and taken.claim.attempt) == (Grip.OURS, 4)
    assert 4 > DEFAULT.mail_attempts_max, "so that policy gives it up"


def test_a_stopped_holder_keeps_its_claim_and_a_graceful_one_costs_no_attempt(tmp_path: Path) -> None:
    root, store = filled(tmp_path, 1)
    for _ in range(4):
        with running(HOLDER, root, "release") as holder:
            assert holder.line() == "1"
            holder.expect("released")
    with running(HOLDER, root, "hold") as holder:
        assert holder.line() == "1"
        holder.stop()
        assert store.mail.receiving.claim("coder", only_name(store)).grip is Grip.HELD


def test_many_senders_never_exceed_the_cap_even_when_killed(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    chance = random.Random(1)
    cap, most, acked = DEFAULT.inbox_waiting_max, 0, 0
    accepted: set[str] = set()
    with ExitStack() as stack:
        senders = [stack.enter_context(running(SENDER, root, f"s{number}")) for number in range(8)]
        began = time.monotonic()
        # Until there was room again and again: a slow machine gets longer for that.
        while (spent_s := time.monotonic() - began) < 2.5 or (acked <= 20 and spent_s < 30):
            names = store.files.names(store.layout.mail("coder").inbox)
            most = max(most, len(names))
            for name in names[: chance.randrange(4)]:
                found = store.mail.read("coder", name)
                if found is not None:
                    store.mail.ack_file("coder", name, found)
                    acked += 1
            if chance.random() < 0.05:
                index = chance.randrange(8)
                senders[index].kill()
                accepted |= {line.split()[1] for line in senders[index].lines()}
                senders[index] = stack.enter_context(running(SENDER, root, f"s{index}k{acked}"))
        for sender in senders:
            sender.kill()
            accepted |= {line.split()[1] for line in sender.lines()}
    assert most <= cap, "looked at while they sent"
    said, true = counted(store, "coder")
    assert true <= said, "it never falls short"
    store.mail.counting.recount(store.layout.mail("coder"))
    assert counted(store, "coder") == (true, true)
    assert true <= cap
    assert most >= cap - 10, "they must have met the cap"
    assert acked > 20
    folders = store.layout.mail("coder")
    there = Counter(
        found.id for folder in (folders.inbox, folders.processed) for _, found in store.mail.tracing.messages(folder)
    )
    assert accepted <= set(there)
    assert set(there.values()) == {1}


def test_the_rate_window_is_exact(store: Store, time: Any) -> None:
    limits = DEFAULT.with_overrides({"messagesPerMinute": 10})
    store.mail.sending.admit = lambda facts, letter: admit(facts, letter, limits)
    store.mail.sending.is_rated = lambda letter: is_rated(letter, limits)
    sent: list[float] = []
    chance = random.Random(2)
    for number in range(400):
        time.advance(chance.choice([0.0004, 0.0006, 0.3, 1.7, 4.9996]))
        now = time.boottime()
        (posted,) = store.mail.post([message(f"M{number}")])
        within = [stamp for stamp in sent if stamp > now - 60]
        if posted.error is None:
            assert len(within) < 10
            sent.append(now)
        else:
            assert isinstance(posted.error, RateExceeded)
            nearly = [stamp for stamp in sent if stamp > now - 60.002]
            assert len(nearly) == 10, "no message is refused that could go"
            wait_s = posted.error.facts["retryAfterS"]
            assert wait_s == pytest.approx(max(0.1, nearly[0] + 60 - now), abs=0.01)
    assert len(sent) > 60


def test_the_rate_window_is_not_a_millisecond_too_short(store: Store, time: Any) -> None:
    limits = DEFAULT.with_overrides({"messagesPerMinute": 1})
    store.mail.sending.admit = lambda facts, letter: admit(facts, letter, limits)
    store.mail.sending.is_rated = lambda letter: is_rated(letter, limits)
    time.advance(0.0009)
    outcomes = []
    for number, later_s in enumerate((0, 59.9995, 0.002)):
        time.advance(later_s)
        outcomes.append(store.mail.post([message(f"M{number}")])[0].error is None)
    assert outcomes == [True, False, True]


def test_a_batch_meets_the_rate_as_well(store: Store, time: Any) -> None:
    limits = DEFAULT.with_overrides({"messagesPerMinute": 10})
    store.mail.sending.admit = lambda facts, letter: admit(facts, letter, limits)
    store.mail.sending.is_rated = lambda letter: is_rated(letter, limits)
    for round_ in range(5):
        time.advance(60.01 + round_ * 0.00037)
        posted = store.mail.post([message(f"M{round_}-{number}") for number in range(15)])
        assert [entry.error is None for entry in posted] == [True] * 10 + [False] * 5


def test_a_stopped_holder_of_the_admission_lock_stops_no_sender(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    with running(ADMISSION_HOLDER, root, "0.2") as holder:
        holder.stop()
        began = time.monotonic()
        with pytest.raises(InboxBusy) as caught:
            store.mail.send(message("M1"))
        assert time.monotonic() - began < 0.6
        assert caught.value.facts["retryAfterS"] > 0
        assert mail_places(store, "M1") == [], "refused is refused"
        posted = store.mail.send(message("M2"), queue=True)
        assert posted.queued
        assert mail_places(store, "M2") == ["sales/queued"]
        (tried,) = store.mail.post_queued("sales")
        assert tried.queued
        holder.send(signal.SIGCONT)
        holder.expect("free")
        (tried,) = store.mail.post_queued("sales")
        assert (tried.error, tried.queued) == (None, False)
    assert mail_places(store, "M2") == ["coder/inbox"]
    assert counted(store, "coder") == (1, 1)


def test_a_killed_holder_of_the_admission_lock_frees_it(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    with running(ADMISSION_HOLDER, root, "600") as holder:
        holder.stop()
        assert store.mail.send(message("M1"), queue=True).queued
        holder.kill()
        store.mail.post_queued("sales")
    assert mail_places(store, "M1") == ["coder/inbox"]


def test_a_removal_does_not_wait_for_ever_for_the_count(tmp_path: Path) -> None:
    root, store = filled(tmp_path, 1)
    with running(ADMISSION_HOLDER, root, "600") as holder:
        holder.stop()
        began = time.monotonic()
        store.mail.ack("coder", "M000")
        assert time.monotonic() - began < 4
    assert mail_places(store, "M000") == ["coder/processed"]
    assert counted(store, "coder") == (1, 0)
    assert store.mail.counting.recount(store.layout.mail("coder")) == (1, 0)


ACKER = """
import sys
from mesh.store import Store
store = Store(sys.argv[1])
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    print(store.mail.ack("coder", f"M{number:03}", sys.argv[3]).acked_at, flush=True)
"""


def test_two_processes_ack_the_same_messages(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    store.mail.post([message(f"M{number:03}", requiresAck=True) for number in range(60)])
    with running(ACKER, root, "60", "a") as one, running(ACKER, root, "60", "b") as two:
        assert one.lines() == two.lines(), "both were told the same"
    assert counted(store, "coder") == (0, 0)
    answers: list[Message] = store.mail.waiting("sales")
    assert sorted(answer.reply_to or "" for answer in answers) == [f"M{number:03}" for number in range(60)]
    assert counted(store, "sales") == (60, 60)
