"""A mesh in a temporary folder, and one agent of it that runs."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.service.stage import Mesh, Served, echo


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A root as initialised: copying it is quicker than flushing each of its files to disk again."""
    root = tmp_path_factory.mktemp("blank") / "root"
    Mesh(root).initialise()
    return root


def _mesh(blank: pathlib.Path, root: pathlib.Path) -> Mesh:
    shutil.copytree(blank, root)
    mesh = Mesh(root)
    for agent in mesh.roles:
        mesh.skill(agent, "Echo", echo)
    return mesh


@pytest.fixture
def mesh(blank: pathlib.Path, tmp_path: pathlib.Path) -> Mesh:
    """Four agents with an `Echo` each, none of them running."""
    return _mesh(blank, tmp_path / "root")


@pytest_asyncio.fixture(loop_scope="function")
async def ada(mesh: Mesh) -> AsyncIterator[Served]:
    """ada, running, at an ordinary tick."""
    async with mesh.running("ada") as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(blank: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """ada for a whole file, for tests that only knock at her door and leave nothing behind."""
    mesh = _mesh(blank, tmp_path_factory.mktemp("front") / "root")
    async with mesh.running("ada") as served:
        yield served
