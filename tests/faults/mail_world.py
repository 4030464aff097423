"""Messages for the fault suites, and what of them can be looked at without the store's own eyes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mesh import clock
from mesh.models import HUMAN, InboxFacts, Message, Refusal
from mesh.store import Store
from mesh.store.mail.claims import Claim
from mesh.store.mail.names import is_mail
from tests.fakes import FakeClock
from tests.faults.world import AGENTS

ADDRESSES = (*AGENTS, HUMAN)
#: Where a message may lie; after recovery it lies in one of them.
PLACES = ("inbox", "queued", "processed", "dead", "rejected")
#: No process has it.
NO_PID = 2**22 + 1


def at(seconds: float = 0.0) -> str:
    """A moment after the tests' clock began."""
    time = FakeClock()
    time.advance(seconds)
    return clock.iso(time.wall())


def message(id_: str, to: str = "coder", sender: str = "sales", **fields: Any) -> Message:
    given = {"id": id_, "from": sender, "to": to, "timestamp": at(), "type": "note", "payload": {"text": id_}}
    return Message.model_validate({**given, **fields})


def refuse(facts: InboxFacts, letter: Message) -> Refusal:
    return Refusal("full", "the inbox is full", 1.0)


def mail_places(store: Store, id_: str) -> list[str]:
    """`address/place` of each file that holds the message. What arrived may have a second name in the outbox, until
    what is queued is tried the next time."""
    found = []
    for address in ADDRESSES:
        folders = store.layout.mail(address)
        for place in PLACES:
            folder = getattr(folders, place)
            for name in filter(is_mail, store.files.names(folder)):
                data = store.files.read(f"{folder}/{name}")
                found += [f"{address}/{place}"] if data and json.loads(data).get("id") == id_ else []
    return [place for place in found if not place.endswith("/queued")] or found


def claims(store: Store, address: str = "coder") -> dict[str, tuple[str, int, bool]]:
    """The readable claims of an address: state, attempt, whether the text was shown."""
    folder = store.layout.mail(address).claims
    found = {name: store.mail.receiving.look(address, name) for name in store.files.names(folder)}
    return {name: (claim.state, claim.attempt, claim.shown_at is not None) for name, claim in found.items() if claim}


def waiting_name(store: Store, id_: str, address: str = "coder") -> str:
    return store.mail.find_waiting(address, id_).name


def dead_claim(store: Store, id_: str, attempt: int = 1, state: str = "handling") -> None:
    """A claim whose holder has died."""
    claim = Claim.model_validate(
        {
            "state": state,
            "pid": NO_PID,
            "started": 1.0,
            "bootId": store.time.boot_id(),
            "incarnation": 0,
            "token": "t",
            "attempt": attempt,
            "deliveredAt": at(),
        }
    )
    path = f"{store.layout.mail('coder').claims}/{waiting_name(store, id_)}"
    store.files.replace(path, claim.model_dump_json(by_alias=True).encode())


def finish(store: Store) -> None:
    """What a sweep of the service does about things that were left halfway: nothing else."""
    for address in ADDRESSES:
        folders = store.layout.mail(address)
        ended = {name for place in PLACES[2:] for name in store.files.names(getattr(folders, place))}
        for name in filter(is_mail, store.files.names(folders.inbox)):
            if name in ended:
                store.mail.receiving.claim(address, name)
        admit, store.mail.sending.admit = store.mail.sending.admit, refuse
        store.mail.post_queued(address)  # what has arrived leaves the outbox
        store.mail.sending.admit = admit
        store.mail.counting.recount(folders)


def counted(store: Store, address: str) -> tuple[int, int]:
    """How many messages the record says wait, and how many do."""
    folders = store.layout.mail(address)
    with store.mail.counting.hold(folders) as count:
        return count.waiting, sum(map(is_mail, store.files.names(folders.inbox)))


def mail_facts(*ids: str, claims_too: bool = False, perhaps: bool = False) -> Callable[[Store], dict[str, Any]]:
    """Where each message lies, and that the counts are right. Claims, too, if asked for; where there is `perhaps`
    none, as it needn't survive a power cut, that is no fact."""

    def observe(store: Store) -> dict[str, Any]:
        facts: dict[str, Any] = {id_: mail_places(store, id_) for id_ in ids}
        if claims_too and ((found := claims(store)) or not perhaps):
            facts["claims"] = found
        for address in ADDRESSES:
            said, true = counted(store, address)
            assert said == true, address
        return facts

    return observe


def settled_mail(store: Store) -> dict[str, Any]:
    """All mail as it counts: of a message that lies in two places, the one where it has come to. Whoever finds it in
    the other finishes the removal, so that makes no difference any more."""
    found: dict[str, Any] = {}
    for address in ADDRESSES:
        folders = store.layout.mail(address)
        names = {place: set(filter(is_mail, store.files.names(getattr(folders, place)))) for place in PLACES}
        names["inbox"] -= names["processed"] | names["dead"] | names["rejected"]
        arrived = {name for other in ADDRESSES for name in store.files.names(store.layout.mail(other).inbox)}
        names["queued"] -= arrived
        copies = set(store.files.names(folders.outbox)) | set(store.files.names(folders.queued))
        found[address] = (
            {
                f"{place}/{name}": store.files.read(f"{getattr(folders, place)}/{name}")
                for place in PLACES
                for name in names[place]
            },
            {name: claim for name, claim in claims(store, address).items() if name in names["inbox"]},
            copies - {"queued"},
        )
    return found
