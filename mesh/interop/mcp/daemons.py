"""Calls to the daemons of agents, in the name of the agent that uses the tools and with its secret."""

from __future__ import annotations

from typing import Any

import httpx

from mesh.errors import MeshError, PeerUnavailable, StoreUnavailable
from mesh.store import Store

#: A daemon answers from memory or after one flush; more is a host in trouble, and the tool's caller waits.
_TIMEOUT_S = 10.0


class Refused(MeshError):
    """A daemon answered with a problem document: `detail` says why, the facts are its own."""

    status, slug, title = 409, "refused", "The agent refused"


class Daemons:
    """One HTTP client for all agents of a root."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._http: httpx.AsyncClient | None = None

    async def ask(self, caller: str, agent: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON answer of `agent` to the caller. Raises PeerUnavailable if its daemon doesn't answer, Refused if
        it says no, StoreUnavailable if the caller's secret can't be read."""
        entry = self._store.registry.current.entry(agent)
        secret = self._store.secrets.of(caller)
        if secret is None:
            raise StoreUnavailable(f"{caller} has no secret that can be read; run `mesh init`.", agentId=caller)
        if self._http is None:
            # Loopback and plain HTTP: a TLS context would cost 38 ms, and proxies are for the outside world.
            self._http = httpx.AsyncClient(verify=False, trust_env=False, timeout=_TIMEOUT_S)
        host = f"[{entry.host}]" if ":" in entry.host else entry.host
        url, headers = f"http://{host}:{entry.port}{path}", {"Authorization": f"Bearer {secret}"}
        try:
            answer = await self._http.request(method, url, json=body, headers=headers)
            content = answer.json()
        except httpx.TimeoutException:
            raise PeerUnavailable(
                f"{agent} did not answer within {_TIMEOUT_S:g} s.", agentId=agent, reason="timeout"
            ) from None
        except httpx.HTTPError:
            raise PeerUnavailable(
                f"{agent}'s daemon can't be reached on port {entry.port}; is it up? `mesh up` starts it.",
                agentId=agent,
                reason="refused",
            ) from None
        except ValueError:
            raise PeerUnavailable(
                f"What listens on port {entry.port} is not {agent}.", agentId=agent, reason="answer"
            ) from None
        if answer.status_code >= 400:
            raise _refusal(agent, content)
        return content

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()


def _refusal(agent: str, content: Any) -> Refused:
    problem = content if isinstance(content, dict) else {}
    facts = {key: value for key, value in problem.items() if key not in ("type", "title", "status", "detail")}
    told = problem.get("detail") or problem.get("title") or content
    return Refused(f"{agent} refused: {told}", **facts, refusedAs=problem.get("type"))
