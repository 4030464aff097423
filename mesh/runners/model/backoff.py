"""Asking again after a passing fault of the provider: with pauses, as it asks for, within the deadline."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from pydantic_ai import RetryModelRequest, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ModelConnectionError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext

from mesh import clock

#: Pauses before the second, third … try, where the provider names none.
FIRST_PAUSE_S, PAUSE_MAX_S = 0.5, 20.0
#: Who is told to wait longer than this is at a limit: the account is parked, and the place is free for others.
ASKED_PAUSE_MAX_S = 60.0
_PASSING = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError)
#: Request timed out at the provider's door; conflict with another request.
_PASSING_STATUSES = (408, 409)


def pause_s(error: Exception, attempt: int, retries: int, left_s: float) -> float | None:
    """Seconds to wait before the next try after attempt `attempt` (from 1); None if it isn't to be tried again."""
    if attempt > retries or not _passes(error):
        return None
    asked_s = getattr(error, "retry_after", None)
    if asked_s is not None:
        return asked_s if asked_s <= min(ASKED_PAUSE_MAX_S, left_s) else None
    wait_s = min(PAUSE_MAX_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * random.uniform(0.75, 1.0)
    return wait_s if wait_s <= left_s else None


def _passes(error: Exception) -> bool:
    if isinstance(error, ModelQuotaExceededError):
        return False
    if isinstance(error, ModelHTTPError):
        if error.provider_retry_hint is not None:
            return error.provider_retry_hint
        if error.status_code in _PASSING_STATUSES:
            return True
    return isinstance(error, _PASSING)


@dataclass
class BackOff(AbstractCapability[object]):
    """Asks again up to `retries` times a request, none of them after `deadline_s` (monotonic)."""

    retries: int
    deadline_s: float
    time: clock.Clock = field(default=clock.SYSTEM)

    async def on_model_request_error(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        left_s = self.deadline_s - self.time.monotonic()
        wait_s = pause_s(error, request_context.attempt, self.retries, left_s)
        if wait_s is None:
            raise error
        await asyncio.sleep(wait_s)
        raise RetryModelRequest() from error
