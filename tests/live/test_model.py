"""The model runner with a real model: the program as a process of its own, asked over HTTP on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.models.registry import Price
from mesh.models.runner_choice import ModelChoice
from mesh.policy.prices import priced
from mesh.runners.environment import child_environment
from mesh.runners.model.profile import SUMMARISE, model_profile, occupancy_in
from mesh.runners.model.reply import reply_in
from mesh.runners.profile import Ask, Ended, Outcome
from tests.live.harness import until
from tests.live.small_model import MODEL, small_model

#: The first time, the model is fetched; and it shares the processor with whatever else is tested.
pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
CALL_TIMEOUT_S = 400
KEY = "sk-not-a-key-0000000000000000"
#: The first is done; should another processor count otherwise, one of the rest is.
TASKS = [
    "Say hello to the operator. You have all that you need: done is true and problem is null.",
    "The nightly backup failed because the disk was full. Write a short report about it for the operator.",
    "Name three colours.",
    "Thank the operator for the coffee.",
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with small_model() as address:
        yield address


class Caller:
    """Calls the model as the daemon does: argv and environment by the profile, the prompt as a file."""

    def __init__(self, address: str, folder: Path, retries: int = 1) -> None:
        self._folder = folder
        shape = {"kind": "model", "model": MODEL, "baseUrl": address, "maxOutputTokens": 300, "retries": retries}
        choice = ModelChoice.model_validate(shape)
        self.profile = model_profile(choice, timeout_s=CALL_TIMEOUT_S)

    def __call__(self, prompt: str, *args: str, resume: bool = False) -> tuple[Outcome, Ended]:
        file = self._folder / "prompt"
        file.write_text(prompt)
        with file.open() as stdin:
            found = subprocess.run(
                self.argv(*args, resume=resume),
                cwd=self._folder,
                env=self.environment(),
                stdin=stdin,
                capture_output=True,
                text=True,
                timeout=CALL_TIMEOUT_S,
                check=False,
            )
        ended = Ended(found.returncode, found.stdout, found.stderr)
        return self.profile.outcome(ended), ended

    def argv(self, *args: str, resume: bool = False) -> list[str]:
        folder = str(self._folder)
        ask = Ask(
            binary=sys.executable,
            prompt="",
            prompt_file=f"{folder}/prompt",
            cwd=folder,
            session="session-1",
            resume=resume,
            args=args,
            session_folder=f"{folder}/sessions",
        )
        return self.profile.argv(ask)

    def environment(self) -> dict[str, str]:
        return child_environment({**os.environ, "OWN_API_KEY": KEY}, self.profile, [], home=None, marks={})


def test_a_task_completes_with_a_structured_result(address: str, tmp_path: Path) -> None:
    """So small a model may misjudge whether it is done, or ramble until it is cut off; it is then asked another."""
    caller = Caller(address, tmp_path)
    for task in TASKS:
        began = time.monotonic()
        outcome, ended = caller(task)
        print(f"\n{time.monotonic() - began:.1f} s: {ended.stdout}")
        assert KEY not in ended.stdout + ended.stderr and ended.stderr == ""
        assert ended.status == (1 if outcome.problem else 0)
        if outcome.problem is None:
            break
        assert outcome.problem.kind == "broken" or "says that it can't do the task" in outcome.problem.detail
    assert outcome.problem is None and outcome.text and outcome.session == "session-1"
    assert all(isinstance(fact, str) for fact in outcome.evidence)
    usage, occupancy = outcome.usage, occupancy_in(ended.stdout, 4096)
    assert usage is not None and usage.model == MODEL and (usage.output_tokens or 0) > 5
    price = Price.model_validate({"inputPerMillion": 1_000_000, "outputPerMillion": 0})
    cost = priced(usage, {MODEL: price}).cost_usd
    assert cost == (usage.input_tokens or 0) + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0) > 100
    assert occupancy is not None and 100 < occupancy.tokens < 4096


def test_a_conversation_goes_on(address: str, tmp_path: Path) -> None:
    """A session that was interrupted before any answer, as the daemon leaves it: the next call knows the task."""
    caller = Caller(address, tmp_path, retries=0)  # one call each, or their tokens would be added up
    file = tmp_path / "sessions" / "session-1.json"
    _, alone = caller("Go on.")
    file.unlink(missing_ok=True)
    killed = subprocess.Popen(
        caller.argv(), env=caller.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert killed.stdin is not None and killed.stdout is not None
    killed.stdin.write(TASKS[0])
    killed.stdin.close()
    until(file.exists, 60, "the conversation begun")
    killed.kill()
    assert killed.wait() and killed.stdout.read() == ""
    killed.stdout.close()
    assert TASKS[0][:20] in file.read_text()
    _, resumed = caller("Go on.", resume=True)
    before, after = _sent(alone), _sent(resumed)
    assert after - before >= 15  # it was told the task, too


def _sent(ended: Ended) -> int:
    reply = reply_in(ended.stdout)
    assert reply is not None and reply.usage is not None, ended
    return (reply.usage.input_tokens or 0) + (reply.usage.cache_read_tokens or 0)


def test_a_summary_is_plain_text(address: str, tmp_path: Path) -> None:
    outcome, ended = Caller(address, tmp_path)(TASKS[1] * 3, SUMMARISE)
    assert outcome.problem is None and len(outcome.text) > 20 and outcome.session is None, ended
    assert not (tmp_path / "sessions").exists()
