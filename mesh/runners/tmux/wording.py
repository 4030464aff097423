"""What is typed into a session: one line that names a message or a task, and how to read it. Pure.

A message's body is never typed, nor anything else that its sender may word freely: ids, types and names come from
validated fields, and are reduced once more to letters that no program takes for a command, a mention or a key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mesh.errors import BadUse
from mesh.models import Message, Task

#: Characters of a doorbell: it stays one line in most windows, and below what any of the programs folds away.
LENGTH_MAX = 200
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_COMMAND = re.compile(r"[A-Za-z0-9._/=+ -]+")
_HEAD = "[mesh]"
_PART_MAX = 40


@dataclass(frozen=True)
class Command:
    """How the mesh is called in the session's own shell: its program, and what is added to each call, such as
    `--root /srv/mesh` where the session's environment doesn't name the root."""

    program: str = "mesh"
    options: str = ""

    def __post_init__(self) -> None:
        for part in (self.program, self.options or "-"):
            if not _COMMAND.fullmatch(part) or len(part) > _PART_MAX:
                detail = f"{part!r} can't be typed into a session: use up to {_PART_MAX} letters, digits and ._/=+-"
                raise BadUse(detail)

    def call(self, what: str, argument: str) -> str:
        """`mesh mail show`, the options, and its argument, which may begin with a dash."""
        dash = "--" if argument.startswith("-") else ""
        return " ".join(filter(None, (self.program, what, self.options, dash, argument)))


def for_messages(messages: Sequence[Message], agent: str, command: Command | None = None) -> str:
    """The doorbell for mail that waits. One message is named, of several the first, which is the most urgent; for
    none that is known, only that there is some."""
    command = command or Command()
    if len(messages) == 1 and _ID.fullmatch(messages[0].id):
        message = messages[0]
        read = f"Read it with: {command.call('mail show', message.id)}"
        if len(read) + len(_HEAD) < LENGTH_MAX:
            return _fitted("message", message.priority, message.type, message.from_, read)
    read = f"Read with: {command.call('mail list', _word(agent))}"
    if not messages:
        return f"{_HEAD} Mail waits for you. {read}"
    first, others = messages[0], len(messages) - 1
    more = f" and {others} more" if others else ""
    return _fitted("message", first.priority, first.type, f"{_word(first.from_)}{more}", read)


def for_task(task: Task, command: Command | None = None) -> str:
    """The doorbell for a task. Raises BadUse if its id can't be typed."""
    command = command or Command()
    read = f"Read it with: {command.call('task show', task.id)}"
    if not _ID.fullmatch(task.id) or len(read) + len(_HEAD) >= LENGTH_MAX:
        raise BadUse(f"The task's id {task.id!r} can't be typed into a session.", taskId=task.id)
    return _fitted("task", task.priority, "", task.from_, read)


def _fitted(what: str, priority: str, type_: str, sender: str, read: str) -> str:
    """As much of what is known as there is room for; how to read it always."""
    named = f"{_word(priority)} {what}".strip()
    kind = f" ({_word(type_)})" if type_ else ""
    from_ = f" from {_words(sender)}" if sender else ""
    lines = [f"{_HEAD} {text}. {read}" for text in (f"{named}{kind}{from_}", f"{named}{from_}", named)]
    return next((line for line in lines if len(line) <= LENGTH_MAX), f"{_HEAD} {read}")


def _words(text: str) -> str:
    return " ".join(filter(None, map(_word, text.split())))


def _word(text: str) -> str:
    """Only what a name is made of: no blank, no control character, no `/`, `!`, `#`, `@`."""
    return re.sub(r"[^A-Za-z0-9._-]", "", text)[:64]
