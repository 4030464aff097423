from __future__ import annotations

import gzip
import json
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mesh import clock
from mesh.errors import DurabilityLost
from mesh.limits import DEFAULT
from mesh.models import HUMAN, DeliveryState, Message
from mesh.store.disk import PosixDisk
from mesh.store.files import Files
from mesh.store.layout import Layout, MailFolders
from mesh.store.mail import archive as archive_module
from mesh.store.mail.archive import Archive
from mesh.store.mail.names import file_name
from tests.fakes import START, FakeClock, MemoryDisk
from tests.faults.world import ROOT

LAYOUT = Layout(ROOT)
CODER = LAYOUT.mail("coder")
JANUARY, FEBRUARY = f"{CODER.archive}/2026-01.jsonl.gz", f"{CODER.archive}/2026-02.jsonl.gz"


@pytest.fixture
def archive(disk: MemoryDisk) -> Archive:
    files = Files(disk, LAYOUT.scratch)
    for folder in CODER.folders():
        files.make_folders(folder)
    disk.sync()
    return of(disk)


def of(disk: Any) -> Archive:
    return Archive(Files(disk, LAYOUT.scratch), LAYOUT, disk.time)


def run(archive: Archive, address: str = "coder", **limits: Any) -> dict[str, int]:
    return archive.run(address, DEFAULT.with_overrides(limits))


def message(id_: str, days: float, **fields: Any) -> Message:
    """A message that was sent and acked so long ago."""
    at = clock.iso(START - timedelta(days=days))
    given = {"id": id_, "from": "sales", "to": "coder", "timestamp": at, "type": "note", "payload": {"text": id_}}
    return Message.model_validate({**given, "ackedAt": at, **fields})


def put(disk: MemoryDisk, folder: str, message: Message, days: float) -> str:
    path = f"{folder}/{file_name(message)}"
    disk.put(path, json.dumps(message.dump()).encode())
    disk.age(path, days)
    return path


def processed(disk: MemoryDisk, id_: str, days: float, folders: MailFolders = CODER, **fields: Any) -> str:
    return put(disk, folders.processed, message(id_, days, **fields), days)


def lines(disk: MemoryDisk, path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(disk.read(path)).splitlines()]


def ids(archive: Archive, month: str | None = None) -> list[str]:
    return [document.get("id", "") for document in archive.read("coder", month)]


# -- into the archive


def test_processed_mail_is_archived_by_month_once_old(archive: Archive, disk: MemoryDisk) -> None:
    for id_, days in (("M1", 50), ("M2", 40), ("M3", 30.01)):  # 28 December, 7 January, 17 January
        processed(disk, id_, days)
    young = processed(disk, "M4", 29.99)
    assert run(archive) == {"archived": 3}
    assert disk.names(CODER.processed) == [young.rpartition("/")[2]]
    assert lines(disk, JANUARY) == [message("M2", 40).dump(), message("M3", 30.01).dump()]
    assert ids(archive) == ["M1", "M2", "M3"]
    assert ids(archive, "2025-12") == ["M1"]
    assert ids(archive, "2026-02") == ids(archive, "../2025-12") == []
    assert archive.count("coder") == {"files": 2, "messages": 3}
    assert run(archive) == {}


def test_days_come_from_the_limits(archive: Archive, disk: MemoryDisk) -> None:
    processed(disk, "M1", 3)
    assert run(archive) == {}
    assert run(archive, mailRetentionDays=2) == {"archived": 1}


def test_the_month_is_that_of_the_ack_else_of_the_message_else_of_the_file(archive: Archive, disk: MemoryDisk) -> None:
    december, january = "2025-12-30T10:00:00.000Z", "2026-01-02T10:00:00.000Z"
    processed(disk, "acked", 31, timestamp=december, ackedAt=january)
    processed(disk, "sent", 31, timestamp=december, ackedAt=None)
    other = {"acked": january, "none": "soon", "number": 5, "to come": "9999-12-31T23:00:00Z", "first": "0001-01-01"}
    for name, ack in other.items():
        document = {"id": name, "timestamp": "0001-01-01T00:00:00+10:00", "ackedAt": ack}
        disk.put(f"{CODER.processed}/by-hand-{name}.json", json.dumps(document).encode())
        disk.age(f"{CODER.processed}/by-hand-{name}.json", 60)
    assert run(archive, archiveRetentionDays=1e6) == {"archived": 7}
    assert ids(archive, "2026-01") == ["acked", "acked"]
    assert sorted(ids(archive, "2025-12")) == ["none", "number", "sent", "to come"]
    assert ids(archive, "0001-01") == ["first"]


