"""A scripted model on loopback, for driving real agent CLIs without a real one. Served in-process.

    with stub() as llm:
        environment = home_for(cli, folder, llm.url)
        …                                            # llm.requests: what was asked, and what it answered

It speaks OpenAI chat completions and responses, Anthropic messages and Gemini, each plain and streamed. What it
answers is directed by the user's text of the current turn; several directives may stand in one text:

    [[say TEXT]]         answer exactly this
    [[sleep SECONDS]]    wait before answering, the stream open: the client is busy
    [[tool NAME JSON]]   call the tool once, then answer `tool said: <end of its result>`
    [[status CODE]]      fail with this HTTP status, in the vendor's words
    [[error TEXT]]       … in these words; a JSON object is the whole body
    [[header NAME VALUE]]… with this header (may be repeated)
    [[usage IN OUT]]     report these numbers of tokens

By default it answers `STUB turn=<number of user turns> last=<end of the newest user text>`.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from tests.live.stub_dialects import (
    Answer,
    Json,
    Kind,
    Turn,
    error_body,
    events,
    kind_of,
    namespace_of,
    text_of,
    tool_names,
    turns_of,
    whole,
)

__all__ = ["Request", "Stub", "stub", "text_of"]

SLEEP_S_MAX = 120.0
REQUESTS_MAX = 2_000
BODY_BYTES_MAX = 20_000_000
#: A connection that says nothing for this long is closed.
IDLE_S = 60
_SIMPLE = re.compile(r"\[\[(say|sleep|status|error|header|usage)\s+(.*?)\]\](?!\])", re.S)
_TOOL = re.compile(r"\[\[tool\s+([^\s\]]+)\s*(?=[{\]])")


@dataclass(frozen=True)
class Request:
    """One call of the model, and what it was answered."""

    path: str
    kind: Kind
    stream: bool
    model: str
    #: How many user texts the conversation holds, and the newest of them.
    turns: int
    last: str
    #: The whole conversation as (role, text): `user`, `assistant`, `tool`, `system`.
    conversation: list[Turn]
    tools: list[str]
    answer: str
    body: Json = field(repr=False)


@dataclass(frozen=True)
class Plan:
    """How a request is answered."""

    answer: Answer
    sleep_s: float = 0.0
    status: int = 0
    error: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Stub:
    """The running model."""

    def __init__(self, window: int, key: str | None) -> None:
        self.window, self.key = window, key
        self.requests: list[Request] = []
        self.ending = threading.Event()
        self.url = ""

    def asked(self, text: str) -> list[Request]:
        """The requests in whose conversation a user or tool text holds this."""
        return [
            one
            for one in self.requests
            if any(text in content for role, content in one.conversation if role != "assistant")
        ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, llm: Stub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.llm = llm
        self.connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed leave half a connection behind: nothing to tell."""


