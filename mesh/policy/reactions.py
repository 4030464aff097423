"""What happened to a pull request, as the mailbox document's messages: a failed check, review comments, mergeable.

Each reaction has an id that follows from what it is about (repository, pull request, head commit, kind, and check or
review): told again, it is the same message. What GitHub and whoever writes there say is data: cut to size, made
harmless, and sent in the orchestrator's name rather than a person's, so that no reader takes it for an order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mesh.models import Priority, derived_id
from mesh.policy.plain_text import plain

Kind = Literal["ci", "review", "mergeable"]

#: A log's beginning says what ran, its end what went wrong.
_ERROR_MAX, _ERROR_HEAD = 20_000, 4_000
_COMMENT_MAX, _COMMENTS_MAX = 10_000, 100
_NAME_MAX, _PATH_MAX = 200, 500
_FAILED = frozenset({"failure", "timed_out", "startup_failure"})
_REVIEW_ITSELF = "(review)"


@dataclass(frozen=True)
class Reaction:
    """One message that is to be sent, whoever gets it."""

    kind: Kind
    id: str
    type: str
    payload: dict[str, Any]
    #: What it is about, for people: `acme/shop#7, check lint`.
    about: str
    priority: Priority = Priority.HIGH
    requires_ack: bool = True


@dataclass(frozen=True)
class Ignored:
    """Why nothing follows from an event."""

    reason: str


@dataclass(frozen=True)
class PullRequest:
    """Which pull request, and which commit is its head. `number` is None for a commit outside of any."""

    repo: str
    number: int | None
    head: str
    url: str = ""

    @property
    def link(self) -> str:
        if self.url:
            return self.url
        base = f"https://github.com/{self.repo}"
        return f"{base}/commit/{self.head}" if self.number is None else f"{base}/pull/{self.number}"

    @property
    def name(self) -> str:
        return f"{self.repo}@{self.head[:7]}" if self.number is None else f"{self.repo}#{self.number}"


@dataclass(frozen=True)
class Comment:
    path: str
    body: str
    line: int | None = None
    #: Who wrote it, where that is known.
    author: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def ci_failure(pr: PullRequest, check: str, error: str, url: str = "") -> Reaction:
    """A check of the head commit failed."""
    check = _line(check, _NAME_MAX) or "check"
    payload = {
        "pr": pr.link,
        "check": check,
        "error": _middle_cut(error) or "It failed, and told nothing.",
        "head": pr.head,
    }
    if url:
        payload["url"] = _line(url, _PATH_MAX)
    return Reaction("ci", _id(pr, "ci", check), "fix_ci_failure", payload, f"{pr.name}, check {check}")


def review(pr: PullRequest, comments: Sequence[Comment], review_id: str) -> Reaction:
    """Comments of one review, at least one. `review_id` tells reviews of the same commit apart."""
    shown = [_comment(comment) for comment in comments[:_COMMENTS_MAX]]
    payload: dict[str, Any] = {"pr": pr.link, "comments": shown, "head": pr.head}
    if len(comments) > len(shown):
        payload["left"] = len(comments) - len(shown)
    count = "1 comment" if len(comments) == 1 else f"{len(comments)} comments"
    return Reaction("review", _id(pr, "review", review_id), "fix_review_comments", payload, f"{pr.name}, {count}")


def mergeable(pr: PullRequest, title: str = "") -> Reaction:
    """The pull request can be merged. Nobody is told to: whether it should be is for its agent and people."""
    titled = f" ({_line(title, _NAME_MAX)})" if title.strip() else ""
    text = f"✅ PR MERGEABLE\n\nChecks are green and nothing stands in the way of merging {pr.link}{titled}."
    payload = {"text": text, "pr": pr.link, "head": pr.head}
    return Reaction(
        "mergeable", _id(pr, "mergeable", ""), "pr_mergeable", payload, pr.name, Priority.NORMAL, requires_ack=False
    )


def _id(pr: PullRequest, kind: str, part: str) -> str:
    about = json.dumps([pr.repo.lower(), pr.number, pr.head.lower(), kind, part])
    return derived_id(hashlib.sha256(about.encode()).hexdigest()[:40], prefix=f"{kind}-")


# -- what GitHub tells


def of_github(event: str, payload: Mapping[str, Any]) -> list[Reaction] | Ignored:
    """What follows from an event of GitHub's webhooks: `event` as in `X-GitHub-Event`, the payload as it came. A
    payload that isn't of its event's shape is ignored, with the reason."""
    reader = _EVENTS.get(event)
    if reader is None:
        known = ", ".join(sorted(_EVENTS))
        return Ignored(f"nothing follows from {_line(event, 60)!r} events; from these something may: {known}")
    try:
        return reader(payload)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return Ignored(f"the payload isn't that of a {event} event: {type(error).__name__} {error}"[:_NAME_MAX])


def _check_run(payload: Mapping[str, Any]) -> list[Reaction] | Ignored:
    run = payload["check_run"]
    if (why := _not_failed(payload, run["conclusion"])) is not None:
        return why
    output = run.get("output") or {}
    told = [str(output.get(key) or "").strip() for key in ("title", "summary", "text")]
    error = "\n\n".join(filter(None, told)) or f"{run['name']}: {run['conclusion']}"
    url = str(run.get("html_url") or run.get("details_url") or "")
    return [ci_failure(pr, str(run["name"]), error, url) for pr in _of_commit(payload, run)]


def _check_suite(payload: Mapping[str, Any]) -> list[Reaction] | Ignored:
    suite = payload["check_suite"]
    if (why := _not_failed(payload, suite["conclusion"])) is not None:
        return why
    name = str((suite.get("app") or {}).get("name") or "check suite")
    return [ci_failure(pr, name, f"{name}: {suite['conclusion']}") for pr in _of_commit(payload, suite)]


def _workflow_run(payload: Mapping[str, Any]) -> list[Reaction] | Ignored:
    run = payload["workflow_run"]
    if (why := _not_failed(payload, run["conclusion"])) is not None:
        return why
    name, url = str(run.get("name") or "workflow"), str(run.get("html_url") or "")
    error = (
        f"The workflow {name!r} ended with {run['conclusion']}. `gh run view {int(run['id'])} --log-failed` shows why."
    )
    return [ci_failure(pr, name, error, url) for pr in _of_commit(payload, run)]


def _review(payload: Mapping[str, Any]) -> list[Reaction] | Ignored:
    found, pr = payload["review"], _pull_request(payload)
    if payload["action"] != "submitted":
        return Ignored(f"the review was {payload['action']}")
    state, body = str(found["state"]).lower(), str(found.get("body") or "").strip()
    if state not in ("changes_requested", "commented"):
        return Ignored(f"the review's state is {state}: nothing to fix")
    if not body:
        return Ignored("the review has no text of its own; its comments come as pull_request_review_comment events")
    return [review(pr, [Comment(_REVIEW_ITSELF, body, author=_login(found))], f"review {int(found['id'])}")]


def _review_comment(payload: Mapping[str, Any]) -> list[Reaction] | Ignored:
    found, pr = payload["comment"], _pull_request(payload)
    if payload["action"] != "created":
        return Ignored(f"the comment was {payload['action']}")
    if found.get("in_reply_to_id") and _login(found) == _login(payload["pull_request"]):
        # An agent that answers where it was asked must not be woken by its own answer, for ever.
        return Ignored("the pull request's own author replied")
    return [review(pr, [comment_of(found)], f"comment {int(found['id'])}")]


def _pull_request_event(payload: Mapping[str, Any]) -> list[Reaction] | Ignored:
    found = payload["pull_request"]
    if found["state"] != "open" or found.get("draft"):
        return Ignored("the pull request is a draft" if found["state"] == "open" else "the pull request is closed")
    if found.get("mergeable_state") != "clean":
        return Ignored(f"its mergeable_state is {found.get('mergeable_state')!r}, not 'clean'")
    return [mergeable(_pull_request(payload), str(found.get("title") or ""))]


_EVENTS: dict[str, Callable[[Mapping[str, Any]], list[Reaction] | Ignored]] = {
    "check_run": _check_run,
    "check_suite": _check_suite,
    "workflow_run": _workflow_run,
    "pull_request_review": _review,
    "pull_request_review_comment": _review_comment,
    "pull_request": _pull_request_event,
}


def comment_of(found: Mapping[str, Any]) -> Comment:
    """A review comment as GitHub's API and webhooks give it. Raises KeyError, TypeError, ValueError."""
    line = found.get("line") or found.get("original_line")
    more = {"url": str(found["html_url"])} if found.get("html_url") else {}
    return Comment(str(found["path"]), str(found["body"]), None if line is None else int(line), _login(found), more)


