"""Fixtures of the live tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.harness import LiveMesh, live_mesh


@pytest.fixture
def mesh() -> Iterator[LiveMesh]:
    """An initialised mesh that is not up yet."""
    with live_mesh() as mesh:
        yield mesh
