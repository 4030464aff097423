"""Calls of the command line to agents, with the operator's secret. The standard library's client: it starts fast."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

from mesh.errors import Forbidden, MeshError, PeerUnavailable, Unauthenticated

if TYPE_CHECKING:
    from mesh.store import Store


class Refused(MeshError):
    """An agent answered with a problem document; its detail says why."""


def call(
    store: Store, agent: str, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = 10.0
) -> Any:
    """One call to an agent; returns the JSON answer. Raises PeerUnavailable if it can't be reached (`reason` is
    `refused` or `timeout`), Refused if it says no."""
    from mesh.store.secrets import OPERATOR

    entry = store.registry.current.entry(agent)
    secret = store.secrets.of(OPERATOR)
    if secret is None:
        raise Unauthenticated(f"{store.layout.operator_header} is missing or unreadable; run `mesh init` as its owner.")
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(entry.host, entry.port, timeout=timeout_s)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = json.loads(answer.read() or b"null")
    except TimeoutError:
        raise PeerUnavailable(f"{agent} did not answer within {timeout_s:g} s.", reason="timeout") from None
    except (OSError, http.client.HTTPException):
        what = f"{agent} can't be reached on port {entry.port}; is it up? See `mesh status`."
        raise PeerUnavailable(what, reason="refused") from None
    except ValueError:
        raise PeerUnavailable(f"What listens on port {entry.port} is not {agent}.", reason="answer") from None
    finally:
        connection.close()
    if answer.status in (401, 403):
        raise Forbidden(f"{agent} refused: {_detail(content)}")
    if answer.status >= 400:
        raise Refused(f"{agent} refused: {_detail(content)}")
    return content


def _detail(content: Any) -> str:
    return str(content.get("detail") or content.get("title")) if isinstance(content, dict) else str(content)
