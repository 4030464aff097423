from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from mesh.errors import BadUse, StoreUnavailable
from mesh.store import Store, setup
from mesh.store.disk import PosixDisk
from mesh.store.setup import checkout, initialise, is_initialised, resolve_root


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "deep" / "root")


def tree(root: str) -> dict[str, bytes | None]:
    paths = sorted(Path(root).rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths if "locks" not in path.parts}


def test_everything_is_made_and_private(root: str) -> None:
    store = Store(root)
    made = initialise(store)
    assert {"agents/registry.json", "tasks/templates.yaml", "operator.header"} <= set(made)
    assert is_initialised(root)
    agents = list(store.registry.current.agents)
    assert len(agents) == 8
    assert all(store.secrets.of(agent) for agent in agents)
    for path in Path(root).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_doing_it_again_changes_nothing(root: str) -> None:
    initialise(Store(root))
    before = tree(root)
    assert initialise(Store(root)) == []
    assert tree(root) == before


def test_what_is_missing_is_made_and_the_rest_kept(root: str) -> None:
    store = Store(root)
    initialise(store)
    before = tree(root)
    Path(store.layout.secret("coder")).unlink()
    Path(store.layout.syncs).rmdir()
    assert initialise(Store(root)) == ["system/syncs", "agents/coder/secret"]
    assert {path for path in tree(root)} == set(before)


def test_ports_are_moved(root: str) -> None:
    store = Store(root)
    initialise(store, base_port=30000)
    ports = [entry.port for entry in Store(root).registry.current.agents.values()]
    assert ports == list(range(30001, 30009))
    with pytest.raises(BadUse, match="--base-port"):
        initialise(store, base_port=65530)


def test_root_in_a_checkout_links_to_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "checkout"
    top.mkdir()
    for name in ("registry.json", "templates.yaml"):
        (top / name).write_bytes(setup.shipped(name))
    monkeypatch.setattr(setup, "checkout", lambda: str(top))
    store = Store(str(top / "shared"))
    initialise(store)
    assert os.readlink(store.layout.registry) == "../../registry.json"
    assert os.path.samefile(store.layout.templates, top / "templates.yaml")
    assert store.registry.replaced_link() is None
    initialise(store, base_port=30000)
    assert json.loads((top / "registry.json").read_bytes())["agents"]["chief"]["port"] == 30001
    assert os.path.islink(store.layout.registry)
    assert sorted(path.name for path in top.iterdir()) == ["registry.json", "shared", "templates.yaml"]


def test_root_elsewhere_has_files_of_its_own(root: str) -> None:
    store = Store(root)
    initialise(store)
    assert not os.path.islink(store.layout.registry)
    assert Path(store.layout.registry).read_bytes() == setup.shipped("registry.json")


def test_place_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="--root"):
        initialise(Store(str(tmp_path / "file" / "root")))


def test_link_that_cannot_be_made_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoLinks(PosixDisk):
        def symlink(self, target: str, path: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(setup, "checkout", lambda: str(tmp_path))
    with pytest.raises(StoreUnavailable, match="link"):
        initialise(Store(str(tmp_path / "shared"), disk=NoLinks()))


def test_where_the_root_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_root("a", "b") == str(tmp_path / "a")
    assert resolve_root(None, "b") == str(tmp_path / "b")
    assert resolve_root(None, None) == "/shared"
    (tmp_path / "shared" / "agents").mkdir(parents=True)
    assert resolve_root(None, None) == "/shared", "a folder of that name alone is no root"
    (tmp_path / "shared" / "agents" / "registry.json").symlink_to("dangling")
    assert resolve_root(None, None) == str(tmp_path / "shared")


def test_this_checkout_is_recognised() -> None:
    assert checkout() == str(Path(setup.__file__).resolve().parents[2])