def test_a_later_run_adds_a_member(archive: Archive, disk: MemoryDisk) -> None:
    processed(disk, "M1", 35)
    run(archive)
    first = disk.read(JANUARY)
    processed(disk, "M2", 34)
    assert run(archive) == {"archived": 1}
    assert disk.read(JANUARY).startswith(first)
    assert [line["id"] for line in lines(disk, JANUARY)] == ["M1", "M2"]


def test_the_same_mail_gives_the_same_bytes(archive: Archive, disk: MemoryDisk) -> None:
    path = processed(disk, "M1", 35)
    data = disk.read(path)
    run(archive)
    first = disk.read(JANUARY)
    disk.unlink(JANUARY)
    disk.put(path, data)
    disk.age(path, 35)
    disk.time.advance(3600)
    run(archive)
    assert disk.read(JANUARY) == first
    assert first[4:8] == bytes(4), "the header of gzip tells no time"


def test_the_humans_mail_is_archived_too(archive: Archive, disk: MemoryDisk) -> None:
    human = LAYOUT.mail(HUMAN)
    processed(disk, "M1", 35, human)
    assert run(archive, HUMAN) == {"archived": 1}
    assert [line["id"] for line in lines(disk, f"{human.archive}/2026-01.jsonl.gz")] == ["M1"]


def test_an_address_without_mail(archive: Archive, disk: MemoryDisk) -> None:
    before = disk.tree()
    assert run(archive, "nobody") == run(archive) == {}
    assert archive.count("nobody") == {"files": 0, "messages": 0}
    assert disk.tree() == before


def test_a_deleted_archive_folder_is_made_again(archive: Archive, disk: MemoryDisk) -> None:
    processed(disk, "M1", 35)
    disk.remove_folder(CODER.archive)
    assert run(archive) == {"archived": 1}
    assert ids(archive) == ["M1"]


@pytest.mark.parametrize("data", [b'{"id": "M1', b"\xff\xfe{}", b"[1, 2]", b"", b"[" * 100_000], ids=range(5))
def test_what_is_no_message_is_kept_as_text(archive: Archive, disk: MemoryDisk, data: bytes) -> None:
    disk.put(f"{CODER.processed}/bad.json", data)
    disk.age(f"{CODER.processed}/bad.json", 40)
    assert run(archive) == {"archived": 1}
    assert lines(disk, JANUARY) == [{"damaged": data.decode("utf-8", "backslashreplace"), "file": "bad.json"}]
    assert disk.names(CODER.processed) == []


def test_half_a_character_does_not_spoil_the_archive(archive: Archive, disk: MemoryDisk) -> None:
    disk.put(f"{CODER.processed}/half.json", b'{"id": "M1", "text": "\\ud83d", "more": "\xc3\xbc\xe2\x80\xa8"}')
    disk.age(f"{CODER.processed}/half.json", 40)
    run(archive)
    assert lines(disk, JANUARY) == [{"id": "M1", "text": "\ud83d", "more": "ü\u2028"}]


