from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mesh.errors import SkillInputError
from mesh.models.runner_choice import ModelChoice
from mesh.runners.environment import child_environment
from mesh.runners.model import profile as model
from mesh.runners.model.call import parse
from mesh.runners.model.reply import Reply, reply_in, scrubbed
from mesh.runners.profile import Ask, Ended
from tests.runners.model.conftest import KEY
from tests.runners.model.provider import Provider, Step, says


def choice(**more: Any) -> ModelChoice:
    shape = {"kind": "model", "model": "own/small", "baseUrl": "http://127.0.0.1:9/v1", **more}
    return ModelChoice.model_validate({name: value for name, value in shape.items() if value is not None})


def asked(session: str = "s-1", **more: Any) -> Ask:
    return Ask(binary=sys.executable, prompt="p", prompt_file="/p", cwd="/", session=session, **more)


# -- the arguments


def test_the_arguments_are_what_the_program_takes() -> None:
    found = model.model_profile(choice(maxOutputTokens=9, retries=0), timeout_s=100)
    argv = found.argv(asked(resume=True, session_folder="/s"))
    assert argv[:4] == [sys.executable, "-P", "-m", "mesh.runners.model.call"] and found.prompt_on_stdin
    options = parse(argv[4:])
    assert (options.model, options.base_url, options.key_env) == ("own/small", "http://127.0.0.1:9/v1", "OWN_API_KEY")
    assert (options.max_output_tokens, options.retries, options.timeout_s) == (9, 0, 85)
    assert (options.session, options.session_file, options.resume) == ("s-1", "/s/s-1.json", True)
    assert found.resumes and found.keys == ("OWN_API_KEY",)


def test_defaults_and_the_choices_own_timeout() -> None:
    found = model.model_profile(choice(model="openai/gpt-5", baseUrl=None, keyEnv="MINE", timeoutS=10))
    options = parse(found.argv(asked())[4:])
    assert (options.base_url, options.key_env, options.timeout_s) == (None, "MINE", 5)
    assert (options.session, options.session_file, options.resume) == (None, None, False)
    assert found.keys == ("MINE",)


def test_a_summary_has_no_session() -> None:
    found = model.model_profile(choice())
    options = parse(found.argv(asked(resume=True, session_folder="/s", args=(model.SUMMARISE,)))[4:])
    assert options.summarise and options.session_file is None and not options.resume


def test_a_model_that_looks_like_an_option_stays_a_value() -> None:
    found = model.model_profile(choice(model="own/--summarise"))
    options = parse(found.argv(asked())[4:])
    assert options.model == "own/--summarise" and not options.summarise


@pytest.mark.parametrize("session", ["", "../x", "a/b", "..", "x" * 200])
def test_a_session_is_no_path(session: str) -> None:
    with pytest.raises(SkillInputError):
        model.model_profile(choice()).argv(asked(session, session_folder="/s"))


def test_an_unknown_provider_is_told_when_it_is_asked() -> None:
    found = model.model_profile(choice(baseUrl=None))
    with pytest.raises(SkillInputError, match=r"runner\.baseUrl"):
        found.argv(asked())


# -- what it printed


def test_an_outcome_is_read_from_the_line() -> None:
    reply = Reply(text="# Hi", evidence=["a"], model="own/small-1", session="s-1", context_tokens=12)
    ended = Ended(0, f"noise\n{reply.line()}\n", "")
    found = model.outcome(ended)
    assert (found.text, found.session, found.problem) == ("# Hi", "s-1", None)
    assert model.outcome(ended).evidence == ("a",)
    occupancy = model.occupancy_in(ended.stdout, 1000)
    assert occupancy is not None and (occupancy.tokens, occupancy.window, occupancy.estimated) == (12, 1000, False)


def test_a_problem_is_read_from_the_line_whatever_the_status() -> None:
    line = json.dumps({"problem": {"kind": "limited", "detail": "later", "until": "2026-02-16T21:00:00.000Z"}})
    problem = model.outcome(Ended(0, line + "\n", "")).problem
    assert problem is not None and (problem.kind, problem.detail) == ("limited", "later")
    assert problem.until == "2026-02-16T21:00:00.000Z"