@contextlib.contextmanager
def stub(window: int = 64_000, key: str | None = None) -> Iterator[Stub]:
    """Serve on a free port of 127.0.0.1 until the block ends. `key`: any other key is answered 401."""
    llm = Stub(window, key)
    server = _Server(llm)
    llm.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield llm
    finally:
        llm.ending.set()
        server.shutdown()
        thread.join(5)
        for connection in list(server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()


# -- what to answer


def directives(text: str) -> dict[str, Any]:
    """The directives in a text; `header` is a list, `tool` a name with its arguments."""
    found: dict[str, Any] = {}
    for match in _SIMPLE.finditer(text):
        name, value = match.groups()
        if name == "header":
            found.setdefault(name, []).append(tuple(value.split(None, 1)))
        else:
            found[name] = value
    if match := _TOOL.search(text):
        rest = text[match.end() :]
        found["tool"] = (match.group(1), json.JSONDecoder().raw_decode(rest)[0] if rest.startswith("{") else {})
    return found


def plan(kind: Kind, body: Json, size: int) -> Plan:
    """What the request is answered, from the texts of its current turn. Raises ValueError, TypeError, KeyError or
    AttributeError where the body isn't of the dialect."""
    turns = turns_of(kind, body)
    users = [text for role, text in turns if role == "user"]
    # The turn is all that comes after the newest answer: clients add reminders and results of tools to it.
    start = max((at for at, (role, text) in enumerate(turns) if role == "assistant" and text.strip()), default=-1)
    now = turns[start + 1 :]
    told = next((found for role, text in reversed(now) if role == "user" and (found := directives(text))), {})
    results = [text for role, text in now if role == "tool"]
    tool = told.get("tool") if not results else None
    if "tool" in told:
        text = f"tool said: {results[-1].strip()[-200:]}" if results else ""
    else:
        last = " ".join((users or [""])[-1].split())[-60:]
        text = told.get("say") or f"STUB turn={len(users)} last={last}"
    tokens = [max(1, size // 4), max(1, len(text) // 4 + (20 if tool else 0))]
    if "usage" in told:
        tokens = [int(number) for number in told["usage"].split()]
    return Plan(
        Answer(text, tool, namespace_of(body, tool[0]) if tool else None, tokens[0], tokens[1]),
        sleep_s=min(float(told.get("sleep", 0)), SLEEP_S_MAX),
        status=int(told.get("status", 500 if "error" in told else 0)),
        error=told.get("error"),
        headers=tuple(told.get("header", ())),
    )


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S

    @property
    def llm(self) -> Stub:
        return cast(_Server, self.server).llm

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: `requests` tells."""

    def do_GET(self) -> None:
        if "/models" not in self.path:
            return self._send({"error": {"message": "not served by the stub"}}, 404)
        # Two shapes at once: OpenAI's and Anthropic's readers use data, Gemini's and Codex's models.
        head = {"id": "stub-model", "object": "model", "type": "model", "owned_by": "stub", "created": 1}
        model = {**head, "display_name": "stub-model", "context_length": self.llm.window}
        return self._send({"object": "list", "has_more": False, "models": [], "data": [model]})

    def do_POST(self) -> None:
        raw = self._body()
        path = self.path.partition("?")[0]
        kind = kind_of(path)
        if path.lower().endswith(("count_tokens", "counttokens")):
            tokens = max(1, len(raw) // 4)
            return self._send({"input_tokens": tokens, "totalTokens": tokens})
        if kind is None:
            return self._send({"error": {"message": "not served by the stub"}}, 404)
        if self.llm.key is not None and self.llm.key != self._key():
            return self._send(error_body(kind, 401, None), 401)
        try:
            body = json.loads(raw or b"{}")
            planned = plan(kind, body, len(raw))
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            return self._send({"error": {"message": f"the stub can't read this request: {error!r}"}}, 400)
        return self._answer(kind, body, planned)

    def _answer(self, kind: Kind, body: Json, planned: Plan) -> None:
        stream = bool(body.get("stream")) or "streamGenerate" in self.path
        model = str(body.get("model", "stub-model"))
        self._note(kind, body, planned, stream, model)
        if planned.status:
            self.llm.ending.wait(planned.sleep_s)
            whole_body = planned.error if (planned.error or "").startswith("{") else None
            found = json.loads(whole_body) if whole_body else error_body(kind, planned.status, planned.error)
            return self._send(found, planned.status, planned.headers)
        if not stream:
            self.llm.ending.wait(planned.sleep_s)
            return self._send(whole(kind, planned.answer, model), 200, planned.headers)
        self._start_stream(planned.headers)
        for event in events(kind, planned.answer, model):
            if event.pause:
                self.llm.ending.wait(planned.sleep_s)
            else:
                self._send_event(event.data, event.name)
        return None

    def _note(self, kind: Kind, body: Json, planned: Plan, stream: bool, model: str) -> None:
        turns = turns_of(kind, body)
        users = [text for role, text in turns if role == "user"]
        answer = planned.answer
        told = f"status {planned.status}" if planned.status else answer.text or str(answer.tool and answer.tool[0])
        seen = Request(
            self.path, kind, stream, model, len(users), (users or [""])[-1], turns, tool_names(body), told, body
        )
        self.llm.requests.append(seen)
        del self.llm.requests[:-REQUESTS_MAX]

    def _key(self) -> str:
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return bearer or self.headers.get("x-api-key", "") or self.headers.get("x-goog-api-key", "")

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY_BYTES_MAX))
        raw = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            raw += self.rfile.read(min(size, BODY_BYTES_MAX))
            self.rfile.readline()
        self.rfile.readline()
        return raw

    def _send(self, content: Json, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in (("content-type", "application/json"), ("content-length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _start_stream(self, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(200)
        for name, value in (("content-type", "text/event-stream"), ("connection", "close"), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    def _send_event(self, data: Json | str, name: str | None) -> None:
        head = f"event: {name}\n" if name else ""
        content = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write(f"{head}data: {content}\n\n".encode())
        self.wfile.flush()
