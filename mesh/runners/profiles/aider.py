"""Aider: `aider --message-file`, plain text on standard output, its events in a log of ours (`--analytics-log`).

**Permissions.** `--yes-always`: it edits and commits by itself, and runs no commands but those of its own configuration
(`--test-cmd`, `--lint-cmd`). Pages behind addresses in a prompt aren't fetched. `args` with `--no-auto-commits` leaves
committing to others.

Its status is 0 even after a 401: a call counts only if the log holds an answered message. It has no sessions: one is a
file with the history of a chat, named by us, below `Ask.session_folder`; without such a folder nothing is remembered.
At a limit it tries again for minutes (`waiting`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mesh.models.running import Usage
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress
from mesh.runners.profiles.arguments import option
from mesh.runners.profiles.output import added, count, doing, inner, money, objects, plain, words
from mesh.runners.profiles.pi import PROVIDER_KEYS
from mesh.runners.profiles.verdict import failure, problem, retrying, silent

_FLAGS = (
    "--yes-always --no-stream --no-pretty --no-fancy-input --map-tokens 0 --no-gitignore --no-check-update "
    "--no-show-release-notes --no-show-model-warnings --no-analytics --no-detect-urls --no-suggest-shell-commands"
).split()
_ERROR = re.compile(r"^(?:litellm\.\w+|Error|\w*(?:Error|Exception)): ?.*", re.M)
_SENT = re.compile(r"^Tokens: [0-9.,k]+ sent.*", re.M)
_RETRY = re.compile(r"^Retrying in .*$", re.M)
_HEAD_END = re.compile(r"^(?:Repo-map: .*|Added .* to the chat\.?|Restored previous conversation history\.)$", re.M)


def argv(ask: Ask) -> list[str]:
    kept = f"{ask.session_folder}/{ask.session}.md" if ask.session_folder and ask.session else "/dev/null"
    history = ["--chat-history-file", kept, "--input-history-file", "/dev/null"]
    restore = ["--restore-chat-history"] if ask.resume else []
    log = option("--analytics-log", ask.scratch_file)
    head = [ask.binary, "--message-file", ask.prompt_file, *_FLAGS, *history, *restore, *log]
    return [*head, *option("--model", ask.model), *ask.args]


def outcome(ended: Ended) -> Outcome:
    printed = plain(ended.stdout)
    sent, used = 0, None
    for event in objects(ended.scratch):
        if event.get("event") == "message_send":
            sent, used = sent + 1, added(used, _usage(event.get("properties")))
    answers = list(_SENT.finditer(printed))
    error = _last_error(printed, answers[-1].end() if answers else 0)
    if error:
        return failure(ended, problem(error, ended))
    if not sent and not answers:
        return failure(ended, silent(ended, "an answered message"))
    return Outcome(_answer(printed), ended.session or None, used)


def _last_error(printed: str, after: int) -> str:
    """The error that was printed last and that no answer came after, its explanation included."""
    errors = [match.start() for match in _ERROR.finditer(printed, after)]
    if not errors:
        return ""
    block = printed[errors[-1] :].partition("\n\n")[0]
    return block.partition("\nRetrying in ")[0]


def _answer(printed: str) -> str:
    """What it wrote: without the lines that it opens with, and without its counts of tokens."""
    head = 0
    for match in _HEAD_END.finditer(printed[:4_000]):
        head = match.end()
    return _SENT.sub("", printed[head:]).strip()


def _usage(properties: object) -> Usage:
    return Usage(
        input_tokens=count(inner(properties, "prompt_tokens")),
        output_tokens=count(inner(properties, "completion_tokens")),
        cost_usd=money(inner(properties, "cost")) or None,
        model=words(inner(properties, "main_model")) or None,
    )


def progress(lines: Sequence[str]) -> Progress:
    steps, now = 0, ""
    for line in map(plain, lines):
        if line.startswith(("Tokens: ", "Applied edit to ", "Commit ")):
            steps, now = steps + 1, doing(line)
        elif line.startswith("Retrying in "):
            now = doing(line)
    return Progress(None, steps, now)


def waiting(ended: Ended) -> Problem | None:
    if "Retrying in " not in ended.stdout:
        return None
    # How long it waits before its next attempt isn't when the limit ends.
    return retrying(ended, _RETRY.sub("", plain(ended.stdout[-20_000:])), "litellm.")


PROFILE = Profile(
    name="aider",
    binary="aider",
    argv=argv,
    outcome=outcome,
    progress=progress,
    # What it prints is broken into lines of this width.
    environment={"COLUMNS": "4000", "NO_COLOR": "1"},
    keys=(*PROVIDER_KEYS, "OPENAI_API_BASE", "ANTHROPIC_API_BASE", "DEEPSEEK_API_KEY", "AIDER_MODEL"),
    logins=(".aider.conf.yml", ".env", ".aider/oauth-keys.env"),
    waiting=waiting,
)
