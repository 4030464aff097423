"""goose: `goose run -i -`, the prompt on standard input, events as JSON lines.

**Permissions.** `GOOSE_MODE=auto` in the environment: it may do what its Unix user may.

Its output names no session: the name that we gave it is its id. Only a 401 ends with status 1; other failures are told
as if they were an answer (`Ran into this error: …`) with status 0. `complete` tells what the whole session has used.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Profile, Progress
from mesh.runners.profiles.arguments import option
from mesh.runners.profiles.output import Json, count, doing, inner, items, objects, since, texts, words
from mesh.runners.profiles.pi import PROVIDER_KEYS
from mesh.runners.profiles.verdict import failure, problem, silent

_ERROR_HEAD = "Ran into this error: "
_ERROR_END = "Please retry if you think this is a transient or recoverable error."


def argv(ask: Ask) -> list[str]:
    session = [*option("-n", ask.session), *(["-r"] if ask.resume else [])]
    head = [ask.binary, "run", "-q", "--output-format", "stream-json", "-i", "-"]
    return [*head, *session, *option("--model", ask.model), *ask.args]


def outcome(ended: Ended) -> Outcome:
    text, last, done, error, model = "", None, None, "", None
    for event in objects(ended.stdout):
        kind, message = event.get("type"), event.get("message")
        if kind == "message" and inner(message, "role") == "assistant":
            # A streamed answer comes in pieces of one id.
            said = texts(inner(message, "content"))
            text = text + said if inner(message, "id") == last else said
            last = inner(message, "id")
            model = _model(message) or model
        elif kind == "complete":
            done = event
        elif kind == "error":
            error = words(event.get("error")) or "an error without words"
    if not error and text.startswith(_ERROR_HEAD) and text.rstrip().endswith(_ERROR_END):
        error = text
    if error:
        return failure(ended, problem(error.removeprefix(_ERROR_HEAD).replace(_ERROR_END, ""), ended))
    if done is None:
        return failure(ended, silent(ended, "the end of its turn (`complete`)"))
    total = _usage(done, model)
    return Outcome(text, ended.session or None, since(total, ended.before, resumed=ended.resumed), total)


def _model(message: object) -> str | None:
    provider = words(inner(message, "metadata", "inference", "provider"))
    name = words(inner(message, "metadata", "inference", "requestedModel"))
    return f"{provider}/{name}" if provider and name else None


def _usage(done: Json, model: str | None) -> Usage:
    return Usage(
        input_tokens=count(done.get("input_tokens")),
        cache_read_tokens=count(done.get("cache_read_input_tokens")),
        cache_write_tokens=count(done.get("cache_write_input_tokens")),
        output_tokens=count(done.get("output_tokens")),
        model=model,
    )


def progress(lines: Sequence[str]) -> Progress:
    steps, now = 0, ""
    for event in objects(lines):
        for part in items(inner(event, "message", "content")):
            if part.get("type") == "toolRequest":
                call = inner(part, "toolCall", "value")
                now = doing(inner(call, "name"), inner(call, "arguments"))
            elif part.get("type") == "toolResponse":
                steps += 1
            elif part.get("type") == "text" and inner(event, "message", "role") == "assistant":
                steps, now = steps + 1, doing("writes", part.get("text"))
    return Progress(None, steps, now)


PROFILE = Profile(
    name="goose",
    binary="goose",
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    environment={"GOOSE_MODE": "auto", "GOOSE_TELEMETRY_OFF": "1", "GOOSE_DISABLE_SESSION_NAMING": "true"},
    keys=(
        *PROVIDER_KEYS,
        "GOOSE_PROVIDER",
        "GOOSE_MODEL",
        "GOOSE_CONTEXT_LIMIT",
        "GOOSE_DISABLE_KEYRING",
        "GOOSE_PROVIDER_SKIP_BACKOFF",
        "OPENAI_HOST",
        "ANTHROPIC_HOST",
    ),
    home_variable="GOOSE_PATH_ROOT",
    logins=(".config/goose/config.yaml", ".config/goose/secrets.yaml"),
    transcript=".local/share/goose/sessions/sessions.db",
)
