"""What becomes of a message by its age, and the notice of its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mesh import clock
from mesh.limits import DEFAULT
from mesh.models import DeliveryState, Message, payload_problems
from mesh.policy.mail import Fate, Judgement, Waiting, attempts_left, judge, notice_of_end
from tests.policy.facts import AT

NOW = clock.parse(AT)
PAST, FUTURE = clock.iso(NOW - timedelta(seconds=1)), clock.iso(NOW + timedelta(seconds=1))
D = DeliveryState
F = Fate


def a_message(**fields: Any) -> Message:
    given = {"id": "m1", "from": "ada", "to": "bob", "timestamp": PAST, "type": "note", "payload": {}}
    return Message.model_validate({**given, **fields})


URGENT, LOW = {"priority": "urgent"}, {"priority": "low"}
ACK_DUE, ACK_LATER = {"requiresAck": True, "ackBy": AT}, {"requiresAck": True, "ackBy": FUTURE}

#: the message, its age in minutes, whether it was delivered → its fate, and why
FATES: list[tuple[dict[str, Any], float, bool, Fate, str]] = [
    ({}, 0, False, F.KEEP, "it has just come"),
    ({}, 59.9, True, F.KEEP, "an hour isn't over"),
    ({}, 60, True, F.STALE, "an hour is over"),
    ({}, 60, False, F.STALE, "taken or not: nobody acked"),
    (LOW, 60, False, F.STALE, "low is treated as normal"),
    ({"priority": "high"}, 60, False, F.STALE, "and high too"),
    ({"priority": "high"}, 5, False, F.KEEP, "the short limit is for urgent ones"),
    (URGENT, 4.9, False, F.KEEP, "five minutes aren't over"),
    (URGENT, 5, False, F.TO_HUMAN, "five minutes are over"),
    (URGENT, 5, True, F.TO_HUMAN, "taken or not: nobody acked"),
    (URGENT, 1e6, True, F.TO_HUMAN, "it never becomes merely stale"),
    ({**URGENT, "type": "ack"}, 5, False, F.KEEP, "no person is called for an ack"),
    ({**URGENT, "type": "ack"}, 60, False, F.STALE, "it ages as any other"),
    ({**URGENT, "type": "error"}, 59.9, True, F.KEEP, "nor for an error"),
    ({**URGENT, "type": "error"}, 60, True, F.STALE, "as above"),
    ({"expiresAt": FUTURE}, 1, False, F.KEEP, "not yet expired"),
    ({"expiresAt": FUTURE}, 60, False, F.STALE, "before it expires, its age counts"),
    ({**URGENT, "expiresAt": FUTURE}, 5, False, F.TO_HUMAN, "as above"),
    ({"expiresAt": AT}, 0, False, F.EXPIRE, "expired at this very moment"),
    ({"expiresAt": PAST}, 1e6, False, F.EXPIRE, "expiry comes before age"),
    ({**URGENT, "expiresAt": PAST}, 5, False, F.EXPIRE, "also of an urgent one"),
    ({"expiresAt": PAST, "type": "ack"}, 0, False, F.EXPIRE, "also of an ack"),
    ({**ACK_DUE, "expiresAt": PAST}, 0, False, F.EXPIRE, "and before an overdue ack"),
    ({"expiresAt": PAST}, 1, True, F.KEEP, "who has it may still answer"),
    ({"expiresAt": PAST}, 60, True, F.STALE, "and then its age counts"),
    ({**URGENT, "expiresAt": PAST}, 5, True, F.TO_HUMAN, "as above"),
    (ACK_DUE, 0, True, F.STALE, "an ack that is overdue: at once as if it were old"),
    (ACK_DUE, 0, False, F.STALE, "taken or not"),
    ({**URGENT, **ACK_DUE}, 0, True, F.TO_HUMAN, "as above, urgent"),
    ({**URGENT, **ACK_DUE, "type": "error"}, 0, True, F.STALE, "still no person for an error"),
    (ACK_LATER, 1, True, F.KEEP, "the ack isn't due yet"),
    (ACK_LATER, 60, True, F.STALE, "a late due date doesn't stretch the age"),
    ({**ACK_DUE, "requiresAck": False}, 1, True, F.KEEP, "no ack is due that nobody asked for"),
    ({"requiresAck": True}, 1, True, F.KEEP, "no date, no due date"),
]


@pytest.mark.parametrize(("fields", "age_min", "delivered", "fate", "why"), FATES)
def test_fates(fields: dict[str, Any], age_min: float, delivered: bool, fate: Fate, why: str) -> None:
    judgement = judge(Waiting(a_message(**fields), age_min, delivered, shown=False), NOW, DEFAULT)
    assert judgement.fate is fate, why
    assert judgement.reason, "every decision says why"


@pytest.mark.parametrize(
    ("key", "fields", "age_min", "fate"),
    [
        ("urgentUnackedMin", URGENT, 7, F.KEEP),
        ("urgentUnackedMin", URGENT, 8, F.TO_HUMAN),
        ("staleUnackedMin", {}, 7, F.KEEP),
        ("staleUnackedMin", {}, 8, F.STALE),
    ],
)
def test_ages_are_limits(key: str, fields: dict[str, Any], age_min: float, fate: Fate) -> None:
    limits = DEFAULT.with_overrides({key: 8})
    assert judge(Waiting(a_message(**fields), age_min, True, True), NOW, limits).fate is fate


@pytest.mark.parametrize(
    ("fields", "delivered", "shown", "expected"),
    [
        ({"expiresAt": PAST}, False, False, Judgement(F.EXPIRE, f"it expired at {PAST}, before bob took it")),
        ({}, False, False, Judgement(F.STALE, "not acked after 61 min (of 60); bob has not taken it")),
        (URGENT, True, False, Judgement(F.TO_HUMAN, "not acked after 61 min (of 5); bob has taken it")),
        (
            {"expiresAt": PAST, **ACK_DUE},
            True,
            True,
            Judgement(
                F.STALE,
                f"not acked after 61 min (of 60); bob was shown it; its ack was due by {AT}; "
                f"it expired at {PAST}, after bob had taken it",
            ),
        ),
    ],
)
def test_reasons(fields: dict[str, Any], delivered: bool, shown: bool, expected: Judgement) -> None:
    assert judge(Waiting(a_message(**fields), 61, delivered, shown), NOW, DEFAULT) == expected


# -- the notice


def test_the_notice_of_an_end() -> None:
    message = a_message(priority="urgent", requiresAck=True, threadId="t1", type="fix_ci_failure")
    notice = notice_of_end(message, D.EXPIRED, "nobody took it", AT)
    assert notice is not None
    assert notice.dump() == {
        **a_message().dump(),
        "id": "m1-expired",
        "from": "bob",
        "to": "ada",
        "timestamp": AT,
        "type": "error",
        "priority": "urgent",
        "replyTo": "m1",
        "threadId": "t1",
        "via": "mesh",
        "payload": {
            "text": "Your mail m1 (fix_ci_failure) to bob is expired: nobody took it.",
            "messageId": "m1",
            "state": "expired",
        },
    }
    assert payload_problems(notice.type, notice.payload) == []
    assert notice_of_end(message, D.EXPIRED, "nobody took it", AT) == notice, "the same again is the same notice"


def test_a_message_without_a_thread_began_one() -> None:
    notice = notice_of_end(a_message(), D.DEAD, "three crashes", AT)
    assert notice is not None and notice.thread_id == "m1" and notice.id == "m1-dead"


@pytest.mark.parametrize(
    ("fields", "expected", "why"),
    [
        ({}, True, "a message"),
        ({"via": "operator"}, True, "sent by the operator in an agent's name"),
        ({"from": "human"}, True, "a person is told too"),
        ({"type": "ack"}, False, "nobody waits for what becomes of an ack"),
        ({"type": "error"}, False, "no error about an error"),
        ({"via": "mesh"}, False, "the mesh needs no letter to itself"),
    ],
)
def test_who_gets_a_notice(fields: dict[str, Any], expected: bool, why: str) -> None:
    assert (notice_of_end(a_message(**fields), D.DEAD, "x", AT) is not None) is expected, why


def test_no_notice_answers_a_notice() -> None:
    notice = notice_of_end(a_message(), D.EXPIRED, "x", AT)
    assert notice is not None and notice_of_end(notice, D.EXPIRED, "x", AT) is None


@pytest.mark.parametrize("length", [119, 120, 121, 127, 128])
def test_the_notice_of_a_long_id_has_an_id_of_its_own(length: int) -> None:
    ids = ["i" * (length - 1) + last for last in "ab"]
    notices = [notice_of_end(a_message(id=id_), state, "x", AT) for id_ in ids for state in (D.EXPIRED, D.DEAD)]
    of_notices = {notice.id for notice in notices if notice}
    assert len(of_notices) == 4 and not of_notices & set(ids)
    assert max(map(len, of_notices)) <= 128


@pytest.mark.parametrize(
    ("attempt", "most", "expected"), [(1, 3, True), (3, 3, True), (4, 3, False), (1, 1, True), (2, 1, False)]
)
def test_attempts_are_a_limit(attempt: int, most: int, expected: bool) -> None:
    assert attempts_left(attempt, DEFAULT.with_overrides({"mailAttemptsMax": most})) is expected
