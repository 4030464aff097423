"""ping, wake, pause, resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mesh.cli.app import cli, echo_json, known_agent, open_store, with_json, with_root
from mesh.clock import SYSTEM
from mesh.errors import BadUse, MeshError
from mesh.models import HUMAN

if TYPE_CHECKING:
    from mesh.store import Store


@cli.command()
@click.argument("agent", required=False)
@with_root
@with_json
def ping(agent: str | None, root: str | None, as_json: bool) -> int:
    """Ask an agent, or all, whether they are healthy."""
    from mesh.cli.peer import call

    store = open_store(root)
    agents = [known_agent(store, agent)] if agent else list(store.registry.current.agents)
    answers = []
    for name in agents:
        began_s = SYSTEM.monotonic()
        try:
            answer = call(store, name, "GET", "/health", timeout_s=5.0)
        except MeshError as error:
            answer = {"agentId": name, "status": "silent", "reasons": [error.detail]}
        if answer["agentId"] != name:
            reason = f"{answer['agentId']} answers on its port"
            answer = {"agentId": name, "status": "silent", "reasons": [reason]}
        answers.append({**answer, "ms": round((SYSTEM.monotonic() - began_s) * 1000, 1)})
    if as_json:
        echo_json(answers)
    else:
        for found in answers:
            reasons = f"  {'; '.join(found['reasons'])}" if found["reasons"] else ""
            click.echo(f"{found['agentId']:<12} {found['status']:<10} {found['ms']:>6.1f} ms{reasons}")
    return 0 if all(found["status"] == "healthy" for found in answers) else 1


@cli.command()
@click.argument("agent")
@click.option("--reason", default="asked by a person")
@with_root
def wake(agent: str, reason: str, root: str | None) -> int:
    """Have an agent look for work and edited files now. Never touches a task that runs."""
    from mesh.cli.peer import call

    store = open_store(root)
    answer = call(store, known_agent(store, agent), "POST", "/wake", {"reason": reason})
    click.echo(f"{agent} is awake: {', '.join(answer['did'])}.")
    return 0


@cli.command()
@click.argument("agent", required=False)
@click.option("--all", "everyone", is_flag=True, help="Every agent.")
@click.option("--reason", default="", help="Why; shown in status.")
@with_root
def pause(agent: str | None, everyone: bool, reason: str, root: str | None) -> int:
    """Stop work within 2 s, until `mesh resume`: what runs goes back to the queue, nothing new starts.

    It is a file, so it holds while daemons hang and after a reboot.
    """
    from mesh.store.switches import ALL

    store = open_store(root)
    who = _whom(agent, everyone)
    if who != ALL:
        known_agent(store, who)
    store.switches.pause(who, HUMAN, reason)
    store.journal.event("operator", "pause", reason, about=who)
    _make_sure(store, list(store.registry.current.agents) if who == ALL else [who], reason or "paused")
    click.echo(f"{'Every agent' if who == ALL else who} is paused until `mesh resume`.")
    return 0


def _make_sure(store: Store, agents: list[str], reason: str) -> None:
    """Programs that work for these agents end, if need be without their daemons, which may hang."""
    from mesh.service.run_ends import PAUSE_GRACE_S, PAUSE_OBEYED_S, end_runs, live_runs

    deadline_s = SYSTEM.monotonic() + PAUSE_OBEYED_S
    while live_runs(store, agents) and SYSTEM.monotonic() < deadline_s:
        SYSTEM.sleep(0.05)
    end_runs(store, agents, reason, PAUSE_GRACE_S)


@cli.command()
@click.argument("agent", required=False)
@click.option("--all", "everyone", is_flag=True, help="End every pause.")
@with_root
def resume(agent: str | None, everyone: bool, root: str | None) -> int:
    """End an agent's pause, or with --all every pause."""
    from mesh.store.switches import ALL

    store = open_store(root)
    who = ALL if agent is None else _whom(agent, everyone)
    if who != ALL:
        known_agent(store, who)
        if ALL in store.switches.paused():
            raise BadUse(f"All agents are paused together; `mesh resume --all` ends that, also for {who}.")
    ended = store.switches.resume(who)
    store.journal.event("operator", "resume", "", about=who)
    names = ", ".join("all" if name == ALL else name for name in ended)
    click.echo(f"Resumed: {names}." if ended else "Nothing was paused.")
    return 0


def _whom(agent: str | None, everyone: bool) -> str:
    from mesh.store.switches import ALL

    if (agent is None) == (not everyone):
        raise BadUse("Name one agent, or say --all.")
    return ALL if everyone or agent is None else agent
