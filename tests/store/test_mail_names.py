from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import InboxFull
from mesh.models import DeliveryState, Refusal
from mesh.store import Store
from mesh.store.files import Files
from mesh.store.mail.names import REASON, file_name, is_mail, parse_name
from mesh.store.mailbox import Again
from tests.faults.mail_world import mail_places, message
from tests.faults.processes import real_root

IDS = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", fullmatch=True)
TYPES = st.from_regex(r"[a-z][a-z0-9_]{0,63}", fullmatch=True)
LONGEST = {"id_": "-" + "i.-" * 42 + "j", "type": "t" * 64}


@given(IDS, TYPES, st.datetimes())
def test_round_trip(id_: str, type_: str, moment: object) -> None:
    letter = message(id_, type=type_, timestamp=moment.isoformat())  # type: ignore[attr-defined]
    name = file_name(letter)
    parsed = parse_name(name)
    assert parsed is not None
    assert (parsed.id, parsed.type) == (id_, type_)
    assert is_mail(name)
    assert len(name) <= 255


@pytest.mark.parametrize(
    ("id_", "type_"),
    [("a-b", "note"), ("a-b-c.d", "fix_ci_failure"), ("-", "a"), ("a-note", "note"), ("x.reason", "ack"), ("a", "t_1")],
)
def test_ids_with_dashes_and_dots(id_: str, type_: str) -> None:
    assert file_name(message(id_, type=type_)) == f"2026-02-16T204500.000Z-{id_}-{type_}.json"
    parsed = parse_name(f"2026-02-16T204500.000Z-{id_}-{type_}.json")
    assert parsed is not None
    assert (parsed.stamp, parsed.id, parsed.type) == ("2026-02-16T204500.000Z", id_, type_)


def test_the_time_is_utc_in_milliseconds_however_it_was_written() -> None:
    assert file_name(message("a", timestamp="2026-02-16T22:45:00+02:00")).startswith("2026-02-16T204500.000Z-")


@pytest.mark.parametrize(
    "name",
    ["note.json", "2026-02-16T204500.000Z-a-note.2.json", "2026-02-16T204500.000Z-.a-note.json", "x" * 250 + ".json"],
)
def test_other_names_are_mail_but_tell_nothing(name: str) -> None:
    assert is_mail(name)
    assert parse_name(name) is None


@pytest.mark.parametrize("name", [".hidden.json", "a.json.reason.json", "a.json.tmp", "a", ".admission", "a.JSON"])
def test_what_is_no_mail(name: str) -> None:
    assert not is_mail(name)


def test_the_longest_names_fit_everywhere(tmp_path: Path) -> None:
    """In every folder, with every ending, and as temporaries, however many there were before."""
    store = Store(real_root(tmp_path))
    store.files._numbers = iter(range(10_000_000, 99_999_999))  # type: ignore[assignment]
    store.files._prefix = f"{2**22}-{'f' * 8}"
    letter = message(**LONGEST, requiresAck=True)
    name = file_name(letter)
    assert len(letter.id) == 128
    store.mail.send(letter, again=Again.BY_ID)
    assert store.mail.receiving.claim("coder", name).claim is not None
    store.mail.receiving.keep("coder", name, shown=True)
    store.mail.bury("coder", name, letter, DeliveryState.DEAD, "no good")
    store.mail.revive("coder", name, letter)
    assert store.mail.reject("coder", name, "no good")
    assert f"{name}{REASON}" in os.listdir(store.layout.mail("coder").rejected)
    store.mail.sending.admit = lambda facts, _: Refusal("full", "full", 1)
    store.mail.send(message(**{**LONGEST, "id_": "n" * 128}, requiresAck=True), queue=True)
    with pytest.raises(InboxFull):
        store.mail.send(message("M2"))
    store.mail.sending.admit = lambda facts, _: None
    store.mail.post_queued("sales")
    store.mail.ack("coder", "n" * 128)
    (answer,) = store.mail.waiting("sales")
    assert answer.reply_to == "n" * 128
    assert answer.id != answer.reply_to
    assert len(answer.id) <= 128


@pytest.mark.parametrize("name", ["n" * 250 + ".json", "ä" * 125 + ".json", "\udcff" * 250 + ".json"])
@pytest.mark.parametrize("place", ["processed", "dead", "rejected"])
def test_the_longest_names_that_people_give(tmp_path: Path, name: str, place: str) -> None:
    store = Store(real_root(tmp_path))
    inbox = store.layout.mail("coder").inbox
    for turn in range(3):
        letter = message(f"M{turn}")
        Path(inbox, name).write_text(letter.model_dump_json(by_alias=True, exclude_none=True))
        assert store.mail.receiving.claim("coder", name).claim is not None
        if place == "processed":
            store.mail.ack_file("coder", name, letter)
        elif place == "dead":
            store.mail.bury("coder", name, letter, DeliveryState.DEAD, "no good")
        else:
            assert store.mail.reject("coder", name, "no good")
        assert mail_places(store, letter.id) == [f"coder/{place}"]
    assert os.listdir(inbox) == [".admission"]


def test_temporaries_are_named_after_their_file(tmp_path: Path) -> None:
    files = Files(Store(real_root(tmp_path)).disk, str(tmp_path))
    temporary, fd = files.begin("/x/short.json", b"")
    os.close(fd)
    assert re.fullmatch(r"short\.json\.\d+-[0-9a-f]{8}\.\d+", os.path.basename(temporary))
