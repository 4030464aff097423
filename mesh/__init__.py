"""The agent mesh: several AI agents on one host as one team.

`Agent` and `Report` are what a role of one's own is made of, `Mailbox` is an agent's mail. Imported when first used:
the command line and the hooks must start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mesh.service.mailbox import Mailbox as Mailbox
    from mesh.service.roles import Agent as Agent
    from mesh.service.roles import Report as Report

__version__ = "0.1.0"
__all__ = ["Agent", "Mailbox", "Report", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Mailbox":
        from mesh.service.mailbox import Mailbox

        return Mailbox
    if name in ("Agent", "Report"):
        from mesh.service import roles

        return getattr(roles, name)
    raise AttributeError(f"module 'mesh' has no attribute {name!r}")
