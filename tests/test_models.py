"""What crosses a wire or lands in a file: the registry with its rules, the lifecycles, the forms of ids."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import NewerSchema, RegistryInvalid, UnknownAgent
from mesh.models import (
    AGENT_TRANSITIONS,
    ENDED,
    TASK_TRANSITIONS,
    AgentState,
    AgentStatus,
    Priority,
    Registry,
    Task,
    TaskStatus,
    is_id,
    parse_registry,
)

SHIPPED = Path(__file__).resolve().parent.parent / "registry.json"
FILE = "agents/registry.json"

#: A mesh with names of its own, another orchestrator and a ring of three.
FOREIGN: dict[str, Any] = {
    "schemaVersion": 1,
    "agents": {
        "heron": {"name": "Heron", "port": 7001, "responsibilities": ["weather"], "buddy": "otter"},
        "otter": {"name": "Otter", "port": 7002, "responsibilities": ["rivers"], "buddy": "badger"},
        "badger": {"name": "Badger", "port": 7003, "responsibilities": ["earth"], "buddy": "heron"},
    },
    "orchestrator": "otter",
}

#: The example of the contract, with the other seven that it leaves out.
CONTRACT_EXAMPLE = """
{
  "schemaVersion": 1,
  "agents": {
    "coder": {
      "name": "Builder", "port": 18802, "responsibilities": ["code", "architecture", "testing", "deployment"],
      "buddy": "devops", "canDelegate": [],
      "host": "127.0.0.1", "syncMinute": 5, "buddyCheckOffset": 3, "user": null,
      "runner": {"kind": "skills"}, "generate": "auto", "quietHours": {"from": "22:00", "to": "07:00"},
      "repo": null, "settings": {}, "limits": {}
    },
    "devops": {"name": "Atlas", "port": 18806, "responsibilities": ["infrastructure"], "buddy": "coder"},
    "chief": {"name": "Chief of Staff", "port": 18801, "responsibilities": ["strategy"], "buddy": "ops"},
    "ops": {"name": "Conductor", "port": 18808, "responsibilities": ["process"], "buddy": "chief"}
  },
  "orchestrator": "chief", "policy": "peers", "timezone": "UTC", "allowedHosts": [],
  "restartCommand": ["systemctl", "restart", "agent-{id}"],
  "windows": {"provider/model": 200000},
  "prices": {"provider/model": {"inputPerMillion": 3.0, "outputPerMillion": 15.0}},
  "limits": {"messagesPerMinute": 10, "inboxWaitingMax": 100, "messageBytesMax": 1000000, "maxRunning": null}
}
"""


def parse(document: Any) -> Registry:
    return parse_registry(document if isinstance(document, str) else json.dumps(document), FILE)


def problems(document: Any) -> dict[str, str]:
    """Key → reason of everything that is wrong."""
    with pytest.raises(RegistryInvalid) as caught:
        parse(document)
    assert caught.value.facts["file"] == FILE and FILE in caught.value.detail
    found = {problem["key"]: problem["reason"] for problem in caught.value.facts["problems"]}
    for key, reason in found.items():
        assert key in caught.value.detail and reason in caught.value.detail, "the sentence says all of it"
    return found


# -- what is valid


def test_the_shipped_registry_is_valid() -> None:
    registry = parse(SHIPPED.read_text(encoding="utf-8"))
    assert list(registry.agents) == ["chief", "coder", "sales", "finance", "intel", "devops", "comms", "ops"]
    assert [entry.port for entry in registry.agents.values()] == list(range(18801, 18809))
    assert [registry.sync_minute(agent) for agent in registry.agents] == [0, 5, 10, 15, 20, 25, 30, 35]
    assert registry.orchestrator == "chief" and registry.policy == "peers"
    pairs = {agent: entry.buddy for agent, entry in registry.agents.items()}
    assert all(pairs[buddy] == agent for agent, buddy in pairs.items()), "the protocol document's four pairs"
    offsets = [registry.check_offset(agent) for agent in registry.agents]
    assert len(set(offsets)) == len(offsets), "nobody pings in the same tick as another"


def test_the_contracts_example_is_valid() -> None:
    registry = parse(CONTRACT_EXAMPLE)
    coder = registry.entry("coder")
    assert coder.quiet_hours is not None and (coder.quiet_hours.from_, coder.quiet_hours.to) == ("22:00", "07:00")
    assert registry.check_offset("coder") == 3 and registry.windows == {"provider/model": 200_000}
    assert registry.limits_for("coder").max_running is None


def test_three_agents_with_foreign_names() -> None:
    registry = parse(FOREIGN)
    assert registry.orchestrator == "otter"
    assert [registry.watcher_of(agent) for agent in ("heron", "otter", "badger")] == ["badger", "heron", "otter"]
    assert [registry.sync_minute(agent) for agent in registry.agents] == [0, 5, 10], "five minutes apart by default"
    entry = registry.entry("heron")
    assert (entry.host, entry.can_delegate, entry.runner.kind, entry.generate) == ("127.0.0.1", [], "skills", "auto")
    with pytest.raises(UnknownAgent, match="'coder'; the registry has: heron, otter, badger"):
        registry.entry("coder")


def test_without_an_orchestrator_the_first_agent_leads() -> None:
    document = {key: value for key, value in FOREIGN.items() if key != "orchestrator"}
    assert parse(document).orchestrator == "heron"


def test_limits_of_an_agent_come_before_those_of_the_mesh() -> None:
    document = edited(lambda d: d.update(limits={"pingTimeoutS": 3, "pingRetries": 1}))
    document["agents"]["otter"]["limits"] = {"pingTimeoutS": 2}
    registry = parse(document)
    assert registry.limits_for().ping_timeout_s == registry.limits_for("heron").ping_timeout_s == 3
    assert (registry.limits_for("otter").ping_timeout_s, registry.limits_for("otter").ping_retries) == (2, 1)
    assert registry.limits_for("heron").lock_wait_s == 5.0, "what isn't named is the default"


def test_an_offset_beyond_the_period_still_comes_round() -> None:
    document = edited(lambda d: d["agents"]["heron"].update(buddyCheckOffset=17))
    assert parse(document).check_offset("heron") == 2


@pytest.mark.parametrize("pairs", [{"heron": "otter", "otter": "heron", "badger": "newt", "newt": "badger"}])
def test_pairs_and_rings_are_both_fine(pairs: dict[str, str]) -> None:
    document = edited(lambda d: d["agents"].update(newt={**FOREIGN["agents"]["heron"], "port": 7004}))
    for agent, buddy in pairs.items():
        document["agents"][agent]["buddy"] = buddy
    assert {agent: entry.buddy for agent, entry in parse(document).agents.items()} == pairs


def test_a_byte_order_mark_is_no_matter() -> None:
    """Editors on other systems write one; it says nothing about the content."""
    assert parse_registry(b"\xef\xbb\xbf" + json.dumps(FOREIGN).encode(), FILE).orchestrator == "otter"


# -- what is not


def edited(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    document = copy.deepcopy(FOREIGN)
    change(document)
    return document


def set_(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit that puts a value at a dotted path."""

    def change(document: dict[str, Any]) -> None:
        *outer, last = path.split(".")
        for key in outer:
            document = document[key]
        if value is GONE:
            del document[last]
        else:
            document[last] = value

    return change


