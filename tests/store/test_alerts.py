from __future__ import annotations

import json

from mesh.store import Store
from tests.fakes import FakeClock, MemoryDisk
from tests.faults.world import ROOT


def test_same_trouble_is_one_alert_with_a_count(store: Store, time: FakeClock, disk: MemoryDisk) -> None:
    assert store.alerts.raise_alert("stale", "sales", "Sales is stale", "10 s", severity="low") is True
    time.advance(60)
    assert store.alerts.raise_alert("stale", "sales", "Sales is stale", "70 s", severity="high") is False
    (alert,) = store.alerts.open()
    assert (alert.count, alert.since, alert.at) == (2, "2026-02-16T20:45:00.000Z", "2026-02-16T20:46:00.000Z")
    assert (alert.detail, alert.severity) == ("70 s", "high")
    assert json.loads(disk.read(f"{ROOT}/system/human/stale-sales.json"))["agentId"] == "sales"


def test_other_agent_type_or_subject_is_another_alert(store: Store) -> None:
    for type_, agent, about in (("a", "coder", ""), ("a", "sales", ""), ("b", "coder", ""), ("a", "coder", "T/1 ü")):
        assert store.alerts.raise_alert(type_, agent, "title", "", about=about)
    assert len(store.alerts.open()) == 4


def test_acked_alert_stays_acked_while_the_trouble_goes_on(store: Store, disk: MemoryDisk) -> None:
    store.alerts.raise_alert("stale", "sales", "Sales is stale", "")
    path = f"{ROOT}/system/human/stale-sales.json"
    disk.put(path, disk.read(path).replace(b'"open"', b'"acked"'))
    assert not store.alerts.raise_alert("stale", "sales", "Sales is stale", "")
    assert [alert.status for alert in store.alerts.open()] == ["acked"]


def test_resolved_and_raised_anew(store: Store) -> None:
    assert store.alerts.resolve("stale", "sales") is False
    store.alerts.raise_alert("stale", "sales", "Sales is stale", "")
    assert store.alerts.resolve("stale", "sales") is True
    assert store.alerts.resolve("stale", "sales") is False
    assert store.alerts.open() == []
    assert len(store.alerts.all()) == 1
    assert store.alerts.raise_alert("stale", "sales", "Sales is stale", "") is True
    assert store.alerts.open()[0].count == 1


def test_oldest_first(store: Store, time: FakeClock) -> None:
    for agent in ("sales", "coder"):
        store.alerts.raise_alert("stale", agent, "title", "")
        time.advance(1)
    assert [alert.agent_id for alert in store.alerts.open()] == ["sales", "coder"]
