"""One configuration file of a CLI: read as it is, changed in single steps that can be taken back, written in one.

These files belong to people. What can't be read is refused and left alone; what is written replaces the file in one
step, with its permissions, its line ends and its place (links are followed, never replaced).
"""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from mesh.errors import MeshError

_BYTES_MAX = 4_000_000
_BOM = "\ufeff"


class SettingsRefused(MeshError):
    """A CLI's configuration can't be edited; the detail names the file and, where something is wrong in it, the line.
    Nothing was changed."""

    status, slug, title = 409, "settings-refused", "A configuration file can't be edited as it is"


@dataclass(frozen=True)
class Step:
    """At `at` (characters), `drop` was replaced by `put`."""

    at: int
    drop: str
    put: str


@dataclass
class Draft:
    """A text that is being edited, and the way back."""

    text: str
    steps: list[Step] = field(default_factory=list)

    def replace(self, start: int, end: int, put: str) -> None:
        self.steps.append(Step(start, self.text[start:end], put))
        self.text = self.text[:start] + put + self.text[end:]


def undone(text: str, steps: Sequence[Step]) -> str:
    """The text as it was before the steps. Raises ValueError if it isn't what they led to."""
    for step in reversed(steps):
        if text[step.at : step.at + len(step.put)] != step.put:
            raise ValueError(f"another text stands at {step.at}")
        text = text[: step.at] + step.drop + text[step.at + len(step.put) :]
    return text


def digest(text: str | None) -> str:
    """Names the content of a file; the empty text for one that isn't there."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class EditedFile:
    """A file as it was read. `text` is None where there is none."""

    #: As people name it.
    path: str
    #: Where it really lies, links followed.
    target: str
    text: str | None
    mode: int = 0o600

    @property
    def content(self) -> str:
        """The text without the mark that some editors put in front."""
        return (self.text or "").removeprefix(_BOM)

    def draft(self, empty: str = "") -> Draft:
        """To edit it; `empty` stands in for the text of a file that isn't there or holds nothing."""
        draft = Draft(self.content if self.text is not None else empty)
        if not draft.text.strip() and empty:
            draft.replace(0, len(draft.text), empty)
        return draft

    def write(self, content: str | None) -> list[str]:
        """Replace the file in one step, or with None remove it. Returns the folders that had to be made, outermost
        first. Raises SettingsRefused if it was changed since it was read, or can't be written."""
        if read(self.path).text != self.text:
            raise SettingsRefused(f"{self.path} was changed just now by somebody else; try again.", file=self.path)
        try:
            if content is None:
                os.unlink(self.target)
                return []
            folder = os.path.dirname(self.target)
            made = _make_folders(folder)
            mark = _BOM if (self.text or "").startswith(_BOM) else ""
            _replace(self.target, (mark + content).encode(), self.mode)
        except OSError as error:
            raise SettingsRefused(f"{self.path} can't be written: {error.strerror}.", file=self.path) from None
        return made


def read(path: str) -> EditedFile:
    """The file at `path`, which may not be there. Raises SettingsRefused if it can't be read as UTF-8 text."""
    path = os.path.abspath(path)
    target = os.path.realpath(path)
    try:
        handle = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return EditedFile(path, target, None)
    except OSError as error:
        raise SettingsRefused(f"{path} can't be read: {error.strerror}.", file=path) from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _BYTES_MAX:
        os.close(handle)
        regular = stat.S_ISREG(found.st_mode)
        what = f"is larger than {_BYTES_MAX} bytes" if regular else "is no regular file"
        raise SettingsRefused(f"{path} {what}.", file=path)
    with os.fdopen(handle, "rb") as file:
        data = file.read()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsRefused(f"{path}, line {line}: not UTF-8; mend that first.", file=path, line=line) from None
    return EditedFile(path, target, text, stat.S_IMODE(found.st_mode))


def parse_toml(path: str, text: str) -> dict[str, Any]:
    """The TOML in a text of that file. Raises SettingsRefused, which names the line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsRefused(f"{path} is not valid TOML: {error}; mend that first.", file=path) from None


def without_empty(value: Any) -> Any:
    """The value without members and items that hold nothing: what an entry leaves behind when it goes."""
    if isinstance(value, dict):
        inner = {key: without_empty(member) for key, member in value.items()}
        return {key: member for key, member in inner.items() if member not in ({}, [])}
    if isinstance(value, list):
        return [item for item in map(without_empty, value) if item not in ({}, [])]
    return value


def remove_folders(folders: Sequence[str]) -> None:
    """Take away folders that were made for a file and are empty again, innermost first."""
    for folder in reversed(folders):
        with suppress(OSError):
            os.rmdir(folder)


def _make_folders(folder: str) -> list[str]:
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    missing.reverse()
    for name in missing:
        os.mkdir(name, 0o700)
    return missing


def _replace(target: str, data: bytes, mode: int) -> None:
    """Write beside, flush, rename: whoever reads meanwhile sees the old content or the new one."""
    beside = f"{target}.{os.getpid()}.new"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            _keep_owner(file.fileno(), target)
            os.fsync(file.fileno())
        os.rename(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    folder = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_owner(handle: int, target: str) -> None:
    """Root may edit the file of another user: it stays theirs."""
    if os.geteuid() != 0:
        return
    near = target if os.path.exists(target) else os.path.dirname(target)
    found = os.stat(near)
    os.fchown(handle, found.st_uid, found.st_gid)
