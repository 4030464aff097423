"""Files exactly as in the protocol document, without a version: snapshotted, then brought up to date."""

from __future__ import annotations

import json

import pytest

from mesh.models import AgentStatus
from tests.faults.documents import FILED, LAYOUT, Filed, filled
from tests.faults.world import made_disk, outsider, quarantined

STATE = b"""{
  "agentId": "coder",
  "status": "working",
  "currentTask": {
    "id": "task-2025-0217-001",
    "type": "feature",
    "description": "Implement broker comparison API",
    "startedAt": "2025-02-17T09:30:00Z",
    "estimatedCompletion": "2025-02-17T11:00:00Z",
    "progress": 0.6
  },
  "lastActivity": "2025-02-17T10:15:00Z",
  "lastHeartbeat": "2025-02-17T10:14:00Z",
  "contextTokens": 52000,
  "contextLimit": 180000,
  "sessionId": "sess-abc123",
  "metrics": {
    "tasksCompleted24h": 7,
    "avgTaskDurationMin": 45,
    "errorRate": 0.02
  }
}"""
HEALTH = b"""{
  "lastUpdate": "2025-02-17T10:15:00Z",
  "agents": {
    "chief": { "status": "idle", "lastSeen": "2025-02-17T10:14:30Z", "healthy": true },
    "finance": { "status": "idle", "lastSeen": "2025-02-17T09:45:00Z", "healthy": false, "concern": "stale" },
    "comms": { "status": "offline", "lastSeen": "2025-02-17T08:00:00Z", "healthy": false, "concern": "offline" }
  },
  "systemHealth": "degraded",
  "alerts": [
    { "agent": "finance", "type": "stale", "since": "2025-02-17T09:45:00Z" },
    { "agent": "comms", "type": "offline", "since": "2025-02-17T08:00:00Z" }
  ]
}"""
CLOCK = b"""{
  "tick": 15847,
  "timestamp": "2025-02-17T10:15:00Z",
  "phase": "work",
  "nextSync": "2025-02-17T11:00:00Z",
  "activeAgents": ["chief", "coder", "intel", "devops", "ops"],
  "scheduledEvents": [
    { "tick": 15850, "event": "chief_hourly_sync" },
    { "tick": 15855, "event": "coder_hourly_sync" }
  ]
}"""


def test_protocol_documents_are_read() -> None:
    disk = made_disk()
    examples = {LAYOUT.state("coder"): STATE, LAYOUT.health: HEALTH, LAYOUT.clock: CLOCK}
    for path, data in examples.items():
        disk.put(path, data)
    store = outsider(disk, disk.time)
    state, health, clock = store.state("coder"), store.health(), store.ticks.read()
    assert state is not None
    assert state.current_task is not None
    assert (state.status, state.incarnation, state.metrics.tasks_completed24h) == (AgentStatus.WORKING, 0, 7)
    assert state.current_task.title == "Implement broker comparison API"
    assert health is not None
    assert health.agents["finance"].concern == "stale"
    assert clock.tick == 15847
    for path, data in examples.items():
        assert disk.read(f"{LAYOUT.snapshots}/{LAYOUT.relative(path).replace('/', '.')}.v0") == data
        assert json.loads(disk.read(path))["schemaVersion"] == 1
        assert set(json.loads(data)) <= set(json.loads(disk.read(path)))
    assert not quarantined(store)
    assert store.ticks.pass_gate("coder", 60.0).clock.tick == 15848


@pytest.mark.parametrize("filed", FILED.values(), ids=FILED.keys())
def test_each_kind_without_a_version(filed: Filed) -> None:
    disk = filled()
    store = outsider(disk, disk.time)
    document = json.loads(disk.read(filed.path))
    del document["schemaVersion"]
    old = json.dumps({**document, "x-note": "kept"}).encode()
    disk.put(filed.path, old)
    filed.read(store)
    rewritten = json.loads(disk.read(filed.path))
    assert rewritten == {**document, "x-note": "kept", "schemaVersion": 1}
    (snapshot,) = store.files.names(LAYOUT.snapshots)
    assert disk.read(f"{LAYOUT.snapshots}/{snapshot}") == old
    assert not quarantined(store)
    filed.rewrite(store)
    assert store.files.names(LAYOUT.snapshots) == [snapshot]


def test_old_document_of_another_shape_is_damaged_not_an_exception() -> None:
    disk = made_disk()
    store = outsider(disk, disk.time)
    for data in (b'{"agentId": "coder", "currentTask": 7}', b'{"agentId": "coder"}', b'{"agentId": 1}'):
        disk.put(LAYOUT.state("coder"), data)
        assert store.state("coder") is None
    assert len(quarantined(store)) == 3
    assert store.files.names(LAYOUT.snapshots) == []
