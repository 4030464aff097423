"""Sending, against the bare durable sequence, a Maildir, a locked JSON array: alone, many, and twenty at once."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import itertools
import json
import mailbox
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.mail_root import a_message, bare_write, flush_folder, mail_root
from benchmarks.measure import BARE_MAX_PER_S, Figure, at_least, exactly, interleaved
from mesh import Mailbox
from mesh.store import Store

_PER_BLOCK, _BLOCKS = 100, 9
_LOAD = 1000
_SENDERS, _EACH = 20, 75
_BARE = "bare write, fsync, rename, fsync folder"


def figures() -> list[Figure]:
    return [*_alone(), *_at_once()]


def _rate(step: Callable[[], object], count: int = _PER_BLOCK) -> float:
    began = time.perf_counter()
    for _ in range(count):
        step()
    return count / (time.perf_counter() - began)


def _alone() -> list[Figure]:
    with mail_root() as root:
        store = Store(root)
        size = len(json.dumps(a_message("a1", "a2").filed(), indent=1))
        folder = f"{root}/bare"
        os.mkdir(folder)
        numbers = itertools.count()
        maildir = mailbox.Maildir(f"{root}/maildir", create=True)

        def bare() -> float:
            return _rate(lambda: bare_write(root, folder, str(next(numbers)), b"x" * size))

        def plain_maildir() -> float:
            def step() -> None:
                maildir.add(b"x" * size)
                flush_folder(f"{root}/maildir/new")

            return _rate(step)

        def direct() -> float:
            made = iter([a_message("a1", "a2") for _ in range(_PER_BLOCK)])
            return _rate(lambda: store.mail.send(next(made)))

        async def send_all(count: int) -> None:
            box = Mailbox(root, "a1")
            for _ in range(count):
                await box.send("a2", type="note", payload={"text": "x" * 700})

        def awaited() -> float:
            began = time.perf_counter()
            asyncio.run(send_all(_PER_BLOCK))
            return _PER_BLOCK / (time.perf_counter() - began)

        async def send_together() -> None:
            box = Mailbox(root, "a1")
            await box.send_many([{"to": "a2", "type": "note", "payload": {"text": "x" * 700}}] * _PER_BLOCK)

        def together() -> float:
            began = time.perf_counter()
            asyncio.run(send_together())
            return _PER_BLOCK / (time.perf_counter() - began)

        rates = interleaved(_BLOCKS, bare, plain_maildir, direct, awaited, together)
        bare_rate, maildir_rate, direct_rate, awaited_rate, together_rate = rates
        began = time.perf_counter()
        asyncio.run(send_all(_LOAD))
        load_s = time.perf_counter() - began
        bare_load_s = _LOAD / bare()
    stdlib = "Maildir of the standard library, folder flush added"
    found = [
        at_least("durable send, awaited", awaited_rate, "messages/s", 0.6, _BARE, bare_rate),
        at_least("durable send, direct call", direct_rate, "messages/s", 0.8, _BARE, bare_rate),
        at_least("durable send, awaited, Maildir", awaited_rate, "messages/s", 0.7, stdlib, maildir_rate),
        at_least("durable send, direct call, Maildir", direct_rate, "messages/s", 0.9, stdlib, maildir_rate),
        at_least("send_many of 100", together_rate, "messages/s", 4.0, "awaited single sends", awaited_rate),
    ]
    if bare_rate > BARE_MAX_PER_S:  # flushing is free here: the ratio says nothing about disks
        found = [dataclasses.replace(figure, ok=None, bar="n/a") for figure in found]
    within = load_s < 2 or load_s <= 1.7 * bare_load_s
    bar = "< 2 s or ≤ 1.7 ×"
    name = "1,000 durable sends, the document's load test"
    found.append(Figure(name, round(load_s, 3), "s", _BARE, round(bare_load_s, 3), load_s / bare_load_s, bar, within))
    return found


# -- twenty senders at once


def _ours(root: str, sender: int, gate: object) -> None:
    store = Store(root)
    _wait(gate)
    for number in range(_EACH):
        store.mail.send(a_message(f"a{sender + 2}", "a1", f"{sender}-{number} " + "x" * 700))


def _bare_writer(root: str, sender: int, gate: object) -> None:
    _wait(gate)
    for number in range(_EACH):
        bare_write(root, f"{root}/bare", f"{sender}-{number}", b"x" * 1000)


def _array_writer(root: str, sender: int, gate: object) -> None:
    """What mailboxes do that keep one JSON array an inbox, done safely: locked and flushed."""
    path = f"{root}/array/inbox.json"
    _wait(gate)
    for number in range(_EACH):
        with open(f"{root}/array/.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            messages = json.loads(Path(path).read_text()) if os.path.exists(path) else []
            messages.append({"from": sender, "number": number, "text": "x" * 700})
            bare_replace(path, json.dumps(messages).encode())


def bare_replace(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(temporary, path)
    flush_folder(os.path.dirname(path))


def _wait(gate: object) -> None:
    gate.wait()  # type: ignore[attr-defined]


def _together(target: Callable[[str, int, object], None], root: str) -> float:
    """Messages a second of twenty processes that begin at the same moment."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(_SENDERS + 1)
    processes = [context.Process(target=target, args=(root, number, gate)) for number in range(_SENDERS)]
    for process in processes:
        process.start()
    gate.wait()
    began = time.perf_counter()
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    return _SENDERS * _EACH / (time.perf_counter() - began)


def _at_once() -> list[Figure]:
    with mail_root(_SENDERS + 1) as root:
        os.mkdir(f"{root}/bare")
        os.mkdir(f"{root}/array")
        bare_rate = _together(_bare_writer, root)
        ours = _together(_ours, root)
        array_rate = _together(_array_writer, root)
        texts = [message.payload["text"].split()[0] for message in Store(root).mail.waiting("a1")]
        expected = {f"{sender}-{number}" for sender in range(_SENDERS) for number in range(_EACH)}
        lost, doubled = len(expected - set(texts)), len(texts) - len(set(texts))
    name = "20 senders at once to one inbox"
    return [
        at_least(name, ours, "messages/s", 0.55, "20 bare writers", bare_rate),
        at_least(f"{name}, array", ours, "messages/s", 5.0, "a locked, flushed JSON array", array_rate),
        exactly(f"{name}, lost or doubled", lost + doubled, "messages", "sent", _SENDERS * _EACH),
    ]
