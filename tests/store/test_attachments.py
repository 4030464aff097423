from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from mesh.errors import Invalid, MeshError, TooLarge, UnknownAttachment
from mesh.store.disk import PosixDisk
from mesh.store.files import Files
from mesh.store.layout import Layout
from mesh.store.mail.attachments import Attachments
from mesh.store.mail.references import referenced
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.world import ROOT

LAYOUT = Layout(ROOT)
MAX = 1000
LOG = b"line 1\nline 2\n"
LOG_SHA = hashlib.sha256(LOG).hexdigest()


@pytest.fixture
def files(disk: MemoryDisk) -> Files:
    files = Files(disk, LAYOUT.scratch)
    for folder in [*LAYOUT.mail("coder").folders(), *LAYOUT.mail("sales").folders()]:
        files.make_folders(folder)
    disk.sync()
    return files


@pytest.fixture
def attachments(files: Files, time: FakeClock) -> Attachments:
    return Attachments(files, LAYOUT, time)


def path(sha256: str) -> str:
    return f"{LAYOUT.attachments}/{sha256}"


def stored(disk: MemoryDisk) -> list[str]:
    return disk.names(LAYOUT.attachments)


def test_stored_under_its_hash_and_described(attachments: Attachments, disk: MemoryDisk) -> None:
    found = attachments.add(LOG, "build.log", "text/plain", MAX)
    assert found.dump() == {"sha256": LOG_SHA, "name": "build.log", "type": "text/plain", "bytes": len(LOG)}
    assert disk.crash(lambda effect: "lost").read(path(LOG_SHA)) == LOG, "durable once add has returned"
    assert attachments.read(LOG_SHA) == LOG
    assert attachments.exists(LOG_SHA)


def test_the_same_content_is_stored_once(attachments: Attachments, disk: MemoryDisk) -> None:
    first, second = (attachments.add(LOG, name, None, MAX) for name in ("a.log", "b.txt"))
    assert (first.sha256, first.name, second.name) == (second.sha256, "a.log", "b.txt")
    assert stored(disk) == [LOG_SHA]


def test_adding_mends_what_was_damaged(attachments: Attachments, disk: MemoryDisk) -> None:
    disk.put(path(LOG_SHA), b"other")
    attachments.add(LOG, "a.log", None, MAX)
    assert attachments.read(LOG_SHA) == LOG


def test_too_large_names_the_limit(attachments: Attachments, disk: MemoryDisk) -> None:
    attachments.add(b"x" * MAX, "a.bin", None, MAX)
    with pytest.raises(TooLarge, match=r"1,001 bytes; attachmentBytesMax allows 1,000"):
        attachments.add(b"x" * (MAX + 1), "b.bin", None, MAX)
    assert len(stored(disk)) == 1


@pytest.mark.parametrize(
    ("name", "kept"),
    [("../../etc/passwd", "passwd"), ("C:\\temp\\a.png", "a.png"), (" a b.txt ", "a b.txt"), ("/x/ü.txt", "ü.txt")],
)
def test_of_a_path_the_last_part_is_the_name(attachments: Attachments, name: str, kept: str) -> None:
    assert attachments.add(LOG, name, None, MAX).name == kept


