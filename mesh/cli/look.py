"""status, limits, events, doctor."""

from __future__ import annotations

import sys
from typing import Any

import click

from mesh.cli.app import as_json_text, cli, echo_json, known_agent, one_line, open_store, table, with_json, with_root
from mesh.clock import SYSTEM


@cli.command()
@click.option("--watch", is_flag=True, help="Show it again and again until Ctrl-C.")
@with_root
@with_json
def status(watch: bool, root: str | None, as_json: bool) -> int:
    """Every agent: status, current task, buddy, last beat. Works with the mesh down."""
    from mesh.service.overview import summary

    store = open_store(root)
    while True:
        found = summary(store)
        if as_json:
            echo_json(found)
        else:
            from mesh.cli.live_table import render

            if watch and sys.stdout.isatty():
                click.clear()
            click.echo(_head(found))
            click.echo(render(store))
            click.echo(_tail(found), nl=False)
        if not watch:
            return 0
        SYSTEM.sleep(1.0)


@cli.command()
@click.argument("agent", required=False)
@with_root
@with_json
def limits(agent: str | None, root: str | None, as_json: bool) -> None:
    """Every limit: unit, default, value in force, reason; with AGENT, those of one agent."""
    store = open_store(root)
    if agent is not None:
        known_agent(store, agent)
    rows = store.registry.current.limits_for(agent).rows()
    if as_json:
        echo_json(rows)
        return
    lines = []
    for row in rows:
        changed = "" if row["value"] == row["default"] else "*"
        values = [row["name"], _number(row["value"]) + changed, _number(row["default"]), row["unit"], row["reason"]]
        lines.append(values)
    click.echo(table(["LIMIT", "IN FORCE", "DEFAULT", "UNIT", "REASON"], lines))


@cli.command()
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("-n", "--lines", default=20, show_default=True, type=click.IntRange(0, 100_000))
@click.option("--agent", help="Only this agent's.")
@with_root
@with_json
def events(follow: bool, lines: int, agent: str | None, root: str | None, as_json: bool) -> None:
    """What was done and why, oldest first."""
    store = open_store(root)

    def show(found: list[dict[str, Any]]) -> None:
        for event in found:
            if agent is None or agent in (event.get("agentId"), event.get("about")):
                click.echo(_event(event, as_json))

    _, offset = store.journal.read_events_from(0)
    recent = store.journal.read_events(100_000 if agent else lines)
    if agent is not None:
        recent = [event for event in recent if agent in (event.get("agentId"), event.get("about"))]
    show(recent[-lines:] if lines else [])
    while follow:
        SYSTEM.sleep(0.3)
        new, offset = store.journal.read_events_from(offset)
        show(new)
        sys.stdout.flush()


@cli.command()
@with_root
@with_json
def doctor(root: str | None, as_json: bool) -> int:
    """Check registry, ports, permissions, disk, clock and files; say how to mend each."""
    from mesh.service.doctor import examine

    findings = examine(open_store(root))
    if as_json:
        echo_json([finding.dump() for finding in findings])
    else:
        for finding in findings:
            click.echo(f"{'ok  ' if finding.ok else 'BAD '} {finding.check}: {finding.detail}")
            if not finding.ok:
                click.echo(f"     mend: {finding.mend}")
    return 0 if all(finding.ok for finding in findings) else 1


def _head(found: dict[str, Any]) -> str:
    by = found["supervisor"]
    how = f"up (pid {by['pid']}, {by['mode']})" if by else "no supervisor"
    lines = [f"root {found['root']}   {how}   tick {found['tick']}   phase {found['phase']}"]
    lines[0] += f"   {found['openTasks']} open tasks"
    if not found["registry"]["ok"]:
        lines.append(f"registry NOT in force: {found['registry']['error']['detail']}")
    if found["registry"]["replacedLink"]:
        lines.append(
            f"registry: agents/registry.json is no longer a link to {found['registry']['replacedLink']}; "
            "the file in the root is in force"
        )
    for agent, note in found["paused"].items():
        who = "all agents are" if agent == "*" else f"{agent} is"
        lines.append(f"paused: {who} paused by {note.get('by')} since {note.get('at')}: {note.get('reason') or '-'}")
    return "\n".join(lines) + "\n"


def _tail(found: dict[str, Any]) -> str:
    lines = [f"alert: [{a['severity']}] {a['agentId']}: {a['title']}. {a['detail']}" for a in found["alerts"]]
    lines += [f"blocker: {b['agent']}: {b['topic']}: {b['description']}" for b in found["blockers"]]
    return "".join(f"\n{one_line(line)}" for line in lines) + ("\n" if lines else "")


def _event(event: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return as_json_text(event)
    known = ("at", "tick", "agentId", "event", "reason")
    ids = " ".join(f"{key}={value}" for key, value in event.items() if key not in known and value is not None)
    parts = [str(event.get("at")), f"{event.get('agentId')!s:<8}", str(event.get("event")), str(event.get("reason"))]
    return "  ".join(part if part is parts[1] else one_line(part) for part in (*parts, ids) if part)


def _number(value: float | int | None) -> str:
    return "-" if value is None else f"{value:,}".replace(",", "_") if isinstance(value, int) else f"{value:g}"
