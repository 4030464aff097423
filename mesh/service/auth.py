"""Who calls. Every request carries a secret; whose it is decides whom `from` may name."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.errors import Forbidden, Unauthenticated, UnknownAgent
from mesh.models import HUMAN
from mesh.service.core import Core
from mesh.store.secrets import OPERATOR

_SCHEME = "bearer "


@dataclass(frozen=True)
class Caller:
    """An agent, or a person through the operator's channel."""

    name: str
    via: str | None = None

    @property
    def is_operator(self) -> bool:
        return self.via == OPERATOR


def identify(core: Core, authorization: str | None) -> Caller:
    """The caller by its `Authorization` header. Raises Unauthenticated."""
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise Unauthenticated(
            "Send 'Authorization: Bearer <secret>'; for people: curl -H @<root>/operator.header …",
        )
    owner = core.store.secrets.owner(authorization[len(_SCHEME) :].strip(), list(core.registry.agents))
    if owner is None:
        raise Unauthenticated("This secret belongs to nobody here; see <root>/operator.header.")
    return Caller(HUMAN, via=OPERATOR) if owner == OPERATOR else Caller(owner)


def speaks_as(core: Core, caller: Caller, named: str | None) -> str:
    """In whose name the caller acts: an agent only in its own, the operator in any. Raises Forbidden,
    UnknownAgent."""
    if named is None:
        return caller.name
    if named != HUMAN and named not in core.registry.agents:
        known = ", ".join((*core.registry.agents, HUMAN))
        raise UnknownAgent(f"'from' names {named!r}, who isn't known; known are: {known}.", agentId=named)
    if not caller.is_operator and named != caller.name:
        raise Forbidden(f"This secret is {caller.name}'s, so 'from' can't be {named!r}.", agentId=caller.name)
    return named
