"""The mail store's calls that change something, for the suites of crash states, failing I/O and fencing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mesh.errors import StoreUnavailable
from mesh.models import HUMAN, DeliveryState
from mesh.store import Store
from mesh.store.mail.claims import Holder
from mesh.store.mailbox import Again, Posted
from tests.faults.mail_world import (
    counted,
    dead_claim,
    mail_facts,
    message,
    refuse,
    waiting_name,
)
from tests.faults.scenarios import Facts, Scenario

M1 = "M1"


def send(store: Store, id_: str = M1, again: Again = Again.NEVER, **fields: Any) -> None:
    store.mail.send(message(id_, **fields), again=again)


def acked(store: Store) -> None:
    send(store, again=Again.BY_ID)
    store.mail.ack("coder", M1)


def raise_errors(posted: list[Posted]) -> None:
    for entry in posted:
        if entry.error is not None:
            raise entry.error


def queued(store: Store, *ids: str, again: Again = Again.NEVER) -> None:
    admit, store.mail.sending.admit = store.mail.sending.admit, refuse
    posted = store.mail.post([message(id_) for id_ in ids or (M1,)], again=again, queue=True)
    store.mail.sending.admit = admit
    raise_errors(posted)


def refused(store: Store) -> None:
    store.mail.sending.admit = refuse
    (posted,) = store.mail.post([message(M1)], again=Again.BY_ID)
    assert posted.error is not None or posted.duplicate


def post_batch(store: Store) -> None:
    letters = [message("M1"), message("M2", "devops"), message("M3"), message("M4", "devops")]
    raise_errors(store.mail.post(letters))


def post_queued(store: Store) -> None:
    raise_errors(store.mail.post_queued("sales"))
    if store.mail.sending.queued("sales"):
        raise StoreUnavailable("some could not be tried")


def claim(store: Store, *, kept_too: bool = False) -> None:
    store.mail.receiving.claim("coder", waiting_name(store, M1), kept_too=kept_too)


def claimed(store: Store) -> None:
    send(store)
    claim(store)


def taken_over(attempt: int, store: Store) -> None:
    send(store)
    dead_claim(store, M1, attempt)


def keep(store: Store) -> None:
    store.mail.receiving.keep("coder", waiting_name(store, M1), shown=True)


def release(store: Store) -> None:
    name = waiting_name(store, M1)
    claim = store.mail.receiving.look("coder", name)
    assert claim is not None
    store.mail.receiving.holder = Holder(claim.pid, claim.started, claim.boot_id, claim.incarnation, claim.token)
    store.mail.receiving.release("coder", name)


def end(state: DeliveryState, store: Store) -> None:
    name = waiting_name(store, M1)
    if state is DeliveryState.REJECTED:
        store.mail.reject("coder", name, "no good")
    else:
        store.mail.bury("coder", name, message(M1), state, "no good")


def died(store: Store) -> None:
    send(store)
    dead_claim(store, M1, 3)
    end(DeliveryState.DEAD, store)


def revive(store: Store) -> None:
    (name,) = [name for name in store.files.names(store.layout.mail("coder").dead) if "reason" not in name]
    store.mail.revive("coder", name, message(M1))


def miscounted(store: Store) -> None:
    send(store)
    with store.mail.counting.hold(store.layout.mail("coder")) as count:
        count.waiting = 7
        count.save()


def recount(store: Store) -> None:
    store.mail.counting.recount(store.layout.mail("coder"))


def count(store: Store) -> Facts:
    return {"count": counted(store, "coder")}


def answered(store: Store) -> Facts:
    """Acked and answered are one fact: whoever finds the one makes up for the other."""
    facts = mail_facts(M1, "M1-ack")(store)
    return {"both": tuple(facts.values())}


def copy_state(store: Store) -> Facts:
    (found,) = store.mail.tracing.messages(store.layout.mail("sales").outbox)
    return {"state": found[1].delivery and found[1].delivery.state}


def bring_up_to_date(store: Store) -> None:
    (name,) = store.files.names(store.layout.mail("sales").outbox)[:1]
    store.mail.tracing.bring_up_to_date("sales", name)


def mail(name: str, call: Callable[[Store], Any], *ids: str, **more: Any) -> Scenario:
    """A scenario that looks at where these messages (M1, if none is named) lie."""
    ids = ids or (M1,)
    return Scenario(f"mail: {name}", call, more.pop("observe", mail_facts(*ids)), mail=ids, **more)


SENDS = [
    mail("send", send, agent="sales", states_min=100),
    mail("send as outsider", send, states_min=100),
    mail("send as human", partial(send, sender=HUMAN), states_min=100),
    mail("send with own id", partial(send, again=Again.BY_ID), agent="sales", states_min=150),
    mail("send a batch", post_batch, "M1", "M2", "M3", "M4", agent="sales", states_min=400),
    mail("tell", lambda store: store.mail.tell(message(M1)), agent="sales", states_min=100),
    mail(
        "tell again",
        lambda store: store.mail.tell(message(M1)),
        prepare=acked,
        agent="sales",
        made_up_for=True,
        states_min=20,
    ),
    *[
        mail(
            f"send again {name}",
            partial(send, again=Again.BY_ID, timestamp="2026-02-16T20:46:00.000Z"),
            prepare=prepare,
            agent="sales",
            made_up_for=True,
            states_min=20,
        )
        for name, prepare in (
            ("what waits", partial(send, again=Again.BY_ID)),
            ("what was acked", acked),
            ("what is queued", partial(queued, again=Again.BY_ID)),
        )
    ],
    mail("send refused", refused, agent="sales", made_up_for=True, states_min=20),
    mail("send refused again", refused, prepare=acked, agent="sales", made_up_for=True, states_min=20),
    mail("queue", queued, agent="sales", states_min=100),
    mail("post queued", post_queued, prepare=queued, agent="sales", states_min=100),
    mail(
        "post two queued",
        post_queued,
        "M1",
        "M2",
        prepare=lambda store: queued(store, "M1", "M2"),
        agent="sales",
        states_min=200,
    ),
]
WITH_CLAIMS: dict[str, Any] = {"observe": mail_facts(M1, claims_too=True), "agent": "coder"}
#: The first attempt's claim isn't flushed: a power cut may take it, or leave half of it.
LOSSY = {"observe": mail_facts(M1, claims_too=True, perhaps=True), "agent": "coder", "lossy": True}
RECEIVES = [
    mail("claim", claim, prepare=send, states_min=20, **LOSSY),
    *[
        mail(f"claim, attempt {n}", claim, prepare=partial(taken_over, n - 1), states_min=30, **WITH_CLAIMS)
        for n in (2, 4)
    ],
    mail("keep", keep, prepare=claimed, states_min=20, **LOSSY),
    mail("release", release, prepare=claimed, states_min=4, **LOSSY),
    mail("ack", lambda store: store.mail.ack("coder", M1), prepare=claimed, agent="coder", states_min=100),
    mail("ack as outsider", lambda store: store.mail.ack("coder", M1), prepare=send, states_min=100),
    mail(
        "ack and answer",
        lambda store: store.mail.ack("coder", M1, "done"),
        prepare=partial(send, requiresAck=True),
        observe=answered,
        agent="coder",
        states_min=300,
    ),
    mail(
        "reply",
        lambda store: store.mail.send(message("R1", "sales", "coder", replyTo=M1)),
        M1,
        "R1",
        prepare=send,
        agent="coder",
        states_min=300,
        lossy=True,  # the reply is sent, whether or not what it replies to could be closed
    ),
    *[
        mail(f"bury, {state}", partial(end, state), prepare=claimed, agent="coder", states_min=100)
        for state in (DeliveryState.DEAD, DeliveryState.EXPIRED, DeliveryState.REJECTED)
    ],
    mail("revive", revive, prepare=died, agent="coder", states_min=100),
    mail("recount", recount, prepare=miscounted, observe=count, made_up_for=True, states_min=5),
    mail(
        "bring up to date",
        bring_up_to_date,
        prepare=acked,
        observe=copy_state,
        agent="sales",
        lossy=True,
        states_min=15,
    ),
]
MAIL_SCENARIOS = [*SENDS, *RECEIVES]
