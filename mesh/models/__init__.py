"""Everything that crosses a wire or lands in a file; one file a subject.

`base` the forms, `tasks` and `agents` what is recorded, `registry` who is who, `wire` the bodies of HTTP calls.
"""

from mesh.models.agents import (
    AGENT_TRANSITIONS,
    AgentHealth,
    AgentState,
    AgentStatus,
    Alert,
    Blocker,
    ClockFile,
    CurrentTask,
    HealthFile,
    Metrics,
    Stamps,
)
from mesh.models.base import AGENT_ID_PATTERN, HUMAN, ID_PATTERN, SCHEMA_VERSION, AgentId, Id, is_id
from mesh.models.registry import AgentEntry, Registry, parse_registry
from mesh.models.tasks import (
    ENDED,
    IN_FAILED,
    TASK_TRANSITIONS,
    Claim,
    Priority,
    Task,
    TaskResult,
    TaskStatus,
    Verdict,
)
from mesh.models.wire import (
    PingAnswer,
    PingRequest,
    PingStatus,
    ReviewAnswer,
    ReviewRequest,
    TaskRequest,
    WakeRequest,
)

__all__ = [
    "AGENT_ID_PATTERN",
    "AGENT_TRANSITIONS",
    "ENDED",
    "HUMAN",
    "ID_PATTERN",
    "IN_FAILED",
    "SCHEMA_VERSION",
    "TASK_TRANSITIONS",
    "AgentEntry",
    "AgentHealth",
    "AgentId",
    "AgentState",
    "AgentStatus",
    "Alert",
    "Blocker",
    "Claim",
    "ClockFile",
    "CurrentTask",
    "HealthFile",
    "Id",
    "Metrics",
    "PingAnswer",
    "PingRequest",
    "PingStatus",
    "Priority",
    "Registry",
    "ReviewAnswer",
    "ReviewRequest",
    "Stamps",
    "Task",
    "TaskRequest",
    "TaskResult",
    "TaskStatus",
    "Verdict",
    "WakeRequest",
    "is_id",
    "parse_registry",
]
