"""Every profile with its real CLI: what it is called with, and what is made of what it prints.

The model is the stub on loopback, the home empty, the key none. Each call is made as the profile says and no other way.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from mesh.clock import parse
from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Profile
from mesh.runners.profiles import profile
from tests.live.clis import KEY, SHELLS, Cli, home_for, installed
from tests.live.harness import until
from tests.live.stub_llm import Stub, stub

# The first test of a CLI may have to install it.
pytestmark = pytest.mark.timeout(900)

#: A call may take so long on a busy machine (OpenClaw's is the slowest by far).
CALL_S = 400.0
_LIVE, _SOAK = pytest.mark.live, pytest.mark.soak
ALL = [
    *(pytest.param(name, marks=_LIVE) for name in ("codex", "pi", "claude")),
    *(pytest.param(name, marks=_SOAK) for name in ("opencode", "openclaw", "aider", "goose", "gemini")),
]


@dataclass
class Desk:
    """One CLI with a home, a folder to work in, and a model."""

    cli: Cli
    profile: Profile
    folder: Path
    llm: Stub
    environment: Mapping[str, str]
    calls: list[Ended] = field(default_factory=list)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def ask(self, prompt: str, session: str, resume: bool = False) -> Ask:
        if not session and self.profile.chooses_session:
            session = str(uuid.uuid4())
        prompt_file = self.folder / "prompt"
        prompt_file.write_text(prompt)
        return Ask(
            binary=str(self.cli.program),
            prompt=prompt,
            prompt_file=str(prompt_file),
            cwd=str(self.work),
            session=session,
            resume=resume,
            scratch_file=str(self.folder / "scratch"),
            session_folder=str(self.folder),
        )

    def start(self, ask: Ask) -> subprocess.Popen[bytes]:
        (self.folder / "scratch").unlink(missing_ok=True)
        argv = self.profile.argv(ask)
        assert not any("\n" in part for part in argv), "the prompt can be read in the list of processes"
        given = open(ask.prompt_file, "rb") if self.profile.prompt_on_stdin else open(os.devnull, "rb")
        with given, open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            return subprocess.Popen(
                argv,
                cwd=self.work,
                env={**self.environment, **self.profile.environment},
                stdin=given,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def ended(self, process: subprocess.Popen[bytes], ask: Ask, before: Usage | None = None) -> Ended:
        scratch = self.folder / "scratch"
        return Ended(
            status=process.poll(),
            stdout=(self.folder / "out").read_text(errors="replace"),
            stderr=(self.folder / "err").read_text(errors="replace"),
            scratch=scratch.read_text(errors="replace") if scratch.exists() else "",
            session=ask.session,
            resumed=ask.resume,
            now=datetime.now(UTC),
            before=before,
        )

    def call(self, prompt: str, session: str = "", resume: bool = False, before: Usage | None = None) -> Outcome:
        """One call to its end, or until the CLI only waits for a limit to end. Nothing of it may be left over."""
        ask = self.ask(prompt, session, resume)
        process = self.start(ask)
        waiting = self.profile.waiting
        deadline = time.monotonic() + CALL_S
        try:
            while process.poll() is None:
                assert time.monotonic() < deadline, f"no end: {self.ended(process, ask).stderr[-2000:]}"
                if waiting is not None and waiting(self.ended(process, ask)) is not None:
                    break
                time.sleep(0.1)
        finally:
            waited = process.poll() is None
            end_group(process)
        ended = self.ended(process, ask, before)
        self.calls.append(ended)
        if not waited:
            until(lambda: not self.left_over(), 5, "no process of the call left")
        return self.profile.outcome(ended)

    def left_over(self) -> list[psutil.Process]:
        """The processes that live in this home."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == self.environment["HOME"] and process.status() != "zombie":
                    found.append(process)
        return found


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the whole group: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


@contextlib.contextmanager
def desk_for(name: str, folder: Path, key: str | None = None) -> Iterator[Desk]:
    cli = installed(name)
    (folder / "work").mkdir()
    if name == "aider":
        subprocess.run(["git", "init", "-q", folder / "work"], check=True)
    with stub(key=key) as llm:
        desk = Desk(cli, profile(name), folder, llm, home_for(cli, folder, llm.url))
        try:
            yield desk
        finally:
            for process in desk.left_over():
                with contextlib.suppress(psutil.Error):
                    process.kill()


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with desk_for(request.param, tmp_path) as desk:
        yield desk


def turn_of(outcome: Outcome) -> int:
    match = re.search(r"STUB turn=([0-9]+)", outcome.text)
    assert match is not None, outcome
    return int(match.group(1))


every_cli = pytest.mark.parametrize("desk", ALL, indirect=True)


