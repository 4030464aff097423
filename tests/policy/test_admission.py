"""Who may give work to whom under each policy, who may call it off, and who may write to whom."""

from __future__ import annotations

import itertools

import pytest

from mesh.policy.admission import may_cancel, why_not_give, why_not_write
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


# -- writing

POLICIES = ("open", "peers", "orchestrator")
#: sender, recipient, type, whether it is a reply → whether it may under open, peers, orchestrator, and why
WRITING: list[tuple[str, str, str, bool, bool, bool, bool, str]] = [
    ("ada", "bob", "note", False, True, True, True, "to one's buddy"),
    ("bob", "ada", "note", False, True, True, True, "and to one's watcher"),
    ("ada", "cyd", "note", False, True, True, True, "to the orchestrator"),
    ("cyd", "ada", "note", False, True, True, True, "and from it"),
    ("bob", "dee", "note", False, True, True, False, "to a peer who is neither"),
    ("dee", "bob", "note", False, True, True, False, "canDelegate is for work, not for talk"),
    ("bob", "dee", "note", True, True, True, True, "who was asked may answer"),
    ("ada", "ada", "note", False, True, True, True, "to oneself"),
    ("human", "dee", "note", False, True, True, True, "the human to everybody"),
    ("dee", "human", "note", False, True, True, True, "and everybody to the human"),
    ("human", "human", "note", False, True, True, True, "notes of one's own"),
    ("ada", "bob", "task_request", False, True, True, True, "work to one's buddy"),
    ("bob", "ada", "task_request", False, True, False, False, "not to one's watcher"),
    ("bob", "ada", "task_request", True, True, False, False, "a reply gives no right to hand over work"),
    ("dee", "bob", "task_request", False, True, True, False, "along canDelegate; but they may not write"),
    ("dee", "bob", "task_request", True, True, True, True, "along canDelegate, in an answer"),
    ("bob", "dee", "task_request", False, True, False, False, "canDelegate is one way"),
    ("ada", "cyd", "task_request", False, True, True, True, "work to the orchestrator"),
    ("cyd", "ada", "task_request", False, True, True, True, "and from it"),
    ("human", "dee", "task_request", False, True, True, True, "a person may give work to anybody"),
    ("bob", "human", "task_request", False, True, True, True, "and may be asked for something"),
    ("ada", "ada", "task_request", False, True, True, True, "work for oneself"),
    ("bob", "ada", "context_handoff", False, True, False, False, "a handoff is work"),
    ("ada", "bob", "context_handoff", False, True, True, True, "as above"),
    ("cyd", "ada", "shutdown", False, True, True, True, "the orchestrator may shut down"),
    ("human", "ada", "shutdown", False, True, True, True, "and the human"),
    ("ada", "bob", "shutdown", False, False, False, False, "nobody else, not even its watcher"),
    ("ada", "cyd", "shutdown", False, False, False, False, "least of all the orchestrator"),
    ("ada", "bob", "shutdown", True, False, False, False, "nor as an answer"),
    ("ada", "ada", "shutdown", False, False, False, False, "nor oneself: it would stay down until a person looks"),
    ("ada", "human", "shutdown", False, False, False, False, "nor a person"),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("sender", "recipient", "type_", "reply", "open_", "peers", "orchestrator", "why"), WRITING)
def test_writing(
    policy: str,
    sender: str,
    recipient: str,
    type_: str,
    reply: bool,
    open_: bool,
    peers: bool,
    orchestrator: bool,
    why: str,
) -> None:
    refusal = why_not_write(a_registry(policy, **DELEGATES), sender, recipient, type_, is_reply=reply)
    assert (refusal is None) is {"open": open_, "peers": peers, "orchestrator": orchestrator}[policy], why


@pytest.mark.parametrize("policy", POLICIES)
def test_who_may_not_give_may_not_write_that_it_gives(policy: str) -> None:
    registry = a_registry(policy, **DELEGATES)
    pairs = list(itertools.permutations(registry.agents, 2))
    for type_, (sender, recipient) in itertools.product(("task_request", "context_handoff"), pairs):
        refusal = why_not_give(registry, sender, recipient)
        assert why_not_write(registry, sender, recipient, type_, is_reply=True) == refusal


@pytest.mark.parametrize(
    ("sender", "recipient", "type_", "expected"),
    [
        ("bob", "dee", "note", ["'orchestrator'", "ada, cyd, human", "reply"]),
        ("bob", "ada", "task_request", ["'orchestrator'", "cyd", '"owner": "any"']),
        ("ada", "bob", "shutdown", ["cyd", "human"]),
    ],
)
def test_a_refusal_to_write_says_what_is_allowed(sender: str, recipient: str, type_: str, expected: list[str]) -> None:
    refusal = why_not_write(a_registry("orchestrator"), sender, recipient, type_, is_reply=False)
    assert refusal is not None
    assert [part for part in [sender, recipient, *expected] if part not in refusal] == []
    assert "\n" not in refusal


@pytest.mark.parametrize("policy", POLICIES)
def test_shutdown_follows_the_registry(policy: str) -> None:
    registry = a_registry(policy).model_copy(update={"orchestrator": "bob"})
    assert why_not_write(registry, "bob", "dee", "shutdown", is_reply=False) is None
    assert why_not_write(registry, "cyd", "dee", "shutdown", is_reply=False) is not None
