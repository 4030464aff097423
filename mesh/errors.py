"""The error tree. Each error says what is wrong and what to do, and carries the ids it is about.

Raise a `MeshError` for the world's mistakes (bad input, a full disk, a peer that is down); assert our own.
Over HTTP every one becomes `application/problem+json` (RFC 9457), on the command line one line on stderr.
"""

from __future__ import annotations

from typing import Any, ClassVar


class MeshError(Exception):
    """Base of everything the mesh raises on purpose.

    `detail` is one sentence for a person. Keyword arguments are ids and facts (`agentId`, `taskId`, `file`)
    that callers may branch on; they appear as members of the problem document.
    """

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong inside the mesh"

    def __init__(self, detail: str, **facts: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.facts = facts

    def problem(self) -> dict[str, Any]:
        """The RFC 9457 document: type, title, status, detail, then the facts."""
        head = {"type": f"urn:mesh:{self.slug}", "title": self.title, "status": self.status}
        return {**head, "detail": self.detail, **self.facts}


class BadUse(MeshError):
    """A command line that can't be carried out as written (exit status 2)."""

    status, slug, title = 400, "bad-use", "The command can't be carried out as written"


class Unauthenticated(MeshError):
    status, slug, title = 401, "unauthenticated", "No valid secret was sent"


class Forbidden(MeshError):
    status, slug, title = 403, "forbidden", "The caller may not do this"


class ForeignHost(Forbidden):
    slug, title = "foreign-host", "The Host or Origin header names a host that isn't allowed"


class UnknownAgent(MeshError):
    status, slug, title = 404, "unknown-agent", "No agent has this id"


class UnknownTask(MeshError):
    status, slug, title = 404, "unknown-task", "No task has this id"


class UnknownMessage(MeshError):
    status, slug, title = 404, "unknown-message", "No message has this id"


class UnknownAttachment(MeshError):
    status, slug, title = 404, "unknown-attachment", "No attachment has this SHA-256"


class Conflict(MeshError):
    status, slug, title = 409, "conflict", "The request contradicts what is already there"


class TaskEnded(Conflict):
    slug, title = "task-ended", "The task has already ended"


class NothingRunsIt(Conflict):
    """No skill and no runner can do this task; `skills` lists the titles that can be asked for."""

    slug, title = "nothing-runs-it", "No skill or runner here can do this task"


class TooLarge(MeshError):
    status, slug, title = 413, "too-large", "The body is larger than the mesh accepts"


class WrongContentType(MeshError):
    status, slug, title = 415, "wrong-content-type", "The body must be JSON"


class Invalid(MeshError):
    """A value has the wrong shape; `errors` lists `{field, reason}`."""

    status, slug, title = 422, "invalid", "The request has the wrong shape"


class QueueFull(MeshError):
    status, slug, title = 429, "queue-full", "The queue is full; try again later"


class NotAdmitted(MeshError):
    """The message can't be taken now; `retryAfterS` says when to try again. Nothing was written."""

    status, slug, title = 429, "not-admitted", "The message can't be taken now; try again later"


class RateExceeded(NotAdmitted):
    slug, title = "rate-exceeded", "Too many messages a minute from one sender to one recipient"


class InboxFull(NotAdmitted):
    slug, title = "inbox-full", "The recipient's inbox is full"


class InboxBusy(NotAdmitted):
    slug, title = "inbox-busy", "The recipient's inbox stayed locked"


class StoreUnavailable(MeshError):
    """The files can't be read or written right now. Nothing was changed, unless the detail says so."""

    status, slug, title = 503, "store-unavailable", "The mesh's files can't be used right now"


class LockTimeout(StoreUnavailable):
    """Somebody holds a file lock for too long; `holder` names who."""

    slug, title = "lock-timeout", "A file stayed locked for too long"


class DurabilityLost(StoreUnavailable):
    """A folder couldn't be flushed after a change: what is visible may not survive a power cut.

    A failed flush is never repeated as if nothing had happened (the kernel may have dropped the pages and
    report success the second time): the process refuses further writes and must be started afresh.
    """

    slug, title = "durability-lost", "A flush to disk failed; this process no longer writes"


class Fenced(StoreUnavailable):
    """A newer incarnation of this agent has taken over: this process may not write any more."""

    slug, title = "fenced", "A newer incarnation of this agent has taken over"


class DiskFull(StoreUnavailable):
    status, slug, title = 507, "disk-full", "There is too little free disk space"


class NewerSchema(StoreUnavailable):
    """The file was written by a newer version of the mesh: refused, and left untouched."""

    slug, title = "newer-schema", "A file was written by a newer version of the mesh"


class RegistryInvalid(MeshError):
    """The registry breaks a rule; `problems` lists `{key, reason}`, `file` names the file."""

    status, slug, title = 422, "registry-invalid", "The registry is not valid"


class PortTaken(MeshError):
    """Somebody else listens on an agent's port; `pid` and `program` name the holder where known."""

    status, slug, title = 503, "port-taken", "The agent's port is taken"


class PeerUnavailable(MeshError):
    """Another agent didn't answer as it should; `reason` is `refused`, `timeout` or `answer`."""

    status, slug, title = 502, "peer-unavailable", "The other agent did not answer"


class RoleBroken(MeshError):
    """The module of an agent's role can't be loaded; the detail says where it is wrong."""

    status, slug, title = 500, "role-broken", "The agent's role can't be loaded"


class SkillInputError(MeshError):
    """A skill's input is missing or malformed; says which file and line. Trying again can't help."""

    status, slug, title = 422, "skill-input", "A skill's input is missing or malformed"


class RunnerUnfit(MeshError):
    """What does the agent's work can't work now: its program is missing, it is logged out, or a usage limit holds
    (`state` as in RunnerHealth, `until` where known). The attempt doesn't count; nothing is to be restarted."""

    status, slug, title = 503, "runner-unfit", "What does the agent's work can't work now"


class WorkBroken(MeshError):
    """A CLI ended without what it promised: the detail says what was missing and shows the end of its output."""

    status, slug, title = 502, "work-broken", "The agent's program did not give what it promised"


class DeliveryUncertain(MeshError):
    """It can't be told whether a message was shown: it is not shown again the same way."""

    status, slug, title = 502, "delivery-uncertain", "Whether the message was shown is not known"
