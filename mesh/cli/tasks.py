"""task add, list, show, cancel, resolve; approve and reject."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mesh.cli.app import cli, echo_json, known_agent, open_store, table, with_json, with_root
from mesh.clock import SYSTEM
from mesh.errors import BadUse, MeshError, NothingRunsIt, PeerUnavailable

if TYPE_CHECKING:
    from mesh.models import Task
    from mesh.store import Store

_OPEN = ("queued", "working", "blocked", "awaiting_approval")
_ENDINGS = {"completed": "completed", "failed": "failed", "retry": "queued"}


@cli.group()
def task() -> None:
    """Give, list, show and cancel tasks."""


@task.command()
@click.argument("title")
@click.option("--to", "agent", metavar="AGENT", help="Whom to give it to.")
@click.option("--any", "anyone", is_flag=True, help="Whoever is idle and responsible for --needs.")
@click.option("--needs", multiple=True, metavar="RESPONSIBILITY", help="May be given again.")
@click.option("--description", default="")
@click.option("--priority", type=click.Choice(["urgent", "high", "normal", "low"]), default="normal")
@click.option("--skill", help="The skill to run, if the title doesn't name it.")
@click.option("--input", "input_json", metavar="JSON", default="{}", help="The skill's input, a JSON object.")
@click.option("--blocked-by", multiple=True, metavar="ID", help="Wait for this task; may be given again.")
@click.option("--external", is_flag=True, help="It acts on the outside world: never repeated by itself.")
@click.option("--id", "task_id", help="An id of your own; giving it again gives no second task.")
@click.option("--wait", "wait_s", type=float, metavar="SECONDS", help="Wait for its end and print its result.")
@with_root
@with_json
def add(root: str | None, as_json: bool, agent: str | None, anyone: bool, wait_s: float | None, **fields: Any) -> int:
    """Give a task to an agent, or to anyone."""
    if (agent is None) == (not anyone):
        raise BadUse("Say whom to give it to: --to AGENT or --any.")
    store = open_store(root)
    asked = _request(fields, anyone)
    accepted = _give(store, agent, asked)
    if wait_s is not None:
        return _wait(store, accepted, wait_s, as_json)
    if as_json:
        echo_json({"accepted": True, "taskId": accepted})
    else:
        click.echo(accepted)
    return 0


@task.command("list")
@click.option("--status", help="Only tasks with this status.")
@click.option("--owner", help="Only this agent's; 'any' for the global queue.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
@with_root
@with_json
def list_tasks(root: str | None, as_json: bool, status: str | None, owner: str | None, limit: int) -> None:
    """The open tasks as they are served, then the ended ones, newest first."""
    from mesh.models import TaskStatus

    if status is not None and status not in list(TaskStatus):
        raise BadUse(f"There is no status {status!r}; there are: {', '.join(TaskStatus)}.")
    store = open_store(root)

    def fits(entry: Task) -> bool:
        return status in (None, entry.status) and owner in (None, entry.owner)

    fitting = [entry for entry in store.tasks.open() if fits(entry)][:limit]
    fitting += store.tasks.ended(limit - len(fitting), fits=fits)
    if as_json:
        echo_json([entry.dump() for entry in fitting])
        return
    lines = [[t.id, t.status, t.priority, t.owner, t.from_, t.updated_at, t.title[:60]] for t in fitting]
    click.echo(table(["ID", "STATUS", "PRIORITY", "OWNER", "FROM", "UPDATED", "TITLE"], lines))


@task.command()
@click.argument("task_id")
@click.option("--wait", "wait_s", type=float, metavar="SECONDS", help="Wait for its end.")
@with_root
@with_json
def show(root: str | None, as_json: bool, task_id: str, wait_s: float | None) -> int:
    """A task with its result or error."""
    store = open_store(root)
    if wait_s is not None:
        return _wait(store, task_id, wait_s, as_json)
    _show(_find(store, task_id), as_json)
    return 0


@task.command()
@click.argument("task_id")
@with_root
def cancel(root: str | None, task_id: str) -> int:
    """Cancel a task; work on it stops within a moment."""
    store = open_store(root)
    _find(store, task_id)
    store.tasks.cancel(task_id, "operator", "cancelled by operator")
    store.journal.event("operator", "task_cancelled", "by command", taskId=task_id)
    click.echo(f"{task_id} is cancelled.")
    return 0


@task.command()
@click.argument("task_id")
@click.option("--as", "ending", type=click.Choice(list(_ENDINGS)), required=True, help="What you found out.")
@click.option("--note", default="", help="How you know.")
@with_root
def resolve(root: str | None, task_id: str, ending: str, note: str) -> int:
    """Decide about a task whose outcome is unknown, because it was cut short with external effects."""
    from mesh.models import TaskStatus, Verdict

    store = open_store(root)
    owner = _find(store, task_id).owner
    reason = f"decided by a person{': ' + note if note else ''}"
    status = TaskStatus(_ENDINGS[ending])
    verdict = Verdict(status, reason, error=reason if status is TaskStatus.FAILED else None)
    store.tasks.resolve(task_id, verdict, "operator")
    store.alerts.resolve("outcome_unknown", owner, task_id)
    store.journal.event("operator", "task_resolved", reason, taskId=task_id, status=status)
    click.echo(f"{task_id} is {status.value}.")
    return 0


@cli.command()
@click.argument("task_id")
@click.option("--note", default="", help="Kept in the task's history.")
@with_root
def approve(root: str | None, task_id: str, note: str) -> int:
    """Let a task go on that waits for a person's approval."""
    store = open_store(root)
    _find(store, task_id)
    status = store.tasks.approve(task_id, "operator", note).status
    store.journal.event("operator", "task_approved", note, taskId=task_id)
    click.echo(f"{task_id} is approved, and {status.value}.")
    return 0


