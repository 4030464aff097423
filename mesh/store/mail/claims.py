"""Claims: which process handles a message, and what it has come to. One small file each, `claims/<name>`.

The message itself stays in the inbox until it is acked. A claim is decided under the lock `claims/.lock`: free, or its
holder is dead. It is `handling` while the message's effect is being carried out or its text shown; a process that dies
meanwhile costs the message an attempt. After that it is `kept`: delivered, perhaps shown, and waiting for its ack.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from mesh.models.base import Filed
from mesh.store.codec import decode_own, encode
from mesh.store.files import Files
from mesh.store.incarnations import process_started


@dataclass(frozen=True)
class Holder:
    """Who claims: an incarnation of an agent's service, or (incarnation 0) a process beside it."""

    pid: int
    started: float
    boot_id: str
    incarnation: int
    #: Tells two mailboxes of one process apart.
    token: str


def this_process(boot_id: str, incarnation: int) -> Holder:
    """The present process as a holder. A new one for each mailbox."""
    pid = os.getpid()
    return Holder(pid, process_started(pid) or 0.0, boot_id, incarnation, os.urandom(8).hex())


class Claim(Filed):
    """The content of a claim file."""

    state: Literal["handling", "kept"] = "handling"
    pid: int
    started: float
    boot_id: str
    incarnation: int
    token: str = ""
    attempt: int = 1
    delivered_at: str
    shown_at: str | None = None
    #: When it was handed out without a word of whether it was seen.
    uncertain_at: str | None = None
    #: The task that the message became; its end is the ack.
    task_id: str | None = None

    def held_by(self, holder: Holder) -> bool:
        return (self.pid, self.started, self.token) == (holder.pid, holder.started, holder.token)

    def held(self, boot_id: str, incarnation: int) -> bool:
        """Whether whoever made it may still be at work: its process lives, and it was not an incarnation that a
        later one (the present is `incarnation`) has replaced."""
        if self.boot_id != boot_id or 0 < self.incarnation < incarnation:
            return False
        started = process_started(self.pid)
        return started is not None and abs(started - self.started) < 0.05


class ClaimFiles:
    """Reads and writes claims; the caller holds the lock."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, path: str) -> Claim | None:
        """The claim, or None where there is none that can be read: a damaged one counts as none."""
        data = self._files.read(path)
        try:
            return None if data is None else Claim.model_validate(decode_own(data))
        except (ValueError, ValidationError):
            return None

    def write(self, path: str, claim: Claim) -> None:
        # The first attempt's needs no flush: after a power cut its holder is gone, and the message is as it was.
        self._files.replace_quickly(path, encode(claim.dump()), flushed=claim.attempt > 1)