def test_one_run_takes_only_so_much(archive: Archive, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        processed(disk, f"M{number}", 40 - number)
    monkeypatch.setattr(archive_module, "FILES_MAX", 2)
    assert [run(archive) for _ in range(4)] == [{"archived": 2}, {"archived": 2}, {"archived": 1}, {}]
    monkeypatch.setattr(archive_module, "FILES_MAX", 2000)
    monkeypatch.setattr(archive_module, "BYTES_MAX", 400)
    for number in range(3):
        processed(disk, f"N{number}", 40 - number, payload={"text": "x" * 300})
    assert run(archive) == {"archived": 1}


def test_links_and_folders_are_no_mail(archive: Archive, disk: MemoryDisk) -> None:
    target = put(disk, f"{ROOT}/knowledge", message("M1", 40), 40)
    disk.symlink(target, f"{CODER.processed}/link.json")
    disk.make_folder(f"{CODER.processed}/folder.json")
    disk.age(f"{CODER.processed}/folder.json", 40)
    assert run(archive) == {}
    assert disk.names(CODER.processed) == ["folder.json", "link.json"]


# -- ids


def mark(disk: MemoryDisk, message: Message) -> str:
    marker = f"{CODER.ids}/{message.id}"
    disk.put(marker, json.dumps(message.dump()).encode())
    return marker


def test_the_id_goes_with_its_message(archive: Archive, disk: MemoryDisk) -> None:
    old, young = mark(disk, message("M1", 35)), mark(disk, message("M2", 20))
    processed(disk, "M1", 35)
    processed(disk, "M2", 20)
    assert run(archive) == {"archived": 1}
    assert disk.signature(old) is None
    assert disk.signature(young) is not None
    assert CODER.ids not in {path.rpartition("/")[0] for path in lost(disk)}, "the marker's removal is durable"


def lost(disk: MemoryDisk) -> set[str]:
    """What a power cut would bring back."""
    return set(disk.crash(lambda effect: "lost").tree()) - set(disk.tree())


def test_an_id_that_was_sent_anew_keeps_its_marker(archive: Archive, disk: MemoryDisk) -> None:
    processed(disk, "M1", 35)
    marker = mark(disk, message("M1", 1))
    assert run(archive) == {"archived": 1}
    assert disk.signature(marker) is not None


# -- crashes and damage


def test_killed_before_the_originals_were_deleted_nothing_is_doubled(archive: Archive, disk: MemoryDisk) -> None:
    paths = [processed(disk, f"M{number}", 40 - number) for number in range(3)]
    originals = [disk.read(path) for path in paths]
    run(archive)
    before = disk.read(JANUARY)
    for path, data in zip(paths, originals, strict=True):
        disk.put(path, data)
        disk.age(path, 35)
    assert run(archive) == {"archived": 3}
    assert disk.read(JANUARY) == before
    assert disk.names(CODER.processed) == []
    disk.put(paths[0], originals[0])
    disk.age(paths[0], 35)
    processed(disk, "M9", 33)
    assert run(archive) == {"archived": 2}
    assert ids(archive) == ["M0", "M1", "M2", "M9"]


def test_the_same_id_in_one_month_again_is_another_message(archive: Archive, disk: MemoryDisk) -> None:
    processed(disk, "M1", 40)
    run(archive)
    processed(disk, "M1", 31)
    run(archive)
    assert [line["timestamp"][:10] for line in lines(disk, JANUARY)] == ["2026-01-07", "2026-01-16"]


class Breaking:
    """The disk, but the process dies in the n-th step that changes something."""

    def __init__(self, disk: MemoryDisk, number: int) -> None:
        self._disk = disk
        self._left = number

    def __getattr__(self, name: str) -> Any:
        if name in ("create", "write", "flush", "rename", "link", "unlink", "flush_folder"):
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        return getattr(self._disk, name)


@pytest.mark.parametrize("fate", ["kept", "lost"])
@pytest.mark.parametrize("number", range(16))
def test_killed_anywhere_each_message_is_archived_once(
    archive: Archive, disk: MemoryDisk, number: int, fate: Any
) -> None:
    processed(disk, "M0", 40)
    run(archive)
    for id_, days in (("M1", 50), ("M2", 49), ("M3", 39), ("M4", 38)):
        processed(disk, id_, days)
    mark(disk, message("M3", 39))
    disk.sync()
    breaking: Any = Breaking(disk, number)
    with pytest.raises(KeyboardInterrupt):
        run(of(breaking))
    after = disk.crash(lambda effect: fate)
    waiting = [json.loads(after.read(f"{CODER.processed}/{name}"))["id"] for name in after.names(CODER.processed)]
    assert {*waiting, *ids(of(after))} == {"M0", "M1", "M2", "M3", "M4"}, "at every instant in one of both"
    run(of(after))
    assert sorted(ids(of(after))) == ["M0", "M1", "M2", "M3", "M4"]
    assert after.names(CODER.processed) == after.names(CODER.ids) == []


@pytest.mark.parametrize("damage", [b"no gzip", b"", None], ids=["foreign", "empty", "cut"])
def test_a_damaged_archive_is_put_aside(archive: Archive, disk: MemoryDisk, damage: bytes | None) -> None:
    processed(disk, "M1", 40)
    run(archive)
    bad = disk.read(JANUARY)[:-9] if damage is None else damage
    for number, id_ in enumerate(("M2", "M3"), 1):
        disk.put(JANUARY, bad)
        processed(disk, id_, 39)
        assert run(archive) == {"archived": 1}
        assert [line["id"] for line in lines(disk, JANUARY)] == [id_]
        if bad:  # an empty file is an archive without lines
            assert disk.read(f"{JANUARY}.damaged-{number}") == bad
    assert archive.count("coder") == {"files": 1, "messages": 1}


def test_a_damaged_archive_is_read_as_far_as_it_goes(archive: Archive, disk: MemoryDisk) -> None:
    processed(disk, "M1", 50)
    processed(disk, "M2", 40)
    run(archive)
    disk.put(f"{CODER.archive}/2025-12.jsonl.gz", disk.read(f"{CODER.archive}/2025-12.jsonl.gz") + b"garbage")
    disk.put(JANUARY, gzip.compress(b"no json\n\n[1]\n") + disk.read(JANUARY))
    assert ids(archive) == ["M1", "M2"]
    assert archive.count("coder") == {"files": 2, "messages": 4}


def test_a_line_that_only_the_damaged_archive_holds_is_written_anew(archive: Archive, disk: MemoryDisk) -> None:
    path = processed(disk, "M1", 40)
    data = disk.read(path)
    run(archive)
    disk.put(JANUARY, disk.read(JANUARY) + b"garbage")
    disk.put(path, data)
    disk.age(path, 40)
    assert run(archive) == {"archived": 1}
    assert ids(archive) == ["M1"]


def test_what_a_killed_run_put_there_is_made_durable_before_its_originals_go(
    archive: Archive, disk: MemoryDisk
) -> None:
    processed(disk, "M1", 40)
    breaking: Any = Breaking(disk, 4)
    with pytest.raises(KeyboardInterrupt):
        run(of(breaking))
    after = disk.kill()
    assert JANUARY in after.tree() and JANUARY not in after.crash(lambda effect: "lost").tree(), "killed too late"
    assert run(of(after)) == {"archived": 1}
    assert JANUARY in after.crash(lambda effect: "lost").tree()


def test_an_edited_archive_without_a_last_newline(archive: Archive, disk: MemoryDisk) -> None:
    disk.put(JANUARY, gzip.compress(b'{"id": "M0"}'))
    processed(disk, "M1", 40)
    run(archive)
    assert ids(archive) == ["M0", "M1"]


class Failing:
    """The disk, but one step fails for one file."""

    def __init__(self, disk: MemoryDisk, step: str, part: str) -> None:
        self._disk = disk
        self._step = step
        self._part = part

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._disk, name)
        if name != self._step:
            return inner

        def call(target: str, *rest: Any) -> Any:
            if self._part in target:
                raise PermissionError(13, "Permission denied", target)
            return inner(target, *rest)

        return call


