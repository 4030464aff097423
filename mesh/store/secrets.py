"""Secrets: one an agent, one for the operator, each in a file of mode 600; nothing else ever holds them."""

from __future__ import annotations

import hmac
import secrets

from mesh.store.disk import Signature
from mesh.store.files import Files
from mesh.store.layout import Layout

OPERATOR = "operator"
_BEARER = "Authorization: Bearer "


class Secrets:
    """Makes secrets and tells whose one is."""

    def __init__(self, files: Files, layout: Layout) -> None:
        self._files = files
        self._layout = layout
        self._known: dict[str, tuple[Signature, bytes]] = {}

    def ensure(self, agent: str) -> bool:
        """Make the agent's secret if it has none; True if it had none."""
        if self._load(agent):
            return False
        self._files.make_folders(self._layout.agent(agent))
        self._files.replace(self._layout.secret(agent), secrets.token_urlsafe(32).encode() + b"\n")
        return True

    def ensure_operator(self) -> bool:
        """Make `operator.header`, the lines that the operator's curl sends, if there is none; True if so."""
        if self._load(OPERATOR):
            return False
        lines = f"{_BEARER}{secrets.token_urlsafe(32)}\nContent-Type: application/json\n"
        self._files.replace(self._layout.operator_header, lines.encode())
        return True

    def of(self, agent: str) -> str | None:
        """The agent's secret, or with `OPERATOR` the operator's."""
        found = self._load(agent)
        return found.decode(errors="replace") if found else None

    def owner(self, secret: str, agents: list[str]) -> str | None:
        """Whose secret it is: an agent of these, `OPERATOR`, or nobody's. Compares in constant time."""
        sent = secret.encode(errors="replace")
        owner = None
        for name in (*agents, OPERATOR):
            known = self._load(name)
            if known and hmac.compare_digest(known, sent):
                owner = name
        return owner

    def _load(self, name: str) -> bytes | None:
        path = self._layout.operator_header if name == OPERATOR else self._layout.secret(name)
        try:
            seen = self._files.disk.signature(path)
            if seen is None:
                self._known.pop(name, None)
                return None
            known = self._known.get(name)
            if known is None or known[0] != seen:
                known = (seen, _secret_in(self._files.disk.read(path), name))
                self._known[name] = known
            return known[1]
        except OSError:
            return None  # unreadable: nobody can be told by it


def _secret_in(data: bytes, name: str) -> bytes:
    if name != OPERATOR:
        return data.strip()
    for line in data.decode(errors="replace").splitlines():
        if line.lower().startswith(_BEARER.lower()):
            return line[len(_BEARER) :].strip().encode()
    return b""