GONE = object()

#: Where the edit is made, what is put there, which key is named if it is another, and the reason.
INVALID: list[tuple[str, Any, str, str]] = [
    ("agents.heron.buddy", "ottar", "", "no agent is called 'ottar'; did you mean 'otter'?"),
    ("agents.heron.buddy", "heron", "", "an agent can't be its own buddy"),
    ("agents.heron.buddy", "badger", "agents.otter", "nobody watches 'otter'"),
    ("agents.badger.port", 7001, "", "port 7001 is already the port of 'heron'"),
    ("agents.badger.port", 0, "", "1"),
    ("agents.badger.port", 65536, "", "65535"),
    ("agents.heron.buddies", ["otter"], "", "unknown key; did you mean 'buddy'?"),
    ("agents.heron.canDelegat", [], "", "did you mean 'canDelegate'?"),
    ("agents.heron.sync_minute", 3, "", "did you mean 'syncMinute'?"),
    ("orchestrater", "otter", "", "did you mean 'orchestrator'?"),
    ("agents.heron.runner", {"kin": "skills"}, "agents.heron.runner.kin", "did you mean 'kind'?"),
    ("agents.heron.quietHours", {"from": "22:00", "till": "1"}, "agents.heron.quietHours.till", "unknown key"),
    ("prices", {"m": {"inputPerMilion": 1}}, "prices.m.inputPerMilion", "did you mean 'inputPerMillion'?"),
    ("limits", {"pingTimeoutSec": 5}, "limits.pingTimeoutSec", "unknown limit; did you mean 'pingTimeoutS'?"),
    ("agents.heron.limits", {"pingRetry": 5}, "agents.heron.limits.pingRetry", "did you mean 'pingRetries'?"),
    ("limits", {"pingTimeoutS": -1}, "limits.pingTimeoutS", "0.1"),
    ("limits", {"pingRetries": "three"}, "limits.pingRetries", "integer"),
    ("limits", {"staleAfterS": 90}, "", "staleAfterS (90) must be below offlineAfterS (60)"),
    ("limits", {"contextWarnRatio": 0.9}, "", "contextWarnRatio < contextCompressRatio"),
    ("agents.heron.limits", {"offlineAfterS": 5}, "", "must be below offlineAfterS (5)"),
    ("orchestrator", "oter", "", "no agent is called 'oter'; did you mean 'otter'?"),
    ("agents.heron.canDelegate", ["otter", "bager"], "agents.heron.canDelegate.1", "did you mean 'badger'?"),
    ("timezone", "Europe/Berlino", "", "no time zone 'Europe/Berlino'"),
    ("timezone", "/etc/passwd", "", "is not a time zone"),
    ("timezone", "../../etc/passwd", "", "time zone"),
    ("timezone", "", "", "time zone"),
    ("policy", "anarchy", "", "'open', 'peers' or 'orchestrator'"),
    ("agents.heron.name", GONE, "", "required"),
    ("agents.heron.port", GONE, "", "required"),
    ("agents.heron.buddy", GONE, "", "required"),
    ("agents.heron.responsibilities", [], "", "at least 1"),
    ("agents.heron.syncMinute", 60, "", "59"),
    ("agents.heron.quietHours", {"from": "24:00", "to": "07:00"}, "agents.heron.quietHours.from", "'24:00'"),
    ("agents.heron.runner", {"kind": "magic"}, "agents.heron.runner.kind", "known are: skills, model"),
    ("agents.heron.runner", {"kind": "command"}, "agents.heron.runner.cli", "required"),
    ("agents.heron.runner", {"kind": "command", "cli": "codx"}, "agents.heron.runner.cli", "'codex'"),
    ("agents.heron.runner", {"kind": "model", "model": "gpt"}, "agents.heron.runner.model", "match"),
    ("agents.heron.runner", {"kind": "tmux", "cli": "codex", "targt": "a"}, "agents.heron.runner.targt", "'target'"),
    ("agents.heron.runner", 5, "agents.heron.runner.kind", "known are"),
    ("restartCommand", [], "", "at least 1"),
    ("agents", [], "", "must be a JSON object"),
    ("agents.heron", "hi", "", "must be a JSON object"),
]


