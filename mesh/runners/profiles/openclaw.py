"""OpenClaw: `openclaw agent --local`, the prompt in a file, one JSON document on standard output.

**Permissions.** Its own configuration decides (`tools`, `sandbox` of the agent): a headless call can ask nobody. `args`
with `--agent NAME` takes the place of the agent `main`; `--thinking` and the like go beside it.

It works in the workspace of its configuration, whatever folder it is started in: a checkout must be named in the
prompt. `--session-id` goes on with a session or begins it, so a lost one can't be told from a new one. A call takes a
quarter of a minute before the model is asked, on a slow machine minutes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Profile, Progress
from mesh.runners.profiles.arguments import option, unless
from mesh.runners.profiles.output import Json, count, document, doing, inner, items, money, session_id, words
from mesh.runners.profiles.pi import PROVIDER_KEYS
from mesh.runners.profiles.verdict import failure, problem, silent


def argv(ask: Ask) -> list[str]:
    agent = unless(ask.args, ("--agent", "--session-key", "--to", "-t"), ["--agent", "main"])
    head = [ask.binary, "agent", "--local", "--json", *agent, *option("--session-id", ask.session)]
    return [*head, "--message-file", ask.prompt_file, *option("--model", ask.model), *ask.args]


def outcome(ended: Ended) -> Outcome:
    found = document(ended.stdout)
    meta = inner(found, "meta")
    session = session_id(inner(meta, "agentMeta", "sessionId"))
    parts = items(inner(found, "payloads"))
    error = _error(found, parts)
    if error:
        return failure(ended, problem(error, ended), session)
    if not isinstance(meta, dict) or "agentMeta" not in meta:
        return failure(ended, silent(ended, "its JSON document with `meta.agentMeta`"), session)
    text = "\n\n".join(filter(None, (words(part.get("text")) for part in parts)))
    return Outcome(text or words(meta.get("finalAssistantVisibleText")), session, _usage(meta))


def _error(found: Json | None, parts: Sequence[Json]) -> str:
    """What it says went wrong, in one of the places where it does."""
    for place in (inner(found, "meta", "error"), inner(found, "error")):
        if said := words(inner(place, "message")) or words(place):
            return said
    if said := "; ".join(words(part.get("text")) for part in parts if part.get("isError")):
        return said
    if inner(found, "meta", "aborted") is True:
        return "it was aborted"
    return ""


def _usage(meta: Json) -> Usage:
    agent = inner(meta, "agentMeta")
    used = inner(agent, "usage")
    provider, model = words(inner(agent, "provider")), words(inner(agent, "model"))
    return Usage(
        input_tokens=count(inner(used, "input")),
        cache_read_tokens=count(inner(used, "cacheRead")),
        cache_write_tokens=count(inner(used, "cacheWrite")),
        output_tokens=count(inner(used, "output")),
        cost_usd=money(inner(used, "cost", "total")) or None,
        model=f"{provider}/{model}" if provider and model else None,
    )


def progress(lines: Sequence[str]) -> Progress:
    """It prints nothing until it ends."""
    return Progress(None, 0, doing("ends") if any(line.strip() for line in lines) else "")


PROFILE = Profile(
    name="openclaw",
    binary="openclaw",
    argv=argv,
    outcome=outcome,
    progress=progress,
    environment={
        "OPENCLAW_NO_AUTO_UPDATE": "1",
        "DO_NOT_TRACK": "1",
        "OPENCLAW_DISABLE_BONJOUR": "1",
        "NO_COLOR": "1",
    },
    keys=PROVIDER_KEYS,
    home_variable="OPENCLAW_STATE_DIR",
    home_folder=".openclaw",
    logins=(".openclaw/openclaw.json",),
    transcript=".openclaw/agents/main/agent/openclaw-agent.sqlite",
)
