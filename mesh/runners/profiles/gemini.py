"""Gemini CLI: `gemini -o stream-json`, the prompt on standard input, events as JSON lines.

**Permissions.** `--approval-mode yolo`: it may do what its Unix user may. `args` with `--approval-mode` or `--yolo`
takes its place, `--sandbox` goes beside it.

A SIGTERM to the group ends it with status 0 and no `result` line. At a limit per minute it tries again for minutes
(`waiting`); at one per day it ends at once. It writes reports of errors, prompts included, into TMPDIR. Resuming loses
its own transcripts now and then (upstream issue 27368).
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress
from mesh.runners.profiles.arguments import option, unless
from mesh.runners.profiles.output import Json, count, doing, inner, objects, session_id, words
from mesh.runners.profiles.verdict import failure, problem, retrying, silent


def argv(ask: Ask) -> list[str]:
    permissions = unless(ask.args, ("--approval-mode", "--yolo", "-y"), ["--approval-mode", "yolo"])
    session = option("-r" if ask.resume else "--session-id", ask.session)
    return [ask.binary, "-o", "stream-json", *session, *option("-m", ask.model), *permissions, *ask.args]


def outcome(ended: Ended) -> Outcome:
    session, text, result = None, "", None
    for event in objects(ended.stdout):
        kind = event.get("type")
        if kind == "init":
            session = session_id(event.get("session_id"))
        elif kind == "message" and event.get("role") == "assistant":
            said = words(event.get("content"))
            text = text + said if event.get("delta") else said
        elif kind == "tool_use":
            text = ""  # what it said before was on the way to its answer
        elif kind == "result":
            result = event
    if result is None:
        return failure(ended, silent(ended, "a `result` line"), session)
    if result.get("status") != "success":
        said = words(inner(result, "error", "message")) or f"status {words(result.get('status'))}"
        return failure(ended, problem(said, ended), session)
    return Outcome(text, session, _usage(result))


def _usage(result: Json) -> Usage:
    stats = inner(result, "stats")
    models = inner(stats, "models")
    return Usage(
        input_tokens=count(inner(stats, "input")),
        cache_read_tokens=count(inner(stats, "cached")),
        output_tokens=count(inner(stats, "output_tokens")),
        model=f"google/{words(next(iter(models)))}" if isinstance(models, dict) and len(models) == 1 else None,
    )


def progress(lines: Sequence[str]) -> Progress:
    session, steps, now = None, 0, ""
    for event in objects(lines):
        kind = event.get("type")
        if kind == "init":
            session = session_id(event.get("session_id"))
        elif kind == "tool_use":
            now = doing(event.get("tool_name"), event.get("parameters"))
        elif kind == "tool_result":
            steps += 1
        elif kind == "message" and event.get("role") == "assistant":
            steps, now = steps + 1, doing("writes", event.get("content"))
    return Progress(session, steps, now)


def waiting(ended: Ended) -> Problem | None:
    return retrying(ended, ended.stderr, "failed with status")


PROFILE = Profile(
    name="gemini",
    binary="gemini",
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    environment={
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
        # Without this it starts itself a second time, and the first process keeps signals from the second.
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "NO_COLOR": "1",
    },
    keys=(
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        "GEMINI_MODEL",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_GENAI_USE_VERTEXAI",
    ),
    home_variable="GEMINI_CLI_HOME",
    logins=(".gemini/oauth_creds.json", ".gemini/gemini-credentials.json"),
    transcript=".gemini/tmp/*/chats/session-*-{session8}.jsonl",
    waiting=waiting,
)
