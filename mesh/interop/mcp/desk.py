"""What the tools stand on: the root, and a seat for each agent that calls."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.errors import UnknownAgent
from mesh.interop.mcp.daemons import Daemons
from mesh.models import AgentEntry, Registry
from mesh.service.mailbox import Mailbox
from mesh.service.writer import in_writer
from mesh.store import Store


@dataclass(frozen=True)
class Seat:
    """One agent at the desk: everything is done in its name."""

    agent: str
    box: Mailbox
    store: Store
    registry: Registry
    daemons: Daemons

    @property
    def entry(self) -> AgentEntry:
        return self.registry.entry(self.agent)

    def is_up(self, agent: str | None = None) -> bool:
        """Whether the daemon of an agent, or of this one, runs."""
        return self.store.process(agent or self.agent) is not None


class Desk:
    """One root, as one process uses it for all its agents."""

    def __init__(self, root: str) -> None:
        self.store = Store(root)
        self.daemons = Daemons(self.store)
        self._boxes: dict[str, Mailbox] = {}

    @property
    def registry(self) -> Registry:
        """The registry in force, read again if it was edited."""
        if self.store.registry.changed():
            self.store.registry.refresh()
        return self.store.registry.current

    def owner(self, secret: str) -> str | None:
        """Whose secret it is: an agent's, the operator's, or nobody's."""
        return self.store.secrets.owner(secret, list(self.registry.agents))

    async def seat(self, agent: str) -> Seat:
        """Raises UnknownAgent for one that is in the registry no more."""
        registry = self.registry
        if agent not in registry.agents:
            raise UnknownAgent(f"{agent!r} is no agent of this mesh any more.", agentId=agent)
        box = self._boxes.get(agent)
        if box is None:
            box = self._boxes[agent] = await in_writer(Mailbox, self.store.layout.root, agent)
        return Seat(agent, box, self.store, registry, self.daemons)

    async def close(self) -> None:
        """End what runs in the background. What is queued stays in the agents' outboxes."""
        for box in self._boxes.values():
            await box.close()
        await self.daemons.close()
