"""An edit of a CLI's file that can be taken back exactly, as long as nobody else has edited the file since.

The way back is noted in the mesh's root. Where somebody edited the file meanwhile only what is the mesh's is taken out,
and all the rest stays as they left it.
"""

from __future__ import annotations

from collections.abc import Callable

from mesh.interop.cli_settings.edited_file import Draft, EditedFile, Step, digest, read, remove_folders, undone
from mesh.store import Store
from mesh.store.edits import EditNote, TextStep


class NotedEdit:
    """One file, read now. `empty` stands in for the text of a file that isn't there."""

    def __init__(self, store: Store, path: str, empty: str = "") -> None:
        self.file: EditedFile = read(path)
        self.draft: Draft = self.file.draft(empty)
        self._edits = store.edits
        note = store.edits.find(self.file.path)
        self._note = note if note is not None and note.digest == digest(self.file.text) else None

    @property
    def changed(self) -> bool:
        return self.file.text is None or self.draft.text != self.file.content

    @property
    def made(self) -> list[str]:
        """Folders that were made for the file, outermost first, if that is known."""
        return self._note.made if self._note else []

    def write(self) -> bool:
        """Write the draft, and note the way back; False if there is nothing to write. Raises SettingsRefused."""
        if not self.changed:
            return False
        made = self.file.write(self.draft.text)
        self._keep(made)
        return True

    def take_back(self, fits: Callable[[str], bool]) -> bool:
        """The draft has what is ours taken out: write it, or rather the very text from before our edits, if that is
        known and `fits`. False if there is nothing to do. Raises SettingsRefused."""
        if self.file.text is None or not self.changed:
            return False
        note = self._note
        before = self._text_before(note) if note is not None else None
        if note is None or before is None or not fits(before if note.existed else ""):
            self.file.write(self.draft.text)
            if note is None:
                self._edits.forget(self.file.path)
            else:
                self._keep([])
            return True
        self.file.write(before if note.existed else None)
        if not note.existed:
            remove_folders(note.made)
        self._edits.forget(self.file.path)
        return True

    def _text_before(self, note: EditNote) -> str | None:
        try:
            return undone(self.file.content, [Step(step.at, step.drop, step.put) for step in note.steps])
        except ValueError:
            return None

    def _keep(self, made: list[str]) -> None:
        """Note our steps after those that are noted already."""
        known, file = self._note, self.file
        steps = [TextStep(at=step.at, drop=step.drop, put=step.put) for step in self.draft.steps]
        self._edits.keep(
            EditNote(
                path=file.path,
                existed=known.existed if known else file.text is not None,
                digest=digest(read(file.path).text),
                steps=[*(known.steps if known else []), *steps],
                made=known.made if known else made,
            )
        )
