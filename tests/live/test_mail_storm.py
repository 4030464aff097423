"""T2 for mail: senders and receivers are killed again and again, and no message is lost (I1, I3)."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.store import Store
from mesh.store.setup import initialise
from tests.live.harness import CHECKOUT, PYTHON, until
from tests.live.storm_worker import noted

SENDERS, RECEIVERS = ("s1", "s2", "s3", "s4"), ("r1", "r2")
PAUSES_S = (0.05, 0.6)


class Storm:
    """The processes, and who of them is killed."""

    def __init__(self, folder: Path, per_sender: int) -> None:
        self.root, self.notes, self.per_sender = folder / "root", folder / "notes", per_sender
        (self.notes / "effects").mkdir(parents=True)
        names = [*SENDERS, *RECEIVERS]
        agents = {
            name: {"name": name, "port": 19_000 + index, "responsibilities": ["work"], "buddy": names[index - 1]}
            for index, name in enumerate(names)
        }
        # The cap on waiting mail stays: a full inbox, queues and retries are part of the storm.
        limits = {"messagesPerMinute": None, "mailSweepS": 1.0}
        (self.root / "agents").mkdir(parents=True, mode=0o700)
        registry = {"schemaVersion": 1, "agents": agents, "limits": limits}
        (self.root / "agents/registry.json").write_text(json.dumps(registry))
        initialise(Store(str(self.root)))
        self.processes = {name: self.start(name) for name in names}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        role = "sender" if name in SENDERS else "receiver"
        arguments = [role, str(self.root), str(self.notes), name, ",".join(RECEIVERS), str(self.per_sender)]
        return subprocess.Popen([PYTHON, "-m", "tests.live.storm_worker", *arguments], cwd=CHECKOUT)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()
        self.processes[name] = self.start(name)

    def finished(self) -> set[str]:
        return set(noted(self.notes / "finished"))

    def waiting(self) -> int:
        return sum(
            path.name.endswith(".json") and not path.name.startswith(".")
            for name in RECEIVERS
            for path in (self.root / "agents" / name / "inbox").iterdir()
        )

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix=".live-", dir=CHECKOUT))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize(
    ("kills", "messages"),
    [
        pytest.param(40, 4_000, marks=[pytest.mark.live, pytest.mark.timeout(400)], id="40 kills"),
        pytest.param(200, 20_000, marks=[pytest.mark.soak, pytest.mark.timeout(3000)], id="200 kills"),
    ],
)
def test_no_message_is_lost(folder: Path, kills: int, messages: int) -> None:
    storm = Storm(folder, messages // len(SENDERS))
    chance = random.Random(20261130)
    done = 0
    try:
        while done < kills:
            time.sleep(chance.uniform(*PAUSES_S))
            working = [name for name in SENDERS if name not in storm.finished()]
            storm.kill(chance.choice([*working, *RECEIVERS]))
            done += 1
        until(lambda: len(storm.finished()) == len(SENDERS), 240 if kills < 100 else 2000, "all was sent")
        until(lambda: storm.waiting() == 0, 120, "the inboxes are empty")
        time.sleep(0.5)
    finally:
        storm.end()
    check(storm, kills, messages)


def check(storm: Storm, kills: int, messages: int) -> None:
    expected = {f"{sender}-{number}" for sender in SENDERS for number in range(storm.per_sender)}
    accepted = [id_ for sender in SENDERS for id_ in noted(storm.notes / f"accepted-{sender}")]
    assert set(accepted) == expected and len(expected) == messages
    effects = {path.name for path in (storm.notes / "effects").iterdir()}
    assert effects == expected, f"lost: {sorted(expected - effects)[:5]}"
    deliveries = sum(len(noted(storm.notes / f"delivered-{receiver}")) for receiver in RECEIVERS)
    again = deliveries - messages
    print(f"{kills} kills, {messages} messages: 0 lost, {again} delivered again")
    assert 0 <= again <= kills, "at most one duplicate delivery a kill"
    processed = [
        json.loads(path.read_text())["id"]
        for receiver in RECEIVERS
        for path in (storm.root / "agents" / receiver / "processed").iterdir()
    ]
    assert sorted(processed) == sorted(expected), "each lies in processed/ once"
    store = Store(str(storm.root))
    for receiver in RECEIVERS:
        folders = store.layout.mail(receiver)
        assert store.files.names(folders.dead) == store.files.names(folders.rejected) == []
        assert store.files.names(folders.claims) == []
        assert store.mail.counting.recount(folders) == (0, 0), "the count is right"
    for sender in SENDERS:
        copies = [json.loads(path.read_text()) for path in (storm.root / "agents" / sender / "outbox").glob("*.json")]
        assert {copy["id"] for copy in copies} == {id_ for id_ in expected if id_.startswith(f"{sender}-")}
        for name in sorted(path.name for path in (storm.root / "agents" / sender / "outbox").glob("*.json"))[:50]:
            delivery = store.mail.tracing.bring_up_to_date(sender, name)
            assert delivery is not None and delivery.state == "acked"
