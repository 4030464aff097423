"""What a skill gets to work with: its task, its inputs, facts about the mesh, programs and pages.

Skills look through this at the world; they don't open files of the mesh, read clocks, or talk to agents.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from mesh.errors import MeshError, SkillInputError
from mesh.models import AgentState, Alert, Blocker, Registry, Task
from mesh.store import Store
from mesh.store.inputs import Inputs

_OUTPUT_BYTES_MAX = 4_000_000
#: The JSON types that a setting may have, as people call them.
_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
    bool: "a yes or no",
}
#: What a program that a skill runs needs to know of our environment; secrets are not among it.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME")


@dataclass(frozen=True)
class Output:
    """What a program did: exit status, and what it printed."""

    status: int
    stdout: str
    stderr: str


class SkillContext:
    def __init__(
        self,
        store: Store,
        registry: Registry,
        agent: str,
        task: Task,
        report_progress: Callable[[float], None],
    ) -> None:
        self._store = store
        self._report_progress = report_progress
        self.registry = registry
        self.agent = agent
        self.task = task
        #: `agents.<id>.settings` of the registry; the task's own input comes first.
        self.settings: dict[str, Any] = {**registry.entry(agent).settings, **task.input}
        self.inputs: Inputs = store.inputs(agent)
        self.root = store.layout.root

    @property
    def now(self) -> datetime:
        """The present moment in the registry's time zone."""
        return self._store.time.wall().astimezone(ZoneInfo(self.registry.timezone))

    @property
    def today(self) -> date:
        return self.now.date()

    def progress(self, share: float) -> None:
        """Say how far the work is, from 0 to 1."""
        self._report_progress(min(max(share, 0.0), 1.0))

    def mesh_minutes(self, seconds: float) -> float:
        """A span of real seconds in minutes of the mesh, which are shorter where ticks are."""
        return self._store.ticks.read().mesh_minutes(seconds)

    def setting(self, name: str, kind: type, default: Any) -> Any:
        """A setting of the given type. Raises SkillInputError if it has another."""
        value = self.settings.get(name, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            where = f"registry.json: agents.{self.agent}.settings.{name}"
            where = f"the task's input: {name}" if name in self.task.input else where
            raise SkillInputError(f"{where} must be {_KINDS.get(kind, kind.__name__)}, not {value!r}.")
        return value

    def recall(self, key: str, default: Any = None) -> Any:
        """What the last run's report asked to `remember` under this key."""
        return self._store.memory(self.agent).get(key, default)

    def state(self, agent: str) -> AgentState | None:
        """What another agent last wrote of itself; None if it never ran, or the file can't be read now."""
        try:
            return self._store.state(agent)
        except (MeshError, ValueError):
            return None

    def beat_age_s(self, agent: str) -> float | None:
        """Seconds since the agent's last beat, or None if there is none of this boot."""
        beat = self._store.beat(agent)
        return beat.age_s(self._store.time) if beat else None

    def open_tasks(self) -> list[Task]:
        """Every task of the mesh that has not ended."""
        return self._store.tasks.open()

    def ended_tasks(self, limit: int = 500) -> list[Task]:
        """The tasks that ended last, newest first."""
        return self._store.tasks.ended(limit)

    def blockers(self) -> list[Blocker]:
        return self._store.knowledge.blockers()

    def alerts(self) -> list[Alert]:
        return self._store.alerts.open()

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
    ) -> Output:
        """Run a program to its end, in a process group of its own that never outlives the skill.

        Raises SkillInputError if it isn't installed, TimeoutError if it takes longer than `timeout_s`.
        """
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env={**environment, "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0"},
                stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise SkillInputError(f"Can't run {argv[0]}: {error.strerror} ({error.filename}).") from None
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            raise TimeoutError(f"{argv[0]} took longer than {timeout_s:g} s") from None
        finally:
            _kill_group(process.pid)
            await process.wait()
        return Output(
            process.returncode or 0,
            out[:_OUTPUT_BYTES_MAX].decode(errors="replace"),
            err[:_OUTPUT_BYTES_MAX].decode(errors="replace"),
        )

    async def fetch(self, url: str, *, timeout_s: float = 20.0, bytes_max: int = _OUTPUT_BYTES_MAX) -> bytes:
        """Get a page (http or https only). Raises SkillInputError with the address and what went wrong."""
        import httpx

        if not url.startswith(("http://", "https://")):
            raise SkillInputError(f"{url!r} is not an http or https address.")
        body = bytearray()
        try:
            async with (
                httpx.AsyncClient(timeout=timeout_s, follow_redirects=True, trust_env=False) as client,
                client.stream("GET", url, headers={"User-Agent": "agent-mesh"}) as answer,
            ):
                answer.raise_for_status()
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > bytes_max:
                        raise SkillInputError(f"{url}: larger than {bytes_max} bytes.")
        except httpx.HTTPStatusError as error:
            raise SkillInputError(f"{url}: the server answered {error.response.status_code}.") from None
        except SkillInputError:
            raise
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError, ExceptionGroup) as error:
            # httpx lets some of what is wrong with an address or a redirect through as other errors.
            raise SkillInputError(f"{url}: {type(error).__name__}: {error}.") from None
        return bytes(body)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # the whole group has ended, as it should
