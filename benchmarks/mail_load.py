"""Mail under load: latency to a handler, many agents at once, mixed operations, a large inbox. Real processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from typing import Any

from benchmarks.mail_root import a_message, bare_write, mail_root
from benchmarks.measure import Figure, at_most, exactly, quantile
from mesh import Mailbox
from mesh.models import Message
from mesh.store import Store

_LATENCY_COUNT, _LATENCY_PAUSE_S = 300, 0.02
_BURST_AGENTS, _BURST_EACH, _BURST_ROUNDS, _BURST_PROCESSES = 30, 5, 5, 6
_MIXED_S, _MIXED_PROCESSES, _MIXED_AGENTS = 30.0, 6, 30
_STEADY_AGENTS, _STEADY_PER_S, _STEADY_S = 100, 10.0, 60.0
_LARGE, _NEXT = 10_000, 20
#: One durable write of this machine, so that the figures can be judged.
_WRITE = "one bare durable write"


def figures() -> list[Figure]:
    return [*_latency(), *_burst(), *_mixed(), *_steady(), *_large_inbox()]


def _write_ms(root: str) -> float:
    began = time.perf_counter()
    for number in range(50):
        bare_write(root, root, f"bare-{number}-{began}", b"x" * 1000)
    return (time.perf_counter() - began) / 50 * 1000


def _spawn(target: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


# -- from send to the handler


def _handler_process(root: str, queue: Any) -> None:
    async def serve() -> None:
        box = Mailbox(root, "a2")

        async def handle(message: Message) -> None:
            queue.put(time.monotonic() - message.payload["at"])

        serving = asyncio.create_task(box.serve(handle))
        await asyncio.sleep(0.5)
        queue.put("ready")
        await serving

    asyncio.run(serve())


def _latency() -> list[Figure]:
    with mail_root() as root:
        queue = multiprocessing.get_context("spawn").Queue()
        process = _spawn(_handler_process, root, queue)
        assert queue.get(timeout=30) == "ready"
        write_ms = _write_ms(root)

        async def send() -> None:
            box = Mailbox(root, "a1")
            for _ in range(_LATENCY_COUNT):
                await box.send("a2", type="note", payload={"text": "x" * 700, "at": time.monotonic()})
                await asyncio.sleep(_LATENCY_PAUSE_S)

        asyncio.run(send())
        taken_ms = [queue.get(timeout=30) * 1000 for _ in range(_LATENCY_COUNT)]
        process.terminate()
        process.join()
    name = "send to handler, idle agent"
    return [
        at_most(f"{name}, p50", quantile(taken_ms, 0.5), "ms", 2, _WRITE, write_ms),
        at_most(f"{name}, p99", quantile(taken_ms, 0.99), "ms", 5, _WRITE, write_ms),
    ]


# -- everybody at once


async def _serve_all(boxes: list[Mailbox]) -> list[asyncio.Task[None]]:
    async def handle(message: Message) -> None:
        return None

    serving = [asyncio.create_task(box.serve(handle)) for box in boxes]
    await asyncio.sleep(0.5)
    return serving


async def _send_and_wait(box: Mailbox, to: str, timeout_s: float = 60.0) -> float:
    """Seconds from the send to the ack."""
    began = time.perf_counter()
    id_ = await box.send(to, type="note", payload={"text": "x" * 700})
    assert await box.wait_for_ack(id_, timeout_s=timeout_s), id_
    return time.perf_counter() - began


async def _close_all(boxes: list[Mailbox], serving: list[asyncio.Task[None]]) -> None:
    for box in boxes:
        await box.close()
    await asyncio.gather(*serving)


def _burst_process(root: str, numbers: list[int], gate: Any, queue: Any) -> None:
    """Some of the agents; each sends to the next ones, all at the same moment. Their times in ms."""

    async def burst() -> None:
        boxes = {number: Mailbox(root, f"a{number + 1}") for number in numbers}
        serving = await _serve_all(list(boxes.values()))
        taken: list[float] = []
        for _ in range(_BURST_ROUNDS):
            await asyncio.to_thread(gate.wait)
            sends = [
                _send_and_wait(box, f"a{(number + offset) % _BURST_AGENTS + 1}")
                for number, box in boxes.items()
                for offset in range(1, _BURST_EACH + 1)
            ]
            taken += await asyncio.gather(*sends)
        await asyncio.to_thread(gate.wait)
        queue.put([seconds * 1000 for seconds in taken])
        await _close_all(list(boxes.values()), serving)

    asyncio.run(burst())


def _burst() -> list[Figure]:
    with mail_root(_BURST_AGENTS) as root:
        write_ms = _write_ms(root)
        context = multiprocessing.get_context("spawn")
        gate, queue = context.Barrier(_BURST_PROCESSES), context.Queue()
        for number in range(_BURST_PROCESSES):
            _spawn(_burst_process, root, list(range(_BURST_AGENTS))[number::_BURST_PROCESSES], gate, queue)
        taken_ms = [ms for _ in range(_BURST_PROCESSES) for ms in queue.get(timeout=120)]
    p99 = quantile(taken_ms, 0.99)
    return [at_most("30 agents × 5 messages at once, send to ack, p99", p99, "ms", 250, _WRITE, write_ms)]


# -- sending, listing and acknowledging


def _mixed_process(root: str, agents: list[str], everybody: list[str], seed: int, queue: Any) -> None:
    """Each agent sends, lists and acks as fast as it can; (operations, their times in ms)."""
    taken_ms: list[float] = []

    async def work(agent: str, chance: random.Random, until_s: float) -> None:
        box = Mailbox(root, agent)
        while time.monotonic() < until_s:
            began = time.perf_counter()
            if chance.random() < 0.4:
                await box.send(chance.choice(everybody), type="note", payload={"text": "x" * 700})
            else:
                waiting = await box.receive(limit=5)
                taken_ms.append((time.perf_counter() - began) * 1000)
                began = time.perf_counter()
                if not waiting:
                    await asyncio.sleep(0)
                    continue
                await box.ack(waiting[0].id)
            taken_ms.append((time.perf_counter() - began) * 1000)

    async def all_of_them() -> None:
        until_s = time.monotonic() + _MIXED_S
        await asyncio.gather(*(work(agent, random.Random(f"{seed}-{agent}"), until_s) for agent in agents))

    asyncio.run(all_of_them())
    queue.put(taken_ms)


def _mixed() -> list[Figure]:
    with mail_root(_MIXED_AGENTS) as root:
        write_ms = _write_ms(root)
        agents = [f"a{number}" for number in range(1, _MIXED_AGENTS + 1)]
        queue = multiprocessing.get_context("spawn").Queue()
        for number in range(_MIXED_PROCESSES):
            _spawn(_mixed_process, root, agents[number::_MIXED_PROCESSES], agents, number, queue)
        taken_ms = [ms for _ in range(_MIXED_PROCESSES) for ms in queue.get(timeout=_MIXED_S + 60)]
    name = "30 s of send, list and ack by 30 agents"
    rate = len(taken_ms) / _MIXED_S
    return [
        Figure(name, round(rate, 1), "operations/s", _WRITE, round(write_ms, 4), None, "≥ 600", rate >= 600),
        at_most(f"{name}, p99", quantile(taken_ms, 0.99), "ms", 100, _WRITE, write_ms),
    ]


# -- a steady stream


def _steady() -> list[Figure]:
    """Ten messages a second, in all, among a hundred agents."""

    async def steady(root: str) -> list[float | BaseException]:
        boxes = [Mailbox(root, f"a{number}") for number in range(1, _STEADY_AGENTS + 1)]
        serving = await _serve_all(boxes)
        chance, sends = random.Random(1), []
        for _ in range(int(_STEADY_S * _STEADY_PER_S)):
            to = f"a{chance.randrange(_STEADY_AGENTS) + 1}"
            sends.append(asyncio.create_task(_send_and_wait(chance.choice(boxes), to)))
            await asyncio.sleep(1 / _STEADY_PER_S)
        taken = await asyncio.gather(*sends, return_exceptions=True)
        await _close_all(boxes, serving)
        return taken

    with mail_root(_STEADY_AGENTS) as root:
        write_ms = _write_ms(root)
        taken = asyncio.run(steady(root))
    taken_ms = [entry * 1000 for entry in taken if isinstance(entry, float)]
    name = "100 agents, 10 messages/s, 60 s"
    return [
        exactly(f"{name}, lost", len(taken) - len(taken_ms), "messages", "sent", len(taken)),
        at_most(f"{name}, send to ack, p99", quantile(taken_ms, 0.99), "ms", 1000, _WRITE, write_ms),
    ]


# -- a large inbox


def _large_inbox() -> list[Figure]:
    with mail_root() as root:
        store = Store(root)
        for _ in range(_LARGE // 100):
            store.mail.post([a_message("a1", "a2") for _ in range(100)])
        began = time.perf_counter()
        assert len(Store(root).mail.waiting("a2", _NEXT)) == _NEXT
        first_ms = (time.perf_counter() - began) * 1000
        urgent_s = asyncio.run(_overtakes(root))
        began = time.perf_counter()
        names = len(os.listdir(f"{root}/agents/a2/inbox"))
        scan_ms = (time.perf_counter() - began) * 1000
    name = f"the {_NEXT} next of {_LARGE} waiting"
    return [
        at_most(name, first_ms, "ms", 100, f"one look at the names of {names} files", scan_ms),
        at_most("an urgent message among them, handled within", urgent_s * 1000, "ms", 2000, "one scan", scan_ms),
    ]


async def _overtakes(root: str) -> float:
    """Seconds until an urgent message that comes while thousands are being handled is handled."""
    box, sender = Mailbox(root, "a2"), Mailbox(root, "a1")
    handled, busy = asyncio.Event(), asyncio.Event()
    count = 0

    async def handle(message: Message) -> None:
        nonlocal count
        count += 1
        if count == 40:
            busy.set()
        if message.priority == "urgent":
            handled.set()

    serving = asyncio.create_task(box.serve(handle))
    await busy.wait()
    began = time.perf_counter()
    await sender.send("a2", type="note", payload={"text": "now"}, priority="urgent")
    await asyncio.wait_for(handled.wait(), 30)
    taken = time.perf_counter() - began
    await box.close()
    await serving
    return taken
