"""From what GitHub tells to messages: which events count, once per head commit, and nothing that harms a reader."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mesh.models import PAYLOADS, is_id, payload_problems
from mesh.policy.reactions import (
    Comment,
    Ignored,
    PullRequest,
    Reaction,
    ci_failure,
    mergeable,
    of_github,
    review,
)

PR = PullRequest("acme/shop", 7, "a" * 40)
REPOSITORY = {"full_name": "acme/shop", "html_url": "https://github.com/acme/shop"}
LINK = "https://github.com/acme/shop/pull/7"
#: As GitHub names a pull request within a check.
NAMED = {"number": 7, "url": "x", "head": {"ref": "f", "sha": "a" * 40}, "base": {"ref": "main", "sha": "b" * 40}}


def check_run(**fields: Any) -> dict[str, Any]:
    run = {
        "id": 1,
        "name": "lint",
        "head_sha": "a" * 40,
        "status": "completed",
        "conclusion": "failure",
        "html_url": "https://github.com/acme/shop/runs/1",
        "output": {"title": "1 error", "summary": "Missing semicolon", "text": None},
        "pull_requests": [NAMED],
    }
    return {"action": "completed", "check_run": run | fields, "repository": REPOSITORY}


def check_suite(**fields: Any) -> dict[str, Any]:
    suite = {"head_sha": "a" * 40, "conclusion": "failure", "app": {"name": "CI"}, "pull_requests": [NAMED]}
    return {"action": "completed", "check_suite": suite | fields, "repository": REPOSITORY}


def workflow_run(**fields: Any) -> dict[str, Any]:
    run = {"id": 9, "name": "Tests", "head_sha": "a" * 40, "conclusion": "failure", "pull_requests": [NAMED]}
    return {"action": "completed", "workflow_run": run | fields, "repository": REPOSITORY}


def pull_request(**fields: Any) -> dict[str, Any]:
    found = {
        "number": 7,
        "html_url": LINK,
        "title": "Add a cart",
        "state": "open",
        "draft": False,
        "mergeable_state": "clean",
        "head": {"sha": "a" * 40},
        "user": {"login": "bot"},
    }
    return {"action": "labeled", "pull_request": found | fields, "repository": REPOSITORY}


def review_event(**fields: Any) -> dict[str, Any]:
    found = {"id": 5, "state": "changes_requested", "body": "Please split it.", "user": {"login": "kim"}}
    return {**pull_request(), "action": "submitted", "review": found | fields}


def comment_event(**fields: Any) -> dict[str, Any]:
    found = {
        "id": 6,
        "path": "cart.py",
        "line": 12,
        "body": "Off by one.",
        "user": {"login": "kim"},
        "html_url": f"{LINK}#discussion_r6",
        "in_reply_to_id": None,
    }
    return {**pull_request(), "action": "created", "comment": found | fields}


def one(event: str, payload: dict[str, Any]) -> Reaction:
    found = of_github(event, payload)
    assert not isinstance(found, Ignored), found.reason
    [reaction] = found
    return reaction


def ignored(event: str, payload: dict[str, Any]) -> str:
    found = of_github(event, payload)
    assert isinstance(found, Ignored), found
    return found.reason


@pytest.mark.parametrize("conclusion", ["failure", "timed_out", "startup_failure"])
def test_a_failed_check(conclusion: str) -> None:
    reaction = one("check_run", check_run(conclusion=conclusion))
    assert reaction.type == "fix_ci_failure" and reaction.priority == "high" and reaction.requires_ack
    assert reaction.payload == {
        "pr": LINK,
        "check": "lint",
        "error": "1 error\n\nMissing semicolon",
        "head": "a" * 40,
        "url": "https://github.com/acme/shop/runs/1",
    }
    assert reaction.about == "acme/shop#7, check lint"


def test_suites_and_workflows() -> None:
    assert one("check_suite", check_suite()).payload["error"] == "CI: failure"
    told = one("workflow_run", workflow_run())
    assert told.payload["check"] == "Tests" and "gh run view 9 --log-failed" in told.payload["error"]


@pytest.mark.parametrize("conclusion", ["success", "neutral", "cancelled", "skipped", "stale", "action_required", None])
def test_what_did_not_fail_is_left_alone(conclusion: str | None) -> None:
    for event, make in (("check_run", check_run), ("check_suite", check_suite), ("workflow_run", workflow_run)):
        assert "nothing to fix" in ignored(event, make(conclusion=conclusion))
        assert "not completed" in ignored(event, {**make(), "action": "rerequested"})


def test_each_pull_request_of_the_commit_and_none_that_has_moved_on() -> None:
    other = {**NAMED, "number": 8}
    moved = {**NAMED, "number": 9, "head": {"sha": "c" * 40}}
    found = of_github("check_run", check_run(pull_requests=[NAMED, other, moved]))
    assert not isinstance(found, Ignored)
    assert [reaction.payload["pr"][-1] for reaction in found] == ["7", "8"]
    assert len({reaction.id for reaction in found}) == 2


def test_a_commit_outside_of_any_pull_request_is_named_itself() -> None:
    reaction = one("check_run", check_run(pull_requests=[]))
    assert reaction.payload["pr"] == f"https://github.com/acme/shop/commit/{'a' * 40}"
    assert reaction.about == "acme/shop@aaaaaaa, check lint"


def test_reviews() -> None:
    reaction = one("pull_request_review", review_event())
    assert reaction.type == "fix_review_comments"
    assert reaction.payload["comments"] == [
        {"path": "(review)", "line": None, "body": "Please split it.", "author": "kim"}
    ]
    assert one("pull_request_review", review_event(state="COMMENTED")).type == "fix_review_comments"
    assert "nothing to fix" in ignored("pull_request_review", review_event(state="approved"))
    assert "no text of its own" in ignored("pull_request_review", review_event(body=None))
    assert "dismissed" in ignored("pull_request_review", {**review_event(), "action": "dismissed"})


def test_review_comments() -> None:
    reaction = one("pull_request_review_comment", comment_event())
    [shown] = reaction.payload["comments"]
    assert (shown["path"], shown["line"], shown["body"], shown["author"]) == ("cart.py", 12, "Off by one.", "kim")
    outdated = one("pull_request_review_comment", comment_event(line=None, original_line=3))
    assert outdated.payload["comments"][0]["line"] == 3
    assert "deleted" in ignored("pull_request_review_comment", {**comment_event(), "action": "deleted"})


def test_an_agents_own_answer_does_not_wake_it_for_ever() -> None:
    own_reply = comment_event(in_reply_to_id=5, user={"login": "bot"})
    assert "own author replied" in ignored("pull_request_review_comment", own_reply)
    assert one("pull_request_review_comment", comment_event(in_reply_to_id=5)).type == "fix_review_comments"
    # A person whose account the agent uses may comment as well: only replies are taken for the agent's own.
    assert one("pull_request_review_comment", comment_event(user={"login": "bot"})).type == "fix_review_comments"


def test_mergeable() -> None:
    reaction = one("pull_request", pull_request())
    assert reaction.type == "pr_mergeable" and reaction.type not in PAYLOADS
    assert LINK in reaction.payload["text"] and "Add a cart" in reaction.payload["text"]
    assert not reaction.requires_ack and reaction.priority == "normal"
    for state in ("dirty", "blocked", "unstable", "unknown", None):
        assert "not 'clean'" in ignored("pull_request", pull_request(mergeable_state=state))
    assert "draft" in ignored("pull_request", pull_request(draft=True))
    assert "closed" in ignored("pull_request", pull_request(state="closed"))


def test_once_per_head_commit_and_check() -> None:
    first = ci_failure(PR, "lint", "one")
    assert ci_failure(PR, "lint", "other words").id == first.id
    assert ci_failure(PullRequest("Acme/Shop", 7, "A" * 40), "lint", "").id == first.id
    others = [
        ci_failure(PR, "tests", "one"),
        ci_failure(PullRequest("acme/shop", 7, "b" * 40), "lint", "one"),
        ci_failure(PullRequest("acme/shop", 8, "a" * 40), "lint", "one"),
        ci_failure(PullRequest("acme/other", 7, "a" * 40), "lint", "one"),
        review(PR, [Comment("a", "b")], "1"),
        review(PR, [Comment("a", "b")], "2"),
        mergeable(PR),
    ]
    assert len({first.id, *(other.id for other in others)}) == len(others) + 1
    assert all(is_id(reaction.id) for reaction in (first, *others))


def test_payloads_are_of_their_types_shapes() -> None:
    for reaction in (ci_failure(PR, "lint", ""), review(PR, [Comment("a", "b")], "1"), mergeable(PR, "t")):
        assert payload_problems(reaction.type, reaction.payload) == []


def test_sizes_are_bounded() -> None:
    reaction = ci_failure(PR, "n" * 5_000, "start " + "x" * 100_000 + " the end")
    assert len(reaction.payload["error"]) < 20_100 and len(reaction.payload["check"]) == 200
    assert reaction.payload["error"].startswith("start") and reaction.payload["error"].endswith("the end")
    assert "characters left out" in reaction.payload["error"]
    many = review(PR, [Comment("p" * 9_000, "b" * 90_000)] * 500, "1")
    assert len(many.payload["comments"]) == 100 and many.payload["left"] == 400
    assert all(len(c["body"]) == 10_000 and len(c["path"]) == 500 for c in many.payload["comments"])


def test_what_nobody_sees_is_taken_out() -> None:
    reaction = ci_failure(PR, "li\x1b[31mnt\nx", "red\x1b[31m text\u202e\x00")
    assert (reaction.payload["check"], reaction.payload["error"]) == ("lint x", "red text")


@pytest.mark.parametrize("event", ["push", "ping", "", "issues", "\x1b[2J"])
def test_other_events(event: str) -> None:
    reason = ignored(event, {"action": "x"})
    assert "nothing follows from" in reason and "check_run" in reason and "\x1b" not in reason


@pytest.mark.parametrize(
    ("event", "make"),
    [
        ("check_run", check_run),
        ("check_suite", check_suite),
        ("workflow_run", workflow_run),
        ("pull_request", pull_request),
        ("pull_request_review", review_event),
        ("pull_request_review_comment", comment_event),
    ],
)
def test_payloads_of_another_shape_are_ignored_whatever_is_wrong(event: str, make: Any) -> None:
    whole = make()
    broken: list[Any] = [{}, {"action": "completed"}]
    for path in _paths(whole):
        for value in (None, 3, "x", [], {}, [1]):
            changed = copy.deepcopy(whole)
            target = changed
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
            broken.append(changed)
    for payload in broken:
        found = of_github(event, payload)
        reactions = [] if isinstance(found, Ignored) else found
        assert all(payload_problems(r.type, r.payload) == [] and is_id(r.id) for r in reactions)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _paths(inner, (*path, key))
    return found