@pytest.mark.parametrize(("path", "value", "key", "reason"), INVALID)
def test_an_invalid_edit_names_key_and_reason(path: str, value: Any, key: str, reason: str) -> None:
    found = problems(edited(set_(path, value)))
    assert (key or path) in found, found
    assert reason.lower() in found[key or path].lower()


@pytest.mark.parametrize("agent", ["human", "operator", "local", "any", "all", "mesh", "registry", "health"])
def test_reserved_ids(agent: str) -> None:
    document = json.loads(json.dumps(FOREIGN).replace("heron", agent))
    assert problems(document) == {f"agents.{agent}": f"{agent!r} is reserved and can't name an agent"}


@pytest.mark.parametrize("agent", ["Heron", "1heron", "he_ron", "héron", "a" * 33, "", "../up", "he ron", "heron\n"])
def test_ids_that_can_name_no_agent(agent: str) -> None:
    document = json.loads(json.dumps(FOREIGN).replace('"heron"', json.dumps(agent)))
    assert any("does not match" in reason for reason in problems(document).values())


def test_one_agent_only() -> None:
    alone = {"agents": {"heron": {**FOREIGN["agents"]["heron"], "buddy": "heron"}}}
    assert problems(alone) == {"agents": "a mesh needs at least two agents, so that somebody watches each"}
    assert "agents" in problems({"agents": {}})
    assert "agents" in problems({})


def test_every_problem_is_listed_at_once() -> None:
    def change(document: dict[str, Any]) -> None:
        set_("agents.badger.port", 7001)(document)
        set_("agents.heron.buddy", "heron")(document)
        set_("timezone", "Mars/Olympus")(document)
        set_("limits", {"pingTimeouts": 1})(document)

    keys = "agents.badger.port agents.heron.buddy agents.otter timezone limits.pingTimeouts"
    assert set(problems(edited(change))) == set(keys.split())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("{'agents': {}}", "not valid JSON"),
        (json.dumps(FOREIGN)[:-30], "not valid JSON"),
        ("[1, 2]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ('"agents"', "must be a JSON object"),
        ('{"agents": {}, "agents": {}}', "the key 'agents' stands twice in one object"),
        ('{"agents": {"heron": {"port": 1, "port": 2}}}', "the key 'port' stands twice in one object"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_registry_at_all(text: str, reason: str) -> None:
    assert reason in problems(text)[""]


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(RegistryInvalid, match="not valid JSON"):
        parse_registry(b"\xff\xfe\x00{", FILE)


def test_a_newer_schema_is_refused_as_such() -> None:
    with pytest.raises(NewerSchema, match="schemaVersion 2; this mesh knows 1"):
        parse(edited(set_("schemaVersion", 2)))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    ),
    st.sampled_from(
        "schemaVersion agents agents.heron agents.heron.port agents.heron.buddy agents.heron.limits limits "
        "agents.heron.quietHours timezone orchestrator prices windows allowedHosts agents.heron.runner".split()
    ),
)
def test_whatever_stands_there_is_valid_or_refused_with_a_reason(value: Any, path: str) -> None:
    try:
        registry = parse_registry(json.dumps(edited(set_(path, value))), FILE)
    except RegistryInvalid as error:
        assert error.facts["problems"] and all(problem["reason"] for problem in error.facts["problems"])
    except NewerSchema as error:
        assert path == "schemaVersion" and FILE in error.detail
    else:
        assert sorted(entry.buddy for entry in registry.agents.values()) == sorted(registry.agents)


