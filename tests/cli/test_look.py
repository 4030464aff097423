"""status, limits, events, doctor, with the mesh down."""

from __future__ import annotations

import json
import os
import socket

from mesh.store import Store
from tests.cli.stage import Mesh, refused


def test_status(mesh: Mesh) -> None:
    shown = mesh("status")
    assert shown.status == 0 and shown.err == ""
    assert str(mesh.root) in shown.lines()[0] and "no supervisor" in shown.lines()[0]
    table = [line.split() for line in shown.lines() if line]
    assert [line[0] for line in table[-3:]] == ["ada", "bob", "cyd"]
    assert all("offline" in line for line in table[-3:])

    found = mesh("status", "--json").json
    assert found["root"] == str(mesh.root) and found["supervisor"] is None
    assert found["registry"] == {"ok": True, "error": None, "replacedLink": None}
    assert (found["paused"], found["openTasks"], found["alerts"], found["blockers"]) == ({}, 0, [], [])
    rows = {row["agent"]: row for row in found["agents"]}
    assert {agent: row["buddy"] for agent, row in rows.items()} == {"ada": "bob", "bob": "cyd", "cyd": "ada"}


def test_json_keys_are_camel_case(mesh: Mesh) -> None:
    """The contract: JSON keys camelCase, of commands as of files."""

    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {key for inner in value.values() for key in keys(inner)}
        return {key for inner in value for key in keys(inner)} if isinstance(value, list) else set()

    for command in (("status",), ("limits",), ("doctor",), ("ping",)):
        found = {key for key in keys(mesh(*command, "--json").json) if "_" in key}
        assert found == set(), command


def test_status_shows_a_broken_registry(mesh: Mesh) -> None:
    assert mesh("status").status == 0  # the last good one is noted
    document = mesh.json("agents/registry.json")
    document["agents"]["ada"]["buddy"] = "zoe"
    mesh.registry_file.write_text(json.dumps(document), encoding="utf-8")
    shown = mesh("status")
    assert shown.status == 0 and "agents.ada.buddy" in shown.out and "'zoe'" in shown.out
    found = mesh("status", "--json").json
    assert found["registry"]["ok"] is False
    assert found["registry"]["error"]["problems"][0]["key"] == "agents.ada.buddy"
    assert [row["buddy"] for row in found["agents"]] == ["bob", "cyd", "ada"], "the last good one is in force"


def test_limits(mesh: Mesh) -> None:
    document = mesh.json("agents/registry.json")
    document["limits"] = {"pingTimeoutS": 3}
    document["agents"]["ada"]["limits"] = {"pingTimeoutS": 2}
    mesh.registry_file.write_text(json.dumps(document), encoding="utf-8")

    def value(*agent: str) -> float:
        rows = {row["name"]: row for row in mesh("limits", *agent, "--json").json}
        assert all(row.keys() == {"name", "unit", "default", "value", "reason"} for row in rows.values())
        return float(rows["pingTimeoutS"]["value"])

    assert (value(), value("ada"), value("bob")) == (3, 2, 3)
    [line] = [line for line in mesh("limits").lines() if line.startswith("pingTimeoutS")]
    assert line.split()[1:4] == ["3*", "5", "s"], "what differs from the default is marked"
    assert "'zoe'" in refused(mesh("limits", "zoe"))


def test_events(mesh: Mesh) -> None:
    for agent in ("ada", "bob", "ada"):
        assert mesh("pause", agent, "--reason", f"for {agent}").status == 0
    found = [json.loads(line) for line in mesh("events", "--json").lines()]
    assert [(event["event"], event["about"], event["reason"]) for event in found] == [
        ("pause", "ada", "for ada"),
        ("pause", "bob", "for bob"),
        ("pause", "ada", "for ada"),
    ]
    assert all(event.keys() >= {"at", "tick", "agentId", "event", "reason"} for event in found)
    assert len(mesh("events", "--agent", "ada").lines()) == 2
    assert len(mesh("events", "--agent", "ada", "-n", "1").lines()) == 1
    assert mesh("events", "-n", "0").out == ""
    assert "for bob" in mesh("events", "-n", "2").lines()[0]


def test_doctor_of_a_well_mesh(mesh: Mesh) -> None:
    done = mesh("doctor", "--json")
    assert done.status == 0, done.out
    checks = {finding["check"]: finding for finding in done.json}
    assert checks.keys() >= {"registry", "ports", "permissions", "disk", "clock", "alerts"}
    assert all(finding["ok"] for finding in checks.values())


def test_doctor_says_how_to_mend_each(mesh: Mesh) -> None:
    port = mesh.json("agents/registry.json")["agents"]["bob"]["port"]
    (mesh.root / "agents" / "ada" / "secret").chmod(0o644)
    (mesh.root / "operator.header").unlink()
    (mesh.root / "system" / "quarantine" / "some.json").write_text("{", encoding="utf-8")
    with socket.create_server(("127.0.0.1", port)):
        done = mesh("doctor", "--json")
        shown = mesh("doctor")
    assert (done.status, shown.status) == (1, 1)
    bad = {(finding["check"], finding["mend"]): finding["detail"] for finding in done.json if not finding["ok"]}
    details = " | ".join(bad.values())
    assert "ada/secret can be read by others" in details
    assert "operator.header is missing" in details
    assert f"{port} of bob is held by pid" in details
    assert "1 damaged files" in details or "1 damaged file" in details
    assert all(mend for _, mend in bad)
    assert shown.out.count("BAD") == shown.out.count("mend:") == len(bad)


def test_doctor_of_a_broken_registry(mesh: Mesh) -> None:
    assert mesh("status").status == 0
    mesh.registry_file.write_text('{"agents": {}, "agents": {}}', encoding="utf-8")
    done = mesh("doctor", "--json")
    assert done.status == 1
    [found] = [finding for finding in done.json if finding["check"] == "registry"]
    assert not found["ok"] and "stands twice" in found["detail"] and found["mend"]


def test_doctor_sees_unreadable_documents_missing_folders_and_held_locks(mesh: Mesh) -> None:
    (mesh.root / "agents/ada/inbox.json").mkdir()
    (mesh.root / "tasks/queue.json").write_text('{"schemaVersion": 99, "tasks": []}', encoding="utf-8")
    (mesh.root / "tasks/completed").rmdir()
    lock = mesh.root / "system/locks/tasks.lock"
    store = Store(str(mesh.root))
    with store.locks.hold("tasks"):
        os.utime(lock, (0, 0))
        found = mesh("doctor", "--json").json
    bad = {(entry["check"], entry["detail"]) for entry in found if not entry["ok"]}
    assert any(check == "document" and "agents/ada/inbox.json" in detail for check, detail in bad)
    assert any(check == "document" and "schemaVersion 99" in detail for check, detail in bad)
    assert ("folders", "missing: tasks/completed") in bad
    assert any(check == "lock" and store.locks.holder in detail for check, detail in bad)
    assert all(entry["mend"] for entry in found if not entry["ok"])
