"""Who may give work to whom, and who may call it off.

`open`: anyone to anyone. `peers` and `orchestrator`: tasks go only along `canDelegate`, to one's buddy, and to and
from the orchestrator. People and the operator may do everything.
"""

from __future__ import annotations

from mesh.models import HUMAN, Registry, Task


def why_not_give(registry: Registry, giver: str, owner: str) -> str | None:
    """Why the giver may not give the owner a task, or None if it may. The global queue is open to all."""
    if giver in (HUMAN, owner) or owner == "any" or registry.policy == "open":
        return None
    if registry.orchestrator in (giver, owner):
        return None
    entry = registry.entry(giver)
    if owner in entry.can_delegate or owner == entry.buddy:
        return None
    allowed = sorted({*entry.can_delegate, entry.buddy, registry.orchestrator})
    return (
        f"{giver} may not give {owner} tasks under the policy {registry.policy!r}; it may give them to "
        f'{", ".join(allowed)}, or to the global queue ("owner": "any")'
    )


def may_cancel(registry: Registry, caller: str, task: Task) -> bool:
    """Owner, giver, orchestrator and people may cancel a task."""
    return caller in (HUMAN, task.owner, task.from_, registry.orchestrator)
