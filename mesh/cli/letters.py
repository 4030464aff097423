"""What the commands about mail share: opening the store, naming addresses, sending, and saying things briefly."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mesh.cli.app import one_line, open_store
from mesh.clock import SYSTEM
from mesh.errors import BadUse, MeshError, NotAdmitted, UnknownAgent, UnknownMessage

if TYPE_CHECKING:
    from mesh.models import Delivery, Message
    from mesh.store import Store
    from mesh.store.mailbox import Posted

_POLL_S = 0.15
_RETRY_S = 0.5
#: Members of a payload that tell in words what it is about, the first found first.
_TELLING = ("text", "summary", "issue", "topic", "reason", "error")


def open_mail(root: str | None) -> Store:
    """The store of an initialised root, its mail obeying the registry's limits."""
    from mesh.service import compose

    store = open_store(root)
    compose.put_in_force(store, store.registry.current)
    return store


def addresses(store: Store) -> list[str]:
    """Everybody who has mail."""
    from mesh.models import HUMAN

    return [*store.registry.current.agents, HUMAN]


def known_address(store: Store, name: str) -> str:
    """An agent's id, or the human's. Raises UnknownAgent, which lists the valid names."""
    known = addresses(store)
    if name not in known:
        raise UnknownAgent(f"No agent is called {name!r}; there are: {', '.join(known)}.", agentId=name)
    return name


def message_type(text: str) -> str:
    """The text, if it can be a message's type. Raises BadUse."""
    from mesh.models import MESSAGE_TYPE_PATTERN

    if re.fullmatch(MESSAGE_TYPE_PATTERN, text) is None:
        raise BadUse(f"--type {text!r} is no type: it is small letters, digits and _, such as info_share.")
    return text


def message_id(text: str) -> str:
    """The text, if it can be a message's id. Raises UnknownMessage."""
    from mesh.models import is_id

    if not is_id(text):
        raise UnknownMessage(f"There is no message {text!r}; `mesh mail list` shows ids.")
    return text


def check_replied(store: Store, sender: str, id_: str) -> None:
    """Raise UnknownMessage unless the sender has got or sent the message that it wants to answer."""
    if store.mail.tracing.find(id_, [sender], ["inbox", "processed", "outbox", "dead"]) is None:
        raise UnknownMessage(f"{sender} has neither got nor sent a message {id_!r} to reply to; see `mesh mail list`.")


# -- sending


def post(store: Store, messages: Sequence[Message], *, own_id: bool, queue: bool) -> list[Posted]:
    """Send; what became of each. A lone message that was not accepted raises why."""
    from mesh.models import HUMAN
    from mesh.store.mailbox import Again

    if messages and messages[0].from_ == HUMAN and store.mail.sending.queued(HUMAN):
        store.mail.post_queued(HUMAN)  # those who came first go first; no service looks after a person's outbox
    again = Again.BY_ID if own_id else Again.NEVER
    posted = store.mail.post(messages, again=again, queue=queue)
    if len(posted) == 1 and posted[0].error is not None:
        raise explained(posted[0].error)
    return posted


def explained(error: MeshError) -> MeshError:
    """The error, saying when to try again where it doesn't say so itself."""
    seconds = error.facts.get("retryAfterS")
    if not isinstance(error, NotAdmitted) or seconds is None or re.search(r" in \d\S* s\.", error.detail):
        return error
    return type(error)(f"{error.detail} Try again in {seconds:g} s.", **error.facts)


def wait_for_acks(store: Store, posted: Sequence[Posted], wait_s: float) -> None:
    """Wait until all are acked. Raises MeshError, saying how far the first other has come, if time is up or one
    can't be acked any more."""
    from mesh.models import SETTLED

    deadline_s = SYSTEM.monotonic() + wait_s
    open_ = list(posted)
    while True:
        retry_queued(store, open_)
        states = [(entry, present(store, entry)) for entry in open_]
        for entry, now in states:
            if now.state in SETTLED and now.state != "acked":
                why = f": {now.reason}" if now.reason else ""
                raise MeshError(f"{entry.message.id} to {entry.message.to} is {now.state}{why}.")
        states = [(entry, now) for entry, now in states if now.state != "acked"]
        open_ = [entry for entry, _ in states]
        if not open_:
            return
        if SYSTEM.monotonic() >= deadline_s:
            entry, now = states[0]
            told = f"{entry.message.to} has not acked {entry.message.id} within {wait_s:g} s"
            raise MeshError(f"{told}: it {progress(entry.message, now)}.")
        SYSTEM.sleep(_POLL_S)


