"""The hook program as it is installed, whole process, called as a CLI calls it: nothing waiting, and one message.

The yardstick is the bare interpreter, `python -I -S -c pass`, in turns with the others.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Figure, at_most, initialised_root, quantile, running, until_healthy
from mesh.interop.cli_settings.hooks_command import Hook
from mesh.models import Message
from mesh.models.running import Session
from mesh.store import Store
from mesh.store.mailbox import Again

_ROUNDS = 60
_SESSION = "benchmark"
_NOTHING_MS, _MESSAGE_MS = 25.0, 40.0


def figures() -> list[Figure]:
    with initialised_root() as (root, base):
        _lift_rate(root)
        store = Store(str(root))
        agent = next(iter(store.registry.current.agents))
        sender = store.registry.current.watcher_of(agent) or "human"
        store.sessions.join(agent, Session(cli="claude", id=_SESSION), list(store.registry.current.agents))
        argv = Hook("claude", agent, store.layout.socket(agent)).argv()
        with running([sys.executable, "-m", "agents", agent, "--root", str(root)]):
            until_healthy(base, 1)
            bare: list[float] = []
            idle: list[float] = []
            told: list[float] = []
            for number in range(_ROUNDS):
                bare.append(_call([sys.executable, "-I", "-S", "-c", "pass"], b"")[0])
                took_ms, out = _call(argv, _said())
                assert not out, out
                idle.append(took_ms)
                _send(store, sender, agent, number)
                _until_delivered(store, agent)
                took_ms, out = _call(argv, _said())
                assert f"word-{number}." in out.decode(), out
                told.append(took_ms)
    found = []
    for name, values, bar in (("nothing waiting", idle, _NOTHING_MS), ("one message", told, _MESSAGE_MS)):
        for what, value, yardstick in (
            ("median", statistics.median(values), statistics.median(bare)),
            ("p95", quantile(values, 0.95), quantile(bare, 0.95)),
        ):
            found.append(at_most(f"mesh hook, {name}, {what}", value, "ms", bar, "python -I -S -c pass", yardstick))
    return found


def _call(argv: list[str], said: bytes) -> tuple[float, bytes]:
    """Milliseconds that the whole process took, and what it printed."""
    began_s = time.perf_counter()
    done = subprocess.run(argv, input=said, capture_output=True, check=True)
    return (time.perf_counter() - began_s) * 1000, done.stdout


def _said() -> bytes:
    """As after a tool of Claude Code: a few kilobytes."""
    said = {"session_id": _SESSION, "cwd": "/work", "hook_event_name": "PostToolUse", "tool_name": "Bash"}
    return json.dumps({**said, "tool_response": {"stdout": "x" * 4_000}}).encode()


def _send(store: Store, sender: str, agent: str, number: int) -> None:
    fields = {"id": f"bench-{number}", "from": sender, "to": agent, "type": "note", "priority": "urgent"}
    message = {**fields, "timestamp": "2026-02-16T21:00:00.000Z", "payload": {"text": f"word-{number}."}}
    store.mail.send(Message.model_validate(message), again=Again.NEVER)


def _until_delivered(store: Store, agent: str) -> None:
    """Until the agent has taken it in hand: from here on a hook finds it."""
    folder = Path(store.layout.mail(agent).claims)
    while not [path for path in folder.iterdir() if path.name.endswith(".json")]:
        time.sleep(0.005)
    time.sleep(0.1)


def _lift_rate(root: Path) -> None:
    path = root / "agents" / "registry.json"
    document = json.loads(path.read_text())
    document.setdefault("limits", {})["messagesPerMinute"] = None
    path.write_text(json.dumps(document))
