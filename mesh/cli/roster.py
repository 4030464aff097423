"""add, remove, registry check."""

from __future__ import annotations

import re
from typing import Any

import click

from mesh.cli.app import cli, echo_json, open_store, with_json, with_root
from mesh.errors import BadUse, NewerSchema, RegistryInvalid
from mesh.models import AGENT_ID_PATTERN
from mesh.policy.buddy import splice_in, splice_out

_PORT_MAX = 65535


@cli.command("add")
@click.argument("agent")
@click.option("--role", "role_file", required=True, metavar="FILE.md", help="What the agent is: a Markdown file.")
@click.option("--name", help="Its name for people; else the file's first heading.")
@click.option("--responsibilities", metavar="A,B", help="Else the file's line 'Responsibilities: a, b'.")
@click.option("--port", type=click.IntRange(1, _PORT_MAX), help="Else the next free one.")
@click.option("--buddy", help="Whom it watches; that agent's watcher then watches the new one.")
@click.option("--runner", default="skills", show_default=True, help="What does its work.")
@with_root
def add_agent(agent: str, role_file: str, root: str | None, **options: Any) -> int:
    """Add an agent. A running mesh starts it within seconds."""
    from mesh.store.setup import prepare_agents

    store = open_store(root)
    if not re.fullmatch(AGENT_ID_PATTERN, agent):
        raise BadUse(f"{agent!r} can't be an agent's id: small letters, digits and dashes, a letter first.")
    registry = store.registry.check()
    if agent in registry.agents:
        raise BadUse(f"There is an agent {agent!r} already.")
    text = store.files.read(role_file)
    if text is None:
        raise BadUse(f"{role_file} does not exist.")
    entry = _entry(agent, text.decode(errors="replace"), options)
    before = options["buddy"] or list(registry.agents)[-1]
    registry.entry(before)
    pairs = splice_in({name: found.buddy for name, found in registry.agents.items()}, agent, before)
    entry["port"] = options["port"] or 1 + max(found.port for found in registry.agents.values())

    def change(document: dict[str, Any]) -> None:
        document["agents"][agent] = entry
        for name, buddy in pairs.items():
            document["agents"][name]["buddy"] = buddy

    def write_role() -> None:
        # The role comes first: the agent may be started the moment the registry names it.
        store.files.make_folders(store.layout.agent(agent))
        store.files.replace(store.layout.role(agent), text)

    prepare_agents(store, store.registry.edit(change, before_saving=write_role))
    store.journal.event("operator", "agent_added", f"watches {before}", about=agent)
    click.echo(f"{agent} is added on port {entry['port']}; it watches {before}.")
    return 0


@cli.command("remove")
@click.argument("agent")
@with_root
def remove_agent(agent: str, root: str | None) -> int:
    """Remove an agent. A running mesh stops it; its waiting tasks go to the global queue, its files stay."""
    store = open_store(root)
    registry = store.registry.check()
    registry.entry(agent)
    if agent == registry.orchestrator:
        raise BadUse(f"{agent} is the orchestrator; name another in registry.json first.")
    if len(registry.agents) <= 2:
        raise BadUse("A mesh needs at least two agents, so that somebody watches each.")
    pairs = splice_out({name: found.buddy for name, found in registry.agents.items()}, agent)

    def change(document: dict[str, Any]) -> None:
        del document["agents"][agent]
        for name, buddy in pairs.items():
            document["agents"][name]["buddy"] = buddy
        for found in document["agents"].values():
            if agent in found.get("canDelegate", []):
                found["canDelegate"] = [other for other in found["canDelegate"] if other != agent]

    store.registry.edit(change)
    given_back = store.tasks.give_back(agent)
    store.journal.event("operator", "agent_removed", f"{len(given_back)} tasks to the global queue", about=agent)
    click.echo(f"{agent} is removed; {len(given_back)} waiting tasks went to the global queue. Its files stay in")
    click.echo(store.layout.agent(agent))
    return 0


@cli.group("registry")
def registry_group() -> None:
    """Check the registry."""


@registry_group.command()
@click.argument("file", required=False)
@with_root
@with_json
def check(file: str | None, root: str | None, as_json: bool) -> int:
    """Check a registry file before it is put in force; without FILE the one in the root."""
    import os

    store = open_store(root)
    path = os.path.abspath(file) if file else store.layout.registry
    try:
        registry = store.registry.check(path)
    except (RegistryInvalid, NewerSchema) as error:
        problems = error.facts.get("problems") or [{"key": "", "reason": error.detail}]
        if as_json:
            echo_json({"ok": False, "file": path, "problems": problems})
            return 1
        for problem in problems:
            click.echo(f"{path}: {problem['key'] or '(whole file)'}: {problem['reason']}", err=True)
        return 1
    if as_json:
        echo_json({"ok": True, "file": path, "agents": list(registry.agents), "problems": []})
    else:
        click.echo(f"{path}: valid, {len(registry.agents)} agents, orchestrator {registry.orchestrator}.")
    return 0


def _entry(agent: str, role: str, options: dict[str, Any]) -> dict[str, Any]:
    heading = re.search(r"^#\s+(.+)$", role, re.MULTILINE)
    line = re.search(r"^\W*responsibilities\W*:\W*(.+)$", role, re.MULTILINE | re.IGNORECASE)
    listed = options["responsibilities"] or (line.group(1) if line else "")
    responsibilities = [part.strip(" .*_`") for part in listed.split(",") if part.strip(" .*_`")]
    if not responsibilities:
        raise BadUse("Say what it is responsible for: --responsibilities a,b or a line 'Responsibilities: a, b'.")
    name = options["name"] or (heading.group(1).strip() if heading else agent)
    return {
        "name": name,
        "port": 0,
        "responsibilities": responsibilities,
        "buddy": "",
        "canDelegate": [],
        "runner": {"kind": options["runner"]},
    }
