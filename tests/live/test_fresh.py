"""As a new user does it: a fresh clone in a new folder, the README's commands, an installed package."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.harness import CHECKOUT, EIGHT, LiveMesh, free_base_port, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mesh-fresh-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("MESH_", "VIRTUAL_ENV", "MAKE"))}


def test_make_up_and_the_curl_lines_of_the_readme_in_a_fresh_clone(folder: Path) -> None:
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", CHECKOUT, clone], check=True)
    base = free_base_port()
    # The ports of the shipped registry may be in use on this machine; everything else is as a user has it.
    registry = (clone / "registry.json").read_text()
    for number in range(1, 9):
        registry = registry.replace(str(18800 + number), str(base + number))
    (clone / "registry.json").write_text(registry)
    with (folder / "out").open("w") as out:
        make = subprocess.Popen(
            ["make", "up"], cwd=clone, env=environment(), stdout=out, stderr=out, start_new_session=True
        )
    mesh = LiveMesh(clone / "shared", base)
    try:
        until(lambda: make.poll() is None and (clone / "shared/operator.header").exists(), 200, "the root made")
        until(lambda: all(mesh.healthy(agent) for agent in EIGHT), 20, "eight healthy agents")
        assert (clone / "shared/agents/registry.json").resolve() == clone / "registry.json"
        assert (clone / "shared/tasks/templates.yaml").resolve() == clone / "templates.yaml"
        lines = [line for line in (clone / "README.md").read_text().splitlines() if line.startswith("curl ")]
        assert len(lines) >= 3
        for line in lines:
            asked = re.sub(r"188(\d\d)", lambda found: str(base + int(found[1])), line)
            answer = subprocess.run(asked, shell=True, cwd=clone, capture_output=True, text=True, check=True)
            assert "status" in (body := json.loads(answer.stdout)) or body.get("accepted") or body.get("awake"), line
        edited_by_sed(clone, mesh)
    finally:
        os.killpg(make.pid, signal.SIGINT)
        make.wait(30)
    assert not any(mesh.healthy(agent) for agent in EIGHT)
    assert "Traceback" not in (folder / "out").read_text()


def edited_by_sed(clone: Path, mesh: LiveMesh) -> None:
    """An edit of the top-level file is in force; `sed -i` on the link replaces it, and status says so."""
    top = clone / "registry.json"
    top.write_text(top.read_text().replace('"policy": "peers"', '"policy": "open"'))
    link = clone / "shared/agents/registry.json"
    assert link.is_symlink()
    subprocess.run(["sed", "-i", 's/"Builder"/"Mason"/', link], check=True)
    assert not link.is_symlink()
    found = subprocess.run(
        [clone / ".venv/bin/mesh", "status"], cwd=clone, env=environment(), capture_output=True, text=True
    )
    assert "no longer a link" in found.stdout
    doctor = subprocess.run(
        [clone / ".venv/bin/mesh", "doctor"], cwd=clone, env=environment(), capture_output=True, text=True
    )
    assert doctor.returncode == 1 and "ln -sf" in doctor.stdout


def test_the_package_installs_and_runs_away_from_the_checkout(folder: Path) -> None:
    """What pipx and `uv tool install` do: a virtual environment and the package in it."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [folder / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", CHECKOUT / "requirements.lock"], check=True)
    source = folder / "source"
    subprocess.run(["git", "clone", "-q", CHECKOUT, source], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", source], check=True)
    shutil.rmtree(source)
    command, base = folder / "venv/bin/mesh", free_base_port()
    run = {"cwd": folder, "env": environment(), "capture_output": True, "text": True}
    made = subprocess.run([command, "init", "--base-port", str(base)], **run)
    assert made.returncode == 0, made.stderr
    assert (folder / "shared/agents/registry.json").is_file()
    up = subprocess.run([command, "up", "-d"], **run)
    try:
        assert up.returncode == 0, up.stderr
        done = subprocess.run([command, "task", "add", "News Scan", "--to", "intel", "--wait", "20"], **run)
        assert done.returncode == 0 and "News" in done.stdout, done.stderr
    finally:
        subprocess.run([command, "down"], **run)


@pytest.mark.parametrize(
    ("stub", "words"),
    [
        ("import sys; sys.exit(1)", "Python 3.11 or newer is needed"),
        ("import sys; sys.exit('ensurepip' in sys.argv[2])", "apt install python3-venv"),
    ],
    ids=["too old", "no venv module"],
)
def test_a_python_that_will_not_do_is_named_with_its_remedy(folder: Path, stub: str, words: str) -> None:
    python = folder / "python3"
    python.write_text(f"#!{sys.executable}\n{stub}\n")
    python.chmod(0o755)
    makefile = folder / "Makefile"
    makefile.write_text((CHECKOUT / "Makefile").read_text())
    found = subprocess.run(
        ["make", "need-python", f"PYTHON={python}"], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert found.returncode != 0
    lines = [line for line in found.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1 and words in lines[0]
