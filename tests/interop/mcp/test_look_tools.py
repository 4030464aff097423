"""Who and what, through the tools."""

from __future__ import annotations

from tests.interop.mcp.stage import Session, Tools
from tests.interop.mcp.test_task_tools import put
from tests.service.mail_stage import send
from tests.service.sockets import free_ports, listening
from tests.service.stage import Mesh


async def test_whoami(mesh: Mesh, bob: Session) -> None:
    await send(mesh, "ada", "bob", payload={"text": "hello"})
    put(mesh, "bob")
    who = await bob("whoami")
    assert who == {
        "agentId": "bob",
        "name": "Bob",
        "responsibilities": ["bob-things", "chores"],
        "buddy": "cyd",
        "watchedBy": "ada",
        "orchestrator": "cyd",
        "policy": "peers",
        "canDelegate": [],
        "status": "offline",
        "daemonUp": False,
        "currentTask": None,
        "mailWaiting": 1,
        "tasksWaiting": 1,
    }


async def test_list_agents_shows_who_is_up(mesh: Mesh, tools: Tools) -> None:
    free_ports(mesh)
    async with listening(mesh, "ada"), tools.of("bob") as bob:
        listed = await bob("list_agents")
    assert listed["you"] == "bob"
    agents = {line["agentId"]: line for line in listed["agents"]}
    assert list(agents) == ["ada", "bob", "cyd", "dee"]
    assert agents["ada"]["status"] == "idle" and agents["ada"]["healthy"]
    assert agents["dee"]["status"] == "offline" and not agents["dee"]["healthy"]


async def test_my_context_has_summary_task_and_handoff(mesh: Mesh, bob: Session) -> None:
    empty = await bob("my_context")
    assert (empty["summary"], empty["currentTask"], empty["contextTokens"]) == (None, None, 0)
    (mesh.root / "agents" / "bob" / "context-summary.md").write_text("We paint in blue.\n")
    put(mesh, "bob", working=True, input={"handoff": {"from": "ada", "summary": "half is done"}})
    context = await bob("my_context")
    assert context["summary"] == "We paint in blue.\n"
    assert context["currentTask"]["id"] == "t-1" and context["handoff"]["summary"] == "half is done"


async def test_the_registry_in_force_is_asked(mesh: Mesh, bob: Session) -> None:
    mesh.edit(lambda document: document["agents"]["bob"].update(name="Robert"))
    assert (await bob("whoami"))["name"] == "Robert"
