"""What went wrong between us and a provider, as a problem that the mesh knows what to do about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    OutputTokenLimitExceeded,
    UnexpectedModelBehavior,
)

from mesh.clock import iso, parse
from mesh.runners.model.endpoint import Endpoint
from mesh.runners.profile import Problem

_DETAIL_CHARS_MAX = 600
#: Responses that name their limits tell of several; one that is used up says when it is full again.
_LEFT = re.compile(r"(?P<limit>(?:x|anthropic)-ratelimit-.*remaining.*)")
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_PART_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: Epoch seconds of a plausible reset have ten digits; milliseconds thirteen.
_EPOCH_MS_MIN = 1e12


def problem_of(error: BaseException, endpoint: Endpoint, timeout_s: float, now: datetime) -> Problem:
    """The problem that this error of a call comes to."""
    if isinstance(error, TimeoutError):
        return Problem("failed", f"{endpoint.name} gave no answer within {timeout_s:g} s.")
    words = _words(error)
    if isinstance(error, ModelAuthenticationError):
        return Problem("logged_out", f"{endpoint.place} refuses the key in {endpoint.key_env}: {words}")
    if isinstance(error, ModelQuotaExceededError):
        return Problem("limited", f"The account at {endpoint.place} has no quota left: {words}", _until(error, now))
    if isinstance(error, ModelRateLimitError):
        return Problem("limited", f"{endpoint.place} takes no more requests now: {words}", _until(error, now))
    if isinstance(error, ModelContextWindowExceededError):
        hint = "the conversation no longer fits into the model's context; begin a new session"
        return Problem("failed", f"{endpoint.name}: {hint}: {words}")
    if isinstance(error, ModelNotFoundError):
        return Problem(
            "failed", f"{endpoint.place} knows no {endpoint.model!r} (runner.model, runner.baseUrl): {words}"
        )
    if isinstance(error, ModelConnectionError):
        return Problem("failed", f"{endpoint.place} could not be reached: {words}")
    if isinstance(error, ContentFilterError):
        return Problem("failed", f"{endpoint.place} declined to answer: {words}")
    if isinstance(error, OutputTokenLimitExceeded):
        return Problem("broken", f"The answer of {endpoint.name} is longer than runner.maxOutputTokens: {words}")
    if isinstance(error, UnexpectedModelBehavior):
        return Problem("broken", f"{endpoint.name} gave no valid answer: {words}")
    if isinstance(error, ModelHTTPError):
        return Problem("failed", f"{endpoint.place} answered {error.status_code}: {words}")
    if isinstance(error, ModelAPIError):
        return Problem("broken", f"{endpoint.place} gave no readable answer: {words}")
    return Problem("failed", f"{endpoint.name}: {type(error).__name__}: {words}")


def _words(error: BaseException) -> str:
    """The provider's own words, short and on one line."""
    text = _message_in(getattr(error, "body", None)) or str(error) or type(error).__name__
    if isinstance(error, UnexpectedModelBehavior | ModelConnectionError):
        # What the library says of these is general; the reason stands in what it came from.
        causes = _causes(error)
        text = ": ".join([text, *(str(cause) for cause in causes[-1:] if str(cause) and str(cause) not in text)])
    text = " ".join(text.split())
    return text if len(text) <= _DETAIL_CHARS_MAX else f"{text[:_DETAIL_CHARS_MAX]} …"


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    while (cause := (found[-1] if found else error).__cause__) is not None and cause not in found:
        found.append(cause)
    return found


def _message_in(body: object) -> str | None:
    """The message in an error body, which comes as `{"message"}`, `{"error": {"message"}}` or `{"error": "…"}`."""
    if not isinstance(body, Mapping):
        return body if isinstance(body, str) else None
    inner = body.get("error", body)
    message = inner.get("message") if isinstance(inner, Mapping) else inner
    return message if isinstance(message, str) and message else None


def _until(error: ModelAPIError, now: datetime) -> str | None:
    """When the limit ends, if the provider told."""
    if error.retry_after is not None:
        return iso(now + timedelta(seconds=error.retry_after))
    headers = error.headers if isinstance(error, ModelHTTPError) and error.headers else {}
    resets = [
        moment
        for name, left in headers.items()
        if _LEFT.fullmatch(name) and left.strip() == "0"
        if (moment := _moment(headers.get(name.replace("remaining", "reset"), ""), now)) is not None
    ]
    plain = _moment(headers.get("x-ratelimit-reset", ""), now)
    moments = resets or ([plain] if plain else [])
    return iso(max(moments)) if moments else None


def _moment(text: str, now: datetime) -> datetime | None:
    """`2026-02-16T20:45:00Z`, `1771274700`, `1771274700000`, `6m0s` or `20ms`; None if it is none, or past."""
    try:
        if re.fullmatch(r"\d{10,13}", text):
            seconds = int(text) / 1000 if int(text) >= _EPOCH_MS_MIN else int(text)
            moment = datetime.fromtimestamp(seconds, UTC)
        elif _PARTS.sub("", text) == "" and text:
            moment = now + timedelta(seconds=sum(float(n) * _PART_S[unit] for n, unit in _PARTS.findall(text)))
        else:
            moment = parse(text)
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment > now else None
