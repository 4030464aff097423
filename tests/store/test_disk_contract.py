"""What the store relies on in a disk: the real one and the one in memory must both hold it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mesh.store.disk import PosixDisk
from tests.fakes import MemoryDisk


@dataclass
class Place:
    """A disk and a folder on it to work in."""

    disk: Any
    root: str

    def file(self, name: str, data: bytes) -> str:
        fd = self.disk.create(f"{self.root}/{name}")
        self.disk.write(fd, data)
        self.disk.close(fd)
        return f"{self.root}/{name}"


@pytest.fixture(params=["posix", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "posix":
        return Place(PosixDisk(), str(tmp_path))
    disk = MemoryDisk()
    disk.make_folder("/work")
    return Place(disk, "/work")


def code_of(call: Callable[..., object], *args: object) -> int | None:
    with pytest.raises(OSError) as caught:
        call(*args)
    return caught.value.errno


def test_create_write_read(place: Place) -> None:
    path = place.file("a", b"one")
    assert place.disk.read(path) == b"one"
    assert code_of(place.disk.create, path) == errno.EEXIST
    assert code_of(place.disk.create, f"{place.root}/none/a") == errno.ENOENT
    assert code_of(place.disk.create, f"{path}/below") == errno.ENOTDIR


def test_write_goes_on_where_it_was(place: Place) -> None:
    fd = place.disk.create(f"{place.root}/a")
    place.disk.write(fd, b"one ")
    place.disk.write(fd, b"two")
    place.disk.flush(fd)
    place.disk.close(fd)
    assert place.disk.read(f"{place.root}/a") == b"one two"


def test_read_of_what_is_no_file(place: Place) -> None:
    path = place.file("a", b"")
    assert code_of(place.disk.read, f"{place.root}/none") == errno.ENOENT
    assert code_of(place.disk.read, f"{path}/below") == errno.ENOTDIR
    assert code_of(place.disk.read, place.root) == errno.EISDIR


def test_append_creates_and_adds(place: Place) -> None:
    path = f"{place.root}/log"
    place.disk.append(path, b"1\n")
    place.disk.append(path, b"2\n")
    assert place.disk.read(path) == b"1\n2\n"


def test_overwrite_in_place_keeps_the_file(place: Place) -> None:
    path = place.file("beat", b"12345678")
    before = place.disk.signature(path)
    fd = place.disk.open_existing(path)
    place.disk.overwrite(fd, b"abc")
    place.disk.close(fd)
    assert place.disk.read(path) == b"abc45678"
    assert place.disk.signature(path).inode == before.inode
    assert code_of(place.disk.open_existing, f"{place.root}/none") == errno.ENOENT


def test_truncate(place: Place) -> None:
    path = place.file("log", b"long")
    place.disk.truncate(path)
    assert place.disk.read(path) == b""


def test_rename_replaces(place: Place) -> None:
    new, old = place.file("new", b"new"), place.file("old", b"old")
    place.disk.rename(new, old)
    assert place.disk.names(place.root) == ["old"]
    assert place.disk.read(old) == b"new"
    assert code_of(place.disk.rename, new, old) == errno.ENOENT


def test_rename_between_folders_and_into_none(place: Place) -> None:
    path = place.file("a", b"a")
    place.disk.make_folder(f"{place.root}/below")
    place.disk.rename(path, f"{place.root}/below/b")
    assert place.disk.names(place.root) == ["below"]
    assert place.disk.read(f"{place.root}/below/b") == b"a"
    assert code_of(place.disk.rename, f"{place.root}/below/b", f"{place.root}/none/b") == errno.ENOENT


def test_rename_of_one_file_with_two_names_leaves_both(place: Place) -> None:
    path = place.file("a", b"a")
    place.disk.link(path, f"{place.root}/b")
    place.disk.rename(path, f"{place.root}/b")
    assert place.disk.names(place.root) == ["a", "b"]


def test_renamed_folder_is_gone_under_its_old_path(place: Place) -> None:
    """What fences an old incarnation: its next temporary, rename or link meets no folder."""
    folder = f"{place.root}/1"
    place.disk.make_folder(folder)
    place.file("1/a", b"a")
    place.disk.rename(folder, f"{place.root}/retired")
    assert place.disk.names(f"{place.root}/retired") == ["a"]
    assert code_of(place.disk.create, f"{folder}/b") == errno.ENOENT
    assert code_of(place.disk.rename, f"{folder}/a", f"{place.root}/a") == errno.ENOENT
    assert code_of(place.disk.link, f"{folder}/a", f"{place.root}/a") == errno.ENOENT
    assert place.disk.names(place.root) == ["retired"]


def test_rename_never_replaces_a_full_folder(place: Place) -> None:
    for name in ("1", "2"):
        place.disk.make_folder(f"{place.root}/{name}")
    place.file("2/a", b"a")
    assert code_of(place.disk.rename, f"{place.root}/1", f"{place.root}/2") in (errno.ENOTEMPTY, errno.EEXIST)


def test_link_makes_a_second_name(place: Place) -> None:
    path, other = place.file("a", b"a"), f"{place.root}/b"
    place.disk.link(path, other)
    assert place.disk.signature(path).inode == place.disk.signature(other).inode
    assert code_of(place.disk.link, path, other) == errno.EEXIST
    assert code_of(place.disk.link, f"{place.root}/none", f"{place.root}/c") == errno.ENOENT
    place.disk.unlink(path)
    assert place.disk.read(other) == b"a"


def test_symbolic_links_are_followed(place: Place) -> None:
    place.disk.make_folder(f"{place.root}/top")
    place.disk.make_folder(f"{place.root}/root")
    target, link = place.file("top/file", b"a"), f"{place.root}/root/link"
    place.disk.symlink("../top/file", link)
    assert place.disk.read(link) == b"a"
    assert place.disk.signature(link) == place.disk.signature(target)
    assert place.disk.resolve(link) == os.path.realpath(target)
    assert place.disk.resolve(target) == os.path.realpath(target)
    assert code_of(place.disk.symlink, "elsewhere", link) == errno.EEXIST
    new = place.file("new", b"b")
    place.disk.rename(new, link)  # an editor that replaces the link by a file
    assert place.disk.resolve(link) == os.path.realpath(link)
    assert place.disk.read(target) == b"a"


def test_dangling_link_is_no_file(place: Place) -> None:
    place.disk.symlink("none", f"{place.root}/link")
    assert place.disk.signature(f"{place.root}/link") is None
    assert code_of(place.disk.read, f"{place.root}/link") == errno.ENOENT


def test_unlink(place: Place) -> None:
    path = place.file("a", b"a")
    place.disk.unlink(path)
    assert place.disk.signature(path) is None
    assert code_of(place.disk.unlink, path) == errno.ENOENT


def test_folders(place: Place) -> None:
    folder = f"{place.root}/folder"
    place.disk.make_folder(folder)
    assert code_of(place.disk.make_folder, folder) == errno.EEXIST
    assert code_of(place.disk.make_folder, f"{place.root}/none/folder") == errno.ENOENT
    path = place.file("folder/a", b"")
    assert code_of(place.disk.remove_folder, folder) == errno.ENOTEMPTY
    place.disk.flush_folder(folder)
    place.disk.unlink(path)
    place.disk.remove_folder(folder)
    assert code_of(place.disk.flush_folder, folder) == errno.ENOENT
    assert code_of(place.disk.names, folder) == errno.ENOENT


def test_names_are_sorted_and_folders_only_have_them(place: Place) -> None:
    for name in ("b", "a", ".c"):
        place.file(name, b"")
    assert place.disk.names(place.root) == [".c", "a", "b"]
    assert code_of(place.disk.names, f"{place.root}/a") == errno.ENOTDIR


def test_signature_tells_a_change(place: Place) -> None:
    path = place.file("a", b"one")
    first = place.disk.signature(path)
    assert first == place.disk.signature(path)
    assert first.size == 3
    place.disk.rename(place.file("b", b"two"), path)
    assert place.disk.signature(path) != first
    assert place.disk.signature(f"{place.root}/none") is None
    assert place.disk.signature(f"{path}/below") is None


def test_look_tells_what_lies_under_a_name(place: Place) -> None:
    path = place.file("a", b"one")
    first = place.disk.look(path)
    assert (first.is_file, first.size, first.owner, first.links) == (True, 3, os.getuid(), 1)
    assert first.inode == place.disk.signature(path).inode
    assert place.disk.look(path) == first
    place.disk.link(path, f"{place.root}/b")
    second = place.disk.look(f"{place.root}/b")
    assert (second.inode, second.links) == (first.inode, 2)
    assert second == place.disk.look(path)
    place.disk.rename(place.file("new", b"other"), path)
    assert place.disk.look(path) != second
    assert place.disk.look(f"{place.root}/b").links == 1
    place.disk.make_folder(f"{place.root}/folder")
    assert not place.disk.look(f"{place.root}/folder").is_file
    assert place.disk.look(f"{place.root}/none") is None
    assert place.disk.look(f"{path}/below") is None


def test_look_does_not_follow_links(place: Place) -> None:
    path = place.file("a", b"one")
    for name, target in (("link", "a"), ("dangling", "none")):
        place.disk.symlink(target, f"{place.root}/{name}")
        found = place.disk.look(f"{place.root}/{name}")
        assert not found.is_file
        assert found.inode != place.disk.look(path).inode


def test_read_start(place: Place) -> None:
    path = place.file("a", b"12345")
    assert place.disk.read_start(path, 3) == b"123"
    assert place.disk.read_start(path, 5) == place.disk.read_start(path, 100) == b"12345"
    assert place.disk.read_start(place.file("empty", b""), 9) == b""
    place.disk.symlink("a", f"{place.root}/link")
    place.disk.make_folder(f"{place.root}/folder")
    assert code_of(place.disk.read_start, f"{place.root}/link", 9) == errno.ELOOP
    assert code_of(place.disk.read_start, f"{place.root}/folder", 9) == errno.EISDIR
    assert code_of(place.disk.read_start, f"{place.root}/none", 9) == errno.ENOENT


def test_read_start_of_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert PosixDisk().read_start(str(tmp_path / "pipe"), 9) == b""


def test_a_link_to_a_link_is_the_link_itself(place: Place) -> None:
    place.disk.symlink("none", f"{place.root}/a")
    place.disk.link(f"{place.root}/a", f"{place.root}/b")
    assert place.disk.look(f"{place.root}/b").inode == place.disk.look(f"{place.root}/a").inode


def test_many_files_are_flushed_at_once(place: Place) -> None:
    fds = [place.disk.create(f"{place.root}/many-{number}") for number in range(10)]
    for number, fd in enumerate(fds):
        place.disk.write(fd, b"%d" % number)
    place.disk.flush_all(fds)
    for fd in fds:
        place.disk.close(fd)
    assert [place.disk.read(f"{place.root}/many-{number}") for number in range(10)] == [b"%d" % n for n in range(10)]


def test_the_content_of_a_lock_is_read_and_written_by_its_holder(place: Place) -> None:
    path = f"{place.root}/a.lock"
    handle = place.disk.try_lock(path)
    assert place.disk.read_handle(handle) == b""
    place.disk.label_lock(handle, b"12345")
    place.disk.label_lock(handle, b"ab")
    assert place.disk.read_handle(handle) == b"ab345", "from the start, whatever was read before"
    assert place.disk.read_handle(handle) == b"ab345"
    place.disk.unlock(handle)
    handle = place.disk.try_lock(path)
    assert place.disk.read_handle(handle) == b"ab345"
    place.disk.label_lock(handle, b"x" * 70_000)
    assert place.disk.read_handle(handle) == b"x" * 65_536
    place.disk.unlock(handle)


def test_free_bytes(place: Place) -> None:
    assert place.disk.free_bytes(place.root) > 0
    assert code_of(place.disk.free_bytes, f"{place.root}/none") == errno.ENOENT


def test_lock_is_held_by_one(place: Place) -> None:
    path = f"{place.root}/a.lock"
    handle = place.disk.try_lock(path)
    assert handle is not None
    assert place.disk.try_lock(path) is None
    place.disk.label_lock(handle, b"me")
    assert place.disk.read(path) == b"me"
    place.disk.unlock(handle)
    again = place.disk.try_lock(path)
    assert again is not None
    assert place.disk.read(path) == b"me", "taking a lock must leave the label of the one before"
    place.disk.unlock(again)
    assert code_of(place.disk.try_lock, f"{place.root}/none/a.lock") == errno.ENOENT


# -- durability: only the disk in memory can be asked


def crashed(disk: MemoryDisk, fate: Any) -> dict[str, bytes]:
    return disk.crash(lambda effect: fate).tree()


def test_content_is_lost_until_flushed() -> None:
    disk = MemoryDisk()
    fd = disk.create("/a")
    disk.write(fd, b"12345678")
    disk.flush_folder("/")
    assert crashed(disk, "lost") == {"/a": b""}
    assert crashed(disk, "torn") == {"/a": b"1234"}
    disk.flush(fd)
    assert crashed(disk, "lost") == {"/a": b"12345678"}
    disk.write(fd, b"abcd")
    assert crashed(disk, "torn") == {"/a": b"12345678ab"}


def test_entry_is_lost_until_the_folder_is_flushed() -> None:
    disk = MemoryDisk()
    fd = disk.create("/a")
    disk.write(fd, b"a")
    disk.flush(fd)
    assert crashed(disk, "lost") == {}
    assert crashed(disk, "kept") == {"/a": b"a"}


def test_rename_between_folders_may_lose_the_file() -> None:
    disk = MemoryDisk()
    disk.make_folder("/one")
    disk.make_folder("/two")
    disk.put("/one/a", b"a")
    disk.sync()
    disk.rename("/one/a", "/two/a")
    disk.flush_folder("/one")
    assert crashed(disk, "lost") == {"/one/": b"", "/two/": b""}
    disk.flush_folder("/two")
    assert crashed(disk, "lost") == {"/one/": b"", "/two/": b"", "/two/a": b"a"}


def test_rename_within_a_folder_is_whole_or_not_at_all() -> None:
    disk = MemoryDisk()
    disk.put("/a", b"old")
    disk.put("/b", b"new")
    disk.rename("/b", "/a")
    assert crashed(disk, "lost") == {"/a": b"old", "/b": b"new"}
    assert crashed(disk, "kept") == {"/a": b"new"}


def test_crash_frees_locks_and_leaves_the_disk_itself_alone() -> None:
    disk = MemoryDisk()
    assert disk.try_lock("/lock") is not None
    assert disk.clone().try_lock("/lock") is None
    assert disk.kill().try_lock("/lock") is not None
    assert disk.try_lock("/lock") is None
