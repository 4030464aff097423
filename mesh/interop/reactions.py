"""What a CI job or a script hands in of a pull request, as reactions: a log, review comments, or the event's own
payload, as GitHub's webhooks, its API (`gh api`) and `GITHUB_EVENT_PATH` give them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mesh.errors import BadUse
from mesh.models import HUMAN
from mesh.policy.reactions import (
    Comment,
    Ignored,
    Kind,
    PullRequest,
    Reaction,
    ci_failure,
    comment_of,
    mergeable,
    of_github,
    review,
)
from mesh.service import compose
from mesh.service.reacting import Outcome, message_of, outcome
from mesh.store import Store
from mesh.store.mailbox import Again
from mesh.store.secrets import OPERATOR

#: A log of more than this isn't taken whole; its end tells what failed.
BYTES_MAX = 50_000_000
#: The member of a payload that tells which event it is of, what stands there only for some first.
_EVENT_OF = {
    "check_run": "check_run",
    "check_suite": "check_suite",
    "workflow_run": "workflow_run",
    "comment": "pull_request_review_comment",
    "review": "pull_request_review",
    "pull_request": "pull_request",
}


@dataclass(frozen=True)
class Named:
    """What the command line names; None for what it leaves to the file."""

    repo: str | None = None
    pr: str | None = None
    head: str | None = None
    check: str | None = None
    url: str | None = None
    title: str | None = None

    def pull_request(self) -> PullRequest:
        """Raises BadUse, naming what is missing or wrong."""
        missing = [f"--{name}" for name in ("repo", "pr", "head") if not getattr(self, name)]
        if missing:
            raise BadUse(f"Say {', '.join(missing)} too, or give --from-file the event's own payload.")
        number = str(self.pr).rstrip("/").rpartition("/")[2].lstrip("#")
        if not (number.isascii() and number.isdigit()):
            raise BadUse(f"--pr {self.pr!r} is neither a number nor a pull request's address.")
        link = str(self.pr) if "://" in str(self.pr) else ""
        return PullRequest(str(self.repo), int(number), str(self.head), link)


def read(kind: Kind, named: Named, content: str | None) -> list[Reaction] | Ignored:
    """What follows from a file's content and from what is named beside it. Raises BadUse."""
    event = _event(content)
    if event is not None:
        return _of_event(kind, *event)
    if kind == "ci":
        if content is None:
            raise BadUse("Say what failed: --from-file FILE, or - for standard input.")
        if not named.check:
            raise BadUse("Say which check failed: --check NAME.")
        return [ci_failure(named.pull_request(), named.check, content, named.url or "")]
    if kind == "review":
        return _reviews(named.pull_request(), _comments(content))
    return [mergeable(named.pull_request(), named.title or "")]


def tell(store: Store, reactions: Sequence[Reaction], to: str) -> list[Outcome]:
    """Send them, in the orchestrator's name and once. What the recipient can't take now waits in the outbox. Raises
    UnknownAgent, TooLarge."""
    registry = store.registry.current
    if to == HUMAN:
        raise BadUse("An agent reacts; name one.")
    registry.entry(to)
    compose.put_in_force(store, registry)
    messages = [message_of(store, registry, reaction, to, OPERATOR) for reaction in reactions]
    posted = store.mail.post(messages, again=Again.BY_ID, queue=True)
    return [outcome(reaction, entry) for reaction, entry in zip(reactions, posted, strict=True)]


def _event(content: str | None) -> tuple[str, dict[str, Any]] | None:
    """The event and its payload, if the content is one."""
    if content is None or not content.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(content)
    except ValueError:
        return None
    event = next((name for key, name in _EVENT_OF.items() if isinstance(found.get(key), dict)), None)
    return (event, found) if event and isinstance(found.get("repository"), dict) and "action" in found else None


def _of_event(kind: Kind, event: str, payload: dict[str, Any]) -> list[Reaction] | Ignored:
    found = of_github(event, payload)
    if isinstance(found, Ignored):
        return found
    wrong = next((reaction.kind for reaction in found if reaction.kind != kind), None)
    if wrong is not None:
        raise BadUse(f"The file is the payload of a {event} event: say mesh react {wrong}.")
    return found


def _comments(content: str | None) -> list[dict[str, Any]]:
    """Review comments as `gh api repos/O/R/pulls/N/comments` lists them, or in an object's `comments`."""
    shape = 'a JSON list of {"path", "line", "body"}, as `gh api repos/OWNER/REPO/pulls/N/comments` gives it'
    if content is None:
        raise BadUse(f"Give the comments: --from-file FILE, or - for standard input: {shape}.")
    try:
        found = json.loads(content)
    except ValueError as error:
        raise BadUse(f"The comments are not JSON ({error}); they must be {shape}.") from None
    found = found.get("comments") if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise BadUse(f"The comments must be {shape}.")
    return found


def _reviews(pr: PullRequest, found: Sequence[dict[str, Any]]) -> list[Reaction] | Ignored:
    """One reaction a review: what was told of one before is not told again when there is another."""
    groups: dict[str, list[Comment]] = {}
    for number, entry in enumerate(found, 1):
        try:
            comment = comment_of(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadUse(f"Comment {number} is missing something or has it wrong: {error}.") from None
        groups.setdefault(str(entry.get("pull_request_review_id") or ""), []).append(comment)
    if not groups:
        return Ignored("there are no comments")
    return [
        review(pr, comments, f"review {id_}" if id_ else f"comments {_digest(comments)}")
        for id_, comments in groups.items()
    ]


def _digest(comments: Sequence[Comment]) -> str:
    told = json.dumps([[comment.path, comment.line, comment.body] for comment in comments])
    return hashlib.sha256(told.encode(errors="replace")).hexdigest()
