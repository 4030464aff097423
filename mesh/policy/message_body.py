"""What a message says, as text: by type, after the mailbox document's formats (its inbox-watcher.sh).

Nothing of a payload is left out: what a format has no place for follows as JSON. A payload that isn't of its type's
shape is shown as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from mesh.models import Message, payload_of
from mesh.models.mail import FixCiFailure, FixReviewComments, ReviewComment, Shutdown, StatusRequest
from mesh.policy.plain_text import plain


def body(message: Message) -> str:
    """The payload as plain text. Never empty."""
    text, others = _formatted(message) or _generic(message.payload)
    parts = [part for part in (plain(text), _json(others) if others else "") if part]
    return "\n\n".join(parts) or "Message received"


def _formatted(message: Message) -> tuple[str, dict[str, Any]] | None:
    """The text in its type's format, and the payload's other members; None if there is no format, or the payload
    isn't of its shape."""
    if message.type not in _FORMATS:
        return None
    try:
        payload = payload_of(message)
    except ValidationError:
        return None
    return _FORMATS[message.type](payload), payload.model_extra or {}


def _generic(payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    text = payload.get("text")
    if not isinstance(text, str):
        return "", payload
    return text, {key: value for key, value in payload.items() if key != "text"}


def _json(value: Any) -> str:
    return json.dumps(_plain_within(value), ensure_ascii=False, indent=2)


def _plain_within(value: Any) -> Any:
    """Cleaned text by text: an escape that starts in one member must not swallow those that follow."""
    if isinstance(value, dict):
        return {plain(str(key)): _plain_within(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain_within(inner) for inner in value]
    return plain(value) if isinstance(value, str) else value


# -- the formats


def _ci_failure(payload: FixCiFailure) -> str:
    return (
        "🔧 CI FAILURE DETECTED\n\nYour PR has a failing CI check. Please fix:\n\n"
        f"{payload.error}\n\nPR: {payload.pr}\nCheck: {payload.check}"
    )


def _review_comments(payload: FixReviewComments) -> str:
    comments = "\n".join(map(_comment, payload.comments))
    return (
        "📝 REVIEW COMMENTS\n\nYour PR has unresolved review comments. Please address them:\n\n"
        f"{comments}\n\nPR: {payload.pr}"
    )


def _comment(comment: ReviewComment) -> str:
    place = comment.path if comment.line is None else f"{comment.path}:{comment.line}"
    others = f"\n{_json(comment.model_extra)}" if comment.model_extra else ""
    return f"- {place} - {comment.body}{others}"


def _status_request(payload: StatusRequest) -> str:
    asked = (
        "📊 STATUS REQUEST\n\nPlease provide a status update on your current task.\n\n"
        "Include: current branch, PR status, blockers, ETA."
    )
    return f"{asked}\n\n{payload.text}" if payload.text else asked


def _shutdown(payload: Shutdown) -> str:
    # The document says "the orchestrator"; here the human may ask as well, and the envelope tells who did.
    return f"🛑 SHUTDOWN\n\nYou are requested to shut down.\n\nReason: {payload.reason or 'Unknown'}"


_FORMATS: dict[str, Callable[[Any], str]] = {
    "fix_ci_failure": _ci_failure,
    "fix_review_comments": _review_comments,
    "status_request": _status_request,
    "shutdown": _shutdown,
}
