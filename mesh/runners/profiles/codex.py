"""Codex: `codex exec --json -`, the prompt on standard input, events as JSON lines.

**Permissions.** Codex' own sandbox lets nobody commit (git's folder is read-only in it) and doesn't work in many
containers. So an unattended call passes `--dangerously-bypass-approvals-and-sandbox`: it may do what its Unix user may,
like the other CLIs here. `args` with `--sandbox workspace-write` (or `--approve-for-me`, `--profile`,
`-c sandbox_mode=…`) takes the place of that.

Overrides on the command line keep a daemon from being left behind, and Codex from updating itself. `turn.completed`
tells what the whole thread has used. The id of a new thread is Codex' own. An id that no thread has fails, but a word
that is no UUID quietly opens a new thread: hence the other session in the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Profile, Progress
from mesh.runners.profiles.arguments import option, unless
from mesh.runners.profiles.output import Json, count, doing, inner, objects, session_id, since, words
from mesh.runners.profiles.verdict import failure, problem, silent

_QUIET = ("features.daemon_auto_start=false", "check_for_update_on_startup=false", "analytics.enabled=false")
_PERMISSION_FLAGS = (
    "--dangerously-bypass-approvals-and-sandbox",
    "--sandbox",
    "-s",
    "--approve-for-me",
    "--profile",
    "-p",
    "sandbox_mode",
    "approval_policy",
)


def _quiet() -> list[str]:
    return [part for setting in _QUIET for part in ("-c", setting)]


def argv(ask: Ask) -> list[str]:
    permissions = unless(ask.args, _PERMISSION_FLAGS, ["--dangerously-bypass-approvals-and-sandbox"])
    head = [ask.binary, "exec", *(["resume"] if ask.resume else []), "--json", "--skip-git-repo-check", *_quiet()]
    options = [*option("-m", ask.model), *option("-o", ask.scratch_file), *permissions, *ask.args]
    return [*head, *options, *([ask.session] if ask.resume else []), "-"]


def queue(ask: Ask) -> list[str]:
    """Codex takes the message as an argument only: it can be seen in the list of processes."""
    return [ask.binary, "queue", *_quiet(), "--thread", ask.session, "--message", ask.prompt]


def outcome(ended: Ended) -> Outcome:
    session, text, done, error = None, "", None, ""
    for event in objects(ended.stdout):
        kind = event.get("type")
        if kind == "thread.started":
            session = session_id(event.get("thread_id"))
        elif kind == "item.completed" and inner(event, "item", "type") == "agent_message":
            text = words(inner(event, "item", "text"))
        elif kind == "turn.completed":
            done, error = event, ""
        elif kind in ("turn.failed", "error"):
            error = words(inner(event, "error", "message")) or words(event.get("message")) or "the turn failed"
            done = None if kind == "turn.failed" else done
    if done is not None:
        total = _usage(done)
        resumed = ended.resumed and session in (None, ended.session)
        used = since(total, ended.before, resumed=resumed)
        return Outcome(text or words(ended.scratch), session, used, total)
    if error:
        return failure(ended, problem(error, ended), session)
    return failure(ended, silent(ended, "the end of its turn (`turn.completed`)"), session)


def _usage(done: Json) -> Usage:
    used = inner(done, "usage")
    read, written = count(inner(used, "cached_input_tokens")), count(inner(used, "cache_write_input_tokens"))
    sent = count(inner(used, "input_tokens"))
    # OpenAI counts what came from the cache as sent.
    fresh = None if sent is None else max(sent - (read or 0) - (written or 0), 0)
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=count(inner(used, "output_tokens")),
    )


def progress(lines: Sequence[str]) -> Progress:
    session, steps, now = None, 0, ""
    for event in objects(lines):
        kind, item = event.get("type"), event.get("item")
        if kind == "thread.started":
            session = session_id(event.get("thread_id"))
        elif kind in ("item.started", "item.completed") and inner(item, "type") != "error":
            steps += kind == "item.completed"
            what = inner(item, "command") or inner(item, "tool") or inner(item, "text") or inner(item, "query")
            now = doing(words(inner(item, "type")).replace("_", " "), what)
    return Progress(session, steps, now)


PROFILE = Profile(
    name="codex",
    binary="codex",
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    keys=("OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_BASE_URL"),
    chooses_session=False,
    home_variable="CODEX_HOME",
    home_folder=".codex",
    logins=(".codex/auth.json",),
    queue=queue,
    transcript=".codex/sessions/*/*/*/rollout-*-{session}.jsonl",
)
