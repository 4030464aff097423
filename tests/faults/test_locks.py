"""Locks between real processes: exact under contention, free when the holder dies, and never stuck to a pid."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from mesh.errors import LockTimeout
from mesh.store import Store
from mesh.store.documents import MEMORY
from tests.faults.processes import Worker, real_root, running

EDITS = 1_000

EDITOR = """
import sys
from mesh.store import Store
from mesh.store.documents import MEMORY

root, name, edits = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = Store(root)
path = store.layout.memory("coder")

def count(document):
    memory = document["memory"]
    memory["sum"] = memory.get("sum", 0) + 1
    memory[name] = memory.get(name, 0) + 1

print("ready", flush=True)
for _ in range(edits):
    store.documents.update(path, MEMORY, count)
print("done", flush=True)
"""

HOLDER = """
import sys, time
from mesh.store import Store

store = Store(sys.argv[1], holder="coder.7")
with store.locks.hold("tasks"):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_two_processes_edit_one_document(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    with running(EDITOR, root, "a", str(EDITS)) as one, running(EDITOR, root, "b", str(EDITS)) as two:
        one.expect("done")
        two.expect("done")
    store = Store(root)
    assert store.memory("coder") == {"sum": 2 * EDITS, "a": EDITS, "b": EDITS}
    assert store.files.names(store.layout.scratch) == [], "no temporary is left"
    document = store.documents.read(store.layout.memory("coder"), MEMORY)
    assert document is not None
    assert store.files.names(store.layout.quarantine) == []


def test_killed_holder_frees_the_lock_at_once(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    store.locks.wait_s = 0
    with running(HOLDER, root) as holder:
        with pytest.raises(LockTimeout):
            take(store)
        holder.kill()
        take(store)


def test_stopped_holder_is_named_and_killing_it_frees_the_lock(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    store.locks.wait_s = 0.2
    with running(HOLDER, root) as holder:
        holder.stop()
        began = store.time.monotonic()
        with pytest.raises(LockTimeout) as caught:
            take(store)
        assert 0.2 <= store.time.monotonic() - began < 2
        assert caught.value.facts["holder"].startswith("coder.7-")
        assert "coder.7-" in caught.value.detail
        holder.send(signal.SIGKILL)
        holder.process.wait(20)
        take(store)


def test_stopped_holder_keeps_only_its_own_lock(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    store.locks.wait_s = 0
    with running(HOLDER, root) as holder:
        holder.stop()
        store.remember("coder", {"still": "writable"})
        assert store.tasks.open() == [], "looking takes no lock"


@pytest.mark.parametrize("expires", ["2020-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z"])
def test_label_with_the_pid_of_a_living_process_means_nothing(tmp_path: Path, expires: str) -> None:
    root = real_root(tmp_path)
    store = Store(root)
    store.locks.wait_s = 0
    path = store.locks.path("tasks")
    label = {"holder": f"pid{os.getpid()}-1", "acquired": "2020-01-01T00:00:00.000Z", "expires": expires}
    Path(path).write_text(json.dumps(label))
    take(store)
    assert json.loads(Path(path).read_text())["holder"].startswith(store.locks.holder)


def test_expired_label_does_not_open_a_held_lock(tmp_path: Path) -> None:
    """The kernel says whether the lock is held; the times in the label are for people."""
    root = real_root(tmp_path)
    store = Store(root)
    store.locks.wait_s = 0
    with running(HOLDER, root):
        label = json.dumps({"holder": "pid1-1", "acquired": "", "expires": "2020-01-01T00:00:00.000Z"})
        Path(store.locks.path("tasks")).write_text(label)
        with pytest.raises(LockTimeout):
            take(store)


def take(store: Store) -> None:
    with store.locks.hold("tasks"):
        pass


def test_a_process_that_says_nothing_is_noticed() -> None:
    """The tests above rest on it."""
    worker = Worker("pass")
    with pytest.raises(AssertionError):
        worker.expect("ready")
    worker.kill()
    assert worker.process.stdout is not None
    worker.process.stdout.close()
