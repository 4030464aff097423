"""Pi: `pi --mode json -p`, the prompt on standard input, events as JSON lines.

**Permissions.** Pi asks for none: its tools do what its Unix user may. `args` may narrow them (`--tools read,grep`,
`--no-approve`, which leaves the project's own extensions out).

In this mode Pi ends with status 0 even after a 401: `stopReason` of the last message tells. A session belongs to the
folder that it was begun in; from another one Pi asks whether to copy it, hears nothing and ends with status 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress
from mesh.runners.profiles.arguments import option
from mesh.runners.profiles.output import (
    Json,
    added,
    count,
    doing,
    inner,
    items,
    money,
    objects,
    session_id,
    texts,
    words,
)
from mesh.runners.profiles.verdict import failure, problem, silent

#: Of the providers that Pi and its relatives know; keys of others are named in the registry's `env`.
PROVIDER_KEYS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
)


def argv(ask: Ask) -> list[str]:
    # `--session-id` would make a new one where there is none to go on with.
    session = option("--session" if ask.resume else "--session-id", ask.session)
    return [ask.binary, "--mode", "json", "-p", *session, *option("--model", ask.model), *ask.args]


def outcome(ended: Ended) -> Outcome:
    session, last, settled, used = None, None, False, None
    for event in objects(ended.stdout):
        kind = event.get("type")
        if kind == "session":
            session = session_id(event.get("id"))
        elif kind == "message_end" and inner(event, "message", "role") == "assistant":
            last = event["message"]
            used = added(used, message_usage(last))
        elif kind == "agent_start":
            settled = False
        elif kind in ("agent_end", "agent_settled"):
            settled = not event.get("willRetry")
    if last is not None and last.get("stopReason") in ("error", "aborted"):
        return failure(ended, _problem(last, ended), session)
    if last is None or not settled:
        if "Session found in different project" in ended.stderr:
            return failure(ended, Problem("failed", f"session {ended.session} belongs to another folder"))
        return failure(ended, silent(ended, "the end of its turn (`agent_end`)"), session)
    return Outcome(texts(last.get("content")), session, used)


def _problem(last: Json, ended: Ended) -> Problem:
    return problem(words(last.get("errorMessage")) or f"its turn ended as {words(last.get('stopReason'))}", ended)


def message_usage(message: Any) -> Usage | None:
    """What one answer of the model used, as Pi and OpenClaw write it."""
    used = inner(message, "usage")
    if not isinstance(used, dict):
        return None
    provider, model = words(inner(message, "provider")), words(inner(message, "model"))
    return Usage(
        input_tokens=count(used.get("input")),
        cache_read_tokens=count(used.get("cacheRead")),
        cache_write_tokens=count(used.get("cacheWrite")),
        output_tokens=count(used.get("output")),
        cost_usd=money(inner(used, "cost", "total")) or None,
        model=f"{provider}/{model}" if provider and model else None,
    )


def progress(lines: Sequence[str]) -> Progress:
    session, steps, now = None, 0, ""
    for event in objects(lines):
        kind = event.get("type")
        if kind == "session":
            session = session_id(event.get("id"))
        elif kind == "tool_execution_start":
            now = doing(event.get("toolName"), event.get("args"))
        elif kind == "message_end" and inner(event, "message", "role") in ("assistant", "toolResult"):
            steps += 1
            content = inner(event, "message", "content")
            if inner(event, "message", "role") == "assistant" and texts(content):
                now = doing("writes", texts(content))
            elif calls := [part for part in items(content) if part.get("type") == "toolCall"]:
                now = doing(calls[-1].get("name"), calls[-1].get("arguments"))
    return Progress(session, steps, now)


PROFILE = Profile(
    name="pi",
    binary="pi",
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    environment={"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
    keys=PROVIDER_KEYS,
    home_variable="PI_CODING_AGENT_DIR",
    home_folder=".pi/agent",
    logins=(".pi/agent/auth.json", ".pi/agent/models.json"),
    transcript=".pi/agent/sessions/*/*_{session}.jsonl",
)
