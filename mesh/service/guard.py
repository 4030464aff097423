"""What every request passes before a route sees it: host, origin, secret, size and type of the body.

Plain ASGI, because it stands before every request. A browser page from elsewhere gets nowhere: a foreign Origin is
refused, and so is a foreign Host, which is what a rebound DNS name sends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesh.errors import ForeignHost, MeshError, TooLarge, WrongContentType
from mesh.service.auth import identify
from mesh.service.core import Core

_ALWAYS_ALLOWED = frozenset({"localhost", "127.0.0.1", "::1"})
#: The key of `scope["state"]` that says that a request came through the agent's Unix socket. Only who listens sets
#: that state: nothing that a client sends gets there.
CAME_LOCALLY = "mesh.local"
#: GitHub's calls: signed, instead of carrying an agent's secret.
WEBHOOK_PATH = "/webhook/github"
_OPEN_PATHS = frozenset({"/health", WEBHOOK_PATH})
#: Where content of any type comes in, as it is.
ATTACHMENT_PATH = "/attachment"
#: A length of more digits is too large whatever it is, and int() refuses very long ones.
_DIGITS_MAX = 18
_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class Door:
    """Where the guard finds the agent's core, once the agent has started."""

    core: Core | None = None


class Guard:
    """The middleware around the application of one agent."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        core = self._door.core
        if scope["type"] != "http" or core is None:
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._check_host(core, headers)
            if scope["path"] not in _OPEN_PATHS:
                local = scope.get("state", {}).get(CAME_LOCALLY) is True
                scope["caller"] = identify(core, headers.get(b"authorization"), local=local)
            if scope["method"] in _WITH_BODY:
                body = await self._body(core, scope["path"], headers, receive)
                receive = _Replay(body, receive)
        except MeshError as error:
            await send_problem(send, error, task_refused=is_task_post(scope["method"], scope["path"]))
            return
        await self._app(scope, receive, send)

    def _check_host(self, core: Core, headers: Mapping[bytes, str]) -> None:
        own = core.registry.agents.get(core.agent)
        check_host(headers, core.registry.allowed_hosts, own.host if own else None)

    async def _body(self, core: Core, path: str, headers: Mapping[bytes, str], receive: Receive) -> bytes:
        attachment = path == ATTACHMENT_PATH
        limit = core.limits.attachment_bytes_max if attachment else core.limits.message_bytes_max
        declared = headers.get(b"content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > _DIGITS_MAX or int(declared) > limit):
            raise _too_large(limit)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
            if len(body) > limit:
                raise _too_large(limit)
            if not message.get("more_body"):
                break
        kind = headers.get(b"content-type", "").partition(";")[0].strip().lower()
        if body and not attachment and kind != "application/json" and not kind.endswith("+json"):
            raise WrongContentType(
                f"The body is {kind or 'of no stated type'}; send JSON with 'Content-Type: application/json'."
            )
        return bytes(body)


def check_host(headers: Mapping[bytes, str], allowed: Sequence[str], own: str | None = None) -> None:
    """Raise ForeignHost where Host or Origin names neither this machine's loopback, nor one that is `allowed`, nor
    the server's `own` host."""
    names = {name.lower() for name in (*allowed, *([own] if own else []))}
    for header in (b"host", b"origin"):
        value = headers.get(header)
        if value is None or _host_name(value) in _ALWAYS_ALLOWED | names:
            continue
        raise ForeignHost(
            f"{header.decode().capitalize()} {value!r} isn't allowed here. "
            "If it should be, add its name to allowedHosts in registry.json.",
            allowedHosts=list(allowed),
        )


class _Replay:
    """Hands the body that was read on to the application, then whatever comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def send_problem(send: Send, error: MeshError, *, task_refused: bool) -> None:
    """Answer with the problem document of the error."""
    body = encode_problem(error, task_refused=task_refused)
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def encode_problem(error: MeshError, *, task_refused: bool) -> bytes:
    """RFC 9457; a refused task also says `"accepted": false`."""
    problem: dict[str, Any] = error.problem()
    if task_refused:
        problem["accepted"] = False
    return json.dumps(problem, ensure_ascii=False, default=str).encode()


def is_task_post(method: str, path: str) -> bool:
    return method == "POST" and path == "/task"


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit} bytes.", limitBytes=limit)


def _host_name(value: str) -> str:
    """The name in a Host or Origin header, without scheme and port."""
    rest = value.partition("://")[2] or value
    if rest.startswith("["):
        return rest[1:].partition("]")[0].lower()
    return rest.partition(":")[0].rstrip("/").lower()
