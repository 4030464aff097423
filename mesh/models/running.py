"""What is recorded of real work: what it used, how full a context is, how a runner is, which session goes on."""

from __future__ import annotations

from typing import Literal

from mesh.models.base import SCHEMA_VERSION, Filed


class Usage(Filed):
    """Tokens and money of one attempt, all its model calls added up. What a CLI doesn't tell stays None."""

    #: What was sent and not found in the provider's cache.
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    #: In US dollars; told by the CLI, or worked out from the registry's `prices`.
    cost_usd: float | None = None
    #: As `provider/model`, where both are known.
    model: str | None = None


class Occupancy(Filed):
    """How full a context is: what the last call saw, never a sum over calls."""

    tokens: int
    window: int | None = None
    #: Where the figure comes from, for people: `codex transcript`, `estimate of 1,200 characters`.
    source: str = ""
    at: str | None = None
    estimated: bool = False


class RunnerHealth(Filed):
    """How what does an agent's work is. `unknown` is a value: nothing is decided from it."""

    state: Literal["ok", "missing", "logged_out", "limited", "unknown"] = "unknown"
    detail: str = ""
    #: When a usage limit ends, where that is known.
    until: str | None = None
    at: str | None = None


class Session(Filed):
    """`agents/<id>/session.json`: the CLI session that goes on from task to task, or that a person runs."""

    schema_version: int = SCHEMA_VERSION
    cli: str
    id: str
    cwd: str = ""
    transcript: str | None = None
    #: What it has used in all, where the CLI tells sums over the session.
    usage: Usage | None = None
    since: str = ""
    #: A person's own session, bound by `mesh join`: the mesh starts and ends nothing in it.
    joined: bool = False
    #: When one of its hooks last called, and what for.
    seen_at: str | None = None
    seen_for: str | None = None
    #: Whether it is in the middle of a turn, as its hooks told.
    busy: bool = False


class RunRecord(Filed):
    """`agents/<id>/runs/<run>/run.json`: a process that works on a task and outlives the agent's daemon. Beside it
    lie `prompt`, `stdout`, `stderr`, and at its end `status`."""

    schema_version: int = SCHEMA_VERSION
    id: str
    agent: str
    #: None for a turn that only reads mail.
    task_id: str | None = None
    attempt: int = 0
    cli: str
    cwd: str
    session: str | None = None
    #: Whether the session was gone on with, rather than begun.
    resumed: bool = False
    #: Whether the session is known to be there: one that never began can't be gone on with.
    begun: bool = False
    started_at: str = ""
    pid: int | None = None
    #: The process's start in seconds since boot: with the boot id, this names one process for ever.
    started: float | None = None
    boot_id: str | None = None
    #: Where the work lies in git, if it has a worktree of its own.
    checkout: Checkout | None = None
    #: What its session had used before, and in the end, where the CLI tells sums over the session.
    used_before: Usage | None = None
    session_usage: Usage | None = None
    #: Why it was ended by us, if it was.
    stopped: str | None = None
    #: The uncommitted work of a run that was stopped, as a patch.
    patch: str | None = None


class Checkout(Filed):
    """A git worktree of one task."""

    repo: str
    path: str
    branch: str
    #: The commit that the branch began at.
    base: str


class Place(Filed):
    """One of the few places on the host for CLI programs: taken, or waited for. It goes with its process."""

    run: str
    agent: str
    title: str = ""
    #: The checkout that it alone writes, if it has no worktree of its own.
    writes: str | None = None
    #: It takes so little memory that it is not counted.
    light: bool = False
    since: str = ""
    pid: int
    started: float
    boot_id: str


class Account(Filed):
    """One entry of `system/accounts.json`: a login or key that can't be used now, and until when."""

    state: Literal["logged_out", "limited", "missing"]
    detail: str
    agent: str
    at: str
    until: str | None = None
    #: Seen by looking (no program, no login), so that looking again tells when it is over.
    by_look: bool = False


RunRecord.model_rebuild()
