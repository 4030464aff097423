"""What stands before the MCP server over HTTP: host, origin, and whose secret it is.

Plain ASGI. A browser page from elsewhere gets nowhere, as with the agents' own servers, and who has no agent's secret
reaches no tool.
"""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Receive, Scope, Send

from mesh.errors import Forbidden, MeshError, Unauthenticated
from mesh.interop.mcp.desk import Desk
from mesh.service.guard import check_host, send_problem
from mesh.store.secrets import OPERATOR

MCP_PATH = "/mcp"
HEALTH_PATH = "/health"
#: The key of the request's scope that says which agent calls.
CALLER = "mesh.agent"
_SCHEME = "bearer "


class Door:
    """The middleware around the SDK's application."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            check_host(headers, self._desk.registry.allowed_hosts)
            if scope["path"] == HEALTH_PATH:
                await _answer(send, 200, {"status": "healthy", "server": "mesh mcp"})
                return
            # Anything else is the SDK's to refuse: clients look for other ways in there, and a 404 tells them.
            if scope["path"] == MCP_PATH:
                scope[CALLER] = self._caller(headers.get(b"authorization"))
                if scope["method"] != "POST":
                    # Nothing is ever told unasked, and there are no sessions to end: no stream that stays open.
                    await _answer(send, 405, {"error": "only POST is answered here"}, (b"allow", b"POST"))
                    return
        except MeshError as error:
            await send_problem(send, error, task_refused=False)
            return
        await self._app(scope, receive, send)

    def _caller(self, authorization: str | None) -> str:
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise Unauthenticated("Send 'Authorization: Bearer <the agent's secret>'; `mesh mcp install` sets that up.")
        owner = self._desk.owner(authorization[len(_SCHEME) :].strip())
        if owner is None:
            raise Unauthenticated("This secret belongs to no agent here; it lies in <root>/agents/<id>/secret.")
        if owner == OPERATOR:
            raise Forbidden("This is the operator's secret. Tools act as an agent: send that agent's own secret.")
        return owner


async def _answer(send: Send, status: int, content: dict[str, str], *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(content).encode()
    known = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*known, *headers]})
    await send({"type": "http.response.body", "body": body})