def _not_failed(payload: Mapping[str, Any], conclusion: str | None) -> Ignored | None:
    if payload["action"] != "completed":
        return Ignored(f"it is {payload['action']}, not completed")
    return None if conclusion in _FAILED else Ignored(f"it ended with {conclusion}: nothing to fix")


def _of_commit(payload: Mapping[str, Any], run: Mapping[str, Any]) -> list[PullRequest]:
    """The pull requests whose head the commit is; the commit itself where GitHub names none (a fork, a branch)."""
    repo, head = str(payload["repository"]["full_name"]), str(run["head_sha"])
    page = str(payload["repository"].get("html_url") or f"https://github.com/{repo}")
    numbers = [int(pr["number"]) for pr in run.get("pull_requests") or [] if pr["head"]["sha"] == head]
    if not numbers:
        return [PullRequest(repo, None, head, f"{page}/commit/{head}")]
    return [PullRequest(repo, number, head, f"{page}/pull/{number}") for number in numbers]


def _pull_request(payload: Mapping[str, Any]) -> PullRequest:
    found = payload["pull_request"]
    return PullRequest(
        str(payload["repository"]["full_name"]),
        int(found["number"]),
        str(found["head"]["sha"]),
        str(found.get("html_url") or ""),
    )


def _login(found: Mapping[str, Any]) -> str:
    return str((found.get("user") or {}).get("login") or "")


# -- words of others


def _comment(comment: Comment) -> dict[str, Any]:
    body = plain(comment.body).strip()
    if len(body) > _COMMENT_MAX:
        body = body[: _COMMENT_MAX - 1] + "…"
    shown: dict[str, Any] = {
        "path": _line(comment.path, _PATH_MAX) or _REVIEW_ITSELF,
        "line": comment.line,
        "body": body,
    }
    if comment.author:
        shown["author"] = _line(comment.author, _NAME_MAX)
    return shown | {key: _line(str(value), _PATH_MAX) for key, value in comment.more.items()}


def _middle_cut(text: str) -> str:
    text = plain(text).strip()
    if len(text) <= _ERROR_MAX:
        return text
    left = len(text) - _ERROR_MAX
    return f"{text[:_ERROR_HEAD]}\n\n… {left} characters left out …\n\n{text[-(_ERROR_MAX - _ERROR_HEAD) :]}"


def _line(text: str, characters_max: int) -> str:
    return " ".join(plain(text).split())[:characters_max]
