"""A root that `mesh init` made, copied for each test."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from tests.cli.stage import Mesh, a_registry


def _free_block(count: int) -> int:
    """The first of some ports in a row that nobody listens on."""
    for base in range(21000, 29000, 10):
        socks = []
        try:
            socks = [socket.create_server(("127.0.0.1", base + number)) for number in range(count)]
        except OSError:
            continue
        finally:
            for sock in socks:
                sock.close()
        if len(socks) == count:
            return base
    raise AssertionError("no free ports")


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("blank") / "root"
    (root / "agents").mkdir(parents=True)
    (root / "agents" / "registry.json").write_text(json.dumps(a_registry(_free_block(3))), encoding="utf-8")
    done = Mesh(root)("init")
    assert done.status == 0, done.err
    return root


@pytest.fixture
def mesh(blank: Path, tmp_path: Path) -> Mesh:
    """`mesh`, for an initialised root of ada, bob and cyd that are all down."""
    shutil.copytree(blank, tmp_path / "root")
    return Mesh(tmp_path / "root")
