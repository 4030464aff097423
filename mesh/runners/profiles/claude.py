"""Claude Code: `claude -p`, the prompt on standard input, events as JSON lines.

**Permissions.** An unattended call can ask nobody. As root Claude refuses `--dangerously-skip-permissions`, so what it
needs for work is allowed by name (`--permission-mode acceptEdits --allowedTools=…`), for root and others alike; reading
and writing outside of the working directory stays refused. `args` with `--permission-mode`, `--allowedTools`,
`--permission-prompt-tool` or `--dangerously-skip-permissions` takes the place of all of that.

The exit status says little: a 401 ends with `subtype: success` and `is_error: true`. `total_cost_usd` is the session's;
`model_usage_since_last_result` is the call's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress
from mesh.runners.profiles.arguments import option, unless
from mesh.runners.profiles.output import Json, count, doing, inner, items, money, objects, session_id, texts, words
from mesh.runners.profiles.verdict import failure, problem, silent

TOOLS = "Bash,Edit,Write,NotebookEdit,Read,Glob,Grep,WebFetch,WebSearch,Task,TodoWrite,Skill,mcp__mesh"
_PERMISSION_FLAGS = (
    "--permission-mode",
    "--allowedTools",
    "--allowed-tools",
    "--permission-prompt-tool",
    "--dangerously-skip-permissions",
)


def argv(ask: Ask) -> list[str]:
    permissions = unless(ask.args, _PERMISSION_FLAGS, ["--permission-mode", "acceptEdits", f"--allowedTools={TOOLS}"])
    session = ["--resume" if ask.resume else "--session-id", ask.session] if ask.session else []
    head = [ask.binary, "-p", "--output-format", "stream-json", "--verbose"]
    return [*head, *session, *option("--model", ask.model), *permissions, *ask.args]


def outcome(ended: Ended) -> Outcome:
    result: Json | None = None
    session, resets, error = None, None, ""
    for event in objects(ended.stdout):
        kind = event.get("type")
        session = session_id(event.get("session_id")) or session
        if kind == "result":
            result = event
        elif kind == "rate_limit_event" and inner(event, "rate_limit_info", "status") == "rejected":
            resets = count(inner(event, "rate_limit_info", "resetsAt"))
        elif kind == "assistant" and event.get("is_api_error_message"):
            error = words(event.get("error"))
    if result is None:
        return failure(ended, silent(ended, "a `result` line"), session)
    if result.get("is_error") or result.get("subtype") != "success":
        return failure(ended, _problem(result, error, resets, ended), session)
    return Outcome(words(result.get("result")), session, _usage(result))


def _problem(result: Json, error: str, resets: int | None, ended: Ended) -> Problem:
    told = result.get("errors")
    said = "; ".join(words(one) for one in told if isinstance(one, str)) if isinstance(told, list) else ""
    text = words(result.get("result")) or said or words(result.get("subtype"))
    # The kind of an error that has no HTTP status, as when nobody is logged in.
    known = {"authentication_failed": 401, "rate_limit": 429}.get(error)
    return problem(text, ended, status=count(result.get("api_error_status")) or known, until=resets)


def _usage(result: Json) -> Usage:
    models = inner(result, "model_usage_since_last_result") or inner(result, "modelUsage")
    costs = [money(inner(models, name, "costUSD")) for name in models] if isinstance(models, dict) else []
    used = inner(result, "usage")
    return Usage(
        input_tokens=count(inner(used, "input_tokens")),
        cache_read_tokens=count(inner(used, "cache_read_input_tokens")),
        cache_write_tokens=count(inner(used, "cache_creation_input_tokens")),
        output_tokens=count(inner(used, "output_tokens")),
        cost_usd=sum(cost for cost in costs if cost is not None) if costs else money(result.get("total_cost_usd")),
        model=_model(models),
    )


def _model(models: Any) -> str | None:
    """The model that wrote most: beside it a small one names sessions and the like."""
    if not isinstance(models, dict) or not models:
        return None
    name = max(models, key=lambda name: count(inner(models, name, "outputTokens")) or 0)
    return f"anthropic/{words(name)}"


def progress(lines: Sequence[str]) -> Progress:
    session, steps, now = None, 0, ""
    for event in objects(lines):
        session = session_id(event.get("session_id")) or session
        if event.get("type") not in ("assistant", "user"):
            continue
        for part in items(inner(event, "message", "content")):
            if part.get("type") == "tool_use":
                now = doing(part.get("name"), part.get("input"))
            elif part.get("type") == "tool_result":
                steps += 1
            elif part.get("type") == "text" and event.get("type") == "assistant":
                steps, now = steps + 1, doing("writes", texts([part]))
    return Progress(session, steps, now)


PROFILE = Profile(
    name="claude",
    binary="claude",
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    environment={
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY": "1",
    },
    keys=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_MODEL",
        "CLAUDE_CODE_MAX_RETRIES",
    ),
    home_variable="CLAUDE_CONFIG_DIR",
    home_folder=".claude",
    logins=(".claude/.credentials.json",),
    transcript=".claude/projects/*/{session}.jsonl",
)
