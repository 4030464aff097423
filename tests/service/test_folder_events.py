"""File events as hints, from the kernel's real inotify."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncinotify
import pytest
import pytest_asyncio

from mesh.service import folder_events as module
from mesh.service.folder_events import FolderEvents, folder_events
from tests.service.stage import until

_QUEUED_MAX = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="utf-8"))


@pytest_asyncio.fixture(loop_scope="function")
async def events() -> AsyncIterator[FolderEvents]:
    events = folder_events()
    yield events
    await events.close()
    assert not _instances(), "the inotify instance is given back"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "inbox"
    made.mkdir()
    return made


def _instances() -> list[str]:
    """The inotify instances that this process holds."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # what listed them
        if "inotify" in target:
            found.append(fd)
    return found


def _put(folder: Path, name: str) -> None:
    (folder / name).write_text("x", encoding="utf-8")


async def _hints(hints: list[str | None], *expected: str | None) -> None:
    """Wait until each of these was hinted at, within a second; forget what was."""
    await until(lambda: set(expected) <= set(hints), 1.0)
    hints.clear()


async def _settle() -> None:
    """Let everything come that is on its way."""
    await asyncio.sleep(0.05)


def _make(folder: Path) -> None:
    folder.mkdir()


def _move_away(folder: Path) -> Path:
    return folder.rename(folder.parent / "away")


