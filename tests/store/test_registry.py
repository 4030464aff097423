from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from mesh.errors import MeshError, RegistryInvalid, StoreUnavailable
from mesh.store import Store
from mesh.store.registry import LINK_NOTE
from tests.fakes import MemoryDisk
from tests.faults.disks import FaultyDisk
from tests.faults.scenarios import move_port, registry
from tests.faults.world import ROOT, outsider

PATH = f"{ROOT}/agents/registry.json"
TARGET = "/top/registry.json"


@pytest.fixture
def plain(store: Store) -> Store:
    registry(False, store)
    return store


@pytest.fixture
def linked(store: Store) -> Store:
    registry(True, store)
    store.files.replace(f"{ROOT}/agents/{LINK_NOTE}", TARGET.encode() + b"\n")
    return store


def put(disk: MemoryDisk, path: str = PATH, **changes: Any) -> None:
    document = json.loads(disk.read(path))
    document["agents"]["coder"].update(changes)
    disk.put(path, json.dumps(document).encode())


def test_missing_registry_says_what_to_do(store: Store) -> None:
    with pytest.raises(RegistryInvalid, match="run `mesh init`"):
        assert store.registry.current
    with pytest.raises(RegistryInvalid):
        move_port(store)


def test_edit_by_hand_is_noticed_once(plain: Store, disk: MemoryDisk) -> None:
    assert plain.registry.current.entry("coder").port == 18801
    assert not plain.registry.changed()
    assert not plain.registry.refresh()
    put(disk, port=20000)
    assert plain.registry.changed()
    assert plain.registry.refresh()
    assert not plain.registry.refresh()
    assert plain.registry.current.entry("coder").port == 20000


def test_touching_it_puts_no_other_registry_in_force(plain: Store, disk: MemoryDisk) -> None:
    assert plain.registry.current
    disk.put(PATH, disk.read(PATH))
    assert not plain.registry.refresh()
    assert plain.registry.error is None


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        ({"port": 18802}, "agents.devops.port", "port 18802 is already the port of 'coder'"),
        ({"buddy": "devop"}, "agents.coder.buddy", "did you mean 'devops'?"),
        ({"buddy": "coder"}, "agents.coder.buddy", "can't be its own buddy"),
        ({"prot": 1}, "agents.coder.prot", "did you mean 'port'?"),
        ({"port": "x"}, "agents.coder.port", "whole number"),
    ],
)
def test_bad_edit_keeps_the_last_good_and_says_where_and_why(
    plain: Store, disk: MemoryDisk, change: dict[str, Any], key: str, reason: str
) -> None:
    good = plain.registry.current
    put(disk, **change)
    assert not plain.registry.refresh()
    assert plain.registry.current is good
    error = plain.registry.error
    assert isinstance(error, RegistryInvalid)
    assert error.facts["file"] == PATH
    problems = {problem["key"]: problem["reason"] for problem in error.facts["problems"]}
    assert reason in problems[key]
    assert PATH in error.detail
    assert key in error.detail
    put(disk, port=18801, buddy="devops")
    document = json.loads(disk.read(PATH))
    document["agents"]["coder"].pop("prot", None)
    disk.put(PATH, json.dumps(document).encode())
    plain.registry.refresh()
    assert plain.registry.error is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"agents": {}, "agents": {}}', None])
def test_start_with_a_broken_or_missing_file_uses_the_last_good(
    plain: Store, disk: MemoryDisk, data: bytes | None
) -> None:
    good = plain.registry.current
    if data is None:
        disk.unlink(PATH)
    else:
        disk.put(PATH, data)
    fresh = outsider(disk, disk.time)
    assert fresh.registry.current == good
    assert fresh.registry.error is not None
    if data is not None:
        assert disk.read(PATH) == data, "what the operator wrote stays for them to mend"


def test_file_that_cannot_be_read_for_a_moment_is_tried_again(plain: Store, disk: MemoryDisk) -> None:
    faulty = FaultyDisk(disk, 0, errno.EIO)
    store = outsider(faulty, disk.time)
    assert store.registry.current
    put(disk, port=20000)
    faulty.fail_at = len(faulty.calls) + 2  # the read after the look
    assert not store.registry.refresh()
    assert isinstance(store.registry.error, StoreUnavailable)
    assert store.registry.refresh()
    assert store.registry.error is None
    assert store.registry.current.entry("coder").port == 20000


def test_edit_by_command_keeps_what_it_does_not_know_and_the_order(plain: Store, disk: MemoryDisk) -> None:
    before = json.loads(disk.read(PATH))
    move_port(plain)
    after = json.loads(disk.read(PATH))
    assert list(after["agents"]) == list(before["agents"])
    before["agents"]["coder"]["port"] = 19000
    assert after == before


def test_edit_that_would_be_invalid_changes_nothing(plain: Store, disk: MemoryDisk) -> None:
    before = disk.read(PATH)
    with pytest.raises(RegistryInvalid):
        plain.registry.edit(lambda document: document["agents"]["coder"].update(port=18802))
    assert disk.read(PATH) == before


def test_edit_of_a_broken_file_is_refused(plain: Store, disk: MemoryDisk) -> None:
    disk.put(PATH, b"{")
    with pytest.raises(MeshError):
        move_port(plain)
    assert disk.read(PATH) == b"{"


def test_edit_keeps_a_link_a_link(linked: Store, disk: MemoryDisk) -> None:
    move_port(linked)
    assert disk.resolve(PATH) == TARGET
    assert json.loads(disk.read(TARGET))["agents"]["coder"]["port"] == 19000
    assert disk.names("/top") == ["registry.json"], "no temporary is left in the checkout"
    assert linked.registry.replaced_link() is None


def test_edit_of_the_target_counts(linked: Store, disk: MemoryDisk) -> None:
    assert linked.registry.current.entry("coder").port == 18801
    put(disk, TARGET, port=20000)
    assert linked.registry.refresh()
    assert linked.registry.current.entry("coder").port == 20000


def test_replaced_link_puts_the_file_in_force_and_says_so(linked: Store, disk: MemoryDisk) -> None:
    assert linked.registry.current
    data = disk.read(TARGET).replace(b"18801", b"20000")
    disk.put(f"{ROOT}/agents/sed-temporary", data)
    disk.rename(f"{ROOT}/agents/sed-temporary", PATH)
    assert linked.registry.refresh()
    assert linked.registry.current.entry("coder").port == 20000
    assert linked.registry.replaced_link() == TARGET


def test_check_looks_without_putting_in_force(plain: Store, disk: MemoryDisk) -> None:
    good = plain.registry.current
    disk.put("/other.json", disk.read(PATH).replace(b"18801", b"20000"))
    assert plain.registry.check("/other.json").entry("coder").port == 20000
    assert plain.registry.current is good
    with pytest.raises(RegistryInvalid, match="does not exist"):
        plain.registry.check("/none.json")
