"""Reads what CLI agents write of their sessions: how full the context is, and whether the turn is over.

`open_transcript` for a transcript whose place is known, `find` for its place. Nothing is written, locked or moved:
the files are the CLIs'.
"""

from __future__ import annotations

from collections.abc import Mapping

from mesh.runners.transcripts import claude, codex, gemini, pi
from mesh.runners.transcripts.finding import find as find
from mesh.runners.transcripts.jsonl import JsonlTranscript
from mesh.runners.transcripts.reading import Reading as Reading
from mesh.runners.transcripts.reading import Transcript as Transcript
from mesh.runners.transcripts.reading import Turn as Turn
from mesh.runners.transcripts.reading import estimate_tokens as estimate_tokens
from mesh.runners.transcripts.state import Fold

_FOLDS: dict[str, Fold] = {
    "codex": codex.fold,
    "claude": claude.fold,
    "pi": pi.fold,
    # Its older versions: newer ones keep a database.
    "openclaw": pi.fold,
    "gemini": gemini.fold,
}


def open_transcript(cli: str, path: str, session: str, windows: Mapping[str, int] | None = None) -> Transcript | None:
    """The reader of one session's transcript, to be kept and asked again; None for a CLI that writes none that can be
    read (`aider`, `generic`). Nothing is read yet.

    `cli` as in the registry; `path` as `find` or a hook told it; `session` names the session within a database;
    `windows` are the registry's. The path need not exist yet.
    """
    known = windows or {}
    if cli == "opencode":
        from mesh.runners.transcripts.opencode import OpenCodeTranscript

        return OpenCodeTranscript(path, session, known)
    if cli == "goose":
        from mesh.runners.transcripts.goose import GooseTranscript

        return GooseTranscript(path, session, known)
    if cli == "openclaw" and not path.endswith(".jsonl"):
        from mesh.runners.transcripts.openclaw import OpenClawTranscript

        return OpenClawTranscript(path, session, known)
    fold = _FOLDS.get(cli)
    return None if fold is None else JsonlTranscript(cli, path, fold, known)
