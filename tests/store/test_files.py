from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mesh.errors import Fenced, StoreUnavailable
from mesh.store.disk import PosixDisk
from mesh.store.files import Files, last_copy
from tests.fakes import MemoryDisk
from tests.faults.disks import FaultyDisk, RecordingDisk
from tests.faults.world import ROOT

A, B = f"{ROOT}/system/a.json", f"{ROOT}/tasks/b.json"
SCRATCH = f"{ROOT}/system/scratch"


@pytest.fixture
def files(disk: MemoryDisk) -> Files:
    return Files(disk, SCRATCH)


def test_last_copy_is_a_hidden_neighbour() -> None:
    assert last_copy("/root/tasks/queue.json") == "/root/tasks/.queue.json.last"


def test_replace_flushes_before_it_renames_and_the_folder_after(disk: MemoryDisk) -> None:
    recording = RecordingDisk(disk)
    Files(recording, SCRATCH).replace(A, b"new", keep_last=True)
    names = [step[0] for step in recording.steps]
    assert names.index("write") < names.index("flush") < names.index("rename") < names.index("flush_folder")
    assert names[-1] == "flush_folder"
    assert recording.steps[-1] == ("flush_folder", f"{ROOT}/system")


def test_replace_keeps_the_version_before_if_asked(files: Files) -> None:
    for data in (b"one", b"two", b"three"):
        files.replace(A, data, keep_last=True)
    assert (files.read(A), files.read(last_copy(A))) == (b"three", b"two")
    files.replace(A, b"four")
    assert files.read(last_copy(A)) == b"two"
    assert files.names(SCRATCH) == []


def test_keeping_twice_the_same_file_leaves_no_spare(files: Files, disk: MemoryDisk) -> None:
    """rename() does nothing where both names are one file: the spare link must not block the next write."""
    files.replace(A, b"one", keep_last=True)
    disk.link(A, last_copy(A))
    files.replace(A, b"two", keep_last=True)
    assert (files.read(A), files.read(last_copy(A))) == (b"two", b"one")
    files.replace(A, b"three", keep_last=True)
    assert (files.read(A), files.read(last_copy(A))) == (b"three", b"two")


def test_create_never_replaces(files: Files) -> None:
    assert files.create(A, b"one") is True
    assert files.create(A, b"two") is False
    assert files.read(A) == b"one"
    assert files.names(SCRATCH) == []


def test_move(files: Files) -> None:
    files.replace(A, b"one")
    files.move(A, B)
    assert (files.read(A), files.read(B)) == (None, b"one")
    with pytest.raises(StoreUnavailable):
        files.move(A, B)


def test_move_never_replaces(files: Files) -> None:
    files.replace(A, b"one")
    files.replace(B, b"two")
    with pytest.raises(StoreUnavailable):
        files.move(A, B)
    assert (files.read(A), files.read(B)) == (b"one", b"two")


def test_remove_of_a_missing_file_is_fine(files: Files) -> None:
    files.replace(A, b"one")
    files.remove(A)
    files.remove(A)
    assert not files.exists(A)


def test_reading_what_is_not_there(files: Files) -> None:
    files.replace(A, b"one")
    assert files.read(f"{ROOT}/none") is None
    assert files.read(f"{A}/below") is None
    assert files.names(f"{ROOT}/none") == []
    assert not files.exists(f"{ROOT}/none")


def test_hidden_names_are_left_out(files: Files, disk: MemoryDisk) -> None:
    files.replace(A, b"one", keep_last=True)
    files.replace(A, b"two", keep_last=True)
    assert "a.json" in files.names(f"{ROOT}/system")
    assert ".a.json.last" in disk.names(f"{ROOT}/system")
    assert not [name for name in files.names(f"{ROOT}/system") if name.startswith(".")]


def test_append(files: Files) -> None:
    files.append(A, b"1\n")
    files.append(A, b"2\n")
    assert files.read(A) == b"1\n2\n"
    with pytest.raises(StoreUnavailable):
        files.append(f"{ROOT}/none/log", b"1\n")


def test_make_folders_makes_parents_durably(files: Files, disk: MemoryDisk) -> None:
    files.make_folders(f"{ROOT}/knowledge/one/two/three")
    files.make_folders(f"{ROOT}/knowledge/one/two/three")
    assert f"{ROOT}/knowledge/one/two/three/" in disk.crash(lambda effect: "lost").tree()


def test_folder_of_a_killed_process_becomes_durable(files: Files, disk: MemoryDisk) -> None:
    disk.make_folder(f"{ROOT}/knowledge/one")  # killed before the flush
    files.make_folders(f"{ROOT}/knowledge/one")
    assert f"{ROOT}/knowledge/one/" in disk.crash(lambda effect: "lost").tree()


def test_file_of_a_killed_process_becomes_durable(files: Files, disk: MemoryDisk) -> None:
    disk.put(f"{ROOT}/knowledge/a", b"one")
    disk.link(f"{ROOT}/knowledge/a", A)
    assert files.create(A, b"two") is False
    assert disk.crash(lambda effect: "lost").read(A) == b"one"


def test_fenced_when_the_scratch_folder_is_gone(disk: MemoryDisk) -> None:
    disk.make_folder(f"{ROOT}/agents/coder/run")
    scratch = f"{ROOT}/agents/coder/run/1"
    disk.make_folder(scratch)
    files = Files(disk, scratch)
    files.replace(A, b"one")
    disk.rename(scratch, f"{ROOT}/agents/coder/run/.retired-1")
    for write in (lambda: files.replace(A, b"two"), lambda: files.create(B, b"two")):
        with pytest.raises(Fenced):
            write()
    assert (files.read(A), files.read(B)) == (b"one", None)


def test_missing_destination_is_not_taken_for_a_fence(files: Files) -> None:
    """Somebody deleted the folder: it is made again, and the file with it."""
    files.replace(f"{ROOT}/none/a", b"data")
    assert files.read(f"{ROOT}/none/a") == b"data"


def test_two_processes_never_share_a_temporary(disk: MemoryDisk) -> None:
    """Each process numbers its own; a crashed one's left-over must be in nobody's way."""
    names = []
    for _ in range(3):
        recording = RecordingDisk(disk)
        Files(recording, SCRATCH).replace(A, b"one")
        names += [step[1] for step in recording.steps if step[0] == "create"]
    assert len(set(names)) == 3


def test_error_names_the_file_and_says_what_failed(disk: MemoryDisk) -> None:
    files = Files(FaultyDisk(disk, 1, 13), SCRATCH)
    with pytest.raises(StoreUnavailable) as caught:
        files.read(A)
    assert caught.value.facts["file"] == A
    assert "Permission denied" in caught.value.detail


def test_real_files_are_private(tmp_path: Path) -> None:
    files = Files(PosixDisk(), str(tmp_path))
    before = os.umask(0)
    try:
        files.make_folders(str(tmp_path / "folder"))
        files.replace(str(tmp_path / "folder" / "a"), b"one")
        files.append(str(tmp_path / "folder" / "log"), b"one\n")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "folder", *tmp_path.glob("*/*")]}
    assert modes == {"folder": 0o700, "a": 0o600, "log": 0o600}
