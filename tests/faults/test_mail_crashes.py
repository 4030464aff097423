"""What crash states must hold beyond the facts of one call: counts, outbox copies, and doing it again afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mesh.models import HUMAN
from mesh.store import Store
from mesh.store.mail.names import is_mail
from mesh.store.mailbox import Again
from tests.fakes import MemoryDisk
from tests.faults.disks import RecordingDisk, after_power_cut
from tests.faults.mail_scenarios import MAIL_SCENARIOS, SENDS, queued, send
from tests.faults.mail_world import ADDRESSES, counted, finish, mail_places, message
from tests.faults.scenarios import Scenario
from tests.faults.world import ROOT, made_disk, outsider


def killed(scenario: Scenario) -> Iterator[MemoryDisk]:
    """The disk as a kill -9 after each step of the call leaves it."""
    base = scenario.prepared()
    disk = RecordingDisk(base)
    scenario.call(scenario.store(disk, base.time))
    yield from (state.kill() for state in disk.states)


def every_crash(call: Callable[[Store], object], base: MemoryDisk | None = None) -> Iterator[MemoryDisk]:
    """Every state that a kill or a power cut may leave."""
    base = base or made_disk()
    disk = RecordingDisk(base)
    call(outsider(disk, base.time))
    seen = set()
    for state in disk.states:
        yield state.kill()  # with what is visible and not durable yet
        for _, crashed in after_power_cut(state):
            key = frozenset(crashed.tree().items())
            if key not in seen:
                seen.add(key)
                yield crashed


@pytest.mark.parametrize(
    "scenario", [entry for entry in MAIL_SCENARIOS if entry.name != "mail: recount"], ids=lambda entry: entry.name
)
def test_the_count_never_falls_short_while_processes_die(scenario: Scenario) -> None:
    for disk in killed(scenario):
        store = outsider(disk, disk.time)
        for address in ADDRESSES:
            said, true = counted(store, address)
            assert said >= true


def test_the_first_count_after_a_boot_is_right() -> None:
    """The record isn't flushed: an old one must not be believed after the power came back."""
    base = made_disk()
    outsider(base, base.time).mail.post([message(f"A{n}") for n in range(3)])
    base.sync()
    recording = RecordingDisk(base)
    outsider(recording, base.time).mail.post([message(f"B{n}") for n in range(3)])
    for state in recording.states:
        for _, crashed in after_power_cut(state):
            crashed.time.reboot()
            said, true = counted(outsider(crashed, crashed.time), "coder")
            assert said == true


@pytest.mark.parametrize(
    "scenario", [entry for entry in SENDS if entry.agent and not entry.made_up_for], ids=lambda entry: entry.name
)
def test_what_arrived_has_its_outbox_copy_after_a_kill(scenario: Scenario) -> None:
    for disk in killed(scenario):
        store, _ = Store.become(ROOT, "sales", disk=disk, time=disk.time)
        finish(store)
        for address in ("coder", "devops"):
            for name in filter(is_mail, store.files.names(store.layout.mail(address).inbox)):
                found = dict(store.mail.tracing.messages(store.layout.mail("sales").outbox))
                assert name in found
        assert not store.files.names(f"{store.layout.run('sales')}/1"), "no temporary is left"


def test_an_acks_temporary_is_not_taken_for_the_senders_copy() -> None:
    """The recipient's successor finds it, and must leave the sender's outbox alone."""
    base = made_disk()
    coder, _ = Store.become(ROOT, "coder", disk=base, time=base.time)
    outsider(base, base.time).mail.send(message("M1"))
    folder = coder.layout.mail("sales").outbox
    (name,) = [name for name in base.names(folder) if is_mail(name)]
    before = base.read(f"{folder}/{name}")
    base.unlink(f"{folder}/{name}")
    coder.files.begin(name, before.replace(b'"payload"', b'"ackedAt": "2026-02-16T20:45:00.000Z", "payload"'))
    Store.become(ROOT, "coder", disk=base, time=base.time)
    assert base.names(folder) == ["queued"]


def test_what_a_person_sent_always_has_its_copy() -> None:
    """A message in the name of the human without one counts as forged."""
    for disk in every_crash(lambda store: send(store, sender=HUMAN)):
        store = outsider(disk, disk.time)
        for name in filter(is_mail, store.files.names(store.layout.mail("coder").inbox)):
            assert store.mail.tracing.is_from_sender(message("M1", sender=HUMAN), name)


LATER: dict[str, Any] = {"timestamp": "2026-02-16T20:46:00.000Z"}


@pytest.mark.parametrize("first", [Again.BY_ID, Again.BY_NAME])
def test_sent_again_after_any_crash_it_arrives_once(first: Again) -> None:
    count = 0
    later = LATER if first is Again.BY_ID else {}
    for disk in every_crash(lambda store: send(store, again=first)):
        count += 1
        store = outsider(disk, disk.time)
        send(store, again=first, **later)
        finish(store)
        assert mail_places(store, "M1") == ["coder/inbox"]
        lost = disk.crash(lambda effect: "lost")
        assert mail_places(outsider(lost, lost.time), "M1") == ["coder/inbox"], "it was accepted"
    assert count > 20


def test_queued_and_sent_again_after_any_crash_it_arrives_once() -> None:
    for disk in every_crash(lambda store: queued(store, again=Again.BY_ID)):
        store = outsider(disk, disk.time)
        posted = store.mail.send(message("M1", **LATER), again=Again.BY_ID)
        lost = disk.crash(lambda effect: "lost")
        assert len(mail_places(outsider(lost, lost.time), "M1")) == 1, f"queued: {posted.queued}"
        store.mail.post_queued("sales")
        assert mail_places(store, "M1") == ["coder/inbox"]
        assert store.mail.sending.queued("sales") == 0


def test_acked_again_after_any_crash_it_is_answered_once() -> None:
    base = made_disk()
    send(outsider(base, base.time), requiresAck=True)
    base.sync()
    count = 0
    for disk in every_crash(lambda store: store.mail.ack("coder", "M1", "first"), base):
        count += 1
        store = outsider(disk, disk.time)
        disk.time.advance(5)
        acked = store.mail.ack("coder", "M1", "second")
        again = store.mail.ack("coder", "M1", "third")
        assert acked == again
        assert mail_places(store, "M1") == ["coder/processed"]
        assert mail_places(store, "M1-ack") == ["sales/inbox"]
        assert len([name for name in disk.names(store.layout.mail("sales").inbox) if is_mail(name)]) == 1
    assert count > 20
