"""init, up, down, start, stop, restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from mesh.cli.app import cli, known_agent, open_store, root_of, with_root
from mesh.cli.live_table import LiveTable, not_healthy, render
from mesh.clock import SYSTEM
from mesh.errors import BadUse, MeshError

if TYPE_CHECKING:
    from mesh.store import Store

_tick_option = click.option(
    "--tick-seconds", metavar="S", help="Length of a tick; below 60 mesh time runs faster, for demonstrations."
)


@cli.command()
@with_root
@click.option("--base-port", type=int, metavar="N", help="Give the agents the ports N+1, N+2, …")
def init(root: str | None, base_port: int | None) -> None:
    """Make the mesh's folder: registry, secrets, sample inputs. Doing it again keeps what is there."""
    from mesh.store import Store
    from mesh.store.setup import initialise

    store = Store(root_of(root if root or os.environ.get("MESH_ROOT") else _here()))
    made = initialise(store, base_port)
    click.echo(f"{store.layout.root}: {', '.join(made) if made else 'everything was there'}")


@cli.command()
@with_root
@click.option("-d", "--detach", is_flag=True, help="Go on in the background, beyond the end of this terminal.")
@click.option("--one-process", is_flag=True, help="All agents in one process, for a small VPS.")
@_tick_option
def up(root: str | None, detach: bool, one_process: bool, tick_seconds: str | None) -> int:
    """Start all agents and keep them running until Ctrl-C."""
    from mesh.service.api import tick_seconds as parse_tick
    from mesh.store.setup import prepare_agents

    seconds = parse_tick(tick_seconds or os.environ.get("MESH_TICK_SECONDS"))
    store = open_store(root)
    prepare_agents(store, store.registry.current)
    if store.registry.error:
        click.echo(f"mesh: {store.registry.error.detail} The last good registry is in force.", err=True)
    if detach:
        return _up_detached(store, one_process, seconds)
    from mesh.service.server import set_title, set_up_logging

    set_up_logging()
    set_title("mesh: all agents" if one_process else "mesh: supervisor")
    live = LiveTable(store)
    if one_process:
        import asyncio

        from mesh.service.one_process import OneProcess

        async def run() -> int:
            return await OneProcess(store, seconds, lambda all_: live.show(all_.roster.notes())).run()

        return asyncio.run(run())
    from mesh.service.supervisor import Supervisor

    return Supervisor(store, seconds, lambda supervisor: live.show(supervisor.roster.notes())).run()


@cli.command()
@with_root
def down(root: str | None) -> int:
    """Stop all agents and their supervisor."""
    from mesh.service.overview import supervisor

    store = open_store(root)
    found = supervisor(store)
    if found is None:
        click.echo(f"The mesh of {store.layout.root} is not up.")
        return 0
    os.kill(found["pid"], signal.SIGTERM)
    os.kill(found["pid"], signal.SIGCONT)  # one that is stopped must wake up to end
    wait_s = store.registry.current.limits_for().stop_grace_s + 5
    if not _until(lambda: supervisor(store) is None, wait_s):
        os.kill(found["pid"], signal.SIGKILL)  # its agents see its end and end themselves
        _until(lambda: not any(store.process(agent) for agent in store.registry.current.agents), wait_s)
        click.echo(f"mesh: the supervisor (pid {found['pid']}) did not end by itself; it was killed.", err=True)
    click.echo("All agents have stopped.")
    return 0


@cli.command()
@click.argument("agent")
@with_root
def start(agent: str, root: str | None) -> int:
    """Start an agent that was stopped, or that its supervisor has given up."""
    store = open_store(root)
    known_agent(store, agent)
    store.switches.unstop(agent)
    store.alerts.resolve("agent_down", agent)
    return _ask_supervisor(store, "start", agent)


@cli.command()
@click.argument("agent")
@click.option("--reason", default="", help="Why; shown in status and events.")
@with_root
def stop(agent: str, reason: str, root: str | None) -> int:
    """Stop an agent; it stays stopped, for whoever might start it, until `mesh start`."""
    store = open_store(root)
    known_agent(store, agent)
    store.switches.stop(agent, "operator", reason)
    process = store.process(agent)
    if process is not None and process.pid != _shared_pid(store):
        os.kill(process.pid, signal.SIGTERM)
    if not _until(lambda: store.process(agent) is None or _beat_is_old(store, agent), 10):
        raise MeshError(f"{agent} (pid {process.pid if process else '?'}) has not ended within 10 s.")
    click.echo(f"{agent} is stopped until `mesh start {agent}`.")
    return 0


