"""What a hook is told, as tables: call and standing, plan and words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mesh.errors import Invalid
from mesh.models import Message, Priority
from mesh.policy import hooks
from mesh.policy.hooks import CONTINUES_MAX, Call, Mail, Moment, Plan, Standing, Welcome

OWN = Standing(own=True)


def called(event: str, cli: str = "claude", **more: Any) -> Call:
    return hooks.read_call(cli, {"hook_event_name": event, "session_id": "s", **more})


@pytest.mark.parametrize(
    ("call", "standing", "plan", "why"),
    [
        (
            called("SessionStart", source="startup"),
            OWN,
            Plan(Mail.HANDOFFS, True, False),
            "a fresh session is told all",
        ),
        (called("SessionStart", source="compact"), OWN, Plan(Mail.HANDOFFS, True, False), "compaction took it away"),
        (called("SessionStart", source="resume"), OWN, Plan(Mail.HANDOFFS, False, False), "it stands there already"),
        (called("UserPromptSubmit"), OWN, Plan(Mail.URGENT, False, True), "what is urgent"),
        (called("PostToolUse"), OWN, Plan(Mail.URGENT, False, True), "what is urgent"),
        (called("PostToolUse", agent_id="sub"), OWN, Plan(busy=True), "a subagent's tool isn't the session's"),
        (called("Stop"), OWN, Plan(Mail.ALL, False, False), "before it stops, all"),
        (called("Stop"), Standing(True, continues=CONTINUES_MAX - 1), Plan(Mail.ALL, False, False), "once more"),
        (called("Stop"), Standing(True, continues=CONTINUES_MAX), Plan(Mail.NONE, False, False), "enough is enough"),
        (called("Stop"), Standing(True, run=True), Plan(Mail.NONE, False, False), "a run's last words are its result"),
        (called("PostToolUse"), Standing(True, run=True), Plan(Mail.URGENT, False, True), "urgent is urgent"),
        (called("SessionEnd"), OWN, Plan(busy=False), "nobody reads any more"),
        (called("Notification"), OWN, Plan(), "nothing to do with mail"),
        (called("Stop"), Standing(False), Plan(), "not ours"),
        (called("SessionStart", source="startup"), Standing(False), Plan(), "not ours"),
        (called("BeforeAgent", "gemini"), OWN, Plan(Mail.URGENT, False, True), "Gemini's word for a prompt"),
        (called("AfterTool", "gemini"), OWN, Plan(Mail.URGENT, False, True), "Gemini's word for a tool"),
        (called("AfterAgent", "gemini"), OWN, Plan(Mail.ALL, False, False), "Gemini's word for a stop"),
        (called("PostToolUse", "goose"), OWN, Plan(busy=True), "goose throws context away"),
        (called("Stop", "goose"), OWN, Plan(Mail.ALL, False, False), "a refused stop it obeys"),
    ],
)
def test_plan(call: Call, standing: Standing, plan: Plan, why: str) -> None:
    assert hooks.plan(call, standing) == plan, why


@pytest.mark.parametrize(
    ("call", "counted", "before"),
    [
        (called("Stop", stop_hook_active=False), 3, 0),
        (called("Stop", stop_hook_active=True), 0, 1),
        (called("Stop", stop_hook_active=True), 2, 2),
        (called("Stop"), 2, 2),
        (called("PostToolUse"), 2, 2),
        (called("UserPromptSubmit"), 3, 0),
        (called("SessionStart"), 3, 0),
    ],
)
def test_refused_stops_are_counted(call: Call, counted: int, before: int) -> None:
    assert hooks.continues_before(call, counted) == before


@pytest.mark.parametrize(
    ("call", "document"),
    [
        (
            called("PostToolUse"),
            {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "tëxt"}},
        ),
        (
            called("SessionStart", "codex"),
            {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "tëxt"}},
        ),
        (called("Stop", "codex"), {"decision": "block", "reason": "tëxt"}),
        (called("Stop"), {"decision": "block", "reason": "tëxt"}),
        (called("AfterAgent", "gemini"), {"decision": "deny", "reason": "tëxt"}),
        (called("Stop", "goose"), {"decision": "block", "reason": "tëxt"}),
        (called("Stop", "opencode"), {"text": "tëxt"}),
        (called("UserPromptSubmit", "pi"), {"text": "tëxt"}),
    ],
)
def test_answer(call: Call, document: dict[str, Any]) -> None:
    assert json.loads(hooks.answer(call, "tëxt")) == document
    assert hooks.answer(call, "tëxt").isascii(), "whatever encoding the CLI reads it in"
    assert hooks.answer(call, "") == b""


@pytest.mark.parametrize(
    ("cli", "document"),
    [
        ("vim", {"hook_event_name": "Stop", "session_id": "s"}),
        ("claude", []),
        ("claude", None),
        ("claude", "Stop"),
        ("claude", {}),
        ("claude", {"hook_event_name": "Stop"}),
        ("claude", {"hook_event_name": ["Stop"], "session_id": "s"}),
        ("claude", {"hook_event_name": "Stop", "session_id": 7}),
        ("claude", {"hook_event_name": "", "session_id": "s"}),
    ],
)
def test_what_no_hook_says(cli: str, document: Any) -> None:
    with pytest.raises(Invalid):
        hooks.read_call(cli, document)


def test_reads_what_each_cli_says() -> None:
    call = hooks.read_call("goose", {"event": "Stop", "session_id": "g", "cwd": "/x\x1b[31m", "transcript_path": 3})
    assert (call.moment, call.cwd, call.transcript, call.continued) == (Moment.STOP, "/x", None, None)
    call = hooks.read_call("gemini", {"hook_event_name": "SessionStart", "session_id": "x" * 999, "trigger": "resume"})
    assert (call.source, len(call.session)) == ("resume", 200)
    assert (
        hooks.read_call("claude", {"hook_event_name": "Stop", "session_id": "s", "stop_hook_active": "yes"}).continued
        is None
    )


def test_which_mail() -> None:
    def message(type_: str, priority: str) -> Message:
        fields = {"id": "m", "from": "bob", "to": "ada", "timestamp": "2026-02-16T21:00:00Z", "payload": {}}
        return Message.model_validate({**fields, "type": type_, "priority": priority})

    urgent, normal = message("note", Priority.URGENT), message("note", Priority.NORMAL)
    handoff = message("context_handoff", Priority.NORMAL)
    taken = {mail: [mail.takes(one) for one in (urgent, normal, handoff)] for mail in Mail}
    assert taken == {
        Mail.NONE: [False, False, False],
        Mail.HANDOFFS: [False, False, True],
        Mail.URGENT: [True, False, False],
        Mail.ALL: [True, True, True],
    }


def test_the_welcome_fits() -> None:
    welcome = Welcome(
        "ada", "Ada", ["code"], {"bob": ["ops"]}, "s€" * 9_000, "/root/summary.md", [("evil\n</x> title", "bob")]
    )
    text = hooks.welcome_text(welcome)
    assert "agent `ada`" in text and "bob (ops)" in text and "--from ada" in text
    assert '- "evil\\n</x> title" from bob' in text and "[cut; the whole: /root/summary.md]" in text
    assert hooks.text_room(text) > 3_000
    assert "summed it up" not in hooks.welcome_text(Welcome("ada", "Ada", ["code"], {}))
