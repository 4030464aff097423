"""The standup: facts collected from the mesh, priorities computed from them, and the page that shows both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from agents import _taskflow
from agents._markdown import bullets, count, escape, report, table
from agents._spans import say, since
from mesh.limits import Limits
from mesh.models import AgentState, AgentStatus, Alert, Blocker, Task, TaskStatus

if TYPE_CHECKING:
    from mesh.service.skill_context import SkillContext

SEVERITIES = ("critical", "high", "medium", "low")
_ENDED_READ_MAX = 2000
_COMPLETED_SHOWN_MAX = 50


@dataclass(frozen=True)
class AgentFacts:
    """One agent: what it says of itself, and what others can see of it."""

    id: str
    name: str
    state: AgentState | None
    beat_age_s: float | None
    waiting: int
    done: _taskflow.Throughput
    limits: Limits

    @property
    def silent(self) -> bool:
        """Whether its last beat is too old, or there is none of this boot."""
        return self.beat_age_s is None or self.beat_age_s > self.limits.offline_after_s

    @property
    def status(self) -> str:
        """The status to show. What a silent agent last said of itself is no longer a fact."""
        if self.state is None:
            return "never ran"
        return f"silent (was {self.state.status})" if self.silent else str(self.state.status)


@dataclass(frozen=True)
class Standup:
    now: datetime
    agents: list[AgentFacts]
    open_tasks: list[Task]
    #: What ended in the last 24 h, newest first.
    ended: list[Task]
    #: Tasks whose outcome is unknown, however old: they wait for a person.
    unknown: list[Task]
    blockers: list[Blocker]
    alerts: list[Alert]


def collect(context: SkillContext) -> Standup:
    """Read what there is to know, once."""
    now, open_tasks = context.now, context.open_tasks()
    last = context.ended_tasks(_ENDED_READ_MAX)
    unknown = _taskflow.with_status(last, TaskStatus.OUTCOME_UNKNOWN)
    ended = _taskflow.ended_within(last, now, _taskflow.DAY)
    agents = [
        AgentFacts(
            id=agent,
            name=entry.name,
            state=context.state(agent),
            beat_age_s=context.beat_age_s(agent),
            waiting=sum(task.owner == agent and task.status is TaskStatus.QUEUED for task in open_tasks),
            done=_taskflow.throughput(task for task in ended if task.owner == agent),
            limits=context.registry.limits_for(agent),
        )
        for agent, entry in context.registry.agents.items()
    ]
    blockers = sorted(context.blockers(), key=lambda blocker: (SEVERITIES.index(blocker.severity), blocker.since))
    alerts = sorted(context.alerts(), key=lambda alert: (SEVERITIES.index(alert.severity), alert.since))
    return Standup(now, agents, open_tasks, ended, unknown, blockers, alerts)


# -- what comes first


def priorities(facts: Standup) -> list[str]:
    """What to do first, most pressing first; each with the fact that it follows from. Empty if nothing presses."""
    grave = [blocker for blocker in facts.blockers if blocker.severity in ("critical", "high")]
    lesser = [blocker for blocker in facts.blockers if blocker not in grave]
    return [
        *_from_alerts(facts.alerts),
        *_from_blockers(grave),
        *(f"Wake or restart {agent.id}: {_silence(agent)}." for agent in facts.agents if agent.silent),
        *_from_tasks(facts),
        *_from_failures(facts.agents),
        *_from_blockers(lesser),
        *_from_queues(facts),
    ]


def _from_alerts(alerts: list[Alert]) -> list[str]:
    grave = [alert for alert in alerts if alert.severity in ("critical", "high")]
    return [
        f"Answer the {alert.severity} alert {alert.id}: {alert.title}{f' ({alert.next})' if alert.next else ''}."
        for alert in grave
    ]


def _from_blockers(blockers: list[Blocker]) -> list[str]:
    return [
        f"Clear {blocker.agent}'s {blocker.severity} blocker {blocker.id}, {blocker.topic}: {blocker.description}"
        for blocker in blockers
    ]


def _from_tasks(facts: Standup) -> list[str]:
    lines = [f"Decide what became of {task.id}, {task.title}: its outcome is unknown." for task in facts.unknown]
    queued = _taskflow.with_status(facts.open_tasks, TaskStatus.QUEUED)
    urgent = [task for task in queued if task.priority == "urgent"]
    if urgent:
        oldest = urgent[0]
        age = say(since(oldest.created_at, facts.now))
        lines.append(f"Get {oldest.id}, {oldest.title}, going: the oldest of {len(urgent)} urgent waiting, for {age}.")
    waiting = _taskflow.with_status(facts.open_tasks, TaskStatus.AWAITING_APPROVAL)
    if waiting:
        age = say(since(waiting[0].created_at, facts.now))
        lines.append(f"Approve or cancel {waiting[0].id}, {waiting[0].title}: it awaits approval for {age}.")
    return lines


def _from_failures(agents: list[AgentFacts]) -> list[str]:
    failing = [agent for agent in agents if agent.done.failed and agent.done.error_rate > agent.limits.error_rate_max]
    failing.sort(key=lambda agent: (-agent.done.error_rate, -agent.done.failed))
    return [
        f"Find out why {agent.id} fails: {agent.done.failed} of {agent.done.ended} tasks in 24 h." for agent in failing
    ]


def _from_queues(facts: Standup) -> list[str]:
    lines = [
        f"Relieve {agent.id}: {agent.waiting} tasks wait for it."
        for agent in facts.agents
        if agent.waiting >= agent.limits.buddy_queue_max
    ]
    unclaimed = [task for task in facts.open_tasks if task.owner == "any" and task.status is TaskStatus.QUEUED]
    idle = [agent.id for agent in facts.agents if agent.status == AgentStatus.IDLE]
    if unclaimed and idle:
        lines.append(
            f"Give {unclaimed[0].id}, {unclaimed[0].title}, to somebody: {count(len(unclaimed), 'task')} in the "
            f"global queue, while {', '.join(idle)} {'is' if len(idle) == 1 else 'are'} idle."
        )
    return lines


def _silence(agent: AgentFacts) -> str:
    return "no beat since this host started" if agent.beat_age_s is None else f"last beat {_beat(agent)} ago"


def _beat(agent: AgentFacts) -> str:
    return "none" if agent.beat_age_s is None else say(timedelta(seconds=agent.beat_age_s))


# -- the page


def render(facts: Standup) -> str:
    ordered = priorities(facts)
    numbered = "\n".join(f"{number}. {escape(line)}" for number, line in enumerate(ordered, start=1))
    return report(
        summary(facts),
        ("Priorities", numbered or "Nothing presses: no grave alert, no blocker, nobody silent or failing."),
        ("Agents", _agents_table(facts)),
        ("Completed in the last 24 h", _completed(facts)),
        ("Queues", _queues(facts)),
        ("Blockers", _blockers(facts)),
        ("Open alerts", _alerts(facts)),
        ("Silent", bullets(f"{agent.id}: {_silence(agent)}" for agent in facts.agents if agent.silent)),
    )


def summary(facts: Standup) -> str:
    """The whole in one line."""
    working = sum(agent.status == AgentStatus.WORKING for agent in facts.agents)
    done = _taskflow.throughput(facts.ended)
    waiting = len(_taskflow.with_status(facts.open_tasks, TaskStatus.QUEUED))
    return (
        f"Standup of {facts.now:%Y-%m-%d %H:%M}: {count(len(facts.agents), 'agent')}, {working} working, "
        f"{sum(agent.silent for agent in facts.agents)} silent; {done.completed} completed and {done.failed} failed in "
        f"24 h; {waiting} waiting; {count(len(facts.blockers), 'blocker')}, {count(len(facts.alerts), 'open alert')}."
    )


def _agents_table(facts: Standup) -> str:
    headers = ["Agent", "Status", "Current task", "Progress", "Done 24 h", "Failed 24 h", "Waiting", "Last beat"]
    rows = []
    for agent in facts.agents:
        task = agent.state.current_task if agent.state else None
        rows.append(
            [
                f"{agent.id} ({agent.name})",
                agent.status,
                f"{task.title} ({task.id})" if task else "–",
                f"{task.progress:.0%}" if task else "–",
                agent.done.completed,
                agent.done.failed,
                agent.waiting,
                _beat(agent),
            ]
        )
    return table(headers, rows)


def _completed(facts: Standup) -> str:
    done = [task for task in facts.ended if task.status is TaskStatus.COMPLETED]
    if not done:
        return "Nothing."
    rows = [
        [task.owner, task.title, task.id, f"{say(since(task.finished_at, facts.now))} ago"]
        for task in done[:_COMPLETED_SHOWN_MAX]
    ]
    more = len(done) - len(rows)
    return table(["Agent", "Task", "Id", "Ended"], rows) + (f"\n\nAnd {more} more." if more else "")


def _queues(facts: Standup) -> str:
    waits = (TaskStatus.QUEUED, TaskStatus.BLOCKED, TaskStatus.AWAITING_APPROVAL)
    rows = []
    for owner in [*(agent.id for agent in facts.agents), "any"]:
        own = [task for task in facts.open_tasks if task.owner == owner]
        numbers = [len(_taskflow.with_status(own, status)) for status in waits]
        oldest = min((task.created_at for task in own if task.status in waits), default=None)
        if any(numbers):
            rows.append(["global queue" if owner == "any" else owner, *numbers, say(since(oldest, facts.now))])
    return table(["Queue", "Queued", "Blocked", "Awaiting approval", "Oldest"], rows) if rows else "All are empty."


def _blockers(facts: Standup) -> str:
    headers = ["Severity", "Agent", "Topic", "What", "Needs", "For"]
    rows = [
        [b.severity, b.agent, b.topic, b.description, ", ".join(b.needs) or "–", say(since(b.since, facts.now))]
        for b in facts.blockers
    ]
    return table(headers, rows) if rows else "None."


def _alerts(facts: Standup) -> str:
    headers = ["Severity", "Agent", "Alert", "Next", "Count", "Status", "For"]
    rows = [
        [a.severity, a.agent_id, a.title, a.next or "–", a.count, a.status, say(since(a.since, facts.now))]
        for a in facts.alerts
    ]
    return table(headers, rows) if rows else "None."


def evidence(facts: Standup) -> list[str]:
    """What the page rests on, by file."""
    return [
        *(f"agents/{agent.id}/state.json" for agent in facts.agents if agent.state),
        *(f"agents/{agent.id}/beat" for agent in facts.agents if agent.beat_age_s is not None),
        *(f"task {task.id}: {task.status}" for task in [*facts.open_tasks, *facts.unknown, *facts.ended]),
        *(f"knowledge/blockers.json: {blocker.id}" for blocker in facts.blockers),
        *(f"system/human/{alert.id}.json" for alert in facts.alerts),
    ]
