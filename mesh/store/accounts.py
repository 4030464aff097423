"""`system/accounts.json`: logins and keys that can't be used now. Every agent that spends from one of them waits."""

from __future__ import annotations

from contextlib import suppress

from pydantic import ValidationError

from mesh.models.running import Account
from mesh.store.disk import Signature
from mesh.store.documents import ACCOUNTS, Document, Documents
from mesh.store.files import Files
from mesh.store.layout import Layout


class Accounts:
    def __init__(self, files: Files, documents: Documents, layout: Layout) -> None:
        self._files = files
        self._documents = documents
        self._layout = layout
        self._seen: Signature | None = None
        self._known: dict[str, Account] = {}

    def unfit(self) -> dict[str, Account]:
        """Each account that can't be used, by name. A broken entry is none: the next attempt finds out. Looked at
        every tick, so read only where the file has changed."""
        seen = self._files.signature(self._layout.accounts)
        if seen is None or seen != self._seen:
            self._known = {} if seen is None else self._read()
            self._seen = seen
        return dict(self._known)

    def _read(self) -> dict[str, Account]:
        document = self._documents.read(self._layout.accounts, ACCOUNTS) or ACCOUNTS.empty()
        found = {}
        for name, entry in document["accounts"].items():
            with suppress(ValidationError):
                found[name] = Account.model_validate(entry)
        return found

    def mark(self, name: str, account: Account) -> None:
        """From now on the account can't be used."""

        def edit(document: Document) -> None:
            document["accounts"][name] = account.dump()

        self._documents.update(self._layout.accounts, ACCOUNTS, edit)

    def clear(self, name: str) -> bool:
        """It can be used again; True if it was marked."""
        if name not in self.unfit():
            return False

        def edit(document: Document) -> None:
            document["accounts"].pop(name, None)

        self._documents.update(self._layout.accounts, ACCOUNTS, edit)
        return True
