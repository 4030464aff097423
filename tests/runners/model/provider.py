"""A provider on loopback that does as it is told: chat completions, responses and messages, refusals, silence."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Of each usage: sent in all, of these from the cache, answered.
SENT, CACHED, SAID = 100, 40, 7


@dataclass
class Step:
    """One answer: `says` in the shape that was asked for, or exactly `body`."""

    says: Any = None
    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0


def says(text: str = "# Done", **more: Any) -> Step:
    """An answer of the promised shape."""
    return Step({"text": text, "evidence": ["the log"], "done": True, "problem": None, **more})


def refuses(status: int, message: str = "no", headers: Mapping[str, str] | None = None, **error: Any) -> Step:
    body = {"type": "error", "error": {"message": message, "type": "some_error", **error}}
    return Step(status=status, body=json.dumps(body).encode(), headers=headers or {})


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float


class Provider:
    def __init__(self) -> None:
        self.steps: deque[Step] = deque()
        self.requests: list[Request] = []
        self.url = ""

    def will(self, *steps: Step) -> None:
        self.steps.extend(steps)

    def answer(self, request: Request) -> tuple[int, Mapping[str, str], bytes]:
        self.requests.append(request)
        step = self.steps.popleft() if self.steps else refuses(400, "nothing more was planned")
        time.sleep(step.delay_s)
        body = step.body if step.body is not None else json.dumps(_shaped(request, step.says)).encode()
        return step.status, step.headers, body


def _shaped(request: Request, said: Any) -> dict[str, Any]:
    model, tool = request.body.get("model"), bool(request.body.get("tools")) and not isinstance(said, str)
    text = said if isinstance(said, str) else json.dumps(said)
    if request.path.endswith("/messages"):
        call = {"type": "tool_use", "id": "toolu_1", "name": "final_result", "input": said}
        usage = {"input_tokens": SENT - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": SAID}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [call if tool else {"type": "text", "text": text}],
            "stop_reason": "tool_use" if tool else "end_turn",
            "usage": {**usage, "cache_creation_input_tokens": 0},
        }
    if request.path.endswith("/responses"):
        output = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "final_result", "arguments": text}
        message = {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_771_274_700,
            "model": model,
            "status": "completed",
            "output": [{**(output if tool else message), "status": "completed"}],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": SENT,
                "input_tokens_details": {"cached_tokens": CACHED, "cache_write_tokens": 0},
                "output_tokens": SAID,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": SENT + SAID,
            },
        }
    call = {"id": "c1", "type": "function", "function": {"name": "final_result", "arguments": text}}
    spoken: dict[str, Any] = {"content": None, "tool_calls": [call]} if tool else {"content": text}
    finish = "tool_calls" if tool else "stop"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_771_274_700,
        "model": model,
        "choices": [{"index": 0, "message": {"role": "assistant", **spoken}, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": SENT,
            "prompt_tokens_details": {"cached_tokens": CACHED},
            "completion_tokens": SAID,
            "total_tokens": SENT + SAID,
        },
    }


@contextmanager
def serving() -> Iterator[Provider]:
    """A provider at `url`, until the end of the block."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, extra, body = provider.answer(Request(self.path, headers, json.loads(raw), time.monotonic()))
            try:
                self.send_response(status)
                for name, value in {"content-type": "application/json", **extra}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # who asked has given up

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    provider.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
