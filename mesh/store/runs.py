"""Runs: processes that work for an agent and outlive its daemon, one folder each, `agents/<id>/runs/<run>/`.

`run.json` says who it is, `prompt` what it was asked. The process itself writes `stdout` and `stderr`, and its keeper,
a shell, leaves the exit status in `status`: so whoever watches later learns how it ended.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress

from mesh import clock
from mesh.errors import MeshError
from mesh.models.running import RunRecord
from mesh.store.disk import Disk
from mesh.store.documents import RUN, Documents
from mesh.store.files import Files
from mesh.store.incarnations import process_started
from mesh.store.layout import Layout

_SAME_START_S = 0.05
_PART_BYTES = 1 << 20


class Runs:
    def __init__(self, files: Files, documents: Documents, disk: Disk, layout: Layout, time: clock.Clock) -> None:
        self._files = files
        self._documents = documents
        self._disk = disk
        self._layout = layout
        self._time = time

    def folder(self, agent: str, run: str) -> str:
        return f"{self._layout.runs(agent)}/{run}"

    def prepare(self, record: RunRecord, prompt: str) -> str:
        """Make the folder of a run that is about to start; returns its path. Its output files are there, empty, so
        that their modes are ours whatever the program's umask is."""
        folder = self.folder(record.agent, record.id)
        self._files.make_folders(folder)
        self._files.make_folders(self.temporary_folder(record))
        self._files.replace(f"{folder}/prompt", prompt.encode())
        for name in ("stdout", "stderr"):
            self._files.create(f"{folder}/{name}", b"")
        self.save(record)
        return folder

    def temporary_folder(self, record: RunRecord) -> str:
        return f"{self._layout.temporary}/{hashlib.sha256(record.id.encode()).hexdigest()[:12]}"

    def drop_temporary(self, record: RunRecord) -> None:
        """The run is over: what it left there is nobody's."""
        shutil.rmtree(self.temporary_folder(record), ignore_errors=True)

    def save(self, record: RunRecord) -> None:
        self._documents.write(f"{self.folder(record.agent, record.id)}/run.json", record.dump())

    def keep(self, record: RunRecord, name: str, data: bytes) -> str:
        """Put a file beside the run; returns its path from the root."""
        path = f"{self.folder(record.agent, record.id)}/{name}"
        self._files.replace(path, data)
        return self._layout.relative(path)

    def find(self, agent: str, run: str) -> RunRecord | None:
        document = self._documents.read(f"{self.folder(agent, run)}/run.json", RUN)
        return None if document is None else RunRecord.model_validate(document)

    def all(self, agent: str) -> list[RunRecord]:
        """The agent's runs, the newest first; one whose record can't be read is left out."""
        found = []
        for name in sorted(self._files.names(self._layout.runs(agent)), reverse=True):
            with suppress(MeshError):
                record = self.find(agent, name)
                if record is not None:
                    found.append(record)
        return found

    def last(self, agent: str, task_id: str) -> RunRecord | None:
        """The latest run for a task. Runs are named by time, so that the newest comes last."""
        names = [name for name in self._files.names(self._layout.runs(agent)) if name.endswith(f"-{task_id}")]
        return self.find(agent, max(names)) if names else None

    def is_alive(self, record: RunRecord) -> bool:
        """Whether its process still exists (it may be stopped); a zombie doesn't."""
        if record.pid is None or record.started is None or record.boot_id != self._time.boot_id():
            return False
        started = process_started(record.pid)
        return started is not None and abs(started - record.started) < _SAME_START_S

    def status(self, record: RunRecord) -> int | None:
        """Its exit status; None while it runs, and for ever if nobody could see it end."""
        data = self._files.read(f"{self.folder(record.agent, record.id)}/status")
        try:
            return None if data is None else int(data)
        except ValueError:
            return None

    def output(self, record: RunRecord, name: str = "stdout", offset: int = 0) -> bytes:
        """Up to a megabyte of what it has printed from this byte on."""
        try:
            with open(f"{self.folder(record.agent, record.id)}/{name}", "rb") as file:
                file.seek(offset)
                return file.read(_PART_BYTES)
        except OSError:
            return b""

    def end_of(self, record: RunRecord, name: str, bytes_max: int) -> str:
        """The end of what it printed, or all of it; what is no UTF-8 shows as such."""
        try:
            with open(f"{self.folder(record.agent, record.id)}/{name}", "rb") as file:
                file.seek(max(0, file.seek(0, 2) - bytes_max))
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    def forget(self, record: RunRecord) -> None:
        """Delete the folder of a run that is over."""
        folder = self.folder(record.agent, record.id)
        self.drop_temporary(record)
        for name in self._files.names(folder):
            self._files.remove(f"{folder}/{name}")
        with suppress(OSError):
            self._disk.remove_folder(folder)
