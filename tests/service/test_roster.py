"""What both supervisors go by, and what they do when the files can't be looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mesh.errors import StoreUnavailable
from mesh.policy.healing import EXIT_PORT_TAKEN, EXIT_UNAVAILABLE
from mesh.service import supervisor
from mesh.service.roster import Roster
from mesh.service.supervisor import Supervisor
from tests.service.stage import Mesh

AGENTS = ["ada", "bob", "cyd", "dee"]


@pytest.fixture
def roster(mesh: Mesh) -> Roster:
    found = Roster(mesh.store)
    found.refresh()
    return found


def unlookable(agent: str) -> bool:
    raise StoreUnavailable(f"Could not look at agents/{agent}/stopped: Permission denied.")


def test_who_should_run_is_started_and_who_is_stopped_is_not(mesh: Mesh, roster: Roster) -> None:
    mesh.store.switches.stop("bob", "human")
    assert roster.to_start(1.0) == ["ada", "cyd", "dee"]
    roster.started("ada")
    mesh.store.switches.stop("ada", "human")
    assert roster.to_stop() == ["ada"]


def test_a_switch_that_cannot_be_looked_at_stops_nobody(
    mesh: Mesh, roster: Roster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is not stopped: the supervisor must neither end nor stop who runs. It says so, and not each time."""
    roster.started("ada")
    monkeypatch.setattr(mesh.store.switches, "is_stopped", unlookable)
    for _ in range(20):
        assert roster.to_stop() == []
        assert roster.to_start(1.0) == ["bob", "cyd", "dee"]
    assert len(mesh.events("supervisor_held_up")) == len(AGENTS), "one an agent, as each names its file"


@pytest.mark.parametrize(("status", "starts_again"), [(EXIT_UNAVAILABLE, True), (EXIT_PORT_TAKEN, False)])
def test_a_full_disk_is_waited_for_and_a_taken_port_is_not(
    mesh: Mesh, roster: Roster, status: int, starts_again: bool
) -> None:
    for moment in range(0, 1000, 10):
        if "ada" not in roster.to_start(float(moment)):
            break
        roster.started("ada")
        roster.ended("ada", status, float(moment))
    assert ("ada" in roster.to_start(2000.0)) is starts_again
    assert bool(mesh.store.alerts.open()) is not starts_again


@pytest.fixture
def parent(mesh: Mesh) -> Iterator[Supervisor]:
    found = Supervisor(mesh.store, 60.0, lambda supervisor: None)
    found.roster.refresh()
    yield found
    for fd in (found._life_r, found._life_w, found._lock, found._wake_r, found._wake_w):
        os.close(fd)


def test_every_request_is_obeyed_before_the_supervisor_replaces_itself(
    mesh: Mesh, parent: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that were taken are gone from their files: a successor would not know of them."""
    stopped: list[str] = []
    seen_by_successor: list[list[str]] = []
    monkeypatch.setattr(supervisor, "_source_stamp", lambda: float("inf"))
    monkeypatch.setattr(parent, "_stop", lambda agent, now_s: stopped.append(agent))
    monkeypatch.setattr(parent, "_replace_myself", lambda: seen_by_successor.append(list(stopped)))
    for agent in ("ada", "bob"):
        parent.roster.started(agent)
        mesh.store.switches.request("restart", agent)
    parent._obey_requests()
    assert seen_by_successor == [["ada", "bob"]]
