from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mesh.store import Store
from mesh.store.secrets import OPERATOR
from tests.fakes import MemoryDisk
from tests.faults.processes import real_root
from tests.faults.world import AGENTS

NAMES = list(AGENTS)


@pytest.fixture
def made(store: Store) -> Store:
    for agent in AGENTS:
        store.secrets.ensure(agent)
    store.secrets.ensure_operator()
    return store


def test_each_has_its_own_and_keeps_it(made: Store) -> None:
    found = [made.secrets.of(name) for name in (*AGENTS, OPERATOR)]
    assert len(set(found)) == 4
    assert all(secret and len(secret) >= 43 for secret in found)
    for agent in AGENTS:
        made.secrets.ensure(agent)
    made.secrets.ensure_operator()
    assert [made.secrets.of(name) for name in (*AGENTS, OPERATOR)] == found


def test_owner(made: Store) -> None:
    for name in (*AGENTS, OPERATOR):
        assert made.secrets.owner(made.secrets.of(name) or "", NAMES) == name
    removed = made.secrets.of("sales") or ""
    assert made.secrets.owner(removed, ["coder", "devops"]) is None, "of no agent of the registry"


@pytest.mark.parametrize("sent", ["", "x", "\n", "ü", "\ud800", "Bearer"])
def test_anything_else_is_nobody_s(made: Store, sent: str) -> None:
    assert made.secrets.owner(sent, NAMES) is None


def test_prefix_and_longer_are_nobody_s(made: Store) -> None:
    secret = made.secrets.of("coder") or ""
    for sent in (secret[:-1], secret + "x", secret.lower() + "-", f" {secret}"):
        assert made.secrets.owner(sent, NAMES) is None


@pytest.mark.parametrize("data", [b"", b"\n", b" \n"])
def test_emptied_secret_lets_nobody_in(made: Store, disk: MemoryDisk, data: bytes) -> None:
    disk.put(made.layout.secret("coder"), data)
    disk.put(made.layout.operator_header, data)
    assert made.secrets.owner("", NAMES) is None
    assert made.secrets.of("coder") is None
    assert made.secrets.of(OPERATOR) is None


def test_damaged_secret_is_no_exception(made: Store, disk: MemoryDisk) -> None:
    disk.put(made.layout.secret("coder"), b"\xff\xfe")
    disk.put(made.layout.operator_header, b"\xff\xfe")
    assert made.secrets.owner("x", NAMES) is None
    assert isinstance(made.secrets.of("coder"), str)


def test_new_secret_counts_at_once(made: Store, disk: MemoryDisk) -> None:
    old = made.secrets.of("coder") or ""
    assert made.secrets.owner(old, NAMES) == "coder"
    disk.put(made.layout.secret("coder"), b"a-new-one\n")
    assert made.secrets.owner(old, NAMES) is None
    assert made.secrets.owner("a-new-one", NAMES) == "coder"
    disk.unlink(made.layout.secret("coder"))
    assert made.secrets.owner("a-new-one", NAMES) is None


def test_operator_header_is_what_curl_sends(made: Store, disk: MemoryDisk) -> None:
    lines = disk.read(made.layout.operator_header).decode().splitlines()
    assert lines == [f"Authorization: Bearer {made.secrets.of(OPERATOR)}", "Content-Type: application/json"]


def test_files_are_for_their_user_alone(tmp_path: Path) -> None:
    store = Store(real_root(tmp_path))
    store.secrets.ensure("coder")
    store.secrets.ensure_operator()
    for path in (store.layout.secret("coder"), store.layout.operator_header):
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
