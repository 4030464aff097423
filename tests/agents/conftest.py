"""What the roles' tests stand on: a real store in a temporary folder, under a clock that only moves when told."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from mesh import clock
from mesh.models import Registry, Task
from mesh.service.skill_context import SkillContext
from mesh.store import Store
from mesh.store.setup import initialise
from tests.agents.stage import MORNING, ContextMaker, TaskMaker
from tests.fakes import FakeClock


@pytest.fixture
def time() -> FakeClock:
    return FakeClock(MORNING, uptime_s=50_000.0)


@pytest.fixture
def store(tmp_path: pathlib.Path, time: FakeClock) -> Store:
    """An initialised root at `tmp_path/"shared"`, with the registry and templates as shipped."""
    store = Store(str(tmp_path / "shared"), time=time)
    initialise(store)
    return store


@pytest.fixture
def make_task(time: FakeClock) -> TaskMaker:
    """Build a task that is created now; anything else by keyword."""
    made = 0

    def build(owner: str, title: str, **fields: Any) -> Task:
        nonlocal made
        made += 1
        now = clock.iso(time.wall())
        defaults = {"id": f"t{made}", "from_": "human", "created_at": now, "updated_at": now}
        return Task(owner=owner, title=title, **{**defaults, **fields})

    return build


@pytest.fixture
def make_context(store: Store, make_task: TaskMaker) -> ContextMaker:
    """Build the context of a skill's run; `settings` stand in the registry, `task_input` in the task.

    `entry` replaces other fields of the agent's entry; `progress` collects what the skill reports.
    """

    def build(
        agent: str,
        *,
        settings: dict[str, Any] | None = None,
        task_input: dict[str, Any] | None = None,
        title: str = "…",
        entry: dict[str, Any] | None = None,
        progress: list[float] | None = None,
    ) -> SkillContext:
        fields = {**({} if settings is None else {"settings": settings}), **(entry or {})}
        registry = _with_entry(store.registry.check(), agent, fields)
        task = make_task(agent, title, id="run", input=task_input or {})
        return SkillContext(store, registry, agent, task, (progress if progress is not None else []).append)

    return build


def _with_entry(registry: Registry, agent: str, fields: dict[str, Any]) -> Registry:
    entry = registry.entry(agent).model_copy(update=fields)
    return registry.model_copy(update={"agents": {**registry.agents, agent: entry}})
