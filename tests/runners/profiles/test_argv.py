"""How each CLI is called: no prompt among the arguments, sessions by id, the registry's `args` in the last word."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from mesh.errors import Invalid
from mesh.models.runner_choice import Cli
from mesh.runners.profile import PLAIN_ENVIRONMENT, Ask
from mesh.runners.profiles import NAMES, profile

SESSION = "6f014d76-2b7f-49dd-8e54-7a34dfbfb393"
ASK = Ask(
    binary="/opt/bin/it",
    prompt="do\nwhat I say",
    prompt_file="/run/prompt",
    cwd="/work",
    session=SESSION,
    model="a/model",
    scratch_file="/run/scratch",
    session_folder="/sessions",
    command=("it", "--go"),
)
CLIS = [name for name in NAMES if name != "generic"]


def argv(name: str, **changes: object) -> list[str]:
    return profile(name).argv(dataclasses.replace(ASK, **changes))  # type: ignore[arg-type]


def has(found: list[str], *words: str) -> bool:
    """Whether the words stand in the argv next to each other."""
    return any(tuple(found[at : at + len(words)]) == words for at in range(len(found)))


def test_every_cli_of_the_registry_has_a_profile() -> None:
    assert set(NAMES) == set(get_args(Cli))
    assert [profile(name).name for name in NAMES] == list(NAMES)
    assert profile("codex") is profile("codex")


def test_another_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Invalid, match=r"'os\.path'.*claude, codex"):
        profile("os.path")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("resume", [False, True])
def test_the_prompt_is_no_argument(name: str, resume: bool) -> None:
    found = argv(name, resume=resume)
    assert found[0] == "/opt/bin/it"
    assert not any("what I say" in part for part in found)
    assert profile(name).prompt_on_stdin or "/run/prompt" in found


NEW_AND_RESUMED = {
    "claude": (("--session-id", SESSION), ("--resume", SESSION)),
    "codex": (("exec", "--json"), ("exec", "resume")),
    "pi": (("--session-id", SESSION), ("--session", SESSION)),
    "openclaw": (("--session-id", SESSION), ("--session-id", SESSION)),
    "opencode": (("run", "--format"), ("-s", SESSION)),
    "aider": (("--chat-history-file", f"/sessions/{SESSION}.md"), ("--restore-chat-history",)),
    "gemini": (("--session-id", SESSION), ("-r", SESSION)),
    "goose": (("-n", SESSION), ("-n", SESSION, "-r")),
}


@pytest.mark.parametrize("name", CLIS)
def test_sessions(name: str) -> None:
    new, resumed = NEW_AND_RESUMED[name]
    assert has(argv(name), *new)
    assert has(argv(name, resume=True), *resumed)
    if new != resumed:
        assert not has(argv(name), *resumed)
    assert (SESSION in " ".join(argv(name))) is profile(name).chooses_session


def test_a_session_that_codex_goes_on_with_stands_before_standard_input() -> None:
    assert argv("codex", resume=True, args=["--search"])[-3:] == ["--search", SESSION, "-"]


MODEL_FLAGS = {"codex": "-m", "opencode": "-m", "gemini": "-m"}


@pytest.mark.parametrize("name", CLIS)
def test_models(name: str) -> None:
    flag = MODEL_FLAGS.get(name, "--model")
    assert has(argv(name), flag, "a/model")
    assert flag not in argv(name, model=None)


DEFAULTS = [
    ("claude", ["--permission-mode", "acceptEdits"], ["--dangerously-skip-permissions"]),
    ("claude", ["--permission-mode", "acceptEdits"], ["--permission-mode=plan"]),
    ("claude", ["--permission-mode", "acceptEdits"], ["--allowedTools", "Read"]),
    ("codex", ["--dangerously-bypass-approvals-and-sandbox"], ["--sandbox", "workspace-write"]),
    ("codex", ["--dangerously-bypass-approvals-and-sandbox"], ["-c", "sandbox_mode=read-only"]),
    ("opencode", ["--auto"], ["--agent", "careful"]),
    ("gemini", ["--approval-mode", "yolo"], ["--approval-mode", "plan"]),
    ("openclaw", ["--agent", "main"], ["--agent", "ops"]),
]


@pytest.mark.parametrize(("name", "default", "args"), DEFAULTS)
def test_the_registrys_arguments_take_the_place_of_defaults(name: str, default: list[str], args: list[str]) -> None:
    assert has(argv(name), *default)
    found = argv(name, args=args)
    assert not has(found, *default)
    assert has(found, *args)


def test_codex_leaves_nothing_behind_and_doesnt_update_itself() -> None:
    queued = profile("codex").queue
    assert queued is not None
    for found in (argv("codex"), queued(ASK)):
        assert has(found, "-c", "features.daemon_auto_start=false")
        assert has(found, "-c", "check_for_update_on_startup=false")
    assert queued(ASK)[-4:] == ["--thread", SESSION, "--message", ASK.prompt]


def test_aider_without_a_folder_for_sessions_leaves_no_file() -> None:
    assert has(argv("aider", session_folder=""), "--chat-history-file", "/dev/null")


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_has_no_foreign_keys(name: str) -> None:
    found = profile(name)
    assert not set(found.keys) & set(PLAIN_ENVIRONMENT)
    assert not set(found.keys) & set(found.environment)
    assert len(set(found.keys)) == len(found.keys)
    assert not any(word in key for key in found.keys for word in ("MESH", "AWS", "GITHUB", "SSH"))


GENERIC = [
    (("it", "--session={session}", "{prompt_file}"), ["/opt/bin/it", f"--session={SESSION}", "/run/prompt"]),
    (("it", "-m", "{model}", "{cwd}"), ["/opt/bin/it", "-m", "a/model", "/work"]),
    (("it", "{prompt}"), ["/opt/bin/it", "{session} of mine"]),
    (("it", "{other} {{prompt_file}}"), ["/opt/bin/it", "{other} {/run/prompt}"]),
]


@pytest.mark.parametrize(("command", "expected"), GENERIC)
def test_a_template_is_filled_in_once(command: tuple[str, ...], expected: list[str]) -> None:
    assert argv("generic", command=command, prompt="{session} of mine") == expected


def test_a_template_that_cant_be_filled_is_refused() -> None:
    with pytest.raises(Invalid, match="needs a `command`"):
        argv("generic", command=())
    with pytest.raises(Invalid, match="no `model` is set"):
        argv("generic", command=("it", "{model}"), model=None)