@cli.command()
@click.argument("task_id")
@click.option("--note", default="", help="Why; kept in the task's history.")
@with_root
def reject(root: str | None, task_id: str, note: str) -> int:
    """End a task that waits for a person's approval."""
    from mesh.errors import Conflict

    store = open_store(root)
    if _find(store, task_id).status != "awaiting_approval":
        raise Conflict(f"{task_id!r} does not wait for approval.", taskId=task_id)
    store.tasks.cancel(task_id, "operator", f"rejected by a person{': ' + note if note else ''}")
    store.journal.event("operator", "task_rejected", note, taskId=task_id)
    click.echo(f"{task_id} is rejected.")
    return 0


def _request(fields: dict[str, Any], anyone: bool) -> dict[str, Any]:
    from uuid_utils import uuid7

    try:
        given = json.loads(fields["input_json"])
    except ValueError as error:
        raise BadUse(f"--input is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadUse("--input must be a JSON object, such as '{\"days\": 7}'.")
    asked = {
        "title": fields["title"],
        "description": fields["description"],
        "priority": fields["priority"],
        "needs": list(fields["needs"]),
        "blockedBy": list(fields["blocked_by"]),
        "input": given,
        "effects": "external" if fields["external"] else "none",
        "owner": "any" if anyone else None,
        "skill": fields["skill"],
        # Chosen here, so that giving it again after a time-out gives no second task.
        "id": fields["task_id"] or f"task-{uuid7()}",
    }
    return {key: value for key, value in asked.items() if value is not None}


def _give(store: Store, agent: str | None, asked: dict[str, Any]) -> str:
    """Hand the task to the agent, or, where none answers, put it durably where the agent finds it."""
    from mesh.cli.peer import call

    candidates = [known_agent(store, agent)] if agent else list(store.registry.current.agents)
    for candidate in candidates:
        try:
            return str(call(store, candidate, "POST", "/task", asked)["taskId"])
        except PeerUnavailable as error:
            if error.facts.get("reason") != "refused":
                hint = f"It may still take the task: see `mesh task show {asked['id']}`."
                raise MeshError(f"{error.detail} {hint}") from None
    return _put(store, candidates[0], asked)


def _put(store: Store, agent: str, asked: dict[str, Any]) -> str:
    from pydantic import ValidationError

    from mesh.models import HUMAN, TaskRequest
    from mesh.service.task_desk import make_task

    try:
        body = TaskRequest.model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadUse(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    made = make_task(agent, store.time.wall(), body, HUMAN, "operator")
    owners = list(store.registry.current.agents) if made.owner == "any" else [agent]
    titles = sorted({title for owner in owners if (state := store.state(owner)) for title in state.skills})
    if (made.skill or made.title).strip().casefold() not in {title.casefold() for title in titles}:
        raise NothingRunsIt(
            f"No skill is called {made.skill or made.title!r}; known are: {', '.join(titles) or 'none'}."
        )
    accepted, _ = store.tasks.accept(made, store.registry.current.limits_for().tasks_waiting_max)
    click.echo(f"mesh: {agent} is not up; the task waits for it.", err=True)
    return accepted.id


def _find(store: Store, task_id: str) -> Task:
    from mesh.errors import UnknownTask
    from mesh.models import is_id

    if not is_id(task_id):
        raise UnknownTask(f"There is no task {task_id!r}.", taskId=task_id)
    return store.tasks.find(task_id)


def _wait(store: Store, task_id: str, wait_s: float, as_json: bool) -> int:
    deadline_s = SYSTEM.monotonic() + wait_s
    while (found := _find(store, task_id)).status in _OPEN:
        if SYSTEM.monotonic() >= deadline_s:
            raise MeshError(f"{task_id} is still {found.status.value} after {wait_s:g} s.")
        SYSTEM.sleep(0.1)
    _show(found, as_json)
    return 0 if found.status == "completed" else 1


def _show(found: Task, as_json: bool) -> None:
    if as_json:
        echo_json(found.dump())
        return
    from mesh.policy.plain_text import plain

    lines = [f"{found.id}  {found.status}  {found.title}"]
    lines.append(f"owner {found.owner}, from {found.from_}, priority {found.priority}, attempts {found.attempts}")
    lines += [f"  {entry['at']}  {entry['status']}  {entry['reason']} ({entry['by']})" for entry in found.history]
    if found.error:
        lines.append(f"error: {found.error}")
    if found.result:
        lines.append(f"\n{found.result.text.rstrip()}")
        lines += [f"evidence: {evidence}" for evidence in found.result.evidence]
    click.echo(plain("\n".join(lines)))  # what agents wrote must not steer a terminal
