"""Any other program: an argv template from the registry, plain text back.

In the template `{prompt}`, `{prompt_file}`, `{session}`, `{model}` and `{cwd}` are filled in. The prompt is also its
standard input, so that a template needs no `{prompt}`, which everybody could read in the list of processes. What it
prints on standard output is the answer. Nothing but its exit status tells success from failure, so here it decides; and
a program that succeeds without a word hasn't done what was asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mesh.errors import Invalid
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress
from mesh.runners.profiles.output import doing, plain, tail
from mesh.runners.profiles.verdict import failure, problem, silent

_PLACE = re.compile(r"\{(prompt|prompt_file|session|model|cwd)\}")


def argv(ask: Ask) -> list[str]:
    """Raises Invalid if there is no template, or it asks for a model and none is set."""
    if not ask.command:
        raise Invalid("the runner `generic` needs a `command`: the program and its arguments")
    if ask.model is None and any("{model}" in part for part in ask.command):
        raise Invalid("the runner's `command` has {model} in it, but no `model` is set")
    values = {name: getattr(ask, name) or "" for name in ("prompt", "prompt_file", "session", "model", "cwd")}

    def filled(part: str) -> str:
        return _PLACE.sub(lambda match: str(values[match.group(1)]), part)

    return [ask.binary, *map(filled, ask.command[1:]), *ask.args]


def outcome(ended: Ended) -> Outcome:
    text = plain(ended.stdout).strip()
    if ended.status == 0 and text:
        return Outcome(text, ended.session or None)
    if ended.status == 0:
        return failure(ended, silent(ended, "a word on standard output"))
    if ended.status is None:
        return failure(ended, Problem("failed", f"nobody saw how it ended: {tail(ended.stderr) or tail(text)}"))
    told = problem(f"{ended.stderr[-4_000:]}\n{ended.stdout[-2_000:]}", ended)
    return failure(ended, told if told.kind != "failed" else silent(ended, "an answer"))


def progress(lines: Sequence[str]) -> Progress:
    said = [line for line in lines if line.strip()]
    return Progress(None, len(said), doing("prints", plain(said[-1])) if said else "")


PROFILE = Profile(
    name="generic",
    binary="",
    argv=argv,
    outcome=outcome,
    progress=progress,
    prompt_on_stdin=True,
    resumes=False,
)
