"""The registry's `runner`: what does an agent's work, one shape a kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from mesh.models.base import Asked, Line

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Cli = Literal["claude", "codex", "pi", "openclaw", "opencode", "aider", "gemini", "goose", "generic"]


class SkillsChoice(Asked):
    """Only the role's own skills; no model."""

    kind: Literal["skills"] = "skills"


class _Works(Asked):
    #: Which login or key it spends: a usage limit parks every agent of the same account.
    account: Line | None = None
    #: Names of environment variables that the work may see beside the few of the kind itself.
    env: list[EnvName] = []
    #: The longest that one attempt may take; by default `cliRunMaxS` of the limits.
    timeout_s: float | None = Field(default=None, gt=0)


class ModelChoice(_Works):
    """A provider's API, called by a process of its own for each task."""

    kind: Literal["model"]
    #: `provider/model`, such as `anthropic/claude-sonnet-4-5` or `openai/gpt-5`.
    model: Annotated[str, Field(pattern=r"^[a-z0-9_-]+/\S+$")]
    #: The API's address, for a gateway or a model of one's own.
    base_url: Line | None = None
    #: Which variable of the environment (or key of `secrets.toml`) holds the key.
    key_env: EnvName | None = None
    max_output_tokens: int = Field(default=4096, ge=1)
    retries: int = Field(default=2, ge=0, le=10)


class CommandChoice(_Works):
    """A CLI agent, started headless for each task."""

    kind: Literal["command"]
    cli: Cli
    #: For `generic`: the program and its arguments; `{prompt}`, `{session}`, `{model}`, `{cwd}` are filled in.
    command: list[str] = []
    #: The program, if it is not found by its usual name.
    binary: Line | None = None
    model: Line | None = None
    #: Arguments that are added to the profile's own.
    args: list[str] = []
    #: The CLI's home folder, if it has one of its own.
    home: Line | None = None
    #: `worktree`: each task in a git worktree of its own; `shared`: in the checkout itself, one writer at a time.
    checkout: Literal["worktree", "shared"] = "worktree"


class TmuxChoice(_Works):
    """An interactive session in tmux, rung by a doorbell; what it does is told by its hooks and its mail."""

    kind: Literal["tmux"]
    cli: Cli
    #: As tmux takes it: `session`, `session:window.pane` or `%3`.
    target: Line
    #: The name of tmux's socket (`tmux -L`), if not the default one.
    socket: Line | None = None
    home: Line | None = None


def _kind(value: Any) -> str:
    kind = value.get("kind", "skills") if isinstance(value, dict) else getattr(value, "kind", None)
    return str(kind)


RunnerChoice = Annotated[
    Annotated[SkillsChoice, Tag("skills")]
    | Annotated[ModelChoice, Tag("model")]
    | Annotated[CommandChoice, Tag("command")]
    | Annotated[TmuxChoice, Tag("tmux")],
    Discriminator(_kind),
]
CHOICES: dict[str, type[Asked]] = {
    "skills": SkillsChoice,
    "model": ModelChoice,
    "command": CommandChoice,
    "tmux": TmuxChoice,
}