@pytest.mark.parametrize("name", ["", " ", ".", "a/..", "folder/", "a\nb", "a\x1b[31m", "a\x9b", "x" * 201, "a\ud800"])
def test_bad_names_are_refused(attachments: Attachments, disk: MemoryDisk, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        attachments.add(LOG, name, None, MAX)
    assert [error["field"] for error in caught.value.facts["errors"]] == ["name"]
    assert stored(disk) == []


@pytest.mark.parametrize("type_", ["", "text", "text/", "text/plain; charset=utf-8", "a/b\nc: d", "x/" + "y" * 127])
def test_bad_media_types_are_refused(attachments: Attachments, disk: MemoryDisk, type_: str) -> None:
    with pytest.raises(Invalid) as caught:
        attachments.add(LOG, "a.txt", type_, MAX)
    assert [error["field"] for error in caught.value.facts["errors"]] == ["type"]
    assert stored(disk) == []


@pytest.mark.parametrize(
    ("name", "type_", "expected"),
    [
        ("a.png", None, "image/png"),
        ("A.JSON", None, "application/json"),
        ("a.tar.gz", None, "application/octet-stream"),
        ("a.unheard-of", None, "application/octet-stream"),
        ("a.mid", None, "application/octet-stream"),  # in common use, but not registered
        ("Makefile", None, "application/octet-stream"),
        ("a.png", "Text/Plain", "text/plain"),
    ],
)
def test_the_type_is_the_given_one_or_follows_from_the_name(
    attachments: Attachments, name: str, type_: str | None, expected: str
) -> None:
    assert attachments.add(LOG, name, type_, MAX).type == expected


@pytest.mark.parametrize("sha256", ["", "0" * 64, "../registry.json", LOG_SHA.upper(), LOG_SHA + "\n", LOG_SHA[:-1]])
def test_unknown_ones_are_refused_and_no_path_leads_out(
    attachments: Attachments, disk: MemoryDisk, sha256: str
) -> None:
    attachments.add(LOG, "a.log", None, MAX)
    disk.put(f"{LAYOUT.knowledge}/registry.json", b"{}")
    disk.put(f"{LAYOUT.attachments}/{LOG_SHA[:-1]}", b"no attachment")
    assert not attachments.exists(sha256)
    with pytest.raises(UnknownAttachment):
        attachments.read(sha256)


def test_a_damaged_one_is_not_handed_out(attachments: Attachments, disk: MemoryDisk) -> None:
    attachments.add(LOG, "a.log", None, MAX)
    disk.put(path(LOG_SHA), LOG[:-1])
    with pytest.raises(UnknownAttachment, match="damaged"):
        attachments.read(LOG_SHA)


# -- collecting


def three(attachments: Attachments) -> list[str]:
    return [attachments.add(data, "a", None, MAX).sha256 for data in (b"one", b"two", b"three")]


def test_old_unreferenced_ones_are_collected(attachments: Attachments, disk: MemoryDisk) -> None:
    old, used, young = three(attachments)
    disk.put(f"{LAYOUT.attachments}/README", b"somebody's note")
    for name in (old, used, "README"):
        disk.age(path(name), 1.01)
    disk.age(path(young), 0.99)
    assert attachments.collect({used}, 1) == 1
    assert stored(disk) == sorted([used, young, "README"])
    assert attachments.collect({used}, 1) == 0


def test_added_again_it_is_young_again(attachments: Attachments, disk: MemoryDisk) -> None:
    attachments.add(LOG, "a.log", None, MAX)
    disk.age(path(LOG_SHA), 100)
    attachments.add(LOG, "b.log", None, MAX)
    assert attachments.collect(set(), 1) == 0
    assert attachments.read(LOG_SHA) == LOG


def test_collecting_where_there_is_nothing(disk: MemoryDisk, time: FakeClock) -> None:
    disk.remove_folder(LAYOUT.attachments)
    assert Attachments(Files(disk, LAYOUT.scratch), LAYOUT, time).collect(set(), 1) == 0


class Racing:
    """The disk, but somebody adds the content just before the n-th step of that sort."""

    def __init__(self, disk: MemoryDisk, step: str, number: int) -> None:
        self.inner = disk
        self._step = step
        self._left = number

    def __getattr__(self, name: str) -> Any:
        if name == self._step and self.inner.names(LAYOUT.attachments):
            self._left -= 1
            if self._left == 0:
                Attachments(Files(self.inner, LAYOUT.scratch), LAYOUT, self.inner.time).add(LOG, "a", None, MAX)
        return getattr(self.inner, name)


@pytest.mark.parametrize("step", ["signature", "look", "rename", "unlink"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_added_again_while_it_is_collected_it_stays(
    attachments: Attachments, disk: MemoryDisk, step: str, number: int
) -> None:
    attachments.add(LOG, "a.log", None, MAX)
    disk.age(path(LOG_SHA), 100)
    racing: Any = Racing(disk, step, number)
    Attachments(Files(racing, LAYOUT.scratch), LAYOUT, disk.time).collect(set(), 1)
    if racing._left <= 0:
        assert attachments.read(LOG_SHA) == LOG
    assert stored(disk) in ([LOG_SHA], [])


class Breaking:
    """The disk, but the process dies in the n-th step that changes something."""

    def __init__(self, disk: MemoryDisk, number: int) -> None:
        self._disk = disk
        self._left = number

    def __getattr__(self, name: str) -> Any:
        if name in ("rename", "link", "unlink"):
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
        return getattr(self._disk, name)


@pytest.mark.parametrize("number", [1, 2])
def test_killed_while_one_was_put_aside_it_comes_back(attachments: Attachments, disk: MemoryDisk, number: int) -> None:
    attachments.add(LOG, "a.log", None, MAX)
    disk.age(path(LOG_SHA), 100)
    racing: Any = Racing(disk, "rename", 1)  # so that what is put aside is young and must come back
    breaking: Any = Breaking(racing, number)
    with pytest.raises(KeyboardInterrupt):
        Attachments(Files(breaking, LAYOUT.scratch), LAYOUT, disk.time).collect(set(), 1)
    assert attachments.collect(set(), 1) == 0
    assert stored(disk) == [LOG_SHA]


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


@pytest.mark.parametrize("step", ["rename", "unlink", "look"])
def test_one_that_cannot_be_deleted_does_not_stop_the_others(
    attachments: Attachments, disk: MemoryDisk, step: str
) -> None:
    names = three(attachments)
    for name in names:
        disk.age(path(name), 2)
    failing: Any = Failing(disk, step, sorted(names)[0])
    assert Attachments(Files(failing, LAYOUT.scratch), LAYOUT, disk.time).collect(set(), 1) == 2
    assert attachments.collect(set(), 1) == 1
    assert stored(disk) == []


def test_on_the_real_disk(tmp_path: Path, time: FakeClock) -> None:
    layout = Layout(str(tmp_path))
    for folder in (layout.knowledge, layout.attachments, layout.system, layout.scratch):
        PosixDisk().make_folder(folder)
    attachments = Attachments(Files(PosixDisk(), layout.scratch), layout, time)
    attachments.add(LOG, "a.log", None, MAX)
    stored = Path(layout.attachments, LOG_SHA)
    assert (attachments.read(LOG_SHA), stored.stat().st_mode & 0o777) == (LOG, 0o600)
    time.jump(stored.stat().st_mtime - time.wall().timestamp() + 3600)
    assert attachments.collect(set(), 1) == 0
    time.advance(86_400)
    assert attachments.collect(set(), 1) == 1
    assert list(Path(layout.attachments).iterdir()) == []


# -- what messages reference


def message(*digests: str) -> bytes:
    listed = ", ".join(f'{{"name": "a", "sha256": "{digest}"}}' for digest in digests)
    return f'{{"id": "M1", "attachments": [{listed}]}}'.encode()


A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.mark.parametrize("place", ["inbox", "processed", "outbox", "queued", "dead", "rejected"])
def test_messages_are_found_wherever_they_lie(files: Files, disk: MemoryDisk, place: str) -> None:
    disk.put(f"{getattr(LAYOUT.mail('coder'), place)}/1.json", message(A, B))
    disk.put(f"{getattr(LAYOUT.mail('sales'), place)}/2.json", message(B, C))
    assert referenced(files, LAYOUT, ["coder"]) == {A, B}
    assert referenced(files, LAYOUT, ["coder", "sales"]) == {A, B, C}


def test_what_is_no_message_names_nothing(files: Files, disk: MemoryDisk) -> None:
    mail = LAYOUT.mail("coder")
    disk.put(f"{mail.inbox}/.hidden", message(A))
    disk.put(f"{mail.base}/elsewhere.json", message(B))
    disk.symlink("../elsewhere.json", f"{mail.inbox}/link.json")
    disk.make_folder(f"{mail.inbox}/folder.json")
    disk.put(f"{mail.inbox}/bad.json", b"\xff\xfe{")
    disk.put(f"{mail.inbox}/text.json", f'{{"payload": {{"text": "sha256 {C}"}}}}'.encode())
    assert referenced(files, LAYOUT, ["coder", "human", "nobody"]) == set()


def test_a_message_cut_short_keeps_its_attachments(files: Files, disk: MemoryDisk) -> None:
    disk.put(f"{LAYOUT.mail('coder').rejected}/1.json", message(A)[:-3] + b"\xff")
    assert referenced(files, LAYOUT, ["coder"]) == {A}


@pytest.mark.parametrize("step", ["read", "look"])
def test_unreadable_mail_says_so_lest_anything_is_collected(disk: MemoryDisk, files: Files, step: str) -> None:
    disk.put(f"{LAYOUT.mail('coder').processed}/1.json", message(A))
    failing: Any = Failing(disk, step, "1.json")
    with pytest.raises(MeshError, match="Permission denied"):
        referenced(Files(failing, LAYOUT.scratch), LAYOUT, ["coder"])


class Moving:
    """The disk, but a message moves from one folder to another when the n-th folder is listed."""

    def __init__(self, disk: MemoryDisk, old: str, new: str, number: int) -> None:
        self._disk = disk
        self._move = (old, new)
        self._left = number

    def __getattr__(self, name: str) -> Any:
        if name == "names":
            self._left -= 1
            if self._left == 0:
                self._disk.link(*self._move)
                self._disk.unlink(self._move[0])
        return getattr(self._disk, name)


@pytest.mark.parametrize(
    ("old", "new"),
    [("queued", "outbox"), ("queued", "inbox"), ("inbox", "processed"), ("inbox", "dead"), ("dead", "inbox")],
)
@pytest.mark.parametrize("number", range(1, 15))
def test_a_message_that_moves_meanwhile_is_not_missed(
    disk: MemoryDisk, files: Files, old: str, new: str, number: int
) -> None:
    coder, sales = LAYOUT.mail("coder"), LAYOUT.mail("sales")
    source = coder if old == "queued" else sales
    target = coder if new == "outbox" else sales
    moved = (f"{getattr(source, old)}/1.json", f"{getattr(target, new)}/1.json")
    disk.put(moved[0], message(A))
    moving: Any = Moving(disk, *moved, number)
    assert referenced(Files(moving, LAYOUT.scratch), LAYOUT, ["sales", "coder"]) == {A}
