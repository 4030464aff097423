"""A durable document update against the bare sequence: write, fsync, rename, fsync folder."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
import time
from pathlib import Path

from benchmarks.measure import BARE_MAX_PER_S, Figure, at_least, interleaved
from mesh.service.writer import in_writer
from mesh.store import Store
from mesh.store.documents import MEMORY, Document

_UPDATES_PER_BLOCK = 200
_BLOCKS = 9


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder:
        store = Store(folder)
        for path in store.layout.folders():
            store.files.make_folders(path)
        path = f"{store.layout.knowledge}/bench.json"
        # About 1 KB, as states and small queues are.
        store.documents.update(path, MEMORY, lambda document: document["memory"].update(text="x" * 900))
        size = len(Path(path).read_bytes())

        def edit(document: Document) -> None:
            document["memory"]["count"] = document["memory"].get("count", 0) + 1

        def direct() -> float:
            return _rate(lambda: store.documents.update(path, MEMORY, edit))

        async def await_all() -> None:
            for _ in range(_UPDATES_PER_BLOCK):
                await in_writer(store.documents.update, path, MEMORY, edit)

        def awaited() -> float:
            began = time.perf_counter()
            asyncio.run(await_all())
            return _UPDATES_PER_BLOCK / (time.perf_counter() - began)

        def bare() -> float:
            return _rate(lambda: _bare(folder, b"x" * size))

        bare_rate, direct_rate, awaited_rate = interleaved(_BLOCKS, bare, direct, awaited)
    yardstick = "bare write, fsync, rename, fsync folder"
    found = [
        at_least("durable document update, direct", direct_rate, "updates/s", 0.7, yardstick, bare_rate),
        at_least("durable document update, awaited", awaited_rate, "updates/s", 0.6, yardstick, bare_rate),
    ]
    if bare_rate > BARE_MAX_PER_S:  # flushing is free here: the ratio says nothing about disks
        found = [dataclasses.replace(figure, ok=None, bar="n/a") for figure in found]
    return found


def _rate(step: object) -> float:
    assert callable(step)
    began = time.perf_counter()
    for _ in range(_UPDATES_PER_BLOCK):
        step()
    return _UPDATES_PER_BLOCK / (time.perf_counter() - began)


def _bare(folder: str, data: bytes) -> None:
    temporary, path = f"{folder}/.bare.tmp", f"{folder}/bare"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(temporary, path)
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