# -- lifecycles and forms


def test_every_status_has_its_transitions() -> None:
    assert set(TASK_TRANSITIONS) == set(TaskStatus) and set(AGENT_TRANSITIONS) == set(AgentStatus)
    assert {status for status, onward in TASK_TRANSITIONS.items() if not onward} == ENDED
    assert all(status not in onward for status, onward in TASK_TRANSITIONS.items())


def test_every_task_can_end() -> None:
    for start in TaskStatus:
        reached, fresh = set(), {start}
        while fresh:
            reached |= fresh
            fresh = {after for status in fresh for after in TASK_TRANSITIONS[status]} - reached
        assert reached & ENDED, f"{start} leads nowhere"


def test_an_unknown_outcome_is_not_repeated_by_itself() -> None:
    """Only a person leads on from it; nothing leads back to work without being queued again."""
    assert TaskStatus.WORKING not in TASK_TRANSITIONS[TaskStatus.OUTCOME_UNKNOWN]
    assert TaskStatus.OUTCOME_UNKNOWN not in ENDED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task-1", True),
        ("A.b_c-9", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        (".", False),
        ("..", False),
        (".hidden", False),
        ("a/b", False),
        ("a b", False),
        ("ä", False),
        ("a\n", False),
        ("a\x00", False),
    ],
)
def test_ids(text: str, expected: bool) -> None:
    assert is_id(text) is expected


def test_tasks_are_served_urgent_first_then_by_time_and_id() -> None:
    def task(id_: str, priority: str, at: str) -> Task:
        given = {"id": id_, "title": "x", "owner": "a", "from": "b", "priority": priority}
        return Task.model_validate({**given, "createdAt": at, "updatedAt": at})

    early, late = "2026-02-16T20:45:00.000Z", "2026-02-16T20:45:00.001Z"
    served = [task("u", "urgent", late), task("h1", "high", early), task("h2", "high", early)]
    served += [task("h0", "high", late), task("n", "normal", early), task("l", "low", early)]
    assert sorted(reversed(served), key=Task.order) == served
    assert [priority.rank for priority in Priority] == [0, 1, 2, 3]


def test_keys_of_a_newer_version_survive_a_rewrite() -> None:
    given = {"id": "t", "title": "x", "owner": "a", "from": "b", "createdAt": "", "updatedAt": "", "mood": {"a": 1}}
    assert Task.model_validate(given).dump()["mood"] == {"a": 1}


def test_the_protocols_state_is_a_state() -> None:
    """Keys as in the protocol document, section 3; ours beside them."""
    state = AgentState.model_validate(
        {
            "agentId": "coder",
            "status": "working",
            "currentTask": {
                "id": "task-2025-0217-001",
                "type": "feature",
                "title": "Broker comparison",
                "description": "Implement broker comparison API",
                "startedAt": "2025-02-17T09:30:00Z",
                "estimatedCompletion": "2025-02-17T11:00:00Z",
                "progress": 0.6,
            },
            "lastActivity": "2025-02-17T10:15:00Z",
            "lastHeartbeat": "2025-02-17T10:14:00Z",
            "contextTokens": 52000,
            "contextLimit": 180000,
            "sessionId": "sess-abc123",
            "metrics": {"tasksCompleted24h": 7, "avgTaskDurationMin": 45, "errorRate": 0.02},
            "incarnation": 1,
            "stamps": {"bootId": "b", "activityS": 0.0},
        }
    )
    dumped = state.dump()
    assert dumped["metrics"]["tasksCompleted24h"] == 7 and dumped["currentTask"]["progress"] == 0.6
    assert dumped["schemaVersion"] == 1
