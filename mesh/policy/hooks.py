"""What is said to a CLI session through its hooks, and when.

A hook is called at five moments of a session. Each is a chance to hand something to whoever works there without typing
at them: at the start who they are and what they had in mind; when a prompt comes and after each tool what is urgent;
when they are about to stop what else waits. That last one makes them go on, so it is bounded: only mail that they
haven't seen, a few times in a row, and then they stop whatever waits.

Only the agent's own session is spoken to. In a run that the mesh itself started for a task, stopping is the result:
there mail waits for the turn that follows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_args

from mesh.errors import Invalid
from mesh.models import Priority
from mesh.models.mail import Message
from mesh.models.runner_choice import Cli
from mesh.policy.plain_text import plain

#: How often in a row a stop is turned into a turn that reads mail.
CONTINUES_MAX = 3
#: The longest text of one answer: Claude Code cuts what is longer than 10,000 characters.
TEXT_BYTES_MAX = 9_000
#: Of that for the summary of what went before.
_SUMMARY_BYTES_MAX = 4_500
HANDOFF = "context_handoff"


class Moment(StrEnum):
    """What a hook is called for."""

    START = "start"
    PROMPT = "prompt"
    TOOL = "tool"
    STOP = "stop"
    END = "end"
    #: One that nothing is done about.
    OTHER = "other"


class Mail(StrEnum):
    """Which mail goes along."""

    NONE = "none"
    HANDOFFS = "handoffs"
    URGENT = "urgent"
    ALL = "all"

    def takes(self, message: Message) -> bool:
        if self is Mail.HANDOFFS:
            return message.type == HANDOFF
        return self is Mail.ALL or (self is Mail.URGENT and message.priority is Priority.URGENT)


_MOMENTS = {
    "SessionStart": Moment.START,
    "UserPromptSubmit": Moment.PROMPT,
    "BeforeAgent": Moment.PROMPT,
    "PostToolUse": Moment.TOOL,
    "AfterTool": Moment.TOOL,
    "Stop": Moment.STOP,
    "AfterAgent": Moment.STOP,
    "SessionEnd": Moment.END,
}
#: The context of what they say isn't shown to the model: only a refused stop is.
_NO_CONTEXT = frozenset({"goose"})
#: Plugins of ours: they take the text and put it where it belongs themselves.
_PLUGINS = frozenset({"opencode", "pi"})
_CLIS = frozenset(get_args(Cli))


@dataclass(frozen=True)
class Call:
    """What a CLI says when it calls a hook."""

    cli: str
    #: As the CLI calls it.
    event: str
    moment: Moment
    session: str
    cwd: str = ""
    transcript: str | None = None
    #: How a session started (`startup`, `resume`, `clear`, `compact`), or why it ended.
    source: str = ""
    #: Whether it goes on because a stop was refused; None if the CLI doesn't say.
    continued: bool | None = None
    #: It is a subagent's: what is said now doesn't reach the session itself.
    inner: bool = False


@dataclass(frozen=True)
class Standing:
    """What is known of the session that calls."""

    #: It is the agent's: bound, or started by the mesh.
    own: bool
    #: The mesh started it to do a task or read mail.
    run: bool = False
    #: How many stops in a row were refused before this one.
    continues: int = 0


@dataclass(frozen=True)
class Plan:
    """What the agent does about a call."""

    mail: Mail = Mail.NONE
    #: Say who they are and what they had in mind.
    welcome: bool = False
    #: Whether the session is in the middle of a turn now; None: nothing is known.
    busy: bool | None = None


def read_call(cli: str, document: Any) -> Call:
    """What the hook's JSON says. Raises Invalid for what no hook says."""
    if cli not in _CLIS:
        raise Invalid(f"cli={cli!r} is not known.", errors=[{"field": "cli", "reason": "is not known"}])
    if not isinstance(document, Mapping):
        raise Invalid("A hook's JSON is an object.", errors=[{"field": "", "reason": "must be an object"}])

    def text(*keys: str) -> str:
        found = next((document[key] for key in keys if isinstance(document.get(key), str)), "")
        return plain(found)[:4_000]

    event, session = text("hook_event_name", "event"), text("session_id")
    if not event or not session:
        missing = "hook_event_name" if not event else "session_id"
        raise Invalid(f"A hook's JSON names {missing}.", errors=[{"field": missing, "reason": "is missing"}])
    continued = document.get("stop_hook_active")
    return Call(
        cli=cli,
        event=event,
        moment=_MOMENTS.get(event, Moment.OTHER),
        session=session[:200],
        cwd=text("cwd"),
        transcript=text("transcript_path") or None,
        source=text("source", "trigger", "reason"),
        continued=continued if isinstance(continued, bool) else None,
        inner=bool(document.get("agent_id")),
    )


