"""What the tests of mail stand on: quick limits, files put there by hand, and a look at what lies where."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mesh import Mailbox
from mesh.models import Alert, Message
from tests.service.stage import Mesh, until

#: Sweeps five times a second; files that are half written get a moment only.
QUICK: dict[str, Any] = {"mailSweepS": 0.2, "mailSettleS": 0.4, "mailRetryS": 0.02, "mailRetryMaxS": 0.1}
#: No sweep comes to help: what is noticed at once was noticed by an event.
NO_SWEEP: dict[str, Any] = {"mailSweepS": 60}


def folder(mesh: Mesh, address: str, place: str = "inbox") -> Path:
    return mesh.root / ("system/human" if address == "human" else f"agents/{address}") / place


def names(mesh: Mesh, address: str, place: str = "inbox") -> list[str]:
    """The message files there, in the order of their names."""
    found = (entry.name for entry in folder(mesh, address, place).iterdir())
    return sorted(name for name in found if name.endswith(".json") and not name.endswith(".reason.json"))


def filed(mesh: Mesh, address: str, place: str = "inbox") -> list[dict[str, Any]]:
    """The messages in those files."""
    found = []
    for name in names(mesh, address, place):
        try:
            found.append(json.loads((folder(mesh, address, place) / name).read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue  # it was moved meanwhile
    return found


def ids(mesh: Mesh, address: str, place: str = "inbox") -> list[str]:
    return [message["id"] for message in filed(mesh, address, place)]


async def processed(mesh: Mesh, address: str, id_: str, within_s: float = 5.0) -> dict[str, Any]:
    """The message, once it was acked and left the inbox."""
    await until(lambda: id_ in ids(mesh, address, "processed") and id_ not in ids(mesh, address), within_s)
    return next(message for message in filed(mesh, address, "processed") if message["id"] == id_)


async def arrived(mesh: Mesh, address: str, type_: str, within_s: float = 5.0) -> dict[str, Any]:
    """A message of that type, once it lies in the inbox."""
    return await until(lambda: next((m for m in filed(mesh, address) if m["type"] == type_), None), within_s)


async def reason_for(mesh: Mesh, address: str, name: str, place: str = "rejected") -> str:
    """Why the file of that name was put there, once it was."""
    note = folder(mesh, address, place) / f"{name.removesuffix('.json')}.json.reason.json"
    await until(note.exists)
    return str(json.loads(note.read_text(encoding="utf-8"))["reason"])


def written(id_: str = "test-123", from_: str = "bob", to: str = "ada", **fields: Any) -> dict[str, Any]:
    """A message as people write them by hand (mailbox document, section 11)."""
    return {
        "id": id_,
        "from": from_,
        "to": to,
        "timestamp": "2026-02-16T21:00:00Z",
        "type": "status_request",
        "payload": {"text": "Test message"},
        "priority": "normal",
        "requiresAck": False,
        **fields,
    }


def drop(mesh: Mesh, content: Any, name: str = "test.json", address: str = "ada") -> Path:
    """Put a file into the inbox by hand."""
    path = folder(mesh, address) / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    path.chmod(0o600)
    return path


def drop_as(mesh: Mesh, name: bytes, content: bytes) -> bytes:
    """Put a file of any name into ada's inbox; its path."""
    path = os.fsencode(folder(mesh, "ada")) + b"/" + name
    with open(path, "wb") as file:
        file.write(content)
    return path


def lies_there(path: bytes | Path) -> bool:
    """Whether anything does, broken links included."""
    return os.path.lexists(path)


def kill_holder(mesh: Mesh, address: str, name: str) -> None:
    """Let the claim look as if its process had died."""
    path = folder(mesh, address, "claims") / name
    claim = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**claim, "pid": 2**30, "started": 1.0}), encoding="utf-8")


def alerts(mesh: Mesh, type_: str, status: str = "open") -> list[Alert]:
    return [alert for alert in mesh.store.alerts.all() if (alert.type, alert.status) == (type_, status)]


def delivery(mesh: Mesh, sender: str, id_: str) -> dict[str, Any]:
    """What the sender's copy says."""
    found: dict[str, Any] = next(m for m in filed(mesh, sender, "outbox") if m["id"] == id_)["delivery"]
    return found


async def send(mesh: Mesh, sender: str, to: str, type_: str = "note", **fields: Any) -> str:
    """Send one message from a mailbox of its own."""
    box = Mailbox(mesh.root, sender)
    try:
        return await box.send(to, type=type_, **fields)
    finally:
        await box.close()


def waiting(mesh: Mesh, address: str) -> list[Message]:
    return mesh.store.mail.waiting(address)
