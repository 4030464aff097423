"""The conversation with a model, one file a session: what was asked and answered, for the next task to go on from."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

from mesh.models.base import SCHEMA_VERSION
from mesh.runners.model.reply import scrubbed
from mesh.store.disk import PosixDisk
from mesh.store.files import Files


class History:
    """`path` holds `{"schemaVersion", "model", "messages"}` (mode 600). Raises StoreUnavailable."""

    def __init__(self, path: str, model: str, key: str) -> None:
        self._path = path
        self._model = model
        self._key = key
        self._files = Files(PosixDisk(), os.path.dirname(path))

    def load(self) -> list[ModelMessage]:
        """The messages so far; none if there is no such file. One that can't be read is put aside as `….unreadable`:
        the task is done all the same, in a conversation that begins anew."""
        data = self._files.read(self._path)
        if data is None:
            return []
        try:
            return ModelMessagesTypeAdapter.validate_python(json.loads(data)["messages"])
        except (ValueError, KeyError, TypeError):
            self._files.rename(self._path, f"{self._path}.unreadable")
            return []

    def save(self, messages: Sequence[ModelMessage]) -> None:
        """Keep the conversation, durably; without the key, should somebody have said it."""
        document = {
            "schemaVersion": SCHEMA_VERSION,
            "model": self._model,
            "messages": ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"),
        }
        self._files.make_folders(os.path.dirname(self._path))
        self._files.replace(self._path, scrubbed(json.dumps(document, ensure_ascii=False), [self._key]).encode())

    def begin(self, messages: Sequence[ModelMessage], prompt: str) -> None:
        """Note what is being asked: who is killed before the answer can be told to go on where it left off."""
        self.save([*messages, ModelRequest(parts=[UserPromptPart(content=prompt)])])

    def take_back(self, messages: Sequence[ModelMessage]) -> None:
        """It was not answered: the conversation is as before."""
        if messages:
            self.save(messages)
        else:
            self._files.remove(self._path)