def continues_before(call: Call, counted: int) -> int:
    """How many stops in a row were refused before this call. `counted` is how many of them were ours."""
    if call.moment in (Moment.PROMPT, Moment.START) or call.continued is False:
        return 0
    if call.moment is Moment.STOP and call.continued:
        return max(counted, 1)  # somebody else's hook refused one: that counts as well
    return counted


def plan(call: Call, standing: Standing) -> Plan:
    """What is done about a call."""
    if not standing.own:
        return Plan()
    busy = {Moment.PROMPT: True, Moment.TOOL: True}.get(call.moment, None if call.moment is Moment.OTHER else False)
    if call.inner:
        return Plan(busy=True)
    if call.moment is Moment.STOP:
        may = not standing.run and standing.continues < CONTINUES_MAX
        return Plan(Mail.ALL if may else Mail.NONE, busy=busy)
    if call.cli in _NO_CONTEXT:
        return Plan(busy=busy)
    if call.moment is Moment.START:
        # Who goes on with a session has all that in it already.
        return Plan(Mail.HANDOFFS, welcome=call.source != "resume", busy=busy)
    if call.moment in (Moment.PROMPT, Moment.TOOL):
        return Plan(Mail.URGENT, busy=busy)
    return Plan(busy=busy)


# -- words

_LEADS = {
    Moment.START: "This was handed over to you:",
    Moment.PROMPT: "Urgent mail has come for you:",
    Moment.TOOL: "Urgent mail has come for you while you work:",
    Moment.STOP: "Before you stop: mail has come for you. Deal with it now; then go on, or stop again.",
}


@dataclass(frozen=True)
class Welcome:
    """What a session is told when it starts."""

    agent: str
    name: str
    responsibilities: Sequence[str]
    #: id → what they are for.
    others: Mapping[str, Sequence[str]]
    #: What the agent kept of what went before, and where the whole lies.
    summary: str = ""
    summary_file: str = ""
    #: Waiting tasks that somebody handed over: title, and from whom.
    handoffs: Sequence[tuple[str, str]] = ()


def welcome_text(welcome: Welcome) -> str:
    """Who they are, what they had in mind, how mail comes and goes."""
    others = ", ".join(f"{agent} ({', '.join(duties)})" for agent, duties in welcome.others.items())
    parts = [
        f"You are {welcome.name}, agent `{welcome.agent}` of a mesh of agents on this host; "
        f"you are there for {', '.join(welcome.responsibilities)}. The others: {others}.",
        "Mail from them and from people reaches you here: what is urgent while you work, the rest when you stop. Each "
        "message stands in an envelope that says whose words they are. " + answering(welcome.agent),
    ]
    if welcome.handoffs:
        lines = "\n".join(f"- {json.dumps(plain(title)[:200])} from {giver}" for title, giver in welcome.handoffs)
        parts.append(f"Tasks that were handed over to you and wait:\n{lines}")
    if welcome.summary.strip():
        parts.append(f"What you had in mind before, as you summed it up:\n{_cut(welcome)}")
    return "\n\n".join(parts)


def answering(agent: str) -> str:
    """How whoever reads mail answers it."""
    return (
        "Answer and acknowledge with the mesh's tools (send_message, ack_message) if you have them, else with "
        f"`mesh mail send WHO --from {agent} --type message --reply-to ID --text TEXT` and `mesh mail ack ID`; "
        "what asks for nothing needs no answer."
    )


def lead(moment: Moment) -> str:
    """The line before the messages."""
    return _LEADS[moment]


def text_room(said: str) -> int:
    """How many bytes are left for messages beside what is said already."""
    return TEXT_BYTES_MAX - len(said.encode())


def answer(call: Call, text: str) -> bytes:
    """What the CLI must read on the hook's standard output to pass this text on; nothing for no text."""
    if not text:
        return b""
    document: dict[str, Any]
    if call.cli in _PLUGINS:
        document = {"text": text}
    elif call.moment is Moment.STOP:
        document = {"decision": "deny" if call.cli == "gemini" else "block", "reason": text}
    else:
        document = {"hookSpecificOutput": {"hookEventName": call.event, "additionalContext": text}}
    return json.dumps(document).encode()


def _cut(welcome: Welcome) -> str:
    data = plain(welcome.summary.strip()).encode(errors="replace")
    if len(data) <= _SUMMARY_BYTES_MAX:
        return data.decode()
    start = data[:_SUMMARY_BYTES_MAX].decode(errors="ignore")
    return f"{start}\n[cut; the whole: {welcome.summary_file}]"
