"""A CLI agent without a model, for tests of what starts and watches one: a real program with sessions and JSON lines.

It does what the lines of its prompt say that begin with `!`:
!say TEXT  !sleep S  !step  !env  !write FILE TEXT  !commit TEXT  !exit N  !401  !limit WHEN  !garbage
!daemon  !stubborn. The profiles of real CLIs pass their own contract (`tests/live/test_profiles.py`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress


def argv(ask: Ask) -> list[str]:
    how = "resume" if ask.resume else "new"
    return [ask.binary, __file__, how, ask.session, *(["--model", ask.model] if ask.model else []), *ask.args]


def outcome(ended: Ended) -> Outcome:
    entries = []
    for line in ended.stdout.splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    last = entries[-1] if entries else {}
    session = next((entry["session"] for entry in entries if "session" in entry), None)
    if "error" in last:
        return Outcome(session=session, problem=Problem(last["kind"], last["error"], last.get("until")))
    if "result" not in last:
        return Outcome(session=session, problem=Problem("broken", f"no result came: {ended.stdout[-200:]!r}"))
    return Outcome(last["result"], session, Usage(input_tokens=10, output_tokens=5, model="fake/one"))


def progress(lines: Sequence[str]) -> Progress:
    session, steps = None, 0
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        session = entry.get("session", session)
        steps += "step" in entry
    return Progress(session, steps)


FAKE = Profile(
    name="claude",
    binary=sys.executable,
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    environment={"FAKE_NO_UPDATE": "1"},
    keys=("FAKE_API_KEY", "FAKE_BASE_URL"),
    logins=(".fake/login",),
)


# -- the program


def _say(**entry: object) -> None:
    print(json.dumps(entry), flush=True)


def _git(*arguments: str) -> None:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def _obey(word: str, rest: str, said: list[str]) -> None:
    if word == "say":
        said.append(rest)
    elif word == "sleep":
        time.sleep(float(rest))
    elif word == "step":
        _say(step=rest)
    elif word == "env":
        said.append(" ".join(sorted(os.environ)))
    elif word == "write":
        name, _, text = rest.partition(" ")
        Path(name).write_text(text)
    elif word == "commit":
        _git("add", "--all")
        _git("commit", "-m", rest)
    elif word == "daemon":
        subprocess.Popen(["setsid", "sleep", "300"])
    elif word == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif word == "garbage":
        print("Traceback: what is this?", flush=True)
        sys.exit(0)
    elif word == "401":
        _say(error="401 invalid key", kind="logged_out")
        sys.exit(0)
    elif word == "limit":
        _say(error="usage limit reached", kind="limited", until=rest or None)
        sys.exit(1)
    elif word == "exit":
        _say(error=f"exit {rest}", kind="failed")
        sys.exit(int(rest))


def main() -> None:
    how, session = sys.argv[1], sys.argv[2]
    prompt = sys.stdin.read()
    kept = Path(os.environ["HOME"]) / ".fake" / f"{session}.txt"
    kept.parent.mkdir(exist_ok=True)
    if how == "resume" and not kept.exists():
        _say(error=f"no session {session}", kind="failed")
        sys.exit(1)
    before = kept.read_text() if kept.exists() else ""
    kept.write_text(before + prompt)
    _say(session=session)
    said: list[str] = []
    # Resumed, it knows what it was told before, and goes on with what that leaves undone.
    for line in (before + prompt if how == "resume" else prompt).splitlines():
        if line.startswith("!"):
            word, _, rest = line[1:].partition(" ")
            if how == "resume" and word == "sleep":
                continue
            _obey(word, rest, said)
    turns = kept.read_text().count("id ")
    _say(result="\n".join(said) or "done", how=how, turns=turns)


if __name__ == "__main__":
    main()
