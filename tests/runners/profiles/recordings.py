"""What real CLIs printed, recorded against a stub of a model, trimmed and with all names of the machine taken out."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from pathlib import Path

from mesh.models.running import Usage
from mesh.runners.profile import Ended

FOLDER = Path(__file__).with_name("outputs")


@cache
def recording(cli: str, case: str) -> Ended:
    """One call as it ended."""
    found = json.loads((FOLDER / cli / f"{case}.json").read_text(encoding="utf-8"))
    return Ended(
        status=found["status"],
        stdout="\n".join(found["stdout"]),
        stderr="\n".join(found["stderr"]),
        scratch="\n".join(found["scratch"]),
        session=found["session"],
        resumed=found["resumed"],
        now=datetime.fromisoformat(found["now"]),
        before=Usage.model_validate(found["before"]) if found["before"] else None,
    )


def recorded() -> list[tuple[str, str]]:
    """Every (CLI, case) that there is."""
    return sorted((path.parent.name, path.stem) for path in FOLDER.glob("*/*.json"))
