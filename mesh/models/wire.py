"""Bodies of HTTP requests and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from mesh.models.agents import AgentState, Alert
from mesh.models.base import Asked, Filed, Id, Line, PlainJson
from mesh.models.tasks import Priority, Task


class TaskRequest(Asked):
    """Body of `POST /task`."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"title": "Code Review Queue", "priority": "high"},
                {"title": "Sum up the outage", "needs": ["infrastructure"], "owner": "any", "from": "chief"},
            ]
        },
    )

    title: Line
    type: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")] = "task"
    description: Annotated[str, StringConstraints(max_length=100_000)] = ""
    priority: Priority = Priority.NORMAL
    estimated_minutes: float | None = Field(default=None, gt=0, le=100_000, allow_inf_nan=False)
    outputs: list[Line] = Field(default=[], max_length=50)
    needs: list[Line] = Field(default=[], max_length=50)
    skill: Line | None = None
    input: PlainJson = {}
    blocked_by: list[Id] = Field(default=[], max_length=100)
    owner: str | None = None
    from_: str | None = Field(default=None, alias="from")
    id: Id | None = None
    approval: bool = False
    effects: Literal["none", "external"] = "none"


class PingStatus(Asked):
    """What an agent tells of itself in a ping (protocol document, section 2)."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")

    task_queue_length: int = Field(default=0, ge=0)
    current_task: str | None = None
    last_completed_task: str | None = None
    context_tokens: int = Field(default=0, ge=0)
    errors24h: int = Field(default=0, ge=0, alias="errors24h")


class PingRequest(Asked):
    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "from": "devops",
                    "timestamp": "2026-02-17T10:00:00.000Z",
                    "myStatus": {"taskQueueLength": 3, "currentTask": "monitoring-setup", "errors24h": 0},
                }
            ]
        },
    )

    from_: str | None = Field(default=None, alias="from")
    timestamp: str | None = None
    my_status: PingStatus = PingStatus()


class PingAnswer(Filed):
    #: Who answers: a wrong one listens there if it isn't who was asked.
    agent_id: str = ""
    status: str
    task_queue_length: int
    current_task: str | None
    concerns: list[str]
    needs_help: bool


class ReviewRequest(Asked):
    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        json_schema_extra={
            "examples": [{"from": "devops", "checkResults": {"taskQueueNotEmpty": False, "noRepeatedErrors": True}}]
        },
    )

    from_: str | None = Field(default=None, alias="from")
    check_results: dict[Line, bool] = Field(max_length=50)


class ReviewAnswer(Filed):
    acknowledged: bool
    actions: list[str]


class WakeRequest(Asked):
    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        json_schema_extra={"examples": [{"from": "devops", "reason": "check"}]},
    )

    from_: str | None = Field(default=None, alias="from")
    reason: Annotated[str, StringConstraints(max_length=1000)] = ""


# -- answers, for the OpenAPI document


class Problem(Filed):
    """RFC 9457. Ids and facts of the error stand beside these members."""

    type: str
    title: str
    status: int
    detail: str


class HealthAnswer(Filed):
    status: Literal["healthy", "degraded", "unhealthy"]
    uptime: float
    agent_id: str
    incarnation: int
    reasons: list[str]


class StatusAnswer(AgentState):
    now: str
    buddy: str | None
    watched_by: str | None
    inbox_length: int
    mail: dict[str, Any]
    root: str
    registry: dict[str, Any]
    alerts: list[Alert]
    health: dict[str, Any]


class TaskAccepted(Filed):
    accepted: bool
    task_id: str


class TaskView(Task):
    """A task as it is answered: what only the files need is left out."""

    revision: int = Field(default=0, exclude=True)
    digest: str = Field(default="", exclude=True)


class Cancelled(Filed):
    cancelled: bool


class Woken(Filed):
    awake: bool
    did: list[str]


class MessageReceived(Filed):
    """Answer of `POST /message`."""

    received: bool
    id: str
    #: The answer itself, where it is known at once (to a `status_request`).
    response: dict[str, Any] | None = None


class Acked(Filed):
    acked: bool
