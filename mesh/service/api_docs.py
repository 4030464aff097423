"""What the OpenAPI document says beyond the routes' own signatures: answers, problems, the secret."""

from __future__ import annotations

from typing import Any

from fastapi import Depends
from fastapi.security import HTTPBearer

from mesh.models import Attachment, Message
from mesh.models.wire import (
    Acked,
    Cancelled,
    HealthAnswer,
    MessageReceived,
    Problem,
    StatusAnswer,
    TaskAccepted,
    TaskView,
    Woken,
)

PROBLEM = "application/problem+json"
Responses = dict[int | str, dict[str, Any]]

#: Says in the document that a secret is needed; the guard in front of all routes checks it.
SECRET = [Depends(HTTPBearer(auto_error=False, description="An agent's secret, or the operator's"))]

_DESCRIPTIONS = {
    401: "no secret, or nobody's",
    403: "a foreign Host or Origin, or the caller may not do this",
    404: "no such agent, task, message, attachment or path",
    409: "contradicts what is there, or nothing here can do it",
    413: "the body is too large",
    415: "the body isn't said to be JSON",
    422: "wrong shape; `errors` names the fields",
    429: "a queue or an inbox is full, or too many messages came; `Retry-After` says when to try again",
    503: "the files can't be used right now",
    507: "too little free disk space",
}


def problems(*statuses: int) -> Responses:
    """The entries of the problem documents that a route may answer with."""
    schema = Problem.model_json_schema()
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {PROBLEM: {"schema": schema}}} for status in statuses
    }


_ALWAYS = problems(403, 422)
_BODY = problems(401, 413, 415)
HEALTH: Responses = {
    200: {"model": HealthAnswer},
    503: {"model": HealthAnswer, "description": "unhealthy"},
    **problems(403),
}
STATUS: Responses = {200: {"model": StatusAnswer}, **problems(401, 403, 503)}
TASK_ACCEPTED: Responses = {202: {"model": TaskAccepted}, **_ALWAYS, **_BODY, **problems(404, 409, 429, 503, 507)}
TASK: Responses = {200: {"model": TaskView}, **_ALWAYS, **problems(401, 404, 503)}
TASKS: Responses = {200: {"model": list[TaskView]}, **_ALWAYS, **problems(401, 404, 503)}
TOLD: Responses = {**_ALWAYS, **_BODY, **problems(404, 409, 503)}
CANCELLED: Responses = {200: {"model": Cancelled}, **_ALWAYS, **_BODY, **problems(404, 409, 503)}
BUDDY: Responses = {**_ALWAYS, **_BODY, **problems(404, 503)}
WAKE: Responses = {200: {"model": Woken}, **_ALWAYS, **_BODY, **problems(404)}
MESSAGE_RECEIVED: Responses = {202: {"model": MessageReceived}, **_ALWAYS, **_BODY, **problems(404, 409, 429, 503, 507)}
MESSAGES: Responses = {200: {"model": list[Message]}, **_ALWAYS, **problems(401, 503)}
ACKED: Responses = {200: {"model": Acked}, **_ALWAYS, **_BODY, **problems(404, 503, 507)}
ATTACHED: Responses = {201: {"model": Attachment}, **_ALWAYS, **problems(401, 413, 503, 507)}
ATTACHMENT: Responses = {
    200: {"description": "the content", "content": {"application/octet-stream": {}}},
    **_ALWAYS,
    **problems(401, 404, 503),
}