@pytest.mark.parametrize(
    ("step", "part", "expected"),
    [
        ("read", "-M1-", {"archived": 2, "notArchived": 1}),
        ("look", "-M1-", {"archived": 2}),
        ("unlink", "processed/2025-12-28T204500.000Z-M1-", {"archived": 2}),
        ("create", "2025-12.jsonl.gz", {"archived": 2, "notArchived": 1}),
        ("read", "2025-12.jsonl.gz", {"archived": 2, "notArchived": 1}),
        ("unlink", "/ids/", {"archived": 3}),
        ("read", "/ids/", {"archived": 3}),
    ],
)
def test_one_file_does_not_stop_the_others(
    archive: Archive, disk: MemoryDisk, step: str, part: str, expected: dict[str, int]
) -> None:
    for id_, days in (("M1", 50), ("M2", 40), ("M3", 39)):
        processed(disk, id_, days)
    mark(disk, message("M2", 40))
    failing: Any = Failing(disk, step, part)
    assert run(of(failing)) == expected
    run(archive)
    assert ids(archive) == ["M1", "M2", "M3"]
    assert disk.names(CODER.processed) == []


def test_a_lost_flush_is_not_passed_over(archive: Archive, disk: MemoryDisk) -> None:
    path = processed(disk, "M1", 40)
    failing: Any = Failing(disk, "flush_folder", CODER.archive)
    with pytest.raises(DurabilityLost):
        run(of(failing))
    assert disk.signature(path) is not None


