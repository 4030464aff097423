"""The store's calls that change something, each with how to prepare it and what may be seen of it.

`observe` looks through a store that was opened afresh, as a successor would, and returns facts by name. Each fact
must be as before the call or as after it, whatever fault came in between; once the call has returned, as after.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from mesh import clock
from mesh.models import HUMAN, AgentState, Task, Verdict
from mesh.store import Store
from mesh.store.documents import INSIGHTS
from mesh.store.files import last_copy
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.mail_world import finish
from tests.faults.world import (
    COMPLETED,
    CUT_SHORT,
    FAILED,
    REQUEUED,
    ROOT,
    UNKNOWN,
    accept,
    agent_store,
    claim,
    claim_of,
    made_disk,
    outsider,
    places,
)

Facts = dict[str, Any]


def nothing(store: Store) -> None:
    return None


@dataclass(frozen=True)
class Scenario:
    name: str
    call: Callable[[Store], Any]
    observe: Callable[[Store], Facts]
    prepare: Callable[[Store], object] = nothing
    #: Whose incarnation makes the call; an outsider if empty.
    agent: str = ""
    #: Which of its incarnations.
    number: int = 1
    #: Fewer crash states than this mean that the test has lost sight of something.
    states_min: int = 60
    #: Which tasks must lie somewhere at every instant, and in one place after recovery.
    tasks: tuple[str, ...] = ()
    #: Damaged files that were there before the call, so that quarantine is not a sign of a fault.
    damaged: int = 0
    #: Whether the next start of the agent makes up for the call: all facts are as after it from the beginning.
    made_up_for: bool = False
    #: Which messages must lie somewhere at every instant, once they are in.
    mail: tuple[str, ...] = ()
    #: A power cut may take what the call did although it has returned: it can be worked out anew.
    lossy: bool = False

    def prepared(self) -> MemoryDisk:
        """The disk before the call, all of it durable."""
        disk = made_disk()
        store = outsider(disk, disk.time)
        if self.agent:
            store, _ = Store.become(ROOT, self.agent, disk=disk, time=disk.time)
        self.prepare(store)
        disk.sync()
        return disk

    def store(self, disk: Any, time: FakeClock) -> Store:
        """The store that makes the call."""
        if not self.agent:
            return outsider(disk, time)
        return agent_store(disk, time, self.agent, self.number)


def successor(scenario: Scenario, disk: MemoryDisk) -> Store:
    """A store that is opened after the fault: the agent's next incarnation, or another outsider."""
    if not scenario.agent:
        store = outsider(disk, disk.time)
        if scenario.tasks:
            store.tasks.repair()
    else:
        store, number = Store.become(ROOT, scenario.agent, disk=disk, time=disk.time)
        store.tasks.recover(scenario.agent, number, cut_short)
    if scenario.mail:
        finish(store)
    return store


def cut_short(task: Task) -> Verdict:
    """What a test's successor decides of a task that its predecessor left in work."""
    return UNKNOWN if task.effects == "external" else CUT_SHORT


def task_facts(store: Store, id_: str) -> tuple[Any, ...]:
    task = store.tasks.find(id_)
    return task.status, task.owner, task.attempts, task.progress, task.not_before_tick, task.error


def known(*ids: str) -> Callable[[Store], Facts]:
    """Facts about tasks that must be there whatever happens."""
    return lambda store: {id_: task_facts(store, id_) for id_ in ids}


def maybe(id_: str) -> Callable[[Store], Facts]:
    """Facts about a task that may not have been accepted."""
    return lambda store: {id_: task_facts(store, id_) if places(store, id_) else None}


def end_facts(store: Store, *ids: str) -> Facts:
    """How tasks have ended, and who was told: one fact, as no part of it may be missing after recovery."""
    references = {
        agent: sorted((entry["id"], entry["status"]) for entry in json.loads(data)["tasks"])
        for agent in ("coder", "sales")
        if (data := store.files.read(store.layout.outbox(agent)))
    }
    notices = len(store.files.names(store.layout.mail(HUMAN).inbox))
    blockers = [blocker.id for blocker in store.knowledge.blockers()]
    return {"end": ([task_facts(store, id_) for id_ in ids], references, notices, blockers)}


def ended(*ids: str) -> Callable[[Store], Facts]:
    return lambda store: end_facts(store, *ids)


def one_claimed(store: Store, **fields: Any) -> None:
    """T1 is in work, T2 waits for it, T3 for that, T9 is queued beside."""
    accept(store, "T1", **fields)
    accept(store, "T2", blockedBy=["T1"])
    accept(store, "T3", "any", blockedBy=["T2"], **{"from": "sales"})
    accept(store, "T9")
    assert claim(store) is not None


