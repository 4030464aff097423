"""The program `call` described as a CLI agent, so that whoever runs CLIs runs it too."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence

from mesh.errors import MeshError, SkillInputError
from mesh.models.base import is_id
from mesh.models.runner_choice import ModelChoice
from mesh.models.running import Occupancy, RunnerHealth
from mesh.runners.model.call import INSTALL, SILENT
from mesh.runners.model.endpoint import default_key_env, endpoint_of
from mesh.runners.model.reply import reply_in
from mesh.runners.profile import Ask, Ended, Outcome, Problem, Profile, Progress

#: An argument that makes of a call one for a summary: no session, and plain text for an answer.
SUMMARISE = "--summarise"
#: The packages that the extra `model` brings; a provider's own is needed only for that provider.
_PACKAGES = {"anthropic": ("pydantic_ai", "anthropic")}
_PACKAGES_ELSE = ("pydantic_ai", "openai")
#: Starting takes seconds on a busy host, and so may saying what came of it.
_BEFORE_END_S = 15.0
#: Of a process that broke off, so much of its last words is shown.
_LAST_CHARS = 500


def model_profile(choice: ModelChoice, *, timeout_s: float = 900) -> Profile:
    """How a model is asked for this choice. Conversations lie in `Ask.session_folder`, one `<session>.json` each;
    without such a folder nothing is remembered. `timeout_s` is the longest that an attempt may take, unless the choice
    has a time-out of its own.

    `argv` raises SkillInputError where the choice makes no sense (an unknown provider without `baseUrl`)."""

    def argv(ask: Ask) -> list[str]:
        return [ask.binary, "-P", "-m", "mesh.runners.model.call", *_options(choice, ask, timeout_s)]

    return Profile(
        name="model",
        binary=sys.executable,  # in which the mesh itself is installed
        argv=argv,
        outcome=outcome,
        progress=progress,
        prompt_on_stdin=True,
        environment=SILENT,
        keys=(key_env(choice),),
        fitness=lambda environment: health(choice, environment),
        light=True,
        summary_args=(SUMMARISE,),
    )


def key_env(choice: ModelChoice) -> str:
    """The variable (or key of `secrets.toml`) that holds the key."""
    return choice.key_env or default_key_env(choice.model.partition("/")[0])


def _options(choice: ModelChoice, ask: Ask, timeout_s: float) -> list[str]:
    endpoint = endpoint_of(ask.model or choice.model, choice.base_url, key_env(choice))
    options = {
        "--model": endpoint.name,
        "--base-url": endpoint.base_url,
        "--key-env": endpoint.key_env,
        "--max-output-tokens": choice.max_output_tokens,
        "--retries": choice.retries,
        "--timeout-s": f"{_own_timeout_s(choice.timeout_s or timeout_s):g}",
    }
    argv = [f"{name}={value}" for name, value in options.items() if value is not None]
    if ask.session_folder and SUMMARISE not in ask.args:
        if not is_id(ask.session):
            raise SkillInputError(f"{ask.session!r} is no id of a session.")
        argv += [f"--session={ask.session}", f"--session-file={ask.session_folder}/{ask.session}.json"]
        argv += ["--resume"] if ask.resume else []
    return [*argv, *ask.args]


def _own_timeout_s(attempt_s: float) -> float:
    """The call's own deadline: before the attempt's, so that it can still say what it waited for."""
    return max(attempt_s / 2, attempt_s - _BEFORE_END_S)


def outcome(ended: Ended) -> Outcome:
    """What the call came to, from the line that it printed; without one it broke off."""
    reply = reply_in(ended.stdout)
    if reply is None:
        how = "ended unseen" if ended.status is None else f"ended with status {ended.status}"
        last = ended.stderr.strip()[-_LAST_CHARS:] or ended.stdout.strip()[-_LAST_CHARS:] or "it printed nothing"
        return Outcome(problem=Problem("broken", f"The call of the model {how} and gave no result: {last}"))
    told = reply.problem
    problem = Problem(told.kind, told.detail, told.until) if told else None
    return Outcome(reply.text, reply.session, reply.usage, evidence=tuple(reply.evidence), problem=problem)


def occupancy_in(stdout: str, window: int | None = None) -> Occupancy | None:
    """How full the context was at the last call, if the provider told."""
    reply = reply_in(stdout)
    if reply is None or reply.context_tokens is None:
        return None
    return Occupancy(tokens=reply.context_tokens, window=window, source=f"usage told by {reply.model}")


def progress(lines: Sequence[str]) -> Progress:
    """A call says nothing before its end."""
    return Progress(steps=len(lines), doing="" if lines else "waiting for the model's answer")


def health(choice: ModelChoice, environment: Mapping[str, str]) -> RunnerHealth:
    """Whether a call could be made with this environment. Imports and asks nothing."""
    try:
        endpoint = endpoint_of(choice.model, choice.base_url, choice.key_env)
    except MeshError as error:
        return RunnerHealth(state="missing", detail=error.detail)
    for package in _PACKAGES.get(endpoint.provider, _PACKAGES_ELSE):
        if importlib.util.find_spec(package) is None:
            return RunnerHealth(state="missing", detail=f"{package} is not installed: {INSTALL}.")
    if endpoint.needs_key and not environment.get(endpoint.key_env, "").strip():
        detail = f"{endpoint.place} needs a key: set {endpoint.key_env} in the environment or in secrets.toml."
        return RunnerHealth(state="logged_out", detail=detail)
    return RunnerHealth(state="ok", detail=f"{endpoint.name} at {endpoint.place}; its key is tried with the first task")
