"""What becomes of a task after an attempt, and which one is taken next."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mesh.limits import DEFAULT
from mesh.models import TASK_TRANSITIONS, TaskResult, TaskStatus
from mesh.models.running import RunRecord
from mesh.policy.tasks import Attempt, Ending, after_restart, decide, next_task
from tests.policy.facts import a_task

S = TaskStatus
TICK = 100
RESULT = TaskResult(text="a report")

#: ending, effects, attempt → status, whether it counts, whether a blocker is recorded, why
ENDINGS: list[tuple[Ending, str, int, TaskStatus, bool, bool, str]] = [
    (Ending.DONE, "none", 1, S.COMPLETED, True, False, "done is done"),
    (Ending.DONE, "none", 3, S.COMPLETED, True, False, "the last attempt may succeed too"),
    (Ending.DONE, "external", 1, S.COMPLETED, True, False, "it acted, and we know that it did"),
    (Ending.DONE, "external", 3, S.COMPLETED, True, False, "as above"),
    (Ending.FAILED, "none", 1, S.QUEUED, True, False, "a fault may pass: two attempts are left"),
    (Ending.FAILED, "none", 2, S.QUEUED, True, False, "one attempt is left"),
    (Ending.FAILED, "none", 3, S.FAILED, True, True, "no attempt is left: somebody has to clear something"),
    (Ending.FAILED, "external", 1, S.OUTCOME_UNKNOWN, True, False, "it may have acted before it failed"),
    (Ending.FAILED, "external", 3, S.OUTCOME_UNKNOWN, True, False, "that it was the last changes nothing"),
    (Ending.WRONG_INPUT, "none", 1, S.FAILED, True, True, "the same input fails the same way"),
    (Ending.WRONG_INPUT, "none", 3, S.FAILED, True, True, "as above"),
    (Ending.WRONG_INPUT, "external", 1, S.FAILED, True, True, "nothing was done with input that can't be read"),
    (Ending.WRONG_INPUT, "external", 3, S.FAILED, True, True, "as above"),
    (Ending.TIMED_OUT, "none", 1, S.QUEUED, True, False, "a slow moment may pass"),
    (Ending.TIMED_OUT, "none", 3, S.FAILED, True, True, "three time-outs are no slow moment"),
    (Ending.TIMED_OUT, "external", 1, S.OUTCOME_UNKNOWN, True, False, "stopped in the midst of acting"),
    (Ending.TIMED_OUT, "external", 3, S.OUTCOME_UNKNOWN, True, False, "as above"),
    (Ending.INTERRUPTED, "none", 1, S.QUEUED, False, False, "we stopped it: not its fault"),
    (Ending.INTERRUPTED, "none", 3, S.QUEUED, False, False, "nor on its last attempt"),
    (Ending.INTERRUPTED, "external", 1, S.OUTCOME_UNKNOWN, True, False, "stopped in the midst of acting"),
    (Ending.INTERRUPTED, "external", 3, S.OUTCOME_UNKNOWN, True, False, "as above"),
    (Ending.CRASHED, "none", 1, S.QUEUED, True, False, "the process may have died of something else"),
    (Ending.CRASHED, "none", 3, S.FAILED, True, True, "poison: it takes its agent with it every time"),
    (Ending.CRASHED, "external", 1, S.OUTCOME_UNKNOWN, True, False, "nobody knows how far it came"),
    (Ending.CRASHED, "external", 3, S.OUTCOME_UNKNOWN, True, False, "as above"),
    (Ending.NOT_BEGUN, "none", 1, S.QUEUED, False, False, "nothing was tried"),
    (Ending.NOT_BEGUN, "none", 3, S.QUEUED, False, False, "as above"),
    (Ending.NOT_BEGUN, "external", 1, S.QUEUED, False, False, "nothing has acted on anything"),
    (Ending.NOT_BEGUN, "external", 3, S.QUEUED, False, False, "as above"),
    (Ending.UNFIT, "none", 1, S.QUEUED, False, False, "the account's fault, not the task's"),
    (Ending.UNFIT, "none", 3, S.QUEUED, False, False, "as above"),
    (Ending.UNFIT, "external", 1, S.OUTCOME_UNKNOWN, True, False, "the limit may have come after it acted"),
    (Ending.UNFIT, "external", 3, S.OUTCOME_UNKNOWN, True, False, "as above"),
]


def a_run(**fields: Any) -> RunRecord:
    return RunRecord(**{"id": "r", "agent": "ada", "task_id": "t", "attempt": 1, "cli": "codex", "cwd": "/", **fields})


@pytest.mark.parametrize(
    ("run", "lost", "ending"),
    [
        (None, False, Ending.CRASHED),  # a skill: it lived in the daemon
        (a_run(), False, None),
        (a_run(), True, Ending.CRASHED),
        (a_run(stopped="lunch"), True, Ending.INTERRUPTED),
        (a_run(stopped="lunch"), False, Ending.INTERRUPTED),
        (a_run(attempt=2), False, Ending.CRASHED),  # of another attempt: this one never began
    ],
)
def test_how_an_attempt_stands_after_a_restart(run: RunRecord | None, lost: bool, ending: Ending | None) -> None:
    found = after_restart(a_task(status="working", attempts=1), run, "ada", lost=lost)
    assert (found.ending if found else None) is ending


@pytest.mark.parametrize(("ending", "effects", "attempts", "status", "counts", "blocker", "why"), ENDINGS)
def test_endings(
    ending: Ending, effects: str, attempts: int, status: TaskStatus, counts: bool, blocker: bool, why: str
) -> None:
    task = a_task(status="working", effects=effects, attempts=attempts)
    verdict = decide(task, Attempt(ending, "it broke", RESULT if ending is Ending.DONE else None), TICK, DEFAULT)
    assert (verdict.status, verdict.counts, verdict.blocker) == (status, counts, blocker), why
    assert verdict.status in TASK_TRANSITIONS[task.status]
    assert verdict.reason, "every decision says why"
    if status is S.COMPLETED:
        assert verdict.result is RESULT and verdict.error is None
    if status in (S.FAILED, S.OUTCOME_UNKNOWN):
        assert verdict.error is not None and "it broke" in verdict.error


def test_the_table_is_complete() -> None:
    rows = {(ending, effects, attempts >= 3) for ending, effects, attempts, *_ in ENDINGS}
    assert rows == set(itertools.product(Ending, ("none", "external"), (False, True)))


@pytest.mark.parametrize(("ending", "effects"), list(itertools.product(Ending, ("none", "external"))))
def test_a_cancelled_task_ends_cancelled_whatever_the_attempt_says(ending: Ending, effects: str) -> None:
    task = a_task(status="working", effects=effects, attempts=1, cancel_requested="bob")
    verdict = decide(task, Attempt(ending, "it broke"), TICK, DEFAULT)
    assert verdict.status is S.CANCELLED and not verdict.blocker
    assert verdict.reason == "cancelled by bob"


@pytest.mark.parametrize(
    ("attempts", "delay", "expected", "why"),
    [
        (1, 1, TICK + 1, "after the first failure a tick"),
        (2, 1, TICK + 2, "after the second twice as long"),
        (1, 5, TICK + 5, "the delay is a limit"),
        (2, 5, TICK + 10, "and doubles from there"),
        (1, 0, TICK, "no delay: at once"),
    ],
)
def test_a_retry_waits(attempts: int, delay: int, expected: int, why: str) -> None:
    limits = DEFAULT.with_overrides({"taskRetryDelayTicks": delay})
    verdict = decide(a_task(status="working", attempts=attempts), Attempt(Ending.FAILED, "x"), TICK, limits)
    assert verdict.not_before_tick == expected, why
    assert isinstance(verdict.not_before_tick, int)


def test_what_we_interrupted_is_due_at_once() -> None:
    verdict = decide(a_task(status="working", attempts=1), Attempt(Ending.INTERRUPTED, "paused"), TICK, DEFAULT)
    assert verdict.not_before_tick <= TICK and verdict.error is None


@pytest.mark.parametrize(("most", "attempts", "status"), [(1, 1, S.FAILED), (5, 4, S.QUEUED), (5, 5, S.FAILED)])
def test_the_number_of_attempts_is_a_limit(most: int, attempts: int, status: TaskStatus) -> None:
    limits = DEFAULT.with_overrides({"taskAttemptsMax": most})
    verdict = decide(a_task(status="working", attempts=attempts), Attempt(Ending.FAILED, "x"), TICK, limits)
    assert verdict.status is status
    if status is S.FAILED:
        assert f"attempt {attempts} of {most}" in str(verdict.error)


OWN, OWN_LATER = a_task("own"), a_task("own-later")
SHARED = a_task("shared", owner="any", needs=["code"])
PICKY = a_task("picky", owner="any", needs=["code", "law"])
FREE = a_task("free", owner="any", needs=[])


@pytest.mark.parametrize(
    ("own", "shared", "skilled", "unable", "expected", "why"),
    [
        ([OWN, OWN_LATER], [SHARED], ["code"], [], OWN, "one's own come first, in their order"),
        ([], [SHARED], ["code"], [], SHARED, "nothing of one's own: the global queue"),
        ([], [SHARED], ["law"], [], None, "not responsible"),
        ([], [PICKY], ["code"], [], None, "responsible for half of it only"),
        ([], [PICKY, SHARED], ["code"], [], SHARED, "what it can't take doesn't stand in the way"),
        ([], [PICKY], ["law", "code", "art"], [], PICKY, "more than enough"),
        ([], [FREE], [], [], FREE, "needs nothing: anybody's"),
        ([OWN, OWN_LATER], [], ["code"], ["own"], OWN_LATER, "what no runner can do is left"),
        ([OWN], [SHARED], ["code"], ["own"], SHARED, "and the global queue comes next"),
        ([OWN], [SHARED], ["code"], ["own", "shared"], None, "nothing that it can do"),
        ([], [], ["code"], [], None, "nothing there"),
    ],
)
def test_next_task(own: Any, shared: Any, skilled: list[str], unable: list[str], expected: Any, why: str) -> None:
    assert next_task(own, shared, skilled, lambda task: task.id not in unable) is expected, why
