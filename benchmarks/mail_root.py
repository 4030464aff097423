"""Roots and messages for the figures of mail."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from uuid_utils import uuid7

from mesh import clock
from mesh.models import Message
from mesh.store import Store
from mesh.store.setup import initialise

#: Caps lifted where a load exceeds them.
LIFTED = {"messagesPerMinute": None, "inboxWaitingMax": 1_000_000, "inboxAlert": 1_000_000, "unackedAlert": 1_000_000}


@contextlib.contextmanager
def mail_root(agents: int = 2, **limits: Any) -> Iterator[str]:
    """An initialised root with agents a1, a2 …, on the disk that the checkout lies on."""
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path.cwd()))
    root = folder / "root"
    names = [f"a{number}" for number in range(1, agents + 1)]
    entries = {
        name: {"name": name, "port": 30_000 + number, "responsibilities": ["work"], "buddy": names[number % agents]}
        for number, name in enumerate(names, start=1)
    }
    registry = {"schemaVersion": 1, "agents": entries, "limits": {**LIFTED, **limits}}
    try:
        (root / "agents").mkdir(parents=True, mode=0o700)
        (root / "agents/registry.json").write_text(json.dumps(registry))
        initialise(Store(str(root)))
        yield str(root)
    finally:
        # Last of all: after thousands of files were deleted, some file systems make new ones slowly for minutes.
        atexit.register(shutil.rmtree, folder)


def a_message(sender: str, to: str, text: str = "x" * 700) -> Message:
    """About 1 KB as it is filed."""
    fields = {"id": str(uuid7()), "from": sender, "to": to, "timestamp": clock.iso(clock.SYSTEM.wall())}
    return Message.model_validate({**fields, "type": "note", "payload": {"text": text}})


def bare_write(root: str, folder: str, name: str, data: bytes) -> None:
    """The least that durable means: write, fsync, rename, fsync the folder. Its temporaries lie where ours do: what
    making a file costs differs from folder to folder."""
    temporary = f"{root}/system/scratch/bare-{name}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(temporary, f"{folder}/{name}")
    flush_folder(folder)


def flush_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
