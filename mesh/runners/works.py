"""What the `command` runner needs of the house: a place on the host, a checkout, a process that outlives the daemon.

`service/workplace.py` is the real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from mesh.models import Task
from mesh.models.running import Checkout, RunRecord, Session, Usage
from mesh.runners.profile import Ended


@dataclass(frozen=True)
class Order:
    """A process that is to be started."""

    record: RunRecord
    prompt: str
    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    prompt_on_stdin: bool = False
    #: The checkout that it alone may write while it runs.
    writes: str | None = None
    title: str = ""
    #: It takes so little memory that it needs no place.
    light: bool = False


class Work(Protocol):
    """A process that was started, by this daemon or by one before it."""

    record: RunRecord

    def is_alive(self) -> bool: ...

    def is_lost(self) -> bool:
        """Whether it is gone and nobody saw how it ended."""
        ...

    async def why_stopped(self) -> str | None:
        """Why somebody else has ended it (whoever supervises, a person's command), or None."""
        ...

    async def new_lines(self) -> list[str]:
        """The complete lines of its standard output that were not asked for yet."""
        ...

    async def ended(self) -> Ended:
        """What it left. To be asked once it is not alive."""
        ...

    async def so_far(self) -> Ended:
        """The newest of what it has printed, while it runs."""
        ...

    async def note(
        self, *, session: str | None = None, stopped: str | None = None, session_usage: Usage | None = None
    ) -> None:
        """Record what has become known of it."""
        ...

    async def stop(self, reason: str, *, keep: bool) -> None:
        """End it and all that it started; with `keep` its uncommitted work is saved as a patch before."""
        ...

    async def close(self) -> None:
        """It has ended and its result is known: its place is free."""
        ...


class Workplace(Protocol):
    """Where one agent's programs run."""

    agent: str

    def persona(self) -> str: ...

    def new_run(self, task: Task | None, cli: str) -> RunRecord:
        """The record of a run that is about to be: an id, the agent's folder to work in."""
        ...

    def scratch_file(self, record: RunRecord) -> str:
        """A file beside the run that its program may write."""
        ...

    def prompt_file(self, record: RunRecord) -> str:
        """The file that will hold the run's prompt."""
        ...

    def temporary_folder(self, record: RunRecord) -> str:
        """A folder for what the run needs only while it runs: CLIs leave megabytes behind at each start."""
        ...

    def session_folder(self, session: str) -> str:
        """A folder for a session of a CLI that keeps none itself."""
        ...

    async def last_run(self, task: Task) -> RunRecord | None:
        """The latest run for the task."""
        ...

    async def reopen(self, record: RunRecord) -> Work:
        """Go on watching a run that an earlier daemon started."""
        ...

    async def begin(self, order: Order) -> Work:
        """Start a process, once there is a place for it. Raises RunnerUnfit if the program can't be started."""
        ...

    async def checkout(self, repo: str, task: Task, known: Checkout | None) -> Checkout:
        """The task's own git worktree; `known` is used again if it is still there. Raises SkillInputError."""
        ...

    async def work_in(self, checkout: Checkout) -> tuple[list[str], bool]:
        """The commits that the task's branch has gained, oldest first, and whether anything is uncommitted."""
        ...

    async def leave(self, checkout: Checkout) -> bool:
        """Remove a worktree in which nothing was done; True if it went. What is dirty or unpushed stays."""
        ...

    async def session(self) -> Session | None:
        """The agent's session that goes on from task to task."""
        ...

    async def keep_session(self, session: Session) -> None: ...

    def which(self, program: str) -> str | None:
        """The program's full path, or None if it is not installed."""
        ...

    def has_file(self, path: str) -> bool:
        """Whether a file of the CLI's is there, such as its login."""
        ...

    def secret(self) -> str:
        """The agent's own secret."""
        ...

    def environment(self) -> dict[str, str]:
        """The daemon's environment, with what `secrets.toml` holds; only named variables are ever passed on."""
        ...