def _exceed(limit: int, folder: Path) -> None:
    """Make more events than the kernel keeps: with two names in turn, as it merges equal ones."""
    source = folder.parent / "source"
    source.touch()
    names = [folder / "a.json", folder / "b.json"]
    for _ in range(limit // 2 + 10):
        for name in names:
            os.link(source, name)
        for name in names:
            name.unlink()


def _kill(events: FolderEvents) -> None:
    (reader,) = (task for task in asyncio.all_tasks() if task.get_name() == "folder events")
    reader.cancel()


def _link(folder: Path) -> None:
    source = folder.parent / "source"
    source.write_text("x", encoding="utf-8")
    os.link(source, folder / "a.json")


def _rename(folder: Path) -> None:
    source = folder.parent / "source"
    source.write_text("x", encoding="utf-8")
    source.rename(folder / "a.json")


@pytest.mark.parametrize(
    "arrive", [_link, _rename, lambda folder: _put(folder, "a.json")], ids=["link", "move", "write"]
)
async def test_what_comes_is_hinted_at(events: FolderEvents, folder: Path, arrive: Callable[[Path], None]) -> None:
    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    arrive(folder)
    await _hints(hints, "a.json")
    assert events.problem is None and not events.check()


async def test_a_hint_comes_again_once_the_file_is_whole(events: FolderEvents, folder: Path) -> None:
    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    with (folder / "a.json").open("w", encoding="utf-8") as file:
        await _hints(hints, "a.json")
        file.write("x")
        file.flush()
        await _settle()
        assert hints == []
    await _hints(hints, "a.json")


async def test_what_goes_and_hidden_names_are_not(events: FolderEvents, folder: Path) -> None:
    _put(folder, "old.json")
    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    _put(folder, ".admission")
    (folder / "old.json").read_text(encoding="utf-8")
    (folder / "old.json").unlink()
    await _settle()
    assert hints == []


async def test_several_watches_of_one_folder(events: FolderEvents, folder: Path) -> None:
    first: list[str | None] = []
    second: list[str | None] = []
    watch = events.watch(str(folder), first.append)
    events.watch(str(folder), second.append)
    _put(folder, "a.json")
    await _hints(first, "a.json")
    await _hints(second, "a.json")
    watch.cancel()
    watch.cancel()
    _put(folder, "b.json")
    await _hints(second, "b.json")
    await _settle()
    assert first == []


async def test_two_paths_of_one_folder(events: FolderEvents, folder: Path) -> None:
    alias = folder.parent / "alias"
    alias.symlink_to(folder)
    first: list[str | None] = []
    second: list[str | None] = []
    watch = events.watch(str(folder), first.append)
    events.watch(str(alias), second.append)
    _put(folder, "a.json")
    await _hints(first, "a.json")
    await _hints(second, "a.json")
    watch.cancel()
    _put(folder, "b.json")
    await _hints(second, "b.json")


async def test_a_loop_has_one_instance_until_the_last_watch_ends(events: FolderEvents, tmp_path: Path) -> None:
    assert folder_events() is events
    watches = [events.watch(str(tmp_path), lambda name: None)]
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        watches.append(events.watch(str(tmp_path / str(number)), lambda name: None))
    assert len(_instances()) == 1
    for watch in watches:
        watch.cancel()
    await until(lambda: not _instances())
    hints: list[str | None] = []
    events.watch(str(tmp_path), hints.append)
    _put(tmp_path, "a.json")
    await _hints(hints, "a.json")
    assert events.restarts == 0


def test_each_loop_has_its_own_and_leaves_nothing_behind(folder: Path) -> None:
    async def watch() -> FolderEvents:
        folder_events().watch(str(folder), lambda name: None)
        return folder_events()

    first, second = asyncio.run(watch()), asyncio.run(watch())
    assert first is not second
    assert not _instances()


async def test_a_cancelled_watch_gets_nothing_that_is_on_its_way(
    events: FolderEvents, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both watches are due for the same event; the first ends the second."""
    hints: list[str | None] = []
    first = events.watch(str(folder), lambda name: second.cancel())
    second = events.watch(str(folder), hints.append)
    _put(folder, "a.json")
    await _settle()
    assert hints == [] and caplog.text == "" and not events.check()
    first.cancel()


async def test_a_watcher_that_fails_ends_nothing(
    events: FolderEvents, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hints: list[str | None] = []

    def fail(name: str | None) -> None:
        raise ValueError("a bug of the watcher's")

    events.watch(str(folder), fail)
    events.watch(str(folder), hints.append)
    for name in ("a.json", "b.json"):
        _put(folder, name)
        await _hints(hints, name)
    assert "a bug of the watcher's" in caplog.text
    assert not events.check()


async def test_a_folder_that_comes_later(events: FolderEvents, tmp_path: Path) -> None:
    late = tmp_path / "late"
    hints: list[str | None] = []
    events.watch(str(late), hints.append)
    events.check()
    assert hints == [] and events.problem is None
    late.mkdir()
    _put(late, "before.json")
    assert not events.check(), "nothing had died"
    assert hints == [None], "what came before the watch has to be looked for"
    _put(late, "a.json")
    await _hints(hints, "a.json")


async def test_a_folder_that_is_deleted_and_made_again(events: FolderEvents, folder: Path) -> None:
    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    shutil.rmtree(folder)
    await _hints(hints, None)
    events.check()
    assert hints == []
    _make(folder)
    events.check()
    await _hints(hints, None)
    _put(folder, "a.json")
    await _hints(hints, "a.json")


async def test_one_check_mends_however_many_came_back(events: FolderEvents, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(20)]
    hints: list[str | None] = []
    for late in folders:
        events.watch(str(late), hints.append)
    for late in folders:
        _make(late)
    events.check()
    assert hints == [None] * len(folders)


async def test_a_folder_that_is_moved_away(events: FolderEvents, folder: Path) -> None:
    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    away = _move_away(folder)
    await _hints(hints, None)
    _make(folder)
    events.check()
    await _hints(hints, None)
    _put(away, "elsewhere.json")
    _put(folder, "a.json")
    await until(lambda: "a.json" in hints, 1.0)
    assert "elsewhere.json" not in hints


async def test_a_folder_whose_parent_is_replaced(events: FolderEvents, tmp_path: Path) -> None:
    """The kernel tells nothing then. A check finds it out, also among more folders than one check asks for."""
    inboxes = [tmp_path / str(number) / "inbox" for number in range(20)]
    hints: list[list[str | None]] = [[] for _ in inboxes]
    for inbox, heard in zip(inboxes, hints, strict=True):
        inbox.mkdir(parents=True)
        events.watch(str(inbox), heard.append)
    for inbox in inboxes:
        shutil.move(inbox.parent, tmp_path / f"old{inbox.parent.name}")
        inbox.mkdir(parents=True)
    await _settle()
    for _ in range(3):
        events.check()
    assert hints == [[None]] * len(inboxes)
    for inbox, heard in zip(inboxes, hints, strict=True):
        _put(inbox, "a.json")
        await _hints(heard, "a.json")


async def test_an_overflow_means_everything(events: FolderEvents, folder: Path) -> None:
    """The loop is held up while more happens than the kernel keeps."""
    if _QUEUED_MAX > 100_000:
        pytest.skip(f"the kernel here keeps {_QUEUED_MAX} events: too many to exceed in a test")
    (folder.parent / "quiet").mkdir()
    hints: list[str | None] = []
    quiet: list[str | None] = []
    events.watch(str(folder), hints.append)
    events.watch(str(folder.parent / "quiet"), quiet.append)
    _exceed(_QUEUED_MAX, folder)
    await until(lambda: None in hints and None in quiet)
    _put(folder, "after.json")
    await _hints(hints, "after.json")


async def test_an_overflow_event_reaches_everybody(events: FolderEvents, folder: Path) -> None:
    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    events.watch(str(folder.parent), hints.append)
    assert events._reader is not None
    events._reader.handle(asyncinotify.Event(None, asyncinotify.Mask.Q_OVERFLOW, 0, None))
    assert hints == [None, None]


async def test_a_dead_reader_is_started_again(events: FolderEvents, folder: Path) -> None:
    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    _kill(events)
    await until(lambda: events.problem)
    assert "died" in str(events.problem)
    _put(folder, "missed.json")
    late: list[str | None] = []
    events.watch(str(folder.parent), late.append)
    await _settle()
    assert hints == [] and not _instances()
    assert events.check() is True
    assert (hints, late) == ([None], [None])
    assert (events.restarts, events.problem, len(_instances())) == (1, None, 1)
    assert events.check() is False
    _put(folder, "a.json")
    await _hints(hints, "a.json")
    _put(folder.parent, "b.json")
    await _hints(late, "b.json")


async def test_no_instance_to_be_had(events: FolderEvents, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(**options: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    hints: list[str | None] = []
    with monkeypatch.context() as patch:
        patch.setattr(asyncinotify, "Inotify", none_left)
        events.watch(str(folder), hints.append)
        assert "fs.inotify.max_user_instances" in str(events.problem)
        assert events.check() is False and hints == []
    _put(folder, "missed.json")
    assert events.check() is True
    assert (hints, events.problem, events.restarts) == ([None], None, 0)
    _put(folder, "a.json")
    await _hints(hints, "a.json")


async def test_a_reader_that_died_and_cannot_be_replaced_yet(
    events: FolderEvents, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*callbacks: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    hints: list[str | None] = []
    events.watch(str(folder), hints.append)
    _kill(events)
    await until(lambda: events.problem)
    with monkeypatch.context() as patch:
        patch.setattr(module, "InotifyReader", none_left)
        assert events.check() is False
        assert "max_user_instances" in str(events.problem)
    assert events.check() is True
    assert (events.restarts, events.problem) == (1, None)


async def test_no_watch_to_be_had(events: FolderEvents, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder is refused; the others have their events."""
    real = asyncinotify.Inotify.add_watch

    def refuse(self: asyncinotify.Inotify, path: str, mask: asyncinotify.Mask) -> asyncinotify.Watch:
        if path == str(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, path, mask)

    hints: list[str | None] = []
    others: list[str | None] = []
    with monkeypatch.context() as patch:
        patch.setattr(asyncinotify.Inotify, "add_watch", refuse)
        events.watch(str(folder), hints.append)
        events.watch(str(folder.parent), others.append)
        assert "fs.inotify.max_user_watches" in str(events.problem) and str(folder) in str(events.problem)
        _put(folder.parent, "a.json")
        await _hints(others, "a.json")
        events.check()
        assert events.problem
    events.check()
    assert events.problem is None and hints == [None]
    hints.clear()
    _put(folder, "b.json")
    await _hints(hints, "b.json")
