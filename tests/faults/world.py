"""A small root with three agents on a disk in memory, and what of it can be looked at from outside."""

from __future__ import annotations

import json
from typing import Any

from mesh import clock
from mesh.models import Claim, Task, TaskStatus, Verdict
from mesh.store import Store
from tests.fakes import FakeClock, MemoryDisk

ROOT = "/mesh"
AGENTS = ("coder", "devops", "sales")
WAITING_MAX = 500

COMPLETED = Verdict(TaskStatus.COMPLETED, "done")
FAILED = Verdict(TaskStatus.FAILED, "broke", error="it broke", blocker=True)
UNKNOWN = Verdict(TaskStatus.OUTCOME_UNKNOWN, "cut short", error="it may have acted")
CUT_SHORT = Verdict(TaskStatus.QUEUED, "cut short", not_before_tick=9)
REQUEUED = Verdict(TaskStatus.QUEUED, "again", not_before_tick=7)


def make_root(disk: MemoryDisk) -> None:
    """The folders of a root with three agents, durable."""
    layout = Store(ROOT, disk=disk, time=disk.time).layout
    mail = [folder for agent in AGENTS for folder in layout.mail(agent).folders()]
    for folder in [*layout.folders(), *mail]:
        disk.make_folder(folder)
    disk.sync()


def made_disk() -> MemoryDisk:
    disk = MemoryDisk(FakeClock())
    make_root(disk)
    return disk


def outsider(disk: Any, time: FakeClock) -> Store:
    """The command line's store."""
    return Store(ROOT, disk=disk, time=time)


def agent_store(disk: Any, time: FakeClock, agent: str, number: int) -> Store:
    """The store of an incarnation that has begun already, on another disk than it began on."""
    scratch = f"{ROOT}/agents/{agent}/run/{number}"
    return Store(ROOT, holder=f"{agent}.{number}", scratch=scratch, disk=disk, time=time, incarnation=number)


def new_task(id_: str, owner: str = "coder", **fields: Any) -> Task:
    at = clock.iso(FakeClock().wall())
    given = {"id": id_, "title": f"Work {id_}", "owner": owner, "from": "human", "digest": f"digest of {id_}"}
    return Task.model_validate({**given, "createdAt": at, "updatedAt": at, **fields})


def accept(store: Store, id_: str, owner: str = "coder", **fields: Any) -> tuple[Task, bool]:
    return store.tasks.accept(new_task(id_, owner, **fields), WAITING_MAX)


def claim_of(agent: str, number: int) -> Claim:
    return Claim(agent=agent, incarnation=number, since=clock.iso(FakeClock().wall()))


def claim(store: Store, agent: str = "coder", number: int = 1, tick: int = 100) -> Task | None:
    """Claim the first of the agent's own queue, else the first of the global one."""
    return store.tasks.claim(claim_of(agent, number), lambda own, shared: next(iter([*own, *shared]), None), tick)


def settle(store: Store, id_: str, verdict: Verdict, agent: str = "coder", number: int = 1) -> Task:
    return store.tasks.settle(claim_of(agent, number), id_, lambda task: verdict)


def run(store: Store, id_: str, verdict: Verdict = COMPLETED, agent: str = "coder") -> Task:
    """Claim this very task and end it."""
    taken = store.tasks.claim(
        claim_of(agent, 1), lambda own, shared: next(task for task in own + shared if task.id == id_), 100
    )
    assert taken is not None
    return settle(store, id_, verdict, agent)


def status(store: Store, id_: str) -> str:
    return store.tasks.find(id_).status


def places(store: Store, task_id: str) -> list[str]:
    """The files that hold a body of the task, looked at without the store's own eyes."""
    layout, found = store.layout, []
    for path in (layout.queue, layout.active, *map(layout.inbox, AGENTS)):
        data = store.files.read(path)
        tasks = json.loads(data)["tasks"] if data is not None else []
        found += [path for task in tasks if task["id"] == task_id]
    return found + [path for path in layout.ended(task_id) if store.files.exists(path)]


def quarantined(store: Store) -> list[str]:
    """The names of the damaged files that were put away."""
    return [name for name in store.files.names(store.layout.quarantine) if not name.endswith(".reason.json")]


def reasons(store: Store) -> list[str]:
    folder = store.layout.quarantine
    notes = [name for name in store.files.names(folder) if name.endswith(".reason.json")]
    return [json.loads(store.files.read(f"{folder}/{name}") or b"")["reason"] for name in notes]
