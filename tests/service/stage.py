"""What the tests of the service stand on: a mesh of four with foreign names, real services in this event loop, and
clients that reach them without a socket."""

from __future__ import annotations

import asyncio
import json
import pathlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI

from mesh import Agent, Report
from mesh.service.agent import AgentService
from mesh.service.api import build_app
from mesh.service.skill_context import SkillContext
from mesh.store import Store
from mesh.store.secrets import OPERATOR
from mesh.store.setup import initialise

#: Whom each watches. cyd is the orchestrator, and dee may delegate to bob.
PAIRS = {"ada": "bob", "bob": "cyd", "cyd": "dee", "dee": "ada"}
#: Looks twenty times a second, and a failed task is due again at once.
BRISK: dict[str, Any] = {"beatIntervalS": 0.1, "fileFreshS": 0.05, "taskRetryDelayTicks": 0}
#: The pace that agents have outside of tests.
SEDATE: dict[str, Any] = {"beatIntervalS": 1.0, "fileFreshS": 1.0}
#: No request of a test takes longer, unless it hangs.
TIMEOUT_S = 20.0


def a_registry(base_port: int = 19100, **fields: Any) -> dict[str, Any]:
    agents = {
        agent: {
            "name": agent.title(),
            "port": base_port + number,
            "responsibilities": [f"{agent}-things", "chores"],
            "buddy": buddy,
        }
        for number, (agent, buddy) in enumerate(PAIRS.items())
    }
    agents["dee"]["canDelegate"] = ["bob"]
    return {"schemaVersion": 1, "agents": agents, "orchestrator": "cyd", "limits": dict(BRISK), **fields}


async def until(condition: Callable[[], Any], within_s: float = 5.0) -> Any:
    """What the condition returns, once it is true. Fails when that takes too long."""
    deadline_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s"
        await asyncio.sleep(0.005)
    return found


def hang(seconds: float) -> None:
    """Hold the whole event loop up, as a skill does that computes on it."""
    time.sleep(seconds)


@dataclass
class Gate:
    """A skill that stays at work until it is let go, and knows what happened to it."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0
    ended: int = 0
    stopped: int = 0

    async def __call__(self, context: SkillContext) -> Report:
        self.begun += 1
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        self.ended += 1
        return Report("let go")


async def echo(context: SkillContext) -> Report:
    return Report(f"echo of {context.task.input}", evidence=["the input"])


@dataclass
class Served:
    """One agent that runs."""

    service: AgentService
    app: FastAPI
    mesh: Mesh

    @property
    def agent(self) -> str:
        return self.service.core.agent

    def client(self, caller: str | None = OPERATOR, *, raising: bool = True, **headers: str) -> httpx.AsyncClient:
        """A client with the secret of an agent, the operator's, or none."""
        known = {"Authorization": f"Bearer {self.mesh.secret(caller)}"} if caller else {}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=raising),
            base_url="http://127.0.0.1",
            headers={**known, **headers},
            timeout=TIMEOUT_S,
        )

    async def give(self, title: str, caller: str = OPERATOR, **fields: Any) -> str:
        """Give it a task; returns the id."""
        async with self.client(caller) as client:
            answer = await client.post("/task", json={"title": title, **fields})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["taskId"])

    async def tell(
        self, type_: str, caller: str = OPERATOR, payload: dict[str, Any] | None = None, **fields: Any
    ) -> str:
        """Send it a message; returns the id."""
        async with self.client(caller) as client:
            answer = await client.post("/message", json={"type": type_, "payload": payload or {}, **fields})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def task(self, task_id: str) -> dict[str, Any]:
        return self.mesh.task(task_id)

    async def ended(self, task_id: str, status: str = "completed", within_s: float = 10.0) -> dict[str, Any]:
        """The task, once it has this status."""
        await until(lambda: self.mesh.task(task_id)["status"] == status, within_s)
        return self.mesh.task(task_id)


class Mesh:
    """A root of four agents, and the roles that a test gives them."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.registry_file = root / "agents" / "registry.json"
        self.store = Store(str(root))
        self.roles = {agent: Agent(agent, persona=f"You are {agent}.") for agent in PAIRS}

    def initialise(self) -> None:
        """Make the root; one that was copied from another is there already."""
        self.registry_file.parent.mkdir(parents=True)
        self.write(a_registry())
        initialise(self.store)

    def write(self, registry: dict[str, Any] | str) -> None:
        """Save the registry as an editor does: another file in the place of the old one."""
        text = registry if isinstance(registry, str) else json.dumps(registry, indent=2)
        beside = self.registry_file.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.registry_file)

    def edit(self, change: Callable[[dict[str, Any]], Any]) -> None:
        document = json.loads(self.registry_file.read_text(encoding="utf-8"))
        change(document)
        self.write(document)

    def limit(self, **limits: Any) -> None:
        """Override limits; before anything starts, or as an edit."""
        self.edit(lambda document: document["limits"].update(limits))

    def skill(self, agent: str, title: str, skill: Callable[[SkillContext], Any]) -> None:
        self.roles[agent].skill(title)(skill)

    def secret(self, name: str) -> str:
        found = self.store.secrets.of(name)
        assert found is not None
        return found

    def task(self, task_id: str) -> dict[str, Any]:
        return self.store.tasks.find(task_id).dump()

    def service(self, agent: str, *, tick_seconds: float = 60.0, **options: Any) -> AgentService:
        return AgentService(self.roles[agent], str(self.root), tick_seconds=tick_seconds, **options)

    @asynccontextmanager
    async def running(self, agent: str, **options: Any) -> AsyncIterator[Served]:
        """One agent, from the start of its application to its end."""
        service = self.service(agent, **options)
        app = build_app(agent, lambda: service)
        async with app.router.lifespan_context(app):
            yield Served(service, app, self)

    @asynccontextmanager
    async def all_running(self, *agents: str, **options: Any) -> AsyncIterator[list[Served]]:
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.running(agent, **options)) for agent in agents]

    def events(self, event: str | None = None, agent: str | None = None) -> list[dict[str, Any]]:
        found = self.store.journal.read_events(10_000)
        return [e for e in found if event in (None, e["event"]) and agent in (None, e["agentId"])]

    def json(self, path: str) -> Any:
        return json.loads((self.root / path).read_text(encoding="utf-8"))


def assert_problem(answer: httpx.Response, status: int, slug: str = "") -> dict[str, Any]:
    """That the answer is a problem document of RFC 9457; returns it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["status"] == status and found["title"] and found["type"] and found["detail"]
    if slug:
        assert found["type"] == f"urn:mesh:{slug}"
    return found
