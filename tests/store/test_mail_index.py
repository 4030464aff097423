from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.models import Message
from mesh.store import Store
from mesh.store.codec import encode
from mesh.store.files import Files
from mesh.store.mail.index import InboxIndex
from mesh.store.mail.names import file_name
from mesh.store.mail.reading import parse_message
from tests.fakes import MemoryDisk
from tests.faults.mail_world import at, message
from tests.faults.world import ROOT
from tests.store.test_mail_names import IDS, LONGEST, TYPES

INBOX = f"{ROOT}/agents/coder/inbox"


class Counting:
    """The disk, and which files were read."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.read: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("read", "read_start"):
            return lambda path, *rest: (self.read.append(path), getattr(self._disk, name)(path, *rest))[1]
        return getattr(self._disk, name)


def put(disk: MemoryDisk, letter: Message, name: str = "") -> str:
    name = name or file_name(letter)
    disk.put(f"{INBOX}/{name}", encode(letter.filed()))
    return name


@pytest.fixture
def index(disk: MemoryDisk) -> InboxIndex:
    return InboxIndex(Files(Counting(disk), f"{ROOT}/system/scratch"), INBOX, lambda: 1_000_000)  # type: ignore[arg-type]


def reads(index: InboxIndex) -> list[str]:
    found = list(index._disk.read)  # type: ignore[attr-defined]
    index._disk.read.clear()  # type: ignore[attr-defined]
    return found


def ids(index: InboxIndex, limit: int | None = None) -> list[str]:
    return [listed.id for listed in index.first(limit)]


def test_urgent_first_then_time_then_id_within_a_millisecond(disk: MemoryDisk, index: InboxIndex) -> None:
    wanted = []
    for priority in ("urgent", "high", "normal", "low"):
        for second in (1, 2):
            for id_ in ("a", "b", "c"):
                name = f"{id_}{second}{priority}"
                wanted.append(message(name, priority=priority, timestamp=at(second)))
    for letter in random.Random(1).sample(wanted, len(wanted)):
        put(disk, letter)
    index.refresh()
    assert ids(index) == [letter.id for letter in wanted]
    assert ids(index, 4) == [letter.id for letter in wanted[:4]]


def test_times_in_other_zones_sort_by_the_moment(disk: MemoryDisk, index: InboxIndex) -> None:
    for id_, stamp in [
        ("c", "2026-02-16T19:00:02-02:00"),
        ("a", "2026-02-16T22:00:00+01:00"),
        ("b", "2026-02-16T21:00:01Z"),
    ]:
        put(disk, message(id_, timestamp=stamp))
        put(disk, message(f"{id_}{id_}", timestamp=stamp), f"{id_}.json")
    index.refresh()
    assert ids(index) == ["a", "aa", "b", "bb", "c", "cc"]


def test_a_thousand_files_are_read_once(disk: MemoryDisk, index: InboxIndex) -> None:
    for number in range(1000):
        put(disk, message(f"M{number:04}", timestamp=at(number)))
    assert len(index.refresh()) == 1000
    assert len(reads(index)) == 1000
    assert index.refresh() == []
    assert reads(index) == []
    put(disk, message("U", priority="urgent", timestamp=at(5000)))
    (fresh,) = index.refresh()
    assert fresh.id == "U"
    assert ids(index, 2) == ["U", "M0000"]
    assert len(reads(index)) == 1


def test_removed_files_are_dropped(disk: MemoryDisk, index: InboxIndex) -> None:
    names = [put(disk, message("A")), put(disk, message("B"), "b.json")]
    disk.put(f"{INBOX}/bad.json", b"{")
    index.refresh()
    assert (ids(index), list(index.unreadable)) == (["A", "B"], ["bad.json"])
    for name in [*names, "bad.json"]:
        disk.unlink(f"{INBOX}/{name}")
    assert index.refresh() == []
    assert (ids(index), list(index.unreadable), index.get(names[0])) == ([], [], None)


def test_a_file_that_was_named_by_hand_is_noticed_and_read_again_when_it_changes(
    disk: MemoryDisk, index: InboxIndex
) -> None:
    put(disk, message("A"), "note.json")
    assert [listed.id for listed in index.refresh()] == ["A"]
    reads(index)
    assert index.refresh() == []
    assert reads(index) == [], "it has not changed"
    put(disk, message("B", priority="high"), "note.json")
    assert [(listed.id, listed.rank) for listed in index.refresh()] == [("B", 1)]
    assert list(index.by_id("A")) == []


def test_half_written_then_whole(disk: MemoryDisk, index: InboxIndex) -> None:
    data = encode(message("A").filed())
    disk.put(f"{INBOX}/note.json", data[:-10])
    assert index.refresh() == []
    assert "not JSON" in index.unreadable["note.json"].reason
    disk.put(f"{INBOX}/note.json", data)
    assert [listed.id for listed in index.refresh()] == ["A"]
    assert index.unreadable == {}


def test_other_files_are_none_of_it(disk: MemoryDisk, index: InboxIndex) -> None:
    for name in (".hidden.json", ".admission", "a.json.reason.json", "README"):
        put(disk, message("A"), name)
    assert index.refresh() == []
    assert not index.unreadable


LETTERS = st.builds(
    lambda id_, type_, priority, payload, optional: message(
        id_, type=f"x{type_}"[:64], priority=priority, payload=payload, **optional
    ),
    IDS,
    TYPES,
    st.sampled_from(["urgent", "high", "normal", "low"]),
    st.dictionaries(st.text(), st.text() | st.integers() | st.none() | st.lists(st.text()), max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "requiresAck": st.booleans(),
            "expiresAt": st.just(at(5)),
            "replyTo": IDS,
            "threadId": IDS,
            "timestamp": st.datetimes().map(lambda moment: moment.isoformat()),
            "x-unknown": st.text(),
            "schemaVersion": st.integers(0, 99),
        },
    ),
)


@given(LETTERS)
@settings(max_examples=150, deadline=None)
def test_the_head_tells_the_same_as_the_whole(letter: Message) -> None:
    disk = MemoryDisk()
    for folder in (ROOT, f"{ROOT}/agents", f"{ROOT}/agents/coder", INBOX):
        disk.make_folder(folder)
    ours, by_hand = put(disk, letter), put(disk, letter, "by-hand.json")
    index = InboxIndex(Files(disk, ROOT), INBOX, lambda: 10_000_000)
    assert index._head(ours) is not None, "our encoder's files need no parsing"
    index.refresh()
    first, second = index.get(ours), index.get(by_hand)
    assert first is not None
    assert second is not None
    assert first._replace(name="") == second._replace(name="")
    assert parse_message(disk.read(f"{INBOX}/{ours}")).id == first.id


def test_the_longest_head_fits(disk: MemoryDisk, index: InboxIndex) -> None:
    letter = message(**LONGEST, to="t" * 32, sender="s" * 32)
    name = put(disk, letter)
    assert index._head(name) is not None


def test_our_name_with_another_order_of_fields_is_parsed(disk: MemoryDisk, index: InboxIndex) -> None:
    letter = message("A", priority="urgent")
    document = dict(reversed(letter.filed().items()))
    disk.put(f"{INBOX}/{file_name(letter)}", json.dumps(document).encode())
    assert [(listed.id, listed.rank) for listed in index.refresh()] == [("A", 0)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (encode(message("A").filed())[:-5], "not JSON"),
        (encode({**message("A").filed(), "requiresAck": "perhaps"}), "requiresAck"),
        (encode({**message("A").filed(), "id": "a b"}), "id"),
        (encode({**message("A").filed(), "payload": 7}), "payload"),
        (encode({**message("A").filed(), "type": "fix_ci_failure"}), "payload"),
    ],
)
def test_our_name_and_head_with_a_bad_rest_is_found_out(
    store: Store, disk: MemoryDisk, data: bytes, reason: str
) -> None:
    """Its head is listed until it is to be delivered; from then on it is one of the unreadable, and stays so."""
    name = file_name(message("A"))
    disk.put(f"{INBOX}/{name}", data)
    put(disk, message("B"))
    index = store.mail.index("coder")
    for _ in range(3):
        assert [letter.id for letter in store.mail.waiting("coder")] == ["B"]
        assert reason in index.unreadable[name].reason
        assert index.refresh() == [], "it is not news again"
        assert index.get(name) is None
    put(disk, message("A"))
    assert [letter.id for letter in store.mail.waiting("coder")] == ["A", "B"], "mended by hand"


def test_our_name_over_another_message_is_delivered_and_can_be_acked(store: Store, disk: MemoryDisk) -> None:
    """People copy files and edit them; the name then tells another id."""
    name = put(disk, message("B"), file_name(message("A")))
    (found,) = store.mail.waiting("coder")
    assert found.id == "B"
    assert store.mail.find_waiting("coder", "B").name == name
    assert store.mail.ack("coder", "B").acked_at
    assert store.mail.waiting("coder") == []


def test_a_file_of_ours_that_was_replaced_is_put_right_when_it_is_read(store: Store, disk: MemoryDisk) -> None:
    name = put(disk, message("A", priority="low"))
    put(disk, message("B"))
    assert [letter.id for letter in store.mail.waiting("coder")] == ["B", "A"]
    put(disk, message("A", priority="urgent", type="note"), name)
    store.mail.waiting("coder")
    assert [letter.id for letter in store.mail.waiting("coder")] == ["A", "B"]


def test_a_limit_skips_what_cant_be_read_or_does_not_fit(store: Store, disk: MemoryDisk) -> None:
    for number in range(60):
        put(disk, message(f"M{number:02}", to="devops" if number % 2 else "coder", timestamp=at(number)))
    for number in range(30):
        disk.put(f"{INBOX}/{file_name(message(f'X{number}', priority='urgent'))}", b"{")
    assert [letter.id for letter in store.mail.waiting("coder", 3)] == ["M00", "M02", "M04"]
    assert len(store.mail.waiting("coder", 50)) == 30
    assert [letter.id for letter in store.mail.waiting("coder", 1, lambda listed: listed.id > "M50")] == ["M52"]
    assert [letter.id for letter in store.mail.waiting("coder", 1, fits=lambda letter: letter.id > "M50")] == ["M52"]
    assert store.mail.waiting("nobody") == []