def retry_queued(store: Store, posted: Sequence[Posted]) -> None:
    """Try again what was queued."""
    waiting = [entry for entry in posted if entry.queued]
    if waiting:
        store.mail.post_queued(waiting[0].message.from_)
        for entry in waiting:
            entry.queued = not store.mail.sending.arrived(entry.message.to, entry.name)


def present(store: Store, entry: Posted) -> Delivery:
    """What has become of a sent message by now; the sender's copy learns of it too."""
    tracing = store.mail.tracing
    known = tracing.bring_up_to_date(entry.message.from_, entry.name)
    return known or tracing.delivery_of(entry.message, entry.name)


def progress(message: Message, now: Delivery) -> str:
    """How far a message has come, to follow its name in a sentence."""
    if now.state == "written":
        return now.reason or f"waits in {message.to}'s inbox"
    words = {
        "delivered": f"was taken by {message.to}, and not shown yet",
        "shown": f"was shown to {message.to}",
        "acked": f"was acked by {message.to}",
    }
    why = f": {now.reason}" if now.reason else ""
    return words.get(now.state, f"is {now.state}{why}")


def filed(message: Message, now: Delivery, **more: Any) -> dict[str, Any]:
    """A message for JSON, with its present state."""
    return {**message.filed(), "delivery": now.model_dump(mode="json", by_alias=True, exclude_none=True), **more}


# -- words


def span(seconds: float) -> str:
    """A length of time, roughly: `5 min`."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length_s or (unit == "min" and seconds >= length_s):
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def headline(message: Message, width: int = 60) -> str:
    """What a message says, in one line of at most so many characters."""
    payload = message.payload
    words = of_task(message)
    text = ". ".join(filter(None, words)) if words else _telling(payload) or json.dumps(payload, ensure_ascii=False)
    return shortened(one_line(text), width)


def of_task(message: Message) -> tuple[str, str] | None:
    """What a message tells of a task: a sentence, and the result or the error. None if it tells of none."""
    payload = message.payload
    title = f'"{payload.get("title") or payload.get("taskId")}"'
    if message.type == "task_update":
        return f"{title} is {payload['status']}, {payload['progress']:.0%} done", ""
    if message.type == "task_complete":
        result = payload.get("result")
        text = result.get("text") if isinstance(result, dict) else result
        return f"{title} is completed", text if isinstance(text, str) else json.dumps(text) if text else ""
    if message.type == "task_failed":
        status = str(payload.get("status") or "failed").replace("_", " ")
        return f"{title} has failed" if status == "failed" else f"{title} is {status}", payload.get("error") or ""
    return None


def _telling(payload: dict[str, Any]) -> str | None:
    for value in (payload, payload.get("task"), payload.get("blocker")):
        if isinstance(value, dict):
            for key in (*_TELLING, "title"):
                if isinstance(value.get(key), str) and value[key].strip():
                    return str(value[key])
    return None


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def indented(text: str, lines_max: int | None = None, more: str = "") -> str:
    """Text that was made harmless, set in; cut after so many lines, which `more` then follows."""
    lines = text.strip("\n").split("\n")
    if lines_max is not None and len(lines) > lines_max:
        lines = [*lines[:lines_max], f"… {len(lines) - lines_max} more lines{more}"]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def moment(option: str, text: str) -> str:
    """A time from the command line, as files write it. Raises BadUse, naming the option."""
    from mesh import clock

    try:
        return clock.iso(clock.parse(text))
    except ValueError:
        example = clock.iso(SYSTEM.wall())
        raise BadUse(f"{option} {text!r} is not a time; write it in UTC, such as {example}.") from None
