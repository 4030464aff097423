"""What the registry chooses to do an agent's work, as it is put together."""

from __future__ import annotations

import pytest

from mesh.models.runner_choice import CommandChoice, ModelChoice, RunnerChoice, SkillsChoice, TmuxChoice
from mesh.service.agent_runner import AgentRunner, account_of
from mesh.service.core import Core
from tests.service.stage import Mesh


@pytest.mark.parametrize(
    ("choice", "account"),
    [
        (SkillsChoice(), None),
        (CommandChoice(kind="command", cli="codex"), "codex"),
        (CommandChoice(kind="command", cli="codex", account="team"), "team"),
        (CommandChoice(kind="command", cli="codex", home="/h"), "codex in /h"),
        (CommandChoice(kind="command", cli="codex", binary="/b", home="/h"), "/b in /h"),
        (TmuxChoice(kind="tmux", cli="codex", target="work:0"), "codex at work:0"),
        (ModelChoice(kind="model", model="openai/gpt"), "openai"),
    ],
)
def test_which_account_is_spent(choice: RunnerChoice, account: str | None) -> None:
    assert account_of(choice) == account


@pytest.mark.parametrize(
    ("root", "options"), [("/srv/mesh", "--root /srv/mesh"), ("/" + "long/" * 20, ""), ("/a;b", "")]
)
def test_a_session_s_command_names_the_root_where_that_can_be_typed(
    mesh: Mesh, root: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Core(mesh.roles["ada"], str(mesh.root), 60.0, mesh.store.time)
    runner = AgentRunner(core)
    monkeypatch.setattr(core.store.layout, "root", root)
    assert runner._typed_command().options == options
