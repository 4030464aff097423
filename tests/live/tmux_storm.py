"""Many messages into sessions that ask questions by themselves, with a person who types and scrolls in each."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from mesh.runners.tmux.doorbell import Doorbell, Pace
from mesh.runners.tmux.screens import State
from tests.live.tmux_sessions import FakeSession, Host, line


@dataclass
class Storm:
    """A session that asks questions by itself, with a person who types and scrolls in it."""

    session: FakeSession
    chance: random.Random
    outcomes: dict[str, list[str]] = field(default_factory=dict)

    async def person(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(2, 7))
            if self.chance.random() < 0.35:
                self.session.host.tmux("copy-mode", "-t", self.session.name)
                await asyncio.sleep(self.chance.uniform(0.2, 1))
                if self.session.host.tmux("display-message", "-p", "-t", self.session.name, "#{pane_in_mode}") != "0\n":
                    self.session.host.tmux("send-keys", "-t", self.session.name, "-X", "cancel")
            elif (await self.session.reading()).state not in (State.DIALOG, State.COPY_MODE):
                # Said to the program itself, so that it can't fall into a question, as a person's eyes would see to.
                for word in ("a ", "person's ", "words"):
                    self.session.order(f"say {word}")
                    await asyncio.sleep(self.chance.uniform(0.02, 0.3))
                await asyncio.sleep(self.chance.uniform(0.3, 1.2))
                self.session.order("clear")

    async def send(self, doorbell: Doorbell, lines: list[str]) -> None:
        for text in lines:
            tries: list[str] = self.outcomes.setdefault(text, [])
            while not tries or tries[-1] == "refused":
                tries.append((await doorbell.ring(text, 20)).outcome)


async def storm(host: Host, folder: Path, count: int, panes: int) -> list[Storm]:
    """`count` messages into `panes` sessions, from two senders each."""
    storms = []
    for number in range(panes):
        options = ("--seed", str(number), "--asks-every-s", "5", "--busy-s", "0.3")
        session = FakeSession(host, f"storm{number}", ("codex", "claude")[number % 2], folder, *options)
        session.start()
        storms.append(Storm(session, random.Random(number)))
    pace = Pace(settle_s=0.15, poll_s=0.2, poll_max_s=0.4)
    senders = []
    for number, one in enumerate(storms):
        await one.session.until(lambda found: found.state is not State.UNKNOWN)
        lines = [line(index) for index in range(number, count, panes)]
        halves = (lines[::2], lines[1::2])
        senders += [one.send(await one.session.doorbell(pace), half) for half in halves]
    people = [asyncio.ensure_future(one.person()) for one in storms]
    await asyncio.gather(*senders)
    for person in people:
        person.cancel()
    await asyncio.gather(*people, return_exceptions=True)
    await asyncio.sleep(1)
    return storms


def judge(storms: list[Storm], count: int) -> None:
    outcomes: Counter[str] = Counter()
    tries = 0
    for one in storms:
        for text, seen in one.outcomes.items():
            outcomes[seen[-1]] += 1
            tries += len(seen)
            # Refused means that nothing of it is left; uncertain, that it came once or not at all.
            times = one.session.got(text)
            assert (times == 1) if seen[-1] == "submitted" else (times <= 1), (text, seen, times)
        assert one.session.events("question_answered") == []
        assert one.session.events("draft_touched") == []
        assert not any(fact["mixed"] for fact in one.session.events("submitted"))
    print(f"{count} messages: {dict(outcomes)} in {tries} tries")
    assert outcomes.total() == count
    assert outcomes["submitted"] >= 0.8 * count, outcomes
