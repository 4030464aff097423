"""Messages: their shape, their honest states, and the payload of each known type.

The schema is the mailbox document's (section 6), with the fields that the contract adds. A message that lies in an
outbox also carries `delivery`, one that was acked `ackedAt` and `handling`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

from mesh import clock
from mesh.models.base import AGENT_ID_PATTERN, HUMAN, SCHEMA_VERSION, Asked, Filed, FileId, Id, Line, PlainJson
from mesh.models.tasks import Priority
from mesh.models.wire import TaskRequest

MESSAGE_TYPE_PATTERN = r"^[a-z][a-z0-9_]{0,63}$"
MessageType = Annotated[str, StringConstraints(pattern=MESSAGE_TYPE_PATTERN)]
#: Who may send and receive: an agent, or the human.
Address = Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
MediaType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*$", max_length=127)]

_KEY_MAX = 64
ACK = "ack"
ERROR = "error"


def _moment(text: str) -> str:
    clock.parse(text)
    return text


class DeliveryState(StrEnum):
    """What is known of a message that was sent. Four different facts lead to the end of most: it lies in the
    recipient's inbox, the recipient's process took it, its text was really shown, it was acked."""

    WRITTEN = "written"
    DELIVERED = "delivered"
    SHOWN = "shown"
    ACKED = "acked"
    EXPIRED = "expired"
    REJECTED = "rejected"
    DEAD = "dead"
    UNCERTAIN = "uncertain"


_D = DeliveryState
_ENDS = frozenset({_D.ACKED, _D.EXPIRED, _D.REJECTED, _D.DEAD, _D.UNCERTAIN})
#: The lifecycle of a message: from each state, where it may go. A person may send what is dead again.
MESSAGE_TRANSITIONS: dict[DeliveryState, frozenset[DeliveryState]] = {
    _D.WRITTEN: frozenset({_D.DELIVERED, _D.SHOWN}) | _ENDS,
    _D.DELIVERED: frozenset({_D.WRITTEN, _D.SHOWN}) | _ENDS,
    _D.SHOWN: _ENDS,
    _D.UNCERTAIN: frozenset({_D.WRITTEN, _D.DELIVERED, _D.SHOWN}) | _ENDS,
    _D.EXPIRED: frozenset({_D.WRITTEN, _D.DELIVERED, _D.SHOWN, _D.ACKED}),
    _D.DEAD: frozenset({_D.WRITTEN, _D.DELIVERED, _D.SHOWN, _D.ACKED}),
    _D.ACKED: frozenset(),
    _D.REJECTED: frozenset(),
}
#: States that nothing follows by itself.
SETTLED = frozenset({_D.ACKED, _D.EXPIRED, _D.REJECTED, _D.DEAD})


class Delivery(Filed):
    """How far a sent message has come, as its sender last saw it, and when it came to each state."""

    state: DeliveryState = DeliveryState.WRITTEN
    at: dict[str, str] = {}
    #: Why it still waits with the sender (the recipient's inbox is full), or ended otherwise than acked.
    reason: str | None = None


class Handling(Filed):
    """What the recipient's claim knew of the message when it was acked."""

    delivered_at: str | None = None
    shown_at: str | None = None
    attempts: int = 0


class Attachment(Filed):
    """A file that goes with a message. It is stored once, under `knowledge/attachments/<sha256>`."""

    sha256: Sha256
    name: Line
    type: MediaType = "application/octet-stream"
    bytes: int = Field(ge=0)


class Message(Filed):
    """One message, as it lies in a file."""

    schema_version: int = SCHEMA_VERSION
    id: FileId
    from_: Address = Field(alias="from")
    to: Address
    timestamp: str
    type: MessageType
    priority: Priority = Priority.NORMAL
    requires_ack: bool = False
    ack_by: str | None = None
    expires_at: str | None = None
    reply_to: Id | None = None
    thread_id: Id | None = None
    broadcast_id: Id | None = None
    via: str | None = None
    attachments: list[Attachment] = Field(default=[], max_length=50)
    acked_at: str | None = None
    payload: PlainJson
    handling: Handling | None = None
    delivery: Delivery | None = None

    _moments = field_validator("timestamp")(_moment)

    @field_validator("ack_by", "expires_at", "acked_at")
    @classmethod
    def _optional_moment(cls, text: str | None) -> str | None:
        return text if text is None else _moment(text)

    @property
    def thread(self) -> str:
        """The thread that it belongs to: its own, unless it says another."""
        return self.thread_id or self.id

    def filed(self) -> dict[str, Any]:
        """As it is written: what is not known is left out, the payload comes after everything that sorts."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def encoded(self) -> bytes:
        """As it is written, in bytes."""
        try:
            return self.model_dump_json(by_alias=True, exclude_none=True, indent=1).encode() + b"\n"
        except PydanticSerializationError:  # half a character (a lone surrogate), which a hand edit may have left
            text = json.dumps(self.filed(), indent=1, ensure_ascii=False)
            return text.encode("utf-8", "surrogatepass") + b"\n"

    def order(self) -> tuple[int, str, str]:
        """Urgent first, then by time, then by id."""
        return (self.priority.rank, self.timestamp, self.id)

    def same_as(self, other: Message) -> bool:
        """Whether both say the same: the same id sent again is one message, whenever it was sent."""
        return self._said() == other._said()

    def _said(self) -> dict[str, Any]:
        never_said = {"timestamp", "acked_at", "handling", "delivery", "schema_version", "thread_id", "via"}
        return self.model_dump(mode="json", exclude=never_said)


@dataclass(frozen=True)
class InboxFacts:
    """What is known of an inbox where it is decided whether one more message is taken. Stamps are seconds on the
    suspend-proof clock of this boot."""

    now_s: float
    waiting: int
    #: When this sender's rated messages of the last minute were taken, oldest first.
    sent_s: Sequence[float]
    #: Senders that were turned away for want of room, longest waiting first, and when each last tried.
    turned_away: Mapping[str, float]


@dataclass(frozen=True)
class Refusal:
    """Why a message isn't taken now: policy decides it, the store obeys."""

    kind: Literal["rate", "full"]
    reason: str
    retry_after_s: float


