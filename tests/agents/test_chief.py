"""The standup, over states, beats, tasks, blockers and alerts written through the real store."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from agents import _standup, chief
from agents._taskflow import Throughput
from mesh import Report, clock
from mesh.limits import DEFAULT
from mesh.models import (
    AgentState,
    AgentStatus,
    Alert,
    Blocker,
    Claim,
    CurrentTask,
    Stamps,
    Task,
    TaskResult,
    TaskStatus,
    Verdict,
)
from mesh.store import Store
from mesh.store.beats import Beat, boot_mark, encode
from tests.agents.stage import MORNING, ContextMaker, TaskMaker, section
from tests.fakes import FakeClock

TITLE = "Morning Standup Summary"


async def standup(make_context: ContextMaker) -> Report:
    return await chief.agent.skills[TITLE](make_context("chief", title=TITLE))


def write_state(
    store: Store, time: FakeClock, agent: str, status: AgentStatus, task: CurrentTask | None = None
) -> None:
    now = clock.iso(time.wall())
    store.write_state(
        AgentState(
            agent_id=agent,
            status=status,
            current_task=task,
            last_activity=now,
            last_heartbeat=now,
            context_limit=1000,
            session_id="s",
            incarnation=1,
            stamps=Stamps(boot_id=time.boot_id(), activity_s=time.boottime()),
        )
    )


def beat(store: Store, time: FakeClock, agent: str) -> None:
    written = encode(Beat(1, 1, time.boottime(), 0, boot_mark(time)))
    store.files.replace(store.layout.beat(agent), written)


def finish(store: Store, task: Task, verdict: Verdict) -> None:
    """Let the task's owner claim it and end it."""
    store.tasks.accept(task, 100)
    claim = Claim(agent=task.owner, incarnation=1, since=task.created_at)
    claimed = store.tasks.claim(claim, lambda own, shared: next(t for t in own if t.id == task.id), 0)
    assert claimed is not None
    store.tasks.settle(claim, task.id, lambda _: verdict)


DONE = Verdict(TaskStatus.COMPLETED, "done", result=TaskResult(text="ok"))
FAILED = Verdict(TaskStatus.FAILED, "failed", error="no such host")


def test_the_role_does_what_its_template_is_called() -> None:
    assert list(chief.agent.skills) == [TITLE]
    assert chief.agent.id == "chief" and "escalate" in chief.agent.persona


async def test_a_mesh_that_never_ran_is_reported_as_such(make_context: ContextMaker) -> None:
    text = (await standup(make_context)).text
    assert text.startswith("Standup of 2026-02-17 09:00: 8 agents, 0 working, 8 silent; 0 completed and 0 failed")
    assert section(text, "Agents").count("never ran") == 8
    assert section(text, "Completed in the last 24 h") == "Nothing."
    assert section(text, "Queues") == "All are empty."
    assert section(text, "Silent").count("no beat since this host started") == 8


async def test_status_progress_and_beats(store: Store, time: FakeClock, make_context: ContextMaker) -> None:
    task = CurrentTask(id="t-1", type="task", title="Build | it", progress=0.4)
    write_state(store, time, "coder", AgentStatus.WORKING, task)
    write_state(store, time, "ops", AgentStatus.IDLE)
    beat(store, time, "ops")
    time.advance(timedelta(seconds=DEFAULT.offline_after_s + 1).total_seconds())
    beat(store, time, "coder")
    text = (await standup(make_context)).text
    assert r"| coder (Builder) | working | Build \| it (t-1) | 40% | 0 | 0 | 0 | 0 s |" in section(text, "Agents")
    assert "| ops (Conductor) | silent (was idle) | – | – | 0 | 0 | 0 | 1 min |" in section(text, "Agents")
    assert "- ops: last beat 1 min ago" in section(text, "Silent")
    assert "coder" not in section(text, "Silent")
    assert ": 8 agents, 1 working, 7 silent;" in text


async def test_what_ended_longer_than_a_day_ago_is_left_out(
    store: Store, time: FakeClock, make_context: ContextMaker, make_task: TaskMaker
) -> None:
    finish(store, make_task("ops", "Old work", id="old"), DONE)
    time.advance(timedelta(hours=24, seconds=1).total_seconds())
    finish(store, make_task("ops", "Fresh work", id="fresh"), DONE)
    finish(store, make_task("ops", "Bad work", id="bad"), FAILED)
    time.advance(timedelta(hours=2).total_seconds())
    report = await standup(make_context)
    done = section(report.text, "Completed in the last 24 h")
    assert "| ops | Fresh work | fresh | 2 h ago |" in done
    assert "Old work" not in done and "Bad work" not in done
    assert "1 completed and 1 failed in 24 h" in report.text
    assert "task fresh: completed" in report.evidence and "task old: completed" not in report.evidence


