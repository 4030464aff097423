"""What errors come to, and whether they are tried again: pure, with the library's own error classes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    ModelUnavailableError,
)

from mesh.clock import iso
from mesh.runners.model.backoff import ASKED_PAUSE_MAX_S, PAUSE_MAX_S, pause_s
from mesh.runners.model.endpoint import endpoint_of
from mesh.runners.model.refusals import problem_of
from tests.fakes import START

ENDPOINT = endpoint_of("own/small", "http://127.0.0.1:9/v1")


def http(category: Any, status: int, headers: dict[str, str] | None = None, body: object = None) -> ModelHTTPError:
    return ModelHTTPError.for_category(category, status_code=status, model_name="m", headers=headers, body=body)


@pytest.mark.parametrize(
    ("headers", "until"),
    [
        ({"retry-after": "90"}, START + timedelta(seconds=90)),
        ({"retry-after-ms": "1500"}, START + timedelta(seconds=1.5)),
        ({"x-ratelimit-reset": "1771274760"}, START + timedelta(seconds=60)),
        ({"x-ratelimit-reset": "1771274760000"}, START + timedelta(seconds=60)),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-02-16T20:47:00Z",
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2026-02-16T20:50:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "100",
                "anthropic-ratelimit-input-tokens-reset": "2026-02-16T23:00:00Z",
            },
            START + timedelta(minutes=5),
        ),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, START + timedelta(0, 3723.5)),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "soon"}, None),
        ({"x-ratelimit-reset": "1000000000"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_when_a_limit_ends(headers: dict[str, str] | None, until: Any) -> None:
    problem = problem_of(http(ModelRateLimitError, 429, headers), ENDPOINT, 10, START)
    assert (problem.kind, problem.until) == ("limited", None if until is None else iso(until))


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (TimeoutError(), "failed", "within 10 s"),
        (http(ModelContextWindowExceededError, 400), "failed", "new session"),
        (http(ModelRequestRejectedError, 400, body={"error": {"message": "bad thing"}}), "failed", "400: bad thing"),
        (http(None, 418, body={"error": "teapot"}), "failed", "418: teapot"),
        (http(None, 418, body="plain words"), "failed", "418: plain words"),
        (ContentFilterError("unsafe"), "failed", "declined"),
        (ModelAPIError("m", "Failed to decode response as JSON"), "broken", "no readable answer"),
        (OSError(5, "Input/output error"), "failed", "OSError"),
        (http(None, 418, body={"error": {"message": "x" * 5000}}), "failed", "…"),
    ],
)
def test_what_an_error_comes_to(error: Exception, kind: str, word: str) -> None:
    problem = problem_of(error, ENDPOINT, 10, START)
    assert problem.kind == kind and word in problem.detail and len(problem.detail) < 1000


def test_an_unreachable_provider_names_the_reason_below() -> None:
    error = ModelConnectionError("m", "Connection error.")
    error.__cause__ = RuntimeError("sdk")
    error.__cause__.__cause__ = OSError("Name or service not known")
    detail = problem_of(error, ENDPOINT, 10, START).detail
    assert "http://127.0.0.1:9/v1 could not be reached" in detail and "Name or service not known" in detail


PASSING = [
    http(ModelRateLimitError, 429),
    http(ModelUnavailableError, 503),
    http(ModelServerError, 500),
    http(None, 408),
    http(None, 409),
    ModelConnectionError("m", "reset"),
    http(ModelRequestRejectedError, 400, {"x-should-retry": "true"}),
]
LASTING = [
    http(ModelQuotaExceededError, 429),
    http(ModelRequestRejectedError, 400),
    http(None, 418),
    http(ModelServerError, 500, {"x-should-retry": "false"}),
    ValueError("ours"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_passes_is_tried_again_with_growing_pauses(error: Exception) -> None:
    first, third = pause_s(error, 1, 3, 100), pause_s(error, 3, 3, 100)
    assert first is not None and third is not None and 0.3 < first <= 0.5 and 1.5 <= third <= 2.0
    assert pause_s(error, 4, 3, 100) is None and pause_s(error, 1, 3, 0.1) is None
    late = pause_s(error, 30, 50, 100)
    assert late is not None and late <= PAUSE_MAX_S


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts_is_not(error: Exception) -> None:
    assert pause_s(error, 1, 3, 100) is None


def test_the_providers_own_pause_is_kept_exactly_or_not_begun() -> None:
    assert pause_s(http(ModelRateLimitError, 429, {"retry-after": "7"}), 1, 3, 100) == 7
    assert pause_s(http(ModelRateLimitError, 429, {"retry-after": "7"}), 1, 3, 6.9) is None
    assert pause_s(http(ModelServerError, 503, {"retry-after": "0"}), 1, 3, 100) == 0
    beyond = {"retry-after": str(int(ASKED_PAUSE_MAX_S) + 1)}
    assert pause_s(http(ModelRateLimitError, 429, beyond), 1, 3, 1000) is None