@cli.command()
@click.argument("agent")
@with_root
def restart(agent: str, root: str | None) -> int:
    """Restart an agent; its work in hand goes back to the queue."""
    store = open_store(root)
    known_agent(store, agent)
    store.switches.unstop(agent)
    return _ask_supervisor(store, "restart", agent)


@click.command()
@click.argument("agent")
@with_root
@_tick_option
def one_agent(agent: str, root: str | None, tick_seconds: str | None) -> int:
    """Run one agent in the foreground, until SIGTERM or Ctrl-C."""
    from mesh.service.api import tick_seconds as parse_tick
    from mesh.service.server import run_agent

    store = open_store(root)
    known_agent(store, agent)
    if store.switches.is_stopped(agent):
        click.echo(f"mesh: {agent} is to stay stopped until `mesh start {agent}`.", err=True)
        return 0
    seconds = parse_tick(tick_seconds or os.environ.get("MESH_TICK_SECONDS"))
    return run_agent(agent, store.layout.root, seconds)


def _here() -> str:
    """Where `mesh init` makes a root when nobody says where: ./shared."""
    return os.path.abspath("shared")


def _up_detached(store: Store, one_process: bool, tick_seconds: float) -> int:
    from mesh.service.overview import supervisor

    if (found := supervisor(store)) is not None:
        raise BadUse(f"The mesh of {store.layout.root} is up already (pid {found['pid']}); `mesh down` stops it.")
    argv = [sys.executable, "-m", "mesh", "up", "--root", store.layout.root, "--tick-seconds", str(tick_seconds)]
    for agent in store.registry.current.agents:
        store.alerts.resolve("agent_down", agent)  # everybody gets a new chance
    log = store.open_log()
    before = len(store.read_log())
    child = subprocess.Popen(
        argv + ["--one-process"] * one_process,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    os.close(log)
    wait_s = store.registry.current.limits_for().start_wait_s
    _until(lambda: child.poll() is not None or not (not_healthy(store) - given_up(store)), wait_s)
    if child.poll() is not None:
        words = [line for line in store.read_log()[before:].splitlines() if line.strip()]
        raise MeshError(f"It ended at once: {words[-1][-500:] if words else 'without a word'}")
    click.echo(render(store))
    if missing := not_healthy(store):
        raise MeshError(f"Not healthy: {', '.join(sorted(missing))}; the others run. See {store.layout.log}.")
    click.echo(f"The mesh goes on in the background (pid {child.pid}); `mesh down` stops it.")
    return 0


def given_up(store: Store) -> set[str]:
    """Whom the supervisor has given up."""
    return {alert.agent_id for alert in store.alerts.open() if alert.type == "agent_down"}


def _ask_supervisor(store: Store, verb: str, agent: str) -> int:
    from mesh.service.overview import supervisor

    if supervisor(store) is None:
        raise MeshError(f"No supervisor runs for {store.layout.root}; `mesh up` starts {agent} with all others.")
    old = store.process(agent)
    store.switches.request(verb, agent)

    def is_back() -> bool:
        new, beat = store.process(agent), store.beat(agent)
        fresh = new is not None and beat is not None and beat.incarnation == new.incarnation
        replaced = old is None or verb == "start" or (new is not None and new.incarnation != old.incarnation)
        return fresh and replaced

    wait_s = store.registry.current.limits_for().start_wait_s
    if not _until(is_back, wait_s):
        raise MeshError(f"{agent} is not back after {wait_s:g} s; see `mesh status` and {store.layout.log}.")
    process = store.process(agent)
    click.echo(f"{agent} runs (incarnation {process.incarnation if process else '?'}).")
    return 0


def _shared_pid(store: Store) -> int | None:
    """The process that is every agent's, under --one-process."""
    from mesh.service.overview import supervisor

    found = supervisor(store)
    return int(found["pid"]) if found and found.get("mode") == "one process" else None


def _beat_is_old(store: Store, agent: str) -> bool:
    beat = store.beat(agent)
    age_s = beat.age_s(store.time) if beat else None
    return age_s is None or age_s > 2.5


def _until(condition: Callable[[], bool], wait_s: float) -> bool:
    """Wait for a condition, for so long at most."""
    deadline_s = SYSTEM.monotonic() + wait_s
    while not condition():
        if SYSTEM.monotonic() >= deadline_s:
            return False
        SYSTEM.sleep(0.05)
    return True
