"""T2: a worker that accepts, claims, moves on and ends tasks is killed with -9 at random instants, again and again.

What it had been told was accepted is in exactly one place afterwards; ticks only grow; no task is tried for ever.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from mesh.models import Task, TaskStatus, Verdict
from mesh.store import Store
from tests.faults.processes import Worker, real_root, running
from tests.faults.world import places, quarantined

KILLS = 25
ATTEMPTS_MAX = 3
RUN_S = (0.02, 0.35)

WORKER = """
import itertools, sys
from mesh.models import Claim, TaskStatus, Verdict
from mesh.store import Store
from tests.faults.test_kill_storm import after_crash
from tests.faults.world import new_task

store, number = Store.become(sys.argv[1], "coder")
claim = Claim(agent="coder", incarnation=number, since="2026-02-16T20:45:00.000Z")

def say(*words):
    print(*words, flush=True)

def end(task, turn):
    if turn % 5 == 1 and task.attempts < 3:
        return Verdict(TaskStatus.QUEUED, "again", not_before_tick=0)
    if turn % 5 == 2:
        return Verdict(TaskStatus.FAILED, "broke", error="it broke", blocker=True)
    return Verdict(TaskStatus.COMPLETED, "done")

say("ready")
store.tasks.recover("coder", number, after_crash)
for turn in itertools.count():
    id_ = f"T{number}-{turn}"
    waits_for = [f"T{number}-{turn - 1}"] if turn % 4 == 3 else []
    giver = "human" if turn % 2 else "sales"
    owner = "any" if turn % 3 else "coder"
    store.tasks.accept(new_task(id_, owner, **{"from": giver, "blockedBy": waits_for}), 500)
    say("accepted", id_)
    passed = store.ticks.pass_gate("coder", 0.01)
    if passed.carries:
        say("tick", passed.clock.tick)
    task = store.tasks.claim(claim, lambda own, shared: next(iter([*own, *shared]), None), 10**9)
    if task is None:
        continue
    store.tasks.progress(claim, task.id, 0.5, None)
    ended = store.tasks.settle(claim, task.id, lambda task: end(task, turn))
    if ended.status != "queued":
        say("ended", task.id, ended.status)
"""


def after_crash(task: Task) -> Verdict:
    """As policy does: a task that was cut short is tried again, a bounded number of times."""
    if task.attempts >= ATTEMPTS_MAX:
        return Verdict(TaskStatus.FAILED, "cut short too often", error="cut short too often")
    return Verdict(TaskStatus.QUEUED, "cut short by a crash")


def said(lines: list[str], word: str) -> list[list[str]]:
    return [line.split()[1:] for line in lines if line.startswith(word + " ")]


def test_kill_storm(tmp_path: Path) -> None:
    root = real_root(tmp_path)
    chance = random.Random(20260216)
    accepted: list[str] = []
    ended: dict[str, str] = {}
    ticks: list[int] = []
    for _ in range(KILLS):
        with running(WORKER, root) as worker:
            time.sleep(chance.uniform(*RUN_S))  # the instant of the kill
            lines = kill(worker)
        accepted += [words[0] for words in said(lines, "accepted")]
        ended |= {words[0]: words[1] for words in said(lines, "ended")}
        ticks += [int(words[0]) for words in said(lines, "tick")]
    store, number = Store.become(root, "coder")
    store.tasks.recover("coder", number, after_crash)
    assert number == KILLS + 1
    assert len(accepted) > 2 * KILLS, "the storm must have met some work"
    assert len(ended) > KILLS
    check_tasks(store, accepted, ended)
    assert ticks == sorted(set(ticks)), "a tick went back or came twice"
    assert store.ticks.read().tick >= ticks[-1]
    assert quarantined(store) == []
    assert store.alerts.open() == []


def kill(worker: Worker) -> list[str]:
    worker.kill()
    return worker.lines()


def check_tasks(store: Store, accepted: list[str], ended: dict[str, str]) -> None:
    found = {task.id: task for task in [*store.tasks.open(), *store.tasks.ended(100_000)]}
    lost = set(accepted) - set(found)
    assert not lost, f"accepted and lost: {lost}"
    for id_, task in found.items():
        assert len(places(store, id_)) == 1, id_
        assert task.attempts <= ATTEMPTS_MAX
        assert task.status is not TaskStatus.WORKING
        claims = Counter(entry["status"] for entry in task.history)["working"]
        assert claims <= ATTEMPTS_MAX
    for id_, status in ended.items():
        assert found[id_].status == status, "an end that was reported stands"