def test_only_one_process_archives_at_a_time(archive: Archive, disk: MemoryDisk) -> None:
    path = processed(disk, "M1", 40)
    old = put(disk, CODER.dead, message("M2", 100), 100)
    handle = disk.try_lock(f"{CODER.archive}/.lock")
    assert handle is not None
    assert run(archive) == {"deadDeleted": 1}
    assert (disk.signature(path) is None, disk.signature(old) is None) == (False, True)
    disk.unlock(handle)
    assert run(archive) == {"archived": 1}


# -- what is deleted


def test_archives_go_when_their_month_is_long_over(archive: Archive, disk: MemoryDisk) -> None:
    names = ["2025-11.jsonl.gz", "2025-11.jsonl.gz.damaged-1", "2025-12.jsonl.gz", "9999-12.jsonl.gz"]
    others = ["2025-13.jsonl.gz", "0000-01.jsonl.gz", "notes.txt", "x2025-01.jsonl.gz"]
    for name in [*names, *others]:
        disk.put(f"{CODER.archive}/{name}", b"")
    ended = clock.parse("2025-12-01") + timedelta(days=90)
    disk.time.jump((ended - START).total_seconds())
    assert run(archive) == {}
    disk.time.jump(1)
    assert run(archive) == {"archivesDeleted": 2}
    assert disk.names(CODER.archive) == sorted([*names[2:], *others])
    assert run(archive, archiveRetentionDays=10) == {"archivesDeleted": 1}


@pytest.mark.parametrize("state", [*DeliveryState, "unheard-of", ["acked"], None])
def test_copies_of_what_is_settled_are_deleted(archive: Archive, disk: MemoryDisk, state: Any) -> None:
    path = f"{CODER.outbox}/1.json"
    disk.put(path, json.dumps({"id": "M1", "delivery": {"state": state}}).encode())
    disk.age(path, 29.99)
    assert run(archive) == {}
    disk.age(path, 30.01)
    goes = state in ("acked", "expired", "rejected", "dead", "uncertain")
    assert run(archive) == ({"outboxDeleted": 1} if goes else {})
    assert (disk.signature(path) is None) is goes


@pytest.mark.parametrize("data", [b"no json", b"[]", b"{}", b'{"delivery": "acked"}'])
def test_copies_that_tell_no_state_stay(archive: Archive, disk: MemoryDisk, data: bytes) -> None:
    disk.put(f"{CODER.outbox}/1.json", data)
    disk.age(f"{CODER.outbox}/1.json", 100)
    assert run(archive) == {}


def test_an_unreadable_copy_stays_and_stops_nothing(archive: Archive, disk: MemoryDisk) -> None:
    for name in ("1.json", "2.json", "2.json.saved-by-somebody"):
        disk.put(f"{CODER.outbox}/{name}", b'{"delivery": {"state": "acked"}}')
        disk.age(f"{CODER.outbox}/{name}", 31)
    failing: Any = Failing(disk, "read", "1.json")
    assert run(of(failing)) == {"outboxDeleted": 1}
    assert disk.names(CODER.outbox) == ["1.json", "2.json.saved-by-somebody", "queued"]


