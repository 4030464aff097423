"""The processes of the mail storm, killed at any moment. Run as `python -m tests.live.storm_worker ROLE …`.

A sender sends numbered messages, and notes each that was accepted; a receiver carries out the effect of each, which is
a file made once, and notes each delivery. What they noted is the tests' evidence, so it is kept beside the root.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from mesh import Mailbox
from mesh.models import Message

_AT_ONCE = 8


def note(path: Path, line: str) -> None:
    """Add a line in one piece: a killed process leaves it whole or not at all."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def noted(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def send(root: str, notes: Path, agent: str, receivers: list[str], count: int) -> None:
    """Send what was not noted as accepted yet, until all of it is, and nothing waits in the outbox."""
    box = Mailbox(root, agent)
    log = notes / f"accepted-{agent}"
    done = set(noted(log))
    left = (number for number in range(count) if f"{agent}-{number}" not in done)

    async def send_some(numbers: Iterable[int]) -> None:
        for number in numbers:
            id_ = f"{agent}-{number}"
            to = receivers[number % len(receivers)]
            await box.send(to, type="note", payload={"text": f"number {number}"}, requires_ack=number % 10 == 0, id=id_)
            note(log, id_)

    await asyncio.gather(*(send_some(left) for _ in range(_AT_ONCE)))
    while box.store.mail.sending.queued(agent):
        box.store.mail.post_queued(agent)
        await asyncio.sleep(0.05)
    note(notes / "finished", agent)


async def receive(root: str, notes: Path, agent: str) -> None:
    """Carry out the effect of each message until killed."""
    box = Mailbox(root, agent)

    async def effect(message: Message) -> None:
        note(notes / f"delivered-{agent}", message.id)
        try:
            os.close(os.open(notes / "effects" / message.id, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            note(notes / "again", message.id)
        await asyncio.sleep(0)

    await box.serve(effect)


if __name__ == "__main__":
    role, root, notes, agent, *more = sys.argv[1:]
    if role == "sender":
        asyncio.run(send(root, Path(notes), agent, more[0].split(","), int(more[1])))
    else:
        asyncio.run(receive(root, Path(notes), agent))
