"""Who calls. Every request carries a secret, and whose it is decides whom `from` may name. Only who comes through
the agent's Unix socket, which the mesh's user alone can open, needs none."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.errors import Forbidden, Invalid, Unauthenticated, UnknownAgent
from mesh.models import HUMAN
from mesh.service.core import Core
from mesh.store.secrets import OPERATOR

#: Who came through the Unix socket without a secret. Reserved: no agent has this name.
LOCAL = "local"
_SCHEME = "bearer "


@dataclass(frozen=True)
class Caller:
    """An agent, a person through the operator's channel, or some program of the mesh's user (local)."""

    name: str
    via: str | None = None

    @property
    def is_operator(self) -> bool:
        return self.via == OPERATOR

    @property
    def is_local(self) -> bool:
        return self.via == LOCAL


def identify(core: Core, authorization: str | None, *, local: bool = False) -> Caller:
    """The caller by its `Authorization` header, which who came `local`ly may leave out. Raises Unauthenticated."""
    if local and authorization is None:
        return Caller(LOCAL, via=LOCAL)
    if authorization is None or not authorization.lower().startswith(_SCHEME):
        raise Unauthenticated(
            "Send 'Authorization: Bearer <secret>'; for people: curl -H @<root>/operator.header …",
        )
    owner = core.store.secrets.owner(authorization[len(_SCHEME) :].strip(), list(core.registry.agents))
    if owner is None:
        raise Unauthenticated("This secret belongs to nobody here; see <root>/operator.header.")
    return Caller(HUMAN, via=OPERATOR) if owner == OPERATOR else Caller(owner)


def speaks_as(core: Core, caller: Caller, named: str | None) -> str:
    """In whose name the caller acts: an agent only in its own, the operator in any, a local caller in that of any
    agent, which it has to name. Raises Invalid, Forbidden, UnknownAgent."""
    if named is None:
        if caller.is_local:
            raise Invalid(
                "Say who you are: 'from' must name an agent, as no secret was sent.",
                errors=[{"field": "from", "reason": "is needed without a secret"}],
            )
        return caller.name
    if named != HUMAN and named not in core.registry.agents:
        known = ", ".join((*core.registry.agents, HUMAN))
        raise UnknownAgent(f"'from' names {named!r}, who isn't known; known are: {known}.", agentId=named)
    if caller.is_local and named == HUMAN:
        raise Forbidden(
            f"Without a secret 'from' can't be {HUMAN!r}; people send the operator's header: "
            "curl -H @<root>/operator.header …",
        )
    if not (caller.is_operator or caller.is_local) and named != caller.name:
        raise Forbidden(f"This secret is {caller.name}'s, so 'from' can't be {named!r}.", agentId=caller.name)
    return named