@pytest.mark.parametrize("place", [CODER.dead, CODER.rejected])
def test_dead_and_rejected_mail_goes_with_its_reason(archive: Archive, disk: MemoryDisk, place: str) -> None:
    path = put(disk, place, message("M1", 90), 89.99)
    disk.put(f"{path}.reason.json", b"{}")
    disk.age(f"{path}.reason.json", 100)
    disk.put(f"{place}/retried.json.reason.json", b"{}")
    assert run(archive) == {}
    disk.age(path, 90.01)
    disk.age(f"{path}.reason.json", 0)
    assert run(archive) == {"deadDeleted": 1}
    assert disk.names(place) == ["retried.json.reason.json"]
    disk.age(f"{place}/retried.json.reason.json", 90.01)
    assert run(archive) == {}
    assert disk.names(place) == []


def test_rejected_links_and_foreign_files_go_too(archive: Archive, disk: MemoryDisk) -> None:
    disk.symlink("nowhere", f"{CODER.rejected}/link.json")
    disk.put(f"{CODER.rejected}/bad.json", b"\xff")
    disk.make_folder(f"{CODER.rejected}/folder.json")
    disk.time.advance(91 * 86_400)
    assert run(archive) == {"deadDeleted": 2}
    assert disk.names(CODER.rejected) == ["folder.json"]


def test_the_id_of_dead_mail_is_free_again(archive: Archive, disk: MemoryDisk) -> None:
    old, other = message("M1", 100), message("M2", 100)
    for place, sent in ((CODER.dead, old), (CODER.rejected, other)):
        put(disk, place, sent, 100)
        mark(disk, sent)
    assert run(archive) == {"deadDeleted": 2}
    assert disk.names(CODER.ids) == ["M2"], "a rejected copy of a message says nothing about its id"


def test_what_waits_is_never_touched(archive: Archive, disk: MemoryDisk) -> None:
    for folder in (CODER.inbox, CODER.queued):
        put(disk, folder, message("M1", 4000, delivery={"state": "acked"}), 4000)
        disk.put(f"{folder}/bad.json", b"\xff")
        disk.age(f"{folder}/bad.json", 4000)
    before = disk.tree()
    assert run(archive) == {}
    assert disk.tree() == before


@pytest.mark.parametrize("place", [CODER.processed, CODER.dead, CODER.rejected])
def test_mail_whose_removal_from_the_inbox_was_cut_short_stays_known(
    archive: Archive, disk: MemoryDisk, place: str
) -> None:
    path = put(disk, place, message("M1", 100), 100)
    waiting = put(disk, CODER.inbox, message("M1", 100), 100)
    assert run(archive) == {}
    assert disk.signature(path) is not None
    disk.unlink(waiting)
    assert sum(run(archive).values()) == 1


# -- the real disk


def test_on_the_real_disk_zcat_reads_it(tmp_path: Path, time: FakeClock) -> None:
    layout, disk = Layout(str(tmp_path)), PosixDisk()
    mail = layout.mail("coder")
    for folder in [*layout.folders()[1:], *mail.folders()]:
        disk.make_folder(folder)
    archive = Archive(Files(disk, layout.scratch), layout, time)
    for id_ in ("M1", "M2"):
        path = Path(mail.processed, file_name(message(id_, 0)))
        path.write_text(json.dumps(message(id_, 0).dump()))
        time.jump(path.stat().st_mtime - time.wall().timestamp() + 31 * 86_400)
        assert archive.run("coder", DEFAULT.with_overrides({"archiveRetentionDays": 1e5})) == {"archived": 1}
    kept = Path(mail.archive, "2026-02.jsonl.gz")
    shown = subprocess.run(["zcat", str(kept)], capture_output=True, check=True).stdout
    assert [json.loads(line)["id"] for line in shown.splitlines()] == ["M1", "M2"]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert list(Path(mail.processed).iterdir()) == []