async def test_queues_blockers_and_alerts(
    store: Store, time: FakeClock, make_context: ContextMaker, make_task: TaskMaker
) -> None:
    store.tasks.accept(make_task("coder", "First", id="first", priority="urgent"), 100)
    store.tasks.accept(make_task("coder", "Second", id="second", blocked_by=["first"]), 100)
    store.tasks.accept(make_task("any", "For anybody", id="free", approval=True), 100)
    finish(store, make_task("sales", "Call", id="call", needs=["a | key"]), replace(FAILED, blocker=True))
    store.alerts.raise_alert("damaged_file", "ops", "A file was damaged", "bad JSON", severity="high", next_="look")
    time.advance(timedelta(hours=3).total_seconds())
    report = await standup(make_context)
    queues = section(report.text, "Queues")
    assert "| coder | 1 | 1 | 0 | 3 h |" in queues
    assert "| global queue | 0 | 0 | 1 | 3 h |" in queues
    assert r"| medium | sales | Call | no such host | a \| key | 3 h |" in section(report.text, "Blockers")
    assert "| high | ops | A file was damaged | look | 1 | open | 3 h |" in section(report.text, "Open alerts")
    assert "knowledge/blockers.json: blocker-sales-call" in report.evidence
    assert "system/human/damaged_file-ops.json" in report.evidence


# -- what comes first

NOW = MORNING


def facts_with(**fields: object) -> _standup.Standup:
    """A quiet standup with some fields replaced."""
    quiet = _standup.Standup(NOW, [], [], [], [], [], [])
    return replace(quiet, **fields)  # type: ignore[arg-type]


def agent_with(agent: str, status: AgentStatus, done: Throughput, waiting: int = 0) -> _standup.AgentFacts:
    now = clock.iso(NOW)
    state = AgentState(
        agent_id=agent,
        status=status,
        last_activity=now,
        last_heartbeat=now,
        context_limit=1,
        session_id="s",
        incarnation=1,
        stamps=Stamps(boot_id="boot", activity_s=1.0),
    )
    return _standup.AgentFacts(agent, agent, state, 0.5, waiting, done, DEFAULT)


def task_at(minutes_ago: int, id_: str, **fields: object) -> Task:
    at = clock.iso(NOW - timedelta(minutes=minutes_ago))
    return Task.model_validate(
        {"id": id_, "title": "T", "owner": "any", "from": "human", "createdAt": at, "updatedAt": at, **fields}
    )


def blocker(id_: str, severity: str) -> Blocker:
    return Blocker.model_validate(
        {"id": id_, "agent": "ops", "topic": "P", "description": "d", "severity": severity, "since": clock.iso(NOW)}
    )


def alert(severity: str) -> Alert:
    at = clock.iso(NOW)
    return Alert.model_validate(
        {
            "id": "a",
            "at": at,
            "severity": severity,
            "agentId": "x",
            "type": "y",
            "title": "z",
            "detail": "",
            "since": at,
        }
    )


NOTHING = Throughput(0, 0, None)


@pytest.mark.parametrize(
    ("facts", "first_words"),
    [
        (facts_with(), []),
        (
            facts_with(blockers=[blocker("b1", "critical"), blocker("b2", "low")], unknown=[task_at(9, "u")]),
            ["Clear ops's critical blocker b1", "Decide what became of u", "Clear ops's low blocker b2"],
        ),
        (facts_with(alerts=[alert("medium")]), []),
        (facts_with(alerts=[alert("critical")]), ["Answer the critical alert a"]),
        (
            facts_with(
                open_tasks=[
                    task_at(5, "young", priority="urgent"),
                    task_at(90, "old", priority="urgent"),
                    task_at(300, "calm"),
                    task_at(60, "ask", status="awaiting_approval"),
                ]
            ),
            ["Get old, T, going: the oldest of 2 urgent waiting, for 1 h 30 min", "Approve or cancel ask"],
        ),
        # Half failed is not yet more failures than successes.
        (facts_with(agents=[agent_with("a", AgentStatus.WORKING, Throughput(1, 1, None))]), []),
        (
            facts_with(
                agents=[
                    agent_with("a", AgentStatus.WORKING, Throughput(1, 2, None)),
                    agent_with("b", AgentStatus.WORKING, Throughput(0, 1, None)),
                ]
            ),
            ["Find out why b fails: 1 of 1", "Find out why a fails: 2 of 3"],
        ),
        (facts_with(agents=[agent_with("a", AgentStatus.WORKING, NOTHING, waiting=100)]), ["Relieve a: 100"]),
        (
            facts_with(agents=[agent_with("a", AgentStatus.IDLE, NOTHING)], open_tasks=[task_at(1, "free")]),
            ["Give free, T, to somebody: 1 task in the global queue, while a is idle"],
        ),
        (
            facts_with(agents=[agent_with("a", AgentStatus.WORKING, NOTHING)], open_tasks=[task_at(1, "free")]),
            [],
        ),
        (
            facts_with(agents=[replace(agent_with("a", AgentStatus.IDLE, NOTHING), beat_age_s=None)]),
            ["Wake or restart a: no beat since this host started"],
        ),
    ],
)
def test_priorities(facts: _standup.Standup, first_words: list[str]) -> None:
    found = _standup.priorities(facts)
    assert len(found) == len(first_words)
    for line, words in zip(found, first_words, strict=True):
        assert line.startswith(words)
