"""What the mesh knows of a CLI agent, as data and a few pure functions: how it is called, what its output means.

Starting and watching the process is `command.py`'s; a profile touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from mesh.models.running import RunnerHealth, Usage

#: What every child gets to see of our environment: no secret is among it.
PLAIN_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")


@dataclass(frozen=True)
class Ask:
    """One call of a CLI: what to do, in which session."""

    binary: str
    #: The prompt, which also comes as standard input (a file) where the profile says so.
    prompt: str
    #: A file that holds the prompt.
    prompt_file: str
    cwd: str
    #: The session to go on with; with `resume` false an id for a new one, which not every CLI takes. Ids that we choose
    #: are UUIDs: Claude Code and Gemini take no others.
    session: str
    resume: bool = False
    model: str | None = None
    args: Sequence[str] = ()
    #: For `generic`: the template.
    command: Sequence[str] = ()
    #: A file in which the CLI may leave its last message or its log.
    scratch_file: str = ""
    #: A folder that outlives the call, for a CLI whose sessions are files that we name (Aider).
    session_folder: str = ""


@dataclass(frozen=True)
class Ended:
    """What a process left: exit status (None if nobody saw it end), and what it printed."""

    status: int | None
    stdout: str
    stderr: str
    #: What stands in `Ask.scratch_file`, if anything.
    scratch: str = ""
    session: str = ""
    #: When it was looked at, in the time zone that the CLI ran in: "resets at 9 pm" is of this day and zone. None: such
    #: times and durations stay unknown.
    now: datetime | None = None
    #: Whether the session was gone on with (`Ask.resume`).
    resumed: bool = False
    #: What the session had used before, as the last call told (`Outcome.session_usage`): some CLIs only tell sums.
    before: Usage | None = None


@dataclass(frozen=True)
class Problem:
    """Why a call gave no result. `limited` and `logged_out` are no fault of the task."""

    kind: Literal["failed", "logged_out", "limited", "broken"]
    #: One or two sentences for people, with the CLI's own words in them.
    detail: str
    #: When a limit ends, as the CLI said it (ISO 8601 UTC), if it did.
    until: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a call came to: the text of the last answer, or a problem."""

    text: str = ""
    session: str | None = None
    #: What this call used; None if nobody can tell.
    usage: Usage | None = None
    #: What the whole session has used, where that is what the CLI tells: to be handed in as `Ended.before` next time.
    session_usage: Usage | None = None
    problem: Problem | None = None
    #: What the answer rests on, where the CLI says so.
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progress:
    """What can be told from some lines of output, while the call runs."""

    session: str | None = None
    #: Finished steps (messages, tool calls) in these lines.
    steps: int = 0
    doing: str = ""


@dataclass(frozen=True)
class Profile:
    name: str
    #: The usual name of its program.
    binary: str
    #: The whole argv of a headless call.
    argv: Callable[[Ask], list[str]]
    #: What the call came to. Pure; the exit status is only one of the facts.
    outcome: Callable[[Ended], Outcome]
    #: What the next lines of standard output tell.
    progress: Callable[[Sequence[str]], Progress]
    #: Whether the prompt comes as standard input; else standard input is closed (/dev/null).
    prompt_on_stdin: bool = False
    #: Environment that is always set: no self-update, no telemetry, no questions.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Names of variables that it may see if they are set: its own keys and addresses.
    keys: tuple[str, ...] = ()
    #: Whether a session can be gone on with, and whether its id may be chosen by us.
    resumes: bool = True
    chooses_session: bool = True
    #: The variable that names its home or configuration folder, if it has one (`CODEX_HOME`).
    home_variable: str | None = None
    #: Where that folder lies below HOME while the variable isn't set (`.codex`).
    home_folder: str = ""
    #: Files below HOME of which one must be there, or one of `keys` set, for it to be logged in.
    logins: tuple[str, ...] = ()
    #: argv that hands a message to a session that is open elsewhere; None if the CLI has no such queue.
    queue: Callable[[Ask], list[str]] | None = None
    #: Where its transcript lies, as a glob pattern below HOME with `{session}` in it, or `{session8}` for the first
    #: eight characters. With `home_variable` set, `home_folder` at its beginning stands for that folder.
    transcript: str | None = None
    #: Whether it could work, where login files and keys don't tell; from the environment.
    fitness: Callable[[Mapping[str, str]], RunnerHealth] | None = None
    #: It takes so little memory that it needs no place on the host.
    light: bool = False
    #: Arguments that ask for a plain summary.
    summary_args: tuple[str, ...] = ()
    #: While a call runs: whether it is only waiting for a limit to end, from the newest of what it printed. Some CLIs
    #: try again for minutes or for ever. None if this one gives up by itself.
    waiting: Callable[[Ended], Problem | None] | None = None
