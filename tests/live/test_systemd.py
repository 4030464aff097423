"""The unit file, held against systemd's own checker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.live.harness import CHECKOUT, MESH

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"),
]

UNIT = CHECKOUT / "systemd/mesh.service"


def verify(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    unit = folder / "mesh.service"
    unit.write_text(text.replace("/opt/agent-mesh/.venv/bin/mesh", str(MESH)).replace("User=mesh", "User=nobody"))
    command = ["systemd-analyze", "verify", "--recursive-errors=one", unit]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_unit_is_valid_and_a_misspelt_one_would_be_noticed(tmp_path: Path) -> None:
    found = verify(UNIT.read_text(), tmp_path)
    assert found.returncode == 0, found.stderr
    assert verify(UNIT.read_text().replace("KillMode", "KilMode"), tmp_path).returncode != 0


def test_its_command_is_one_that_the_mesh_knows() -> None:
    command = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    arguments = command.split()[1:]
    assert arguments[0] == "up"
    shown = subprocess.run([MESH, "up", "--help"], capture_output=True, text=True, check=True).stdout
    assert all(argument in shown for argument in arguments if argument.startswith("--"))