def alert_key(message_id: str) -> str:
    """What names a message in an alert's id, which is cut off where it is long: the end of a long id must count."""
    return message_id if len(message_id) <= _KEY_MAX else hashlib.sha256(message_id.encode()).hexdigest()


# -- payloads


class Payload(Filed):
    """What a known type must carry. More is allowed: other agents may tell more than the mesh needs."""


class ReviewComment(Payload):
    path: str
    line: int | None = None
    body: str


class FixCiFailure(Payload):
    pr: str
    check: str
    error: str


class FixReviewComments(Payload):
    pr: str
    comments: list[ReviewComment] = Field(min_length=1)


class StatusRequest(Payload):
    text: str = ""


class Text(Payload):
    text: str


class Shutdown(Payload):
    reason: str = ""


class AckPayload(Payload):
    text: str = ""


class TaskRequestPayload(Payload):
    task: TaskRequest


class TaskUpdate(Payload):
    task_id: FileId
    progress: float = Field(ge=0, le=1)
    status: str


class TaskComplete(Payload):
    task_id: FileId
    result: Any = None


class TaskFailed(Payload):
    task_id: FileId
    error: str | None = None


class HelpRequest(Payload):
    topic: Line
    context: str = ""


class InfoShare(Payload):
    topic: Line
    data: Any = None
    tags: list[Line] = []


class ReportedBlocker(Payload):
    id: FileId | None = None
    topic: Line
    description: str = ""
    needs: list[Line] = []
    severity: Literal["low", "medium", "high", "critical"] = "medium"
    task_id: FileId | None = None


class BlockerReport(Payload):
    blocker: ReportedBlocker


class BlockerResolved(Payload):
    blocker_id: FileId


class Escalation(Payload):
    issue: str = Field(min_length=1)
    severity: Literal["low", "medium", "high", "critical"]


class HandoffContext(Payload):
    #: A task's id, or what is to be done.
    task: Any = None
    relevant_decisions: list[Any] = []
    key_facts: list[Any] = []
    do_not_repeat: list[Any] = []


class ContextHandoff(Payload):
    summary: str = Field(min_length=1)
    files: list[str] = []
    context: HandoffContext = HandoffContext()


#: The payload of each type that the mesh knows; any other type's is free.
PAYLOADS: dict[str, type[Payload]] = {
    "fix_ci_failure": FixCiFailure,
    "fix_review_comments": FixReviewComments,
    "status_request": StatusRequest,
    "status_response": Payload,
    "shutdown": Shutdown,
    ERROR: Text,
    ACK: AckPayload,
    "task_request": TaskRequestPayload,
    "task_update": TaskUpdate,
    "task_complete": TaskComplete,
    "task_failed": TaskFailed,
    "help_request": HelpRequest,
    "info_share": InfoShare,
    "blocker_report": BlockerReport,
    "blocker_resolved": BlockerResolved,
    "escalation": Escalation,
    "context_handoff": ContextHandoff,
}
#: The protocol's ten message types.
PROTOCOL_TYPES = frozenset(list(PAYLOADS)[list(PAYLOADS).index("task_request") :])


def payload_of(message: Message) -> Payload:
    """The message's payload in its type's shape. Raises pydantic's ValidationError."""
    return PAYLOADS.get(message.type, Payload).model_validate(message.payload)


def payload_problems(type_: str, payload: dict[str, Any]) -> list[dict[str, str]]:
    """What is wrong with the payload of a message of this type: `{field, reason}` each; none if it is right."""
    try:
        PAYLOADS.get(type_, Payload).model_validate(payload)
    except ValidationError as error:
        return [
            {"field": ".".join(map(str, ("payload", *item["loc"]))), "reason": item["msg"]} for item in error.errors()
        ]
    return []


# -- what people and agents ask for


class MessageRequest(Asked):
    """Body of `POST /message`, and what `Mailbox.send` takes."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"from": "devops", "type": "status_request", "payload": {"text": "How far are you?"}},
                {
                    "from": "chief",
                    "type": "info_share",
                    "payload": {"topic": "release", "data": {"version": "1.4"}},
                    "priority": "high",
                    "requiresAck": True,
                },
            ]
        },
    )

    from_: Address | None = Field(default=None, alias="from")
    type: MessageType
    payload: PlainJson = {}
    id: FileId | None = None
    priority: Priority = Priority.NORMAL
    requires_ack: bool = False
    ack_by: str | None = None
    expires_at: str | None = None
    reply_to: Id | None = None
    thread_id: Id | None = None
    attachments: list[Attachment] = Field(default=[], max_length=50)

    @field_validator("ack_by", "expires_at")
    @classmethod
    def _moments(cls, text: str | None) -> str | None:
        return text if text is None else _moment(text)


def is_address(text: str, agents: Any) -> bool:
    """Whether the text names an agent of these, or the human."""
    return text == HUMAN or text in agents