def settle(verdict: Verdict) -> Callable[[Store], object]:
    return lambda store: store.tasks.settle(claim_of("coder", 1), "T1", lambda task: verdict)


def outcome_unknown(store: Store) -> None:
    one_claimed(store, effects="external")
    settle(UNKNOWN)(store)


def resolve(verdict: Verdict) -> Callable[[Store], object]:
    return lambda store: store.tasks.resolve("T1", verdict, "human")


def recover(store: Store) -> None:
    """The successor's first act, after a predecessor that left one task of each sort in work."""
    store.tasks.recover("coder", 2, cut_short)


def two_left_in_work(store: Store) -> None:
    accept(store, "T1")
    accept(store, "T2", effects="external")
    assert claim(store) and claim(store)
    Store.become(ROOT, "coder", disk=store.disk, time=store.time)


def insight(text: str) -> dict[str, Any]:
    return {"id": text, "data": text}


def add_insight(text: str, store: Store) -> None:
    store.documents.update(store.layout.insights, INSIGHTS, lambda document: document["insights"].append(insight(text)))


def insights(store: Store) -> Facts:
    document = store.documents.read(store.layout.insights, INSIGHTS)
    return {"insights": document and [entry["id"] for entry in document["insights"]]}


def two_insights(store: Store) -> None:
    add_insight("one", store)
    add_insight("two", store)


def damage_insights(store: Store) -> None:
    """The document is damaged; the version before holds the first entry alone."""
    two_insights(store)
    store.disk.put(store.layout.insights, b'{"schemaVersion": 1, "insi')


def damage_both(store: Store) -> None:
    damage_insights(store)
    store.disk.put(last_copy(store.layout.insights), b"\xff")


def older_insights(store: Store) -> None:
    store.disk.put(store.layout.insights, json.dumps({"insights": [insight("old")], "extra": 1}).encode())


def clock_at_five(store: Store) -> None:
    for _ in range(5):
        assert store.ticks.pass_gate("coder", 60.0).carries
        store.time.advance(60)


def tick(store: Store) -> Facts:
    return {"tick": store.ticks.read().tick}


def paused(store: Store) -> Facts:
    return {"paused": sorted(store.switches.paused())}


def pause_all(store: Store) -> None:
    store.switches.pause("*", "human")


def alerts(store: Store) -> Facts:
    return {"alerts": [(alert.title, alert.count, alert.status) for alert in store.alerts.open()]}


def raise_alert(store: Store) -> None:
    store.alerts.raise_alert("stale", "sales", "Sales is stale", "no beat for 10 s")


def registry(link: bool, store: Store) -> None:
    agents = {
        name: {"name": name.title(), "port": 18801 + index, "responsibilities": ["work"], "buddy": buddy}
        for index, (name, buddy) in enumerate([("coder", "devops"), ("devops", "sales"), ("sales", "coder")])
    }
    path = "/top/registry.json" if link else store.layout.registry
    if link:
        store.disk.make_folder("/top")
        store.disk.symlink("../../top/registry.json", store.layout.registry)
    store.disk.put(path, json.dumps({"schemaVersion": 1, "agents": agents}).encode())


def move_port(store: Store) -> None:
    store.registry.edit(lambda document: document["agents"]["coder"].update(port=19000))


def port(store: Store) -> Facts:
    return {"port": store.registry.current.entry("coder").port}


def state_of(session: str) -> AgentState:
    at = clock.iso(FakeClock().wall())
    fields = {"agentId": "coder", "lastActivity": at, "lastHeartbeat": at, "contextLimit": 1, "incarnation": 1}
    return AgentState.model_validate({**fields, "sessionId": session, "stamps": {"bootId": "", "activityS": 0}})


def write_state(session: str, store: Store) -> None:
    store.write_state(state_of(session))


def session(store: Store) -> Facts:
    state = store.state("coder")
    return {"session": state and state.session_id}


def next_incarnation(store: Store) -> Facts:
    return {"number": Store.become(ROOT, "coder", disk=store.disk, time=store.time)[1]}


def begun_twice(store: Store) -> None:
    for _ in range(2):
        Store.become(ROOT, "coder", disk=store.disk, time=store.time)


STOPPED = f"{ROOT}/agents/sales/stopped"
A, B = f"{ROOT}/knowledge/a", f"{ROOT}/system/b"


def content(*paths: str) -> Callable[[Store], Facts]:
    return lambda store: {path: store.files.read(path) for path in paths}


def put_a(store: Store) -> None:
    store.disk.put(A, b"old")


