"""How each CLI looks in a terminal of its own, as seen in real sessions; beside each entry what it was seen on.

A newer version may look otherwise. Then its screens read as `unknown` or `draft`, and nothing is typed; the mail goes
its other ways.
"""

from __future__ import annotations

from mesh.runners.tmux.screens import Look

#: Braille patterns, which spinners are made of.
_SPINNER = "[⠁-⣿]"
_NODE = r"node|node-?\d+|MainThread|bun"

LOOKS: dict[str, Look] = {
    # Codex 0.171. Its title is `⠙ project` while it works, `[ . ] Action Required` while it asks. Words that an
    # earlier prompt left are drawn as `›` too, but above.
    "codex": Look(
        "codex",
        rf"codex|codex-.*|{_NODE}",
        "marked",
        prompt=r"›(?: |$)",
        placeholder_faint=True,
        cursor_shown=True,
        busy_title=rf"^{_SPINNER} ",
        busy_rows=(r"^\s*[•◦] .*\(.*esc to interrupt\)",),
        dialog_title=r"^\[ . \] Action Required",
        clear=("C-u",),
    ),
    # Claude Code 2.1. Its process may be named after its version. While it asks, its title is that of idleness.
    "claude": Look(
        "claude",
        rf"claude|claude\.exe|\d+\.\d+\.\d+|{_NODE}",
        "ruled",
        prompt=r"❯(?:[\xa0 ]|$)",
        placeholders=(r'Try ".*"', r"Press up to edit queued messages"),
        placeholder_faint=True,
        busy_title=rf"^(?:[◐◑◒◓◴◵◶◷]|{_SPINNER})",
        busy_rows=(r"esc to interrupt", r"^\s*[·✢✳✶✻✽✺*] .*…"),
        clear=("C-u",),
    ),
    # Pi 1.6. Its work is told in the upper rule.
    "pi": Look(
        "pi",
        rf"pi|{_NODE}",
        "ruled",
        busy_rows=(rf"^── {_SPINNER} ", rf"^\s*{_SPINNER} \S"),
        clear=("C-u",),
    ),
    # OpenCode 1.18. The box's last row names the model.
    "opencode": Look(
        "opencode",
        rf"opencode|\.opencode|{_NODE}",
        "boxed",
        placeholders=(r"Ask anything….*", r"Ask anything\.\.\..*", r"Run a command….*"),
        cursor_shown=True,
        busy_rows=(r"\besc (?:again to )?interrupt\b",),
        folds=(151, r"\[Pasted ~\d+ lines?\]"),
        clear=("C-u",),
        dialogs=(r"\bAllow once\b", r"\bAllow always\b"),
        interrupt=("Escape", "Escape", "Escape"),
    ),
    # Gemini CLI 0.61. It draws its own cursor.
    "gemini": Look(
        "gemini",
        rf"gemini|{_NODE}",
        "marked",
        prompt=r" >(?: |$)",
        placeholders=(r"Type your message or @path/to/file",),
        busy_title="^✦",
        busy_rows=(r"\(esc to cancel, \d",),
        dialog_title="^✋",
        clear=("C-u",),
    ),
    # goose 1.52. There is no composer while it works. Its placeholder says what to do next: it has several.
    "goose": Look(
        "goose",
        "goose",
        "line",
        prompt=r"(?:\( O\))?> ?",
        placeholder_faint=True,
        cursor_shown=True,
        busy_rows=(r"\(Ctrl\+C to interrupt\)",),
        busy_above=1,
        clear=("C-u",),
        interrupt=("C-c",),
    ),
    # OpenClaw 2026.9 (`openclaw tui`). Only its status line tells; it has many words for work and one for idleness.
    "openclaw": Look(
        "openclaw",
        rf"openclaw|openclaw-.*|{_NODE}",
        "ruled",
        busy_rows=(rf"^\s*{_SPINNER} .*• \d+",),
        idle_row=r"\| (?:idle|aborted|error)\b",
        busy_above=3,
        dialogs_above=6,
        clear=("C-u",),
    ),
    # Aider 0.86. There is no composer while it works; `ask>`, `architect multi>` and the like are other modes.
    "aider": Look(
        "aider",
        r"aider|python[\d.]*",
        "line",
        prompt=r"(?:[a-z-]+ ?){0,2}>(?: |$)",
        continuation=r"^>(?: |$)",
        cursor_shown=True,
        busy_rows=(r"\bWaiting for \S", r"^\s*[░█]+\s"),
        busy_above=1,
        clear=("C-u",),
        interrupt=("C-c",),
    ),
    # Any program that reads lines behind a prompt, with nothing below it.
    "generic": Look(
        "its program",
        r".+",
        "line",
        prompt=r"\s{0,2}[>❯›»](?: |$)",
        cursor_shown=True,
        busy_rows=(rf"^\s*{_SPINNER} \S", r"(?i)\b(?:esc|ctrl[-+]c) to (?:interrupt|cancel|stop)\b"),
        dialogs_above=12,
        interrupt=("C-c",),
    ),
}
