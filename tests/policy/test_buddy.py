"""Who watches whom, what they ask, and what follows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.limits import DEFAULT
from mesh.policy import buddy
from mesh.policy.buddy import Situation
from tests.policy.facts import a_situation


@st.composite
def pairings(draw: st.DrawFn, least: int = 2) -> dict[str, str]:
    """Pairings in which everybody is watched and nobody watches themselves: rings of two and more."""
    names = [f"a{number}" for number in range(draw(st.integers(least, 12)))]
    shuffled = draw(st.permutations(names))
    rings, rest = [], list(shuffled)
    while rest:
        most = len(rest)
        size = draw(st.integers(2, most)) if most > 3 else most
        size = most if most - size == 1 else size
        rings.append(rest[:size])
        rest = rest[size:]
    return {agent: ring[(place + 1) % len(ring)] for ring in rings for place, agent in enumerate(ring)}


def assert_everybody_is_watched(pairs: dict[str, str]) -> None:
    assert sorted(pairs) == sorted(pairs.values()), "everybody is watched, by one"
    assert all(agent != other for agent, other in pairs.items()), "and nobody by themselves"


@given(pairings(), st.randoms(use_true_random=False))
def test_splice_in_keeps_everybody_watched(pairs: dict[str, str], chance: random.Random) -> None:
    assert_everybody_is_watched(pairs)
    before = chance.choice(sorted(pairs))
    watcher = next(agent for agent, other in pairs.items() if other == before)
    after = buddy.splice_in(pairs, "new", before)
    assert_everybody_is_watched(after)
    assert after["new"] == before and after[watcher] == "new"
    untouched = pairs.keys() - {watcher}
    assert {agent: after[agent] for agent in untouched} == {agent: pairs[agent] for agent in untouched}


@given(pairings(least=3), st.randoms(use_true_random=False))
def test_splice_out_keeps_everybody_watched(pairs: dict[str, str], chance: random.Random) -> None:
    gone = chance.choice(sorted(pairs))
    after = buddy.splice_out(pairs, gone)
    assert after.keys() == pairs.keys() - {gone}
    assert_everybody_is_watched(after)


@given(pairings(), st.randoms(use_true_random=False))
def test_in_and_out_again(pairs: dict[str, str], chance: random.Random) -> None:
    before = chance.choice(sorted(pairs))
    assert buddy.splice_out(buddy.splice_in(pairs, "new", before), "new") == pairs


@pytest.mark.parametrize(
    ("gone", "expected", "why"),
    [
        ("b", {"a": "c", "c": "a", "x": "y", "y": "x"}, "its watcher takes its buddy over"),
        ("x", {"a": "y", "y": "b", "b": "c", "c": "a"}, "the one that is left of a pair joins the first ring"),
    ],
)
def test_splice_out(gone: str, expected: dict[str, str], why: str) -> None:
    pairs = {"a": "b", "b": "c", "c": "a", "x": "y", "y": "x"}
    assert buddy.splice_out(pairs, gone) == expected, why


def test_the_last_two_cannot_part() -> None:
    assert buddy.splice_out({"a": "b", "b": "a"}, "b") == {"a": "b"}, "and the registry refuses what comes of it"


FULL = {"contextTokens": 126_001}
OVERFULL = {"contextTokens": 153_001}
FAILING = {"metrics": {"errorRate": 0.51, "errors24h": 3}}


@pytest.mark.parametrize(
    ("now", "expected", "why"),
    [
        (a_situation(), [], "all well"),
        (a_situation(paused=True), ["paused"], "it says so"),
        (a_situation(disk_low=True), ["too little free disk space; nothing new starts"], "it says so"),
        (a_situation(state=FULL), ["context over 70%"], "over the warning threshold"),
        (a_situation(state={"contextTokens": 125_999}), [], "a token below it"),
        (a_situation(state=FAILING), ["error rate 51%"], "more failures than successes"),
        (a_situation(state={"metrics": {"errorRate": 0.5, "errors24h": 9}}), [], "half is not more than half"),
        (a_situation(state={"metrics": {"errorRate": 1.0, "errors24h": 2}}), [], "two failures don't repeat yet"),
        (a_situation(task_min=181.0), ["on one task for 181 min"], "over three hours"),
        (a_situation(task_min=180.0), [], "three hours are not over three hours"),
        (a_situation(queue_length=100), ["100 tasks waiting"], "100+"),
        (a_situation(queue_length=99), [], "not yet"),
        (a_situation(task_min=None), [], "on no task"),
    ],
)
def test_concerns(now: Situation, expected: list[str], why: str) -> None:
    assert buddy.concerns(now, DEFAULT) == expected, why


IDLE = {"status": "idle"}
GOOD = {
    "taskQueueNotEmpty": True,
    "lastActivityWithin2Hours": True,
    "noRepeatedErrors": True,
    "contextUnderLimit": True,
}


@pytest.mark.parametrize(
    ("now", "failed", "why"),
    [
        (a_situation(), set(), "all well"),
        (a_situation(state=IDLE, queue_length=0), {"taskQueueNotEmpty"}, "idle, and nothing waits"),
        (a_situation(queue_length=0), set(), "nothing waits, but it works"),
        (a_situation(state=IDLE), set(), "idle, but something waits"),
        (a_situation(activity_min=121.0), {"lastActivityWithin2Hours"}, "two hours and a minute"),
        (a_situation(activity_min=120.0), set(), "two hours"),
        (a_situation(activity_min=None), {"lastActivityWithin2Hours"}, "not known of this boot: not seen"),
        (a_situation(state=FAILING), {"noRepeatedErrors"}, "errors spike"),
        (a_situation(state=OVERFULL), {"contextUnderLimit"}, "over 85%"),
        (a_situation(state=FULL), set(), "over 70% only: a warning, under the limit"),
    ],
)
def test_review(now: Situation, failed: set[str], why: str) -> None:
    assert buddy.review(now, DEFAULT) == {name: name not in failed for name in GOOD}, why


@pytest.mark.parametrize(
    ("checks", "expected", "why"),
    [
        (GOOD, [], "all well: nothing to do"),
        ({**GOOD, "taskQueueNotEmpty": False}, ["look_for_work"], "an empty queue"),
        ({**GOOD, "lastActivityWithin2Hours": False}, ["look_for_work"], "no activity"),
        (
            {**GOOD, "taskQueueNotEmpty": False, "lastActivityWithin2Hours": False},
            ["look_for_work"],
            "both have one remedy, once",
        ),
        ({**GOOD, "noRepeatedErrors": False}, ["report_errors"], "errors"),
        ({**GOOD, "contextUnderLimit": False}, [], "the context is compressed from its own figures"),
        ({"anotherCheck": False}, [], "a check that it doesn't know"),
        ({}, [], "nothing was checked"),
    ],
)
def test_actions(checks: dict[str, bool], expected: list[str], why: str) -> None:
    assert buddy.review_actions(checks) == expected, why


SELF = [
    "Do I have tasks in my queue?",
    "Have I completed anything in the last 2 hours?",
    "Is my buddy alive and responsive?",
    "Is my context usage under 70%?",
    "Are there system alerts I should address?",
    "Should I generate work based on my responsibilities?",
]
BUDDY = [
    "Has my buddy responded to ping in last 15 min?",
    "Is their task queue reasonable (not 0, not 100+)?",
    "Have they been 'working' on the same task for >3 hours?",
    "Is their error rate spiking?",
]


@pytest.mark.parametrize(
    ("now", "answers", "not_ok", "why"),
    [
        (a_situation(), [True, True, True, True, False, False], set(), "all well"),
        (a_situation(completed_min=None), [True, False, True, True, False, False], {1}, "nothing completed"),
        (a_situation(completed_min=121.0), [True, False, True, True, False, False], {1}, "not lately"),
        (a_situation(buddy_answer_min=31.0), [True, True, False, True, False, False], {2}, "two pings missed"),
        (a_situation(buddy_answer_min=None), [True, True, False, True, False, False], {2}, "it never answered"),
        (a_situation(state=FULL), [True, True, True, False, False, False], {3}, "over 70%"),
        (a_situation(alerts=2), [True, True, True, True, True, False], {4}, "alerts are open"),
        (
            a_situation(state=IDLE, queue_length=0, idle_min=31.0),
            [False, True, True, True, False, True],
            {0, 5},
            "idle for over half an hour",
        ),
        (
            a_situation(state=IDLE, queue_length=0, idle_min=30.0),
            [False, True, True, True, False, False],
            {0},
            "idle for half an hour: not yet",
        ),
    ],
)
def test_self_questions(now: Situation, answers: list[bool], not_ok: set[int], why: str) -> None:
    found = buddy.self_questions(now, DEFAULT)
    assert [entry.question for entry in found] == SELF
    assert [entry.answer for entry in found] == answers, why
    assert {number for number, entry in enumerate(found) if not entry.ok} == not_ok, why


@pytest.mark.parametrize(
    ("now", "answer_min", "answers", "not_ok", "why"),
    [
        (a_situation(), 3.0, [True, True, False, False], set(), "all well"),
        (a_situation(), 15.0, [True, True, False, False], set(), "just within fifteen minutes"),
        (a_situation(), 15.1, [False, True, False, False], {0}, "no answer for longer"),
        (a_situation(), None, [False, True, False, False], {0}, "it never answered"),
        (a_situation(queue_length=0), 3.0, [True, False, False, False], {1}, "not 0"),
        (a_situation(queue_length=100), 3.0, [True, False, False, False], {1}, "not 100+"),
        (a_situation(queue_length=99), 3.0, [True, True, False, False], set(), "99 are fine"),
        (a_situation(task_min=181.0), 3.0, [True, True, True, False], {2}, "over three hours on one task"),
        (a_situation(state=FAILING), 3.0, [True, True, False, True], {3}, "errors spike"),
        (None, None, [False, False, False, False], {0, 1}, "it never wrote its state"),
    ],
)
def test_buddy_questions(
    now: Situation | None, answer_min: float | None, answers: list[bool], not_ok: set[int], why: str
) -> None:
    found = buddy.buddy_questions(now, answer_min, DEFAULT)
    assert [entry.question for entry in found] == BUDDY
    assert [entry.answer for entry in found] == answers, why
    assert {number for number, entry in enumerate(found) if not entry.ok} == not_ok, why


@pytest.mark.parametrize(
    ("key", "value", "facts", "concern"),
    [
        ("taskStuckMin", 10, {"task_min": 11.0}, "on one task for 11 min"),
        ("buddyQueueMax", 5, {"queue_length": 5}, "5 tasks waiting"),
        ("errorRateMax", 0.1, {"state": {"metrics": {"errorRate": 0.2, "errors24h": 3}}}, "error rate 20%"),
        ("contextWarnRatio", 0.1, {"state": {"contextTokens": 20_000}}, "context over 10%"),
    ],
)
def test_the_thresholds_are_limits(key: str, value: float, facts: dict[str, Any], concern: str) -> None:
    now = a_situation(**facts)
    assert buddy.concerns(now, DEFAULT) == []
    assert buddy.concerns(now, DEFAULT.with_overrides({key: value})) == [concern]