@every_cli
def test_it_answers_and_goes_on_in_its_session(desk: Desk) -> None:
    prompt = "--first of two lines: \"quotes\", $HOME, {braces} and 'more'\nsecond ✓ line"
    first = desk.call(prompt)
    assert first.problem is None
    assert desk.llm.asked('"quotes", $HOME, {braces}')
    assert desk.llm.asked("second ✓ line")
    assert first.session
    assert first.usage is not None
    assert (first.usage.input_tokens or 0) > 100

    second = desk.call("and now this", first.session, resume=True, before=first.session_usage)
    assert second.problem is None
    assert second.session == first.session
    assert turn_of(second) > turn_of(first)
    asked = desk.llm.asked("and now this")[-1]
    assert any("second ✓ line" in text for _, text in asked.conversation), "it has forgotten the first prompt"
    # What the second call used is its own, not the session's.
    assert second.usage is not None
    assert 0 < (second.usage.input_tokens or 0) < 1.6 * (first.usage.input_tokens or 0)


@pytest.mark.parametrize("desk", [case for case in ALL if case.values[0] in SHELLS], indirect=True)
def test_it_may_work_unattended(desk: Desk) -> None:
    tool, argument = SHELLS[desk.profile.name]
    made = desk.work / "made by a tool"
    more = ', "description": "makes a file"' if desk.profile.name == "opencode" else ""
    outcome = desk.call(f'[[tool {tool} {{"{argument}": "touch \'{made}\'"{more}}}]]')
    assert outcome.problem is None
    assert made.exists()
    lines = desk.calls[-1].stdout.splitlines()
    told = desk.profile.progress(lines)
    if desk.profile.name != "openclaw":  # which prints nothing before its end
        assert told.steps >= 2
        assert told.doing
        assert told.session in (outcome.session, None)
        assert sum(desk.profile.progress([line]).steps for line in lines) == told.steps


@pytest.mark.parametrize("name", ALL)
def test_a_refused_key_is_a_login_that_is_missing(name: str, tmp_path: Path) -> None:
    with desk_for(name, tmp_path, key="sk-another-key-00000000000000") as desk:
        outcome = desk.call("hello")
        assert outcome.problem is not None
        assert outcome.problem.kind == "logged_out"
        assert KEY not in outcome.problem.detail
        assert desk.llm.requests == []


def limit_of(name: str, resets: datetime) -> str:
    """A usage limit in the words of the vendor whose model the CLI asks."""
    epoch = int(resets.timestamp())
    if name == "claude":
        return f"[[status 429]][[error Claude AI usage limit reached|{epoch}]]"
    if name == "codex":
        error = f'{{"type":"usage_limit_reached","message":"limit","plan_type":"plus","resets_at":{epoch}}}'
        return f'[[status 429]][[error {{"error":{error}}}]]'
    if name == "gemini":
        quota = '{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}'
        details = f'[{{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{quota}]}}]'
        error = f'{{"code":429,"message":"Quota exceeded.","status":"RESOURCE_EXHAUSTED","details":{details}}}'
        return f'[[status 429]][[error {{"error":{error}}}]]'
    return "[[status 429]][[error Usage limit reached, please try again in 3h 5m]]"


@every_cli
def test_a_usage_limit_parks(desk: Desk) -> None:
    resets = datetime.fromtimestamp(int(time.time()) // 60 * 60 + 3 * 3600 + 300, UTC)
    outcome = desk.call(limit_of(desk.profile.name, resets))
    assert outcome.problem is not None
    assert outcome.problem.kind == "limited"
    if desk.profile.name == "gemini":  # a quota per day, whose end it doesn't tell
        assert outcome.problem.until is None
    else:
        assert outcome.problem.until is not None
        assert abs((parse(outcome.problem.until) - resets).total_seconds()) < CALL_S + 60


@pytest.mark.parametrize("desk", [case for case in ALL if case.values[0] not in ("aider", "openclaw")], indirect=True)
def test_a_session_that_is_not_there(desk: Desk) -> None:
    missing = "ses_0000000000000000000000000" if desk.profile.name == "opencode" else str(uuid.uuid4())
    outcome = desk.call("hello", missing, resume=True)
    assert outcome.problem is not None
    assert outcome.problem.kind == "failed"
    assert re.search(r"session|conversation|thread", outcome.problem.detail, re.I)
    assert desk.llm.requests == []


@every_cli
def test_ended_in_the_middle(desk: Desk) -> None:
    ask = desk.ask("[[sleep 100]]", "")
    process = desk.start(ask)
    try:
        until(lambda: desk.llm.requests or process.poll() is not None, CALL_S, "the model is asked")
        assert process.poll() is None
    finally:
        end_group(process)
    until(lambda: not desk.left_over(), 10, "no process left")
    outcome = desk.profile.outcome(desk.ended(process, ask))
    assert outcome.problem is not None
    assert outcome.problem.kind in ("failed", "broken")
    assert outcome.text == ""
