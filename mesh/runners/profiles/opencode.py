"""OpenCode: `opencode run --format json`, the prompt on standard input (as an argument it would arrive in quotes).

**Permissions.** `--auto` allows what the user's configuration doesn't deny; without it everything that would be asked
is refused. `args` with `--agent` (whose permissions are its own) or `--auto=false` takes its place.

The id of a new session is OpenCode's own. At a usage limit it says nothing on standard output and tries again for ever:
its log on standard error tells (`waiting`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress
from mesh.runners.profiles.arguments import option, unless
from mesh.runners.profiles.output import Json, added, count, doing, inner, money, objects, session_id, words
from mesh.runners.profiles.pi import PROVIDER_KEYS
from mesh.runners.profiles.verdict import failure, problem, retrying, silent

_LOGGED = re.compile(r'\berror\.error="([^"\n]{1,2000})"')


def argv(ask: Ask) -> list[str]:
    permissions = unless(ask.args, ("--auto", "--agent"), ["--auto"])
    head = [ask.binary, "run", "--format", "json", "--print-logs", "--log-level", "ERROR"]
    session = option("-s", ask.session if ask.resume else None)
    return [*head, *session, *option("-m", ask.model), *permissions, *ask.args]


def outcome(ended: Ended) -> Outcome:
    session, text, used, done, error = None, "", None, False, None
    for event in objects(ended.stdout):
        kind, part = event.get("type"), event.get("part")
        session = session_id(event.get("sessionID")) or session
        if kind == "step_start":
            text, done = "", False
        elif kind == "text":
            text = "\n".join(filter(None, (text, words(inner(part, "text")))))
        elif kind == "step_finish":
            used, done = added(used, _usage(part)), inner(part, "reason") not in ("tool-calls", "unknown")
            error = None
        elif kind == "error":
            error = _problem(event, ended)
    if error is not None:
        return failure(ended, error, session)
    if not done:
        return failure(
            ended, _refused(ended) or _logged(ended) or silent(ended, "the end of its turn (`step_finish`)"), session
        )
    return Outcome(text, session, used)


def _problem(event: Json, ended: Ended) -> Problem:
    data = inner(event, "error", "data")
    said = words(inner(data, "message")) or words(inner(event, "error", "name")) or "an error without words"
    status = count(inner(data, "statusCode"))
    # The vendor's own body holds the code (`insufficient_quota`) and often the time of the reset.
    return problem(said, ended, status=status, beside=words(inner(data, "responseBody")))


def _refused(ended: Ended) -> Problem | None:
    """It gives up where a permission is refused."""
    if "auto-rejecting" not in ended.stderr:
        return None
    asked = next(line for line in ended.stderr.splitlines() if "auto-rejecting" in line)
    return problem(f"it stopped because a permission was refused: {asked}", ended)


def _logged(ended: Ended) -> Problem | None:
    """The error that its log told last: it may have been ended while it tried again."""
    told = _LOGGED.findall(ended.stderr[-20_000:])
    return problem(told[-1], ended) if told else None


def _usage(part: object) -> Usage:
    tokens = inner(part, "tokens")
    written = count(inner(tokens, "output"))
    thought = count(inner(tokens, "reasoning"))
    return Usage(
        input_tokens=count(inner(tokens, "input")),
        cache_read_tokens=count(inner(tokens, "cache", "read")),
        cache_write_tokens=count(inner(tokens, "cache", "write")),
        output_tokens=None if written is None else written + (thought or 0),
        cost_usd=money(inner(part, "cost")) or None,
    )


def progress(lines: Sequence[str]) -> Progress:
    session, steps, now = None, 0, ""
    for event in objects(lines):
        kind, part = event.get("type"), event.get("part")
        session = session_id(event.get("sessionID")) or session
        if kind == "tool_use":
            steps, now = steps + 1, doing(inner(part, "tool"), inner(part, "state", "input"))
        elif kind == "text":
            steps, now = steps + 1, doing("writes", inner(part, "text"))
    return Progress(session, steps, now)


def waiting(ended: Ended) -> Problem | None:
    return retrying(ended, ended.stderr, "stream error")


PROFILE = Profile(
    name="opencode",
    binary="opencode",
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    environment={
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "OPENCODE_DISABLE_TERMINAL_TITLE": "1",
    },
    keys=("OPENCODE_API_KEY", *PROVIDER_KEYS, "OPENCODE_CONFIG", "OPENCODE_DISABLE_MODELS_FETCH"),
    chooses_session=False,
    logins=(".local/share/opencode/auth.json", ".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
    transcript=".local/share/opencode/opencode.db",
    waiting=waiting,
)
