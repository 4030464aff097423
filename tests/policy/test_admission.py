"""Who may give work to whom under each policy, and who may call it off."""

from __future__ import annotations

import pytest

from mesh.policy.admission import may_cancel, why_not_give
from tests.policy.facts import a_registry, a_task

# ada watches bob, bob watches cyd, cyd watches dee, dee watches ada; cyd is the orchestrator; dee may delegate to bob.
DELEGATES = {"dee": {"canDelegate": ["bob"]}}

#: giver, owner → whether it may under open, peers, orchestrator, and why
ROWS: list[tuple[str, str, bool, bool, bool, str]] = [
    ("human", "ada", True, True, True, "a person may give work to anybody"),
    ("ada", "ada", True, True, True, "everybody may give work to themselves"),
    ("ada", "any", True, True, True, "the global queue is open to all"),
    ("ada", "bob", True, True, True, "to one's buddy"),
    ("bob", "ada", True, False, False, "being watched gives no right to give work back"),
    ("cyd", "ada", True, True, True, "the orchestrator to anybody"),
    ("ada", "cyd", True, True, True, "and anybody to the orchestrator"),
    ("dee", "bob", True, True, True, "along canDelegate"),
    ("bob", "dee", True, False, False, "canDelegate is one way"),
    ("ada", "dee", True, False, False, "to one's watcher, who is not one's buddy"),
]


@pytest.mark.parametrize("policy", ["open", "peers", "orchestrator"])
@pytest.mark.parametrize(("giver", "owner", "open_", "peers", "orchestrator", "why"), ROWS)
def test_giving(policy: str, giver: str, owner: str, open_: bool, peers: bool, orchestrator: bool, why: str) -> None:
    refusal = why_not_give(a_registry(policy, **DELEGATES), giver, owner)
    assert (refusal is None) is {"open": open_, "peers": peers, "orchestrator": orchestrator}[policy], why


def test_a_refusal_says_what_is_allowed() -> None:
    refusal = why_not_give(a_registry("peers", **DELEGATES), "dee", "dee-is-nobody")
    assert refusal is not None
    assert "'peers'" in refusal and "ada, bob, cyd" in refusal and '"owner": "any"' in refusal


@pytest.mark.parametrize(
    ("caller", "expected", "why"),
    [
        ("ada", True, "the owner"),
        ("dee", True, "the giver"),
        ("cyd", True, "the orchestrator"),
        ("human", True, "a person"),
        ("bob", False, "anybody else"),
    ],
)
def test_cancelling(caller: str, expected: bool, why: str) -> None:
    task = a_task(owner="ada", **{"from": "dee"})
    assert may_cancel(a_registry(), caller, task) is expected, why


def test_the_orchestrator_is_who_the_registry_says() -> None:
    registry = a_registry().model_copy(update={"orchestrator": "bob"})
    task = a_task(owner="ada", **{"from": "dee"})
    assert may_cancel(registry, "bob", task) and not may_cancel(registry, "cyd", task)
    assert why_not_give(registry, "bob", "dee") is None and why_not_give(registry, "ada", "cyd") is not None
