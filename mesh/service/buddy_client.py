"""Calls to other agents over HTTP, with this agent's own secret. One client, shared, made when first used."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from mesh.errors import PeerUnavailable, StoreUnavailable
from mesh.models import PingAnswer, ReviewAnswer
from mesh.service.core import Core


class BuddyClient:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._http: httpx.AsyncClient | None = None

    async def ping(self, other: str, body: dict[str, Any]) -> PingAnswer:
        """`POST /buddy/ping`, tried again as often as the limits say. Raises PeerUnavailable."""
        for left in range(self._core.limits.ping_retries, -1, -1):
            try:
                answer = PingAnswer.model_validate(await self._post(other, "/buddy/ping", body))
                if answer.agent_id not in ("", other):
                    raise _unavailable(other, "answer", f"is not who answers on its port: {answer.agent_id} does")
                return answer
            except ValueError:
                raise _unavailable(other, "answer", "answered a ping with something else") from None
            except PeerUnavailable:
                if not left:
                    raise
            await asyncio.sleep(self._core.limits.ping_retry_pause_s)
        raise AssertionError("the last try returns or raises")

    async def review(self, other: str, checks: dict[str, bool]) -> ReviewAnswer:
        """`POST /buddy/review`. Raises PeerUnavailable."""
        answer = await self._post(other, "/buddy/review", {"from": self._core.agent, "checkResults": checks})
        return ReviewAnswer.model_validate(answer)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    async def _post(self, other: str, path: str, body: dict[str, Any]) -> Any:
        entry = self._core.registry.entry(other)
        secret = self._core.store.secrets.of(self._core.agent)
        if secret is None:
            raise StoreUnavailable(f"{self._core.agent} has no secret that can be read; run `mesh init`.")
        if self._http is None:
            # Loopback and plain HTTP: a TLS context would cost 38 ms, and proxies are for the outside world.
            self._http = httpx.AsyncClient(verify=False, trust_env=False)
        host = f"[{entry.host}]" if ":" in entry.host else entry.host
        try:
            answer = await self._http.post(
                f"http://{host}:{entry.port}{path}",
                json=body,
                headers={"Authorization": f"Bearer {secret}"},
                timeout=self._core.limits.ping_timeout_s,
            )
            answer.raise_for_status()
            return answer.json()
        except httpx.TimeoutException:
            raise _unavailable(other, "timeout", "did not answer in time") from None
        except httpx.HTTPStatusError as error:
            raise _unavailable(other, "answer", f"answered {error.response.status_code}") from None
        except httpx.HTTPError as error:
            raise _unavailable(other, "refused", f"could not be reached ({type(error).__name__})") from None
        except ValueError:
            raise _unavailable(other, "answer", "did not answer with JSON") from None


def _unavailable(other: str, reason: str, what: str) -> PeerUnavailable:
    return PeerUnavailable(f"{other} {what}.", agentId=other, reason=reason)
