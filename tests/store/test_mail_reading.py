"""What may lie in an inbox, put there by anybody."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mesh.errors import StoreUnavailable
from mesh.models import Message
from mesh.store import Store
from mesh.store.codec import encode
from mesh.store.disk import PosixDisk
from mesh.store.mail.reading import BadMail, parse_message, read_accepted, read_message
from tests.fakes import MemoryDisk
from tests.faults.disks import FaultyDisk
from tests.faults.mail_world import message
from tests.faults.processes import real_root

MAX = 10_000
DISK = PosixDisk()


@pytest.fixture
def real(tmp_path: Path) -> Store:
    return Store(real_root(tmp_path))


def inbox(store: Store) -> Path:
    return Path(store.layout.mail("coder").inbox)


def whole(**fields: Any) -> bytes:
    return encode({**message("A").filed(), **fields})


def why(path: Path) -> str:
    with pytest.raises(BadMail) as caught:
        read_message(DISK, str(path), MAX)
    return caught.value.reason


def test_a_valid_file(real: Store) -> None:
    path = inbox(real) / "note.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(message("A").filed()).encode())
    assert read_message(DISK, str(path), MAX).id == "A"


def test_links_are_not_followed(real: Store, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(whole())
    (inbox(real) / "note.json").symlink_to(tmp_path / "elsewhere")
    (inbox(real) / "dangling.json").symlink_to("nowhere")
    assert "link" in why(inbox(real) / "note.json")
    assert "link" in why(inbox(real) / "dangling.json")


def test_a_pipe_does_not_block(real: Store) -> None:
    os.mkfifo(inbox(real) / "note.json")
    began = time.monotonic()
    assert "no regular file" in why(inbox(real) / "note.json")
    index = real.mail.index("coder")
    assert index.refresh() == []
    assert "note.json" in index.unreadable
    assert real.mail.reject("coder", "note.json", "a pipe")
    assert time.monotonic() - began < 1
    assert sorted(os.listdir(real.layout.mail("coder").rejected)) == ["note.json", "note.json.reason.json"]


def test_a_pipe_under_a_name_of_ours_that_was_handled_before(real: Store) -> None:
    """Finishing a removal looks into both files; that must not block either."""
    real.mail.send(message("A"))
    name = real.mail.find_waiting("coder", "A").name
    real.mail.ack("coder", "A")
    os.mkfifo(inbox(real) / name)
    assert real.mail.reject("coder", name, "a pipe")
    assert os.listdir(inbox(real)) == [".admission"]


def test_a_folder(real: Store) -> None:
    (inbox(real) / "note.json").mkdir()
    assert "no regular file" in why(inbox(real) / "note.json")


def test_oversize(real: Store) -> None:
    path = inbox(real) / "note.json"
    path.write_bytes(whole(payload={"text": "x" * (MAX + 4000)}))
    assert f"larger than {MAX} bytes" in why(path)
    path.write_bytes(whole(payload={"text": "x" * (MAX - 1000)}))
    assert read_message(DISK, str(path), MAX).id == "A"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["note.json", "2026-02-16T204500.000Z-A-note.json"])
def test_a_file_of_another_user_is_none_even_for_root(real: Store, name: str) -> None:
    path = inbox(real) / name
    path.write_bytes(whole())
    os.chown(path, 4711, 4711)
    assert "uid 4711" in why(path)
    assert real.mail.waiting("coder") == []
    assert "uid 4711" in real.mail.index("coder").unreadable[name].reason
    assert real.mail.reject("coder", name, "not ours")
    assert os.listdir(inbox(real)) == [".admission"]


class Owned:
    """The disk, but every file belongs to this user."""

    def __init__(self, owner: int) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        if name == "look":
            return lambda path: (found := DISK.look(path)) and found._replace(owner=self._owner)
        return getattr(DISK, name)


@pytest.mark.parametrize(
    ("user", "owner", "fits"),
    [(1000, 1000, True), (1000, 0, True), (1000, 1001, False), (0, 0, True), (0, 1000, False)],
)
def test_whose_files_are_read(real: Store, monkeypatch: pytest.MonkeyPatch, user: int, owner: int, fits: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    path = inbox(real) / "note.json"
    path.write_bytes(whole())
    disk: Any = Owned(owner)
    try:
        assert read_message(disk, str(path), MAX).id == "A"
        assert fits
    except BadMail:
        assert not fits


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"1" * 5_000, "not JSON"),
        (b"[]", "valid dictionary"),
        (b"null", "valid dictionary"),
        (whole(id="../a"), "id"),
        (whole(id=7), "id"),
        (whole(**{"from": "Sales"}), "from"),
        (whole(to=""), "to"),
        (whole(type="No Type"), "type"),
        (whole(timestamp="yesterday"), "timestamp"),
        (whole(timestamp="0001-01-01T00:00:00+23:00"), "calendar"),
        (whole(expiresAt="9999-12-31T23:59:59-23:00"), "calendar"),
        (whole(priority="asap"), "priority"),
        (whole(payload="text"), "payload"),
        (whole(type="fix_ci_failure", payload={"pr": "1"}), "payload.check"),
    ],
)
def test_what_is_no_message(data: bytes, reason: str) -> None:
    with pytest.raises(BadMail) as caught:
        parse_message(data)
    assert reason in caught.value.reason


def test_keys_of_a_newer_version_are_kept() -> None:
    letter: Message = parse_message(whole(schemaVersion=2, shiny={"new": 1}))
    assert letter.filed()["shiny"] == {"new": 1}


def test_gone_is_not_the_same_as_unreadable(disk: MemoryDisk) -> None:
    disk.put("/mesh/a.json", b"{")
    disk.put("/mesh/b.json", whole())
    assert read_accepted(disk, "/mesh/none.json") is None
    assert read_accepted(disk, "/mesh/a.json") is None
    for call in (1, 2):
        failing: Any = FaultyDisk(disk, call, errno.EIO)
        with pytest.raises(StoreUnavailable):
            read_accepted(failing, "/mesh/b.json")


def test_bad_mail_is_rejected_with_its_reason_and_counted_out(real: Store) -> None:
    folders = real.layout.mail("coder")
    real.mail.send(message("A"))
    (inbox(real) / "bad.json").write_bytes(b"{")
    (inbox(real) / "folder.json").mkdir()
    (inbox(real) / "link.json").symlink_to("/etc/passwd")
    real.mail.counting.recount(folders)
    assert real.mail.counting.waiting(folders) == 4
    for name in ("bad.json", "folder.json", "link.json"):
        assert real.mail.reject("coder", name, f"why {name}")
        note = json.loads(Path(folders.rejected, f"{name}.reason.json").read_text())
        assert (note["file"], note["reason"], note["state"]) == (name, f"why {name}", "rejected")
        assert not real.mail.reject("coder", name, "again")
    assert real.mail.counting.waiting(folders) == 1
    assert [letter.id for letter in real.mail.waiting("coder")] == ["A"]
    assert os.readlink(f"{folders.rejected}/link.json") == "/etc/passwd"
    (inbox(real) / "bad.json").write_bytes(b"{{")
    assert real.mail.reject("coder", "bad.json", "another")
    assert Path(folders.rejected, "bad.json").read_bytes() == b"{"
    assert Path(folders.rejected, "bad.2.json").read_bytes() == b"{{"
    assert "another" in Path(folders.rejected, "bad.2.json.reason.json").read_text()
