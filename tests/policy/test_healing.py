"""How often a crashed agent is started again."""

from __future__ import annotations

import pytest

from mesh.limits import DEFAULT
from mesh.policy.healing import EXIT_PORT_TAKEN, EXIT_REFUSED, EXIT_UNAVAILABLE, after_exit

NOW = 1000.0


@pytest.mark.parametrize(
    ("status", "earlier", "delay", "reason", "why"),
    [
        (1, [], 0.0, "ended with status 1", "a first crash: at once"),
        (-9, [], 0.0, "ended with status -9", "killed: at once too"),
        (1, [NOW - 5], 0.5, "status 1", "a second within the window: after a pause"),
        (1, [NOW - 20, NOW - 5], 1.0, "status 1", "a third: after twice the pause"),
        (1, [NOW - 30, NOW - 20, NOW - 5], None, "crashed 4 times within 60 s", "more than allowed: left down"),
        (1, [NOW - 90, NOW - 80, NOW - 70], 0.0, "status 1", "crashes of long ago don't count"),
        (1, [NOW - 90, NOW - 20, NOW - 5], 1.0, "status 1", "only those within the window do"),
        (1, [NOW - 60, NOW - 20, NOW - 5], None, "crashed 4 times", "the window's edge belongs to it"),
        (0, [], 0.0, "asked to restart", "ended as asked"),
        (EXIT_PORT_TAKEN, [], None, "port is taken", "trying again can't help while another listens"),
        (EXIT_REFUSED, [], None, "refused to start", "nor while its files are refused"),
    ],
)
def test_after_exit(status: int, earlier: list[float], delay: float | None, reason: str, why: str) -> None:
    found = after_exit(status, earlier, NOW, DEFAULT)
    assert found.delay_s == delay, why
    assert reason in found.reason


def test_the_intensity_is_a_limit() -> None:
    limits = DEFAULT.with_overrides({"restartsMax": 1, "restartsWindowS": 10, "restartBackoffS": 2})
    assert after_exit(1, [NOW - 5], NOW, limits).delay_s is None
    assert after_exit(1, [NOW - 11], NOW, limits).delay_s == 0.0
    none = DEFAULT.with_overrides({"restartsMax": 0})
    assert after_exit(1, [], NOW, none).delay_s is None


def test_crashes_back_to_back_never_exceed_the_intensity() -> None:
    """I7: an agent that dies at once is started three times in a minute at most, then left to a person."""
    now, restarts = NOW, []
    while (found := after_exit(1, restarts, now, DEFAULT)).delay_s is not None:
        now += found.delay_s
        restarts.append(now)
        assert len(restarts) <= DEFAULT.restarts_max
    assert len(restarts) == DEFAULT.restarts_max


def test_files_that_cannot_be_used_now_are_waited_for_as_long_as_it_takes() -> None:
    """A full disk is no crash: no restart is used up, and it is never given up."""
    found = after_exit(EXIT_UNAVAILABLE, [NOW - 1] * 50, NOW, DEFAULT)
    assert (found.delay_s, found.counts) == (DEFAULT.unavailable_retry_s, False)
