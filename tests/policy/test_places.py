from __future__ import annotations

import pytest

from mesh.models.running import Place
from mesh.policy.places import places_max, why_wait


def place(run: str, writes: str | None = None) -> Place:
    return Place(run=run, agent=f"agent-{run}", title=f"task {run}", writes=writes, pid=1, started=1.0, boot_id="b")


A, B, C = place("a"), place("b"), place("c")
IN_REPO, ALSO_IN_REPO = place("w", "/repo"), place("x", "/repo")


@pytest.mark.parametrize(
    ("limit", "running", "available_mb", "expected"),
    [
        (None, 0, 24_000, 16),
        (None, 0, 2_900, 1),
        (None, 0, 3_000, 2),
        (None, 0, 200, 1),  # one always: or nothing would ever get done
        (None, 2, 1_600, 3),  # what runs has its memory already
        (None, 2, 100, 2),
        (5, 0, 100, 5),  # who sets a limit knows why
        (1, 3, 64_000, 1),
    ],
)
def test_how_many_places_there_are(limit: int | None, running: int, available_mb: float, expected: int) -> None:
    assert places_max(limit, running, available_mb, 1500) == expected


@pytest.mark.parametrize(
    ("ask", "taken", "earlier", "places", "says"),
    [
        (A, [], [], 1, None),
        (A, [B], [], 2, None),
        (A, [B], [], 1, "all 1 places for CLI programs are taken: agent-b (task b)"),
        (A, [B], [C], 2, "1 wait before it"),  # the free place is for who has waited longer
        (A, [B], [C], 3, None),
        (ALSO_IN_REPO, [IN_REPO], [], 9, "/repo is being worked in by agent-w (task w)"),
        (A, [IN_REPO], [ALSO_IN_REPO], 2, None),  # the one before waits for its checkout, not for a place
    ],
)
def test_who_may_start(ask: Place, taken: list[Place], earlier: list[Place], places: int, says: str | None) -> None:
    why = why_wait(ask, taken, earlier, places)
    assert (why is None) if says is None else (why is not None and says in why), why