def moved(store: Store) -> Facts:
    """Where it is; while it moves, it may be in both."""
    new, old = store.files.read(B), store.files.read(A)
    return {"content": new or old, "arrived": new is not None}


SCENARIOS = [
    Scenario(
        "Files.replace", lambda store: store.files.replace(A, b"new", keep_last=True), content(A), put_a, states_min=90
    ),
    Scenario("Files.create", lambda store: store.files.create(A, b"new"), content(A), states_min=20),
    Scenario("Files.move", lambda store: store.files.move(A, B), moved, put_a, states_min=6),
    Scenario("Files.remove", lambda store: store.files.remove(A), content(A), put_a, states_min=4),
    Scenario("Documents.update first", partial(add_insight, "one"), insights),
    Scenario("Documents.update", partial(add_insight, "three"), insights, two_insights),
    Scenario("Documents.read mends", insights, insights, damage_insights, damaged=1, made_up_for=True, states_min=400),
    Scenario(
        "Documents.read finds nothing", insights, insights, damage_both, damaged=1, made_up_for=True, states_min=300
    ),
    Scenario("Documents.read migrates", insights, insights, older_insights, made_up_for=True, states_min=300),
    Scenario("Store.write_state", partial(write_state, "b"), session, partial(write_state, "a"), agent="coder"),
    Scenario("Store.remember", lambda store: store.remember("coder", {"a": 1}), lambda store: store.memory("coder")),
    Scenario("accept", partial(accept, id_="T1"), maybe("T1"), tasks=("T1",)),
    Scenario(
        "accept for an agent",
        partial(accept, id_="T1", **{"from": "sales"}),
        maybe("T1"),
        lambda store: accept(store, "T0"),
        agent="coder",
        tasks=("T0", "T1"),
    ),
    Scenario("claim", claim, known("T1"), lambda store: accept(store, "T1", "any"), agent="coder", tasks=("T1",)),
    Scenario(
        "progress",
        lambda store: store.tasks.progress(claim_of("coder", 1), "T1", 0.5, None),
        known("T1", "T2", "T3", "T9"),
        one_claimed,
        agent="coder",
        tasks=("T1", "T2", "T3", "T9"),
    ),
    *[
        Scenario(
            f"settle {verdict.status}",
            settle(verdict),
            ended("T1", "T2", "T3", "T9"),
            one_claimed,
            agent="coder",
            tasks=("T1", "T2", "T3", "T9"),
            states_min=300,
        )
        for verdict in (COMPLETED, FAILED, REQUEUED, UNKNOWN)
    ],
    Scenario(
        "cancel",
        lambda store: store.tasks.cancel("T2", "human", "not needed"),
        ended("T2", "T3"),
        one_claimed,
        agent="coder",
        tasks=("T1", "T2", "T3", "T9"),
        states_min=1000,
    ),
    Scenario(
        "recover",
        recover,
        known("T1", "T2"),
        two_left_in_work,
        agent="coder",
        tasks=("T1", "T2"),
        made_up_for=True,
        number=2,
        states_min=1000,
    ),
    *[
        Scenario(
            f"resolve {verdict.status}",
            resolve(verdict),
            known("T1", "T2", "T3", "T9"),
            outcome_unknown,
            agent="coder",
            tasks=("T1", "T2", "T3", "T9"),
            states_min=120,
        )
        for verdict in (COMPLETED, FAILED, REQUEUED)
    ],
    Scenario(
        "give_back",
        lambda store: store.tasks.give_back("sales"),
        known("T1", "T2"),
        lambda store: (accept(store, "T1", "sales"), accept(store, "T2", "sales")),
        tasks=("T1", "T2"),
        states_min=400,
    ),
    Scenario("pass_gate first", lambda store: store.ticks.pass_gate("coder", 60.0), tick),
    Scenario("pass_gate", lambda store: store.ticks.pass_gate("coder", 60.0), tick, clock_at_five),
    Scenario("pause", lambda store: store.switches.pause("sales", "human"), paused),
    Scenario("resume", lambda store: store.switches.resume("*"), paused, pause_all, states_min=5),
    Scenario("stop", lambda store: store.switches.stop("sales", "human"), content(STOPPED), states_min=20),
    Scenario("become first", next_incarnation, next_incarnation, states_min=100),
    Scenario("become", next_incarnation, next_incarnation, begun_twice, states_min=80),
    Scenario("raise_alert", raise_alert, alerts),
    Scenario("raise_alert again", raise_alert, alerts, raise_alert, states_min=20),
    Scenario("registry edit", move_port, port, partial(registry, False)),
    Scenario("registry edit of a link", move_port, port, partial(registry, True)),
]
