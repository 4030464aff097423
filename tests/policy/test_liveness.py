"""How an agent is shown, and the mesh as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.limits import DEFAULT
from mesh.models import AgentHealth, AgentStatus
from mesh.policy.liveness import Seen, health_of, system_health

IDLE, OFFLINE = AgentStatus.IDLE, AgentStatus.OFFLINE


def seen(**fields: Any) -> Seen:
    given = {"status": IDLE, "reason": None, "last_seen": "then", "beat_age_s": 0.5, "process": True}
    return Seen(**{**given, **fields})


@pytest.mark.parametrize(
    ("facts", "status", "healthy", "concern", "why"),
    [
        (seen(), IDLE, True, None, "a fresh beat: as it says of itself"),
        (seen(status=AgentStatus.BLOCKED, reason="paused"), AgentStatus.BLOCKED, True, "paused", "blocked isn't ill"),
        (seen(beat_age_s=10.0), IDLE, True, None, "ten seconds are still fresh"),
        (seen(beat_age_s=10.1), IDLE, False, "stale", "more are stale: shown, nothing else"),
        (seen(beat_age_s=60.0), IDLE, False, "stale", "for up to a minute"),
        (seen(beat_age_s=60.1), OFFLINE, False, "offline", "then offline"),
        (seen(beat_age_s=None), IDLE, False, "stale", "a beat that can't be read is unknown, not death"),
        (seen(process=False), OFFLINE, False, "offline", "its process is gone, however fresh the beat"),
        (seen(status=None, beat_age_s=None, process=False), OFFLINE, False, "offline", "it never ran"),
        (seen(stopped=True, beat_age_s=30.0, process=False), OFFLINE, True, "stopped", "stopped on purpose is well"),
        (seen(stopped=True, beat_age_s=None, process=False), OFFLINE, True, "stopped", "also after a reboot"),
        (seen(stopped=True), IDLE, True, None, "told to stop, but it still runs"),
    ],
)
def test_an_agent(facts: Seen, status: AgentStatus, healthy: bool, concern: str | None, why: str) -> None:
    found = health_of(facts, DEFAULT)
    assert (found.status, found.healthy, found.concern) == (status, healthy, concern), why
    assert found.last_seen == "then"


def test_the_ages_are_limits() -> None:
    limits = DEFAULT.with_overrides({"staleAfterS": 3, "offlineAfterS": 4})
    assert health_of(seen(beat_age_s=3.5), limits).concern == "stale"
    assert health_of(seen(beat_age_s=4.5), limits).concern == "offline"


def _agents(sick: int, well: int) -> dict[str, AgentHealth]:
    ill = AgentHealth(status=OFFLINE, last_seen=None, healthy=False)
    fine = AgentHealth(status=IDLE, last_seen=None, healthy=True)
    return {f"a{number}": ill if number < sick else fine for number in range(sick + well)}


@pytest.mark.parametrize(
    ("sick", "well", "alerts", "expected", "why"),
    [
        (0, 8, [], "healthy", "all well"),
        (0, 8, ["low", "medium"], "healthy", "small alerts are no illness of the mesh"),
        (0, 8, ["high"], "degraded", "a grave one is"),
        (0, 8, ["critical"], "degraded", "a critical one too"),
        (1, 7, [], "degraded", "one is ill"),
        (3, 5, [], "degraded", "three of eight are"),
        (4, 4, [], "unhealthy", "half of them are"),
        (8, 0, [], "unhealthy", "all are"),
        (1, 2, [], "degraded", "one of three"),
        (2, 1, [], "unhealthy", "two of three"),
    ],
)
def test_the_mesh(sick: int, well: int, alerts: list[str], expected: str, why: str) -> None:
    assert system_health(_agents(sick, well), alerts) == expected, why