@pytest.mark.parametrize("stdout", ["", "Killed\n", '{"text": 3}\n', '{"text": "half', "[]\n", "null\n"])
@pytest.mark.parametrize(("status", "word"), [(0, "status 0"), (137, "status 137"), (None, "unseen")])
def test_no_line_is_broken_even_with_status_0(stdout: str, status: int | None, word: str) -> None:
    found = model.outcome(Ended(status, stdout, "MemoryError" if status else ""))
    assert found.problem is not None and found.problem.kind == "broken" and word in found.problem.detail
    assert ("MemoryError" in found.problem.detail) == bool(status)
    assert model.occupancy_in(stdout) is None


@pytest.mark.parametrize("key", ['sk-"quote\\0000', "sk-größe-0000", "sk-a/b+c=0000"])
def test_a_key_is_scrubbed_in_every_spelling(key: str) -> None:
    line = Reply(text=f"{key} and ?key={key}").line([key])
    assert reply_in(line) is not None and key not in json.loads(line)["text"]
    assert scrubbed("none of it", ["none"]) == "none of it" and scrubbed("x", [""]) == "x"


# -- health


def test_health_knows_keys_packages_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.health(choice(), {}).state == "ok"
    theirs = choice(model="anthropic/claude-sonnet-5", baseUrl=None)
    assert model.health(theirs, {"ANTHROPIC_API_KEY": KEY}).state == "ok"
    found = model.health(theirs, {"ANTHROPIC_API_KEY": " "})
    assert found.state == "logged_out" and "ANTHROPIC_API_KEY" in found.detail
    found = model.health(choice(baseUrl=None), {})
    assert found.state == "missing" and "runner.baseUrl" in found.detail
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = model.health(choice(), {})
    assert found.state == "missing" and "pip install 'agent-mesh[model]'" in found.detail


def test_a_daemon_never_loads_the_library() -> None:
    script = (
        "import sys\n"
        "from mesh.models.runner_choice import ModelChoice\n"
        "from mesh.runners.model.profile import health, model_profile\n"
        "choice = ModelChoice(kind='model', model='openai/gpt-5')\n"
        "model_profile(choice), health(choice, {})\n"
        "heavy = ('pydantic_ai', 'openai', 'anthropic', 'httpx2', 'mesh.store')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys\n"
        "sys.modules['pydantic_ai'] = None\n"
        "from mesh.runners.model.call import main\n"
        "sys.exit(main(['--model=own/x', '--base-url=http://127.0.0.1:9']))"
    )
    found = subprocess.run([sys.executable, "-c", script], input="hi", capture_output=True, text=True, check=False)
    problem = model.outcome(Ended(found.returncode, found.stdout, found.stderr)).problem
    assert problem is not None and "pip install 'agent-mesh[model]'" in problem.detail and found.returncode == 1


# -- as a process


def test_the_key_is_nowhere_to_be_seen(provider: Provider, tmp_path: Path) -> None:
    """A real process in a folder that holds a package of our name: it is the mesh that runs, and the key is in none
    of its arguments, output and files."""
    provider.will(Step(says().says, delay_s=1.0))
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "__init__.py").write_text("raise SystemExit('a foreign package was run')")
    ours = {**os.environ, "OWN_API_KEY": KEY, "OTHER_SECRET": "hidden-0000000000"}
    found = model.model_profile(choice(baseUrl=f"{provider.url}/v1"))
    process = subprocess.Popen(
        found.argv(asked(session_folder=str(tmp_path / "sessions"))),
        cwd=tmp_path,
        env=child_environment(ours, found, [], home=None, marks={}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    arguments = Path(f"/proc/{process.pid}/cmdline").read_text()
    environment = Path(f"/proc/{process.pid}/environ").read_text()
    out, err = process.communicate("Do it.", timeout=60)
    assert model.outcome(Ended(process.returncode, out, err)).text == "# Done", (out, err)
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"
    kept = (tmp_path / "sessions" / "s-1.json").read_text()
    assert KEY not in arguments + out + err + kept
    assert "hidden-0000000000" not in environment and err == ""
