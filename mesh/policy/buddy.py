"""Buddies: who watches whom, what they ask themselves and each other, and what follows.

`buddy` names whom an agent watches. Everybody is watched, so the pairings are rings: a new agent is spliced into
one, a removed one is closed over. Questions and checks are the protocol document's (sections 2 and 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.limits import Limits
from mesh.models import AgentState, AgentStatus


@dataclass(frozen=True)
class Situation:
    """What is known of an agent when it is asked about. Ages in mesh minutes; None where unknown."""

    state: AgentState
    queue_length: int
    idle_min: float | None
    activity_min: float | None
    completed_min: float | None
    task_min: float | None
    #: How long ago the buddy answered a ping.
    buddy_answer_min: float | None
    alerts: int
    paused: bool = False
    disk_low: bool = False


@dataclass(frozen=True)
class Question:
    question: str
    answer: bool
    #: Whether the answer is as it should be.
    ok: bool


def splice_in(buddies: Mapping[str, str], new: str, before: str) -> dict[str, str]:
    """The pairings with `new` added: whoever watched `before` now watches it, and it watches `before`."""
    watcher = next(agent for agent, buddy in buddies.items() if buddy == before)
    return {**buddies, watcher: new, new: before}


def splice_out(buddies: Mapping[str, str], gone: str) -> dict[str, str]:
    """The pairings without `gone`: its watcher takes its buddy over, or, where the two were a pair, the one that
    is left joins the ring of the first agent."""
    rest = {agent: buddy for agent, buddy in buddies.items() if agent != gone}
    watcher = next(agent for agent, buddy in buddies.items() if buddy == gone)
    if watcher != buddies[gone]:
        return {**rest, watcher: buddies[gone]}
    others = {agent: buddy for agent, buddy in rest.items() if agent != watcher}
    return splice_in(others, watcher, next(iter(others.values()))) if others else rest


def concerns(now: Situation, limits: Limits) -> list[str]:
    """What an agent says of itself when its buddy pings it."""
    found = []
    if now.paused:
        found.append("paused")
    if now.disk_low:
        found.append("too little free disk space; nothing new starts")
    if now.state.context_tokens > now.state.context_limit * limits.context_warn_ratio:
        found.append(f"context over {limits.context_warn_ratio:.0%}")
    if _errors_repeat(now.state, limits):
        found.append(f"error rate {now.state.metrics.error_rate:.0%}")
    if now.task_min is not None and now.task_min > limits.task_stuck_min:
        found.append(f"on one task for {now.task_min:.0f} min")
    if now.queue_length >= limits.buddy_queue_max:
        found.append(f"{now.queue_length} tasks waiting")
    return found


def review(now: Situation, limits: Limits) -> dict[str, bool]:
    """The four checks of the hourly review: True is good."""
    return {
        "taskQueueNotEmpty": now.queue_length > 0 or now.state.status is AgentStatus.WORKING,
        "lastActivityWithin2Hours": now.activity_min is not None and now.activity_min <= limits.activity_max_min,
        "noRepeatedErrors": not _errors_repeat(now.state, limits),
        "contextUnderLimit": now.state.context_tokens <= now.state.context_limit * limits.context_compress_ratio,
    }


def review_actions(checks: Mapping[str, bool]) -> list[str]:
    """What the reviewed agent does about failed checks; each has a case in the agent that carries it out."""
    actions = []
    if not checks.get("taskQueueNotEmpty", True) or not checks.get("lastActivityWithin2Hours", True):
        actions.append("look_for_work")
    if not checks.get("noRepeatedErrors", True):
        actions.append("report_errors")
    return actions


def self_questions(now: Situation, limits: Limits) -> list[Question]:
    """The six questions that an agent asks itself every hour."""
    busy = now.queue_length > 0 or now.state.status is AgentStatus.WORKING
    recent = now.completed_min is not None and now.completed_min <= limits.activity_max_min
    answered = now.buddy_answer_min is not None and now.buddy_answer_min <= 2 * limits.ping_every_ticks
    roomy = now.state.context_tokens <= now.state.context_limit * limits.context_warn_ratio
    idle = not busy and now.idle_min is not None and now.idle_min > limits.idle_sync_min
    return [
        _question("Do I have tasks in my queue?", busy),
        _question("Have I completed anything in the last 2 hours?", recent),
        _question("Is my buddy alive and responsive?", answered),
        _question("Is my context usage under 70%?", roomy),
        _question("Are there system alerts I should address?", now.alerts > 0, good=False),
        _question("Should I generate work based on my responsibilities?", idle, good=False),
    ]


def buddy_questions(buddy: Situation | None, answer_min: float | None, limits: Limits) -> list[Question]:
    """The four questions that an agent asks about its buddy every hour; without a state, none is well."""
    answered = answer_min is not None and answer_min <= limits.ping_every_ticks
    length = buddy.queue_length if buddy else 0
    stuck = buddy is not None and buddy.task_min is not None and buddy.task_min > limits.task_stuck_min
    spiking = buddy is not None and _errors_repeat(buddy.state, limits)
    return [
        _question("Has my buddy responded to ping in last 15 min?", answered),
        _question("Is their task queue reasonable (not 0, not 100+)?", 0 < length < limits.buddy_queue_max),
        _question("Have they been 'working' on the same task for >3 hours?", stuck, good=False),
        _question("Is their error rate spiking?", spiking, good=False),
    ]


def _errors_repeat(state: AgentState, limits: Limits) -> bool:
    """As many failures as a task has attempts, and more of them than the share allowed: one failure is none."""
    metrics = state.metrics
    return metrics.errors24h >= limits.task_attempts_max and metrics.error_rate > limits.error_rate_max


def _question(question: str, answer: bool, *, good: bool = True) -> Question:
    return Question(question, answer, ok=answer is good)
