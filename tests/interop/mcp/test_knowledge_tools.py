"""What the mesh knows, through the tools, with every daemon down."""

from __future__ import annotations

from tests.interop.mcp.stage import Session, Tools
from tests.service.stage import Mesh


async def test_a_blocker_from_report_to_end(mesh: Mesh, tools: Tools, bob: Session) -> None:
    found = await bob("report_blocker", topic="No key", description="for the shop", needs=["ops"], severity="high")
    assert (found["id"], found["agent"], found["severity"]) == ("blocker-bob-no-key", "bob", "high")
    await bob("report_blocker", topic="No key", description="still none")
    [filed] = mesh.json("knowledge/blockers.json")["blockers"]
    assert (filed["description"], filed["count"], filed["since"]) == ("still none", 2, found["since"])
    assert [b["id"] for b in (await bob("my_context"))["blockers"]] == [found["id"]]
    async with tools.of("ada") as ada:
        assert await ada("resolve_blocker", blocker_id=found["id"]) == {"blockerId": found["id"], "resolved": True}
        refusal = await ada.refused("resolve_blocker", blocker_id=found["id"])
    assert "no open blocker" in refusal and "none" in refusal
    assert mesh.json("knowledge/blockers.json")["blockers"][0]["resolvedAt"]
    assert [event["event"] for event in mesh.events(agent="bob")] == ["blocker_reported", "blocker_reported"]


async def test_decisions_and_insights_are_there_for_all(mesh: Mesh, tools: Tools, bob: Session) -> None:
    decision = await bob("log_decision", decision="Postgres", why="it is there", task_id="t-1", tags=["db"])
    insight = await bob("share_insight", topic="load", data={"p95": 12}, tags=["perf"])
    [entry] = mesh.json("knowledge/decisions.json")["decisions"]
    assert (entry["id"], entry["agent"], entry["decision"], entry["why"], entry["taskId"], entry["tags"]) == (
        decision["id"],
        "bob",
        "Postgres",
        "it is there",
        "t-1",
        ["db"],
    )
    [shared] = mesh.json("knowledge/insights.json")["insights"]
    assert (shared["id"], shared["agent"], shared["data"]) == (insight["id"], "bob", {"p95": 12})
    async with tools.of("ada") as ada:
        context = await ada("my_context")
    assert [entry["decision"] for entry in context["decisions"]] == ["Postgres"]
    assert [entry["data"] for entry in context["insights"]] == ['{"p95": 12}']


async def test_wrong_input(mesh: Mesh, bob: Session) -> None:
    assert "topic" in await bob.refused("report_blocker", topic="two\nlines")
    assert "severity" in await bob.refused("report_blocker", topic="x", severity="awful")
    assert "decision" in await bob.refused("log_decision", decision="")
    assert "is no task's id" in await bob.refused("log_decision", decision="x", task_id="../x")
    assert "data" in await bob.refused("share_insight", topic="x")
    deep: object = 1
    for _ in range(40):
        deep = {"in": deep}
    assert "deep" in await bob.refused("share_insight", topic="x", data=deep)
    assert "larger than" in await bob.refused("share_insight", topic="x", data="x" * 1_000_001)
    assert "topic" in await bob.refused("ask_for_help", topic="")
    assert mesh.store.knowledge.insights() == [] and mesh.store.knowledge.decisions() == []


async def test_a_decision_that_a_hand_edit_broke_hides_no_other(mesh: Mesh, bob: Session) -> None:
    await bob("log_decision", decision="one")
    path = mesh.root / "knowledge" / "decisions.json"
    path.write_text(path.read_text().replace('"decisions": [', '"decisions": ["not an entry", {"id": 3},'))
    await bob("log_decision", decision="two")
    assert [entry["decision"] for entry in (await bob("my_context"))["decisions"]] == ["one", "two"]
