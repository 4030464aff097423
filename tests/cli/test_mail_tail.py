"""mail tail: choosing, going on from an offset, following; across rotations of the log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from mesh.errors import Invalid
from mesh.store import Store
from mesh.store.event_log import EventLog
from tests.cli.stage import Mesh, refused

KEPT = 3


class Log:
    """Writes numbered events, and rotates."""

    def __init__(self, mesh: Mesh) -> None:
        self.store = Store(str(mesh.root))
        self.log = EventLog(self.store.files, self.store.layout.events)
        self.count = 0

    def write(self, count: int = 1, sender: str = "ada", to: str = "bob") -> None:
        for _ in range(count):
            self.store.journal.event(sender, "mail_sent", number=self.count, **{"from": sender, "to": to})
            self.count += 1

    def rotate(self) -> None:
        assert self.store.journal.rotate(self.store.layout.events, 0, KEPT)


@pytest.fixture
def log(mesh: Mesh) -> Log:
    return Log(mesh)


def tail(mesh: Mesh, *arguments: str) -> list[dict[str, Any]]:
    done = mesh("mail", "tail", "--json", *arguments)
    assert done.status == 0, done.err
    return [json.loads(line) for line in done.lines()]


def numbers(mesh: Mesh, *arguments: str) -> list[int]:
    return [event["number"] for event in tail(mesh, *arguments)]


def test_the_last_events_of_mail(mesh: Mesh, log: Log) -> None:
    assert tail(mesh) == []
    log.write(25)
    log.store.journal.event("ada", "task_added")
    assert numbers(mesh) == list(range(5, 25)) and numbers(mesh, "--limit", "2") == [23, 24]
    assert numbers(mesh, "--limit", "0") == []
    log.rotate()
    log.write()
    assert numbers(mesh, "--limit", "3") == [23, 24, 25], "the rotated part is looked at too"


def test_of_one_agent(mesh: Mesh, log: Log) -> None:
    log.write(1, "ada", "bob")
    log.write(1, "bob", "cyd")
    log.store.journal.event("cyd", "mail_rejected", "no mail", file="x.json")
    assert numbers(mesh, "ada") == [0] and numbers(mesh, "bob") == [0, 1]
    assert [event["event"] for event in tail(mesh, "cyd")] == ["mail_sent", "mail_rejected"]
    assert len(tail(mesh, "--all")) == len(tail(mesh)) == 3
    lines = mesh("mail", "tail").lines()
    assert "ada to bob" in lines[0] and "rejected" in lines[2] and "no mail" in lines[2] and "file=x.json" in lines[2]


def test_since_a_time(mesh: Mesh, log: Log) -> None:
    log.write(2)
    time.sleep(0.005)
    at = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"
    time.sleep(0.005)
    log.write(2)
    log.rotate()
    log.write(1)
    assert numbers(mesh, "--since", stamp) == [2, 3, 4]
    assert numbers(mesh, "--since", stamp, "--limit", "2") == [2, 3]
    assert numbers(mesh, "--since", "2020-01-01") == numbers(mesh, "--since", "0") == [0, 1, 2, 3, 4]
    assert numbers(mesh, "--since", "2999-01-01") == []


@pytest.mark.parametrize("rotate_at", [0, 1, 3, 4])
def test_resumed_by_offset_each_event_comes_once(mesh: Mesh, log: Log, rotate_at: int) -> None:
    seen: list[int] = []
    offset = "0"
    for step in range(5):
        log.write(3)
        if step == rotate_at:
            log.rotate()
            log.write(2)
        while events := tail(mesh, "--since", offset, "--limit", "2"):
            seen += [event["number"] for event in events]
            offset = events[-1]["offset"]
    assert seen == list(range(log.count))


def test_every_offset_goes_on_with_the_next_event(mesh: Mesh, log: Log) -> None:
    for _ in range(3):
        log.write(2)
        log.store.journal.event("ada", "other")
        log.rotate()
    log.write(2)
    for event in tail(mesh, "--since", "0"):
        assert numbers(mesh, "--since", event["offset"]) == list(range(event["number"] + 1, 8))


def test_an_offset_that_is_rotated_away_is_told(mesh: Mesh, log: Log) -> None:
    log.write()
    [first] = tail(mesh)
    for _ in range(KEPT + 1):
        log.rotate()
        log.write()
    done = mesh("mail", "tail", "--json", "--since", first["offset"])
    assert done.status == 0 and "rotated away" in done.err
    assert [json.loads(line)["number"] for line in done.lines()] == [1, 2, 3, 4]


def test_an_offset_inside_a_line_is_refused(mesh: Mesh, log: Log) -> None:
    log.write()
    part, _, byte = tail(mesh)[0]["offset"].partition(":")
    for wrong in (int(byte) - 1, int(byte) + 1):
        assert "no line ends there" in refused(mesh("mail", "tail", "--since", f"{part}:{wrong}"))
    with pytest.raises(Invalid):
        log.log.read("nonsense")


def test_damaged_and_unfinished_lines(mesh: Mesh, log: Log) -> None:
    log.write()
    events = mesh.root / "system/events.log"
    with events.open("ab") as file:
        file.write(b'{"half\n[]\r{}\n{"event": "mail_sent", "number": 1')
    assert numbers(mesh, "--since", "0") == [0]
    [first] = tail(mesh)
    with events.open("ab") as file:
        file.write(b', "from": "ada", "to": "bob"}\n')
    assert numbers(mesh, "--since", first["offset"]) == [1]


def test_rotation_while_it_reads(mesh: Mesh, log: Log) -> None:
    """Against a log that is written and rotated all the time: all once, in order."""
    stop = threading.Event()

    def write() -> None:
        for _ in range(KEPT):
            log.write(200)
            log.rotate()
        log.write(200)
        stop.set()

    writer = threading.Thread(target=write)
    reader = EventLog(Store(str(mesh.root)).files, str(mesh.root / "system/events.log"))
    writer.start()
    seen: list[int] = []
    end = None
    while True:
        last = stop.is_set()
        reading = reader.read(end)
        assert not reading.gap
        seen += [logged.event["number"] for logged in reading.events]
        end = reading.end
        if last:
            break
    writer.join()
    assert seen == list(range(log.count))


class Follower:
    """`mesh mail tail -f` as a process."""

    def __init__(self, mesh: Mesh, *arguments: str) -> None:
        environment = {**os.environ, "MESH_ROOT": str(mesh.root)}
        command = [sys.executable, "-m", "mesh", "mail", "tail", "-f", "--json", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.seen: list[int] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(json.loads(line)["number"])

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not done() and time.monotonic() < deadline:
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self._thread.join(20)
        _, err = self.process.communicate(timeout=20)
        assert "Traceback" not in err
        return self.process.returncode


def test_follow_survives_rotation(mesh: Mesh, log: Log) -> None:
    log.write(2)
    follower = Follower(mesh)
    try:
        follower.wait(lambda: len(follower.seen) == 2)
        for _ in range(KEPT + 2):
            log.write(3)
            log.rotate()
            log.write(2)
            follower.wait(lambda: len(follower.seen) == log.count)
    finally:
        status = follower.stop()
    assert follower.seen == list(range(log.count)) and status == 130


def test_follow_ends_with_its_limit(mesh: Mesh, log: Log) -> None:
    log.write(1)
    follower = Follower(mesh, "--since", "0", "--limit", "3")
    follower.wait(lambda: len(follower.seen) == 1)
    log.write(5)
    assert follower.process.wait(20) == 0
    follower.stop()
    assert follower.seen == [0, 1, 2]
