"""One pane of tmux: looked at, and written to under a condition that tmux itself checks.

It is the tmux command itself, one short process a call, and no library. libtmux 0.62 runs the same command, but blocks
the loop meanwhile, and has no words for what makes a paste safe. Measured with three panes on two cores: a look takes
6 ms here (p95 8) in one process, 11 to 14 ms (p95 16) through libtmux in two, which aren't of one moment.

What makes it safe is that tmux runs a client's whole list of commands without another's in between. So a look is of one
moment, and `if-shell -F` decides and acts in one: the cursor hasn't moved, nobody opened copy mode, the lock is ours.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, replace

from mesh.errors import RunnerUnfit
from mesh.runners.tmux.screens import SHELLS, Capture, Look
from mesh.runners.tmux.styles import rows

#: tmux answers within milliseconds; a server that hangs must not hang the agent.
_ANSWER_S = 5.0
#: What the tmux client may see: it hands some of its environment on to sessions.
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TMUX", "TMUX_TMPDIR", "USER", "LOGNAME")
#: tmux may have the program's newest output and our command before it at once: one more turn of its loop, and the
#: output is on the screen. (`run-shell` without a command only waits.)
_CATCH_UP_S = "0.01"
#: What a look asks tmux for, before the screen itself.
FIELDS = (
    "#{pane_dead} #{pane_in_mode} #{cursor_x} #{cursor_y} #{cursor_flag} #{alternate_on} #{pane_tty} "
    "#{pane_current_command}|#{pane_title}"
)
_LISTED = "#{pane_id} #{&&:#{pane_active},#{window_active}} #{pane_current_command}"


class TmuxFailed(RunnerUnfit):
    """tmux couldn't do it; the detail has its own words."""


class NoTarget(TmuxFailed):
    """There is no such pane, session or server."""


@dataclass(frozen=True)
class Tmux:
    """A tmux server, by the name of its socket (`tmux -L`); None is the default one."""

    socket: str | None = None

    async def __call__(self, *arguments: str, given: str = "") -> str:
        """Run a command, or several between `;`, and return what it printed. Raises RunnerUnfit (TmuxFailed,
        NoTarget)."""
        socket = ("-L", self.socket) if self.socket else ()
        status, out, err = await _run("tmux", "-u", *socket, *arguments, given=given)
        if status:
            told = err.strip() or f"exit status {status}"
            absent = re.search(r"can't find|no server running|error connecting|no such", told)
            raise (NoTarget if absent else TmuxFailed)(f"tmux: {told}", state="missing" if absent else "unknown")
        return out


async def _run(*argv: str, given: str = "") -> tuple[int, str, str]:
    """Exit status, output, errors. It takes milliseconds, and isn't cut short by a cancellation: a key is pressed or
    not, and no process is left behind."""
    running = asyncio.ensure_future(_run_to_its_end(argv, given))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # nobody is left to hear of it
        raise


async def _run_to_its_end(argv: tuple[str, ...], given: str) -> tuple[int, str, str]:
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**environment, "LC_ALL": "C.UTF-8", "TERM": "dumb"},
        )
    except FileNotFoundError:
        package = "tmux" if argv[0] == "tmux" else "procps"
        detail = f"{argv[0]} is not installed; on Debian and Ubuntu: apt-get install {package}"
        raise RunnerUnfit(detail, state="missing") from None
    try:
        async with asyncio.timeout(_ANSWER_S):
            out, err = await process.communicate(given.encode() if given else None)
    except TimeoutError:
        raise TmuxFailed(f"{argv[0]} did not answer within {_ANSWER_S:g} s", state="unknown") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


@dataclass(frozen=True)
class Pane:
    """A pane by its id (`%3`), which no other pane of this server ever gets."""

    tmux: Tmux
    id: str

    async def capture(self) -> Capture:
        """The pane at one moment. Raises NoTarget if it is no more."""
        out = await self.tmux(
            "display-message", "-p", "-t", self.id, FIELDS, ";", "capture-pane", "-p", "-e", "-t", self.id
        )
        capture, tty = captured(out)
        if capture.command in SHELLS and not capture.dead:
            capture = replace(capture, command=await _behind_shell(tty, capture.command))
        return capture

    async def do_if(self, condition: str, *commands: tuple[str, ...]) -> bool:
        """Run tmux commands if the condition (a format) holds, all at one moment; whether it held. What the pane's
        program has written by then is read before."""
        then = " ; ".join(" ".join(map(_quoted, command)) for command in (*commands, ("display-message", "-p", "done")))
        caught_up = ("run-shell", "-d", _CATCH_UP_S, ";")
        out = await self.tmux(*caught_up, "if-shell", "-t", self.id, "-F", condition, then, "display-message -p not")
        return out.strip() == "done"

    async def option(self, name: str) -> str:
        """A user option of the pane; empty if it isn't set."""
        return (await self.tmux("display-message", "-p", "-t", self.id, f"#{{{name}}}")).rstrip("\n")

    async def set_option(self, name: str, value: str) -> None:
        await self.tmux("set-option", "-p", "-t", self.id, name, value)


def captured(out: str) -> tuple[Capture, str]:
    """What tmux printed for a look, and the pane's terminal. Pure."""
    head, _, screen = out.partition("\n")
    numbers, _, title = head.partition("|")
    dead, in_mode, x, y, shown, alternate, tty, command = (*numbers.split(" ", 7), *[""] * 8)[:8]
    capture = Capture(
        rows=rows(screen.removesuffix("\n").split("\n")),
        cursor=(int(x or 0), int(y or 0)),
        cursor_shown=shown == "1",
        title=title,
        command=command.lstrip("-"),
        in_mode=in_mode not in ("", "0"),
        dead=dead == "1",
        alternate=alternate == "1",
    )
    return capture, tty


async def find(tmux: Tmux, target: str, look: Look) -> Pane:
    """The pane that the registry names. Of a session the one that the CLI runs in, if that is only one; else its
    active pane. Raises NoTarget."""
    if target.startswith(("%", "@", "$", "=")) or ":" in target or "." in target:
        exact = target if target.startswith(("%", "@", "$", "=")) else f"={target}"
        # display-message alone is content with a target that isn't there.
        there = await tmux("display-message", "-p", "-t", exact, "#{pane_id}", ";", "capture-pane", "-p", "-t", exact)
        return Pane(tmux, there.partition("\n")[0])
    # Without the sign `cod` would find `coder`.
    listed = await tmux("list-panes", "-s", "-t", f"={target}:", "-F", _LISTED)
    panes = [line.split(" ", 2) for line in listed.splitlines()]
    fitting = [id_ for id_, _, command in panes if command not in SHELLS and re.fullmatch(look.commands, command)]
    active = [id_ for id_, is_active, _ in panes if is_active == "1"]
    return Pane(tmux, fitting[0] if len(fitting) == 1 else active[0])


async def _behind_shell(tty: str, shell: str) -> str:
    """What really is in the foreground of a terminal whose foreground group a shell leads: a script that started
    the CLI and waits for it, or the shell itself."""
    try:
        _, out, _ = await _run("ps", "-t", tty.removeprefix("/dev/"), "-o", "stat=,comm=")
    except RunnerUnfit:
        return shell
    running = [line.split(None, 1) for line in out.splitlines() if line.strip()]
    others = [name for state, name in running if "+" in state and name.lstrip("-") not in SHELLS]
    return others[0] if others else shell


def _quoted(word: str) -> str:
    assert "'" not in word and "\n" not in word, "only our own words are put into a tmux command"
    return f"'{word}'"
