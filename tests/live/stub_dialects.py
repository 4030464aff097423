"""The four dialects of model APIs that the stub speaks: how a request reads, how an answer and an error are written.

Pure: bodies in, bodies and server-sent events out.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["chat", "responses", "anthropic", "gemini"]
Json = dict[str, Any]
Turn = tuple[str, str]
_NUMBERS = itertools.count(1)
#: The seconds at which every answer claims to have been made: any will do, and this one is the same each time.
_CREATED = 1_790_000_000


@dataclass(frozen=True)
class Answer:
    """What the model says: a text, or one call of a tool."""

    text: str = ""
    tool: tuple[str, Json] | None = None
    #: The group that Codex files an MCP server's tools under; the call must name it.
    namespace: str | None = None
    input_tokens: int = 1
    output_tokens: int = 1


@dataclass(frozen=True)
class Event:
    """One server-sent event, or (`pause`) the place where the answer waits."""

    data: Json | str = ""
    name: str | None = None
    pause: bool = False


PAUSE = Event(pause=True)


def kind_of(path: str) -> Kind | None:
    """The dialect that a path belongs to; None if the stub serves nothing there."""
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/chat/completions"):
        return "chat"
    if path.endswith("/messages"):
        return "anthropic"
    return "gemini" if "enerateContent" in path else None


# -- reading requests


def text_of(content: Any) -> str:
    """Any dialect's content (a string, a list of parts, a part) as text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(text_of, content)))
    if isinstance(content, dict):
        inner = next(
            (key for key in ("text", "output", "content", "parts", "response", "result") if key in content), ""
        )
        return text_of(content[inner]) if inner else json.dumps(content)
    return "" if content is None else str(content)


def turns_of(kind: Kind, body: Json) -> list[Turn]:
    """The conversation as (role, text); role is user, assistant, tool or system."""
    if kind == "gemini":
        return [turn for item in body.get("contents", []) for turn in _gemini_turns(item)]
    items = body.get("input" if kind == "responses" else "messages", [])
    if isinstance(items, str):
        return [("user", items)]
    return [turn for item in items for turn in _turns(kind, item)]


def _gemini_turns(item: Json) -> Iterator[Turn]:
    for part in item.get("parts", []):
        if "functionResponse" in part:
            yield "tool", text_of(part["functionResponse"].get("response"))
        elif "text" in part:
            yield ("assistant" if item.get("role") == "model" else "user"), part["text"]


def _turns(kind: Kind, item: Json) -> Iterator[Turn]:
    role = str(item.get("role"))
    if str(item.get("type", "")).endswith("_call_output") or role == "tool":
        yield "tool", text_of(item.get("output", item.get("content")))
    elif kind == "anthropic" and isinstance(item.get("content"), list):
        for part in item["content"]:
            if part.get("type") == "tool_result":
                yield "tool", text_of(part.get("content"))
            elif part.get("type") == "text":
                yield role, part["text"]
    elif role in ("user", "assistant", "system", "developer"):
        yield role.replace("developer", "system"), text_of(item.get("content"))


def tool_names(body: Json) -> list[str]:
    """The names of the tools that are offered, groups opened."""
    found: list[str] = []
    for tool in body.get("tools") or []:
        inner = tool.get("functionDeclarations") or tool.get("tools") or [tool.get("function") or tool]
        found += [str(one.get("name") or one.get("type")) for one in inner]
    return found


def namespace_of(body: Json, tool: str) -> str | None:
    """The group of tools that the tool stands in, if it stands in one."""
    groups = (one for one in body.get("tools") or [] if isinstance(one.get("tools"), list))
    return next((str(one["name"]) for one in groups if any(t.get("name") == tool for t in one["tools"])), None)


# -- errors, as the vendors word them


def error_body(kind: Kind, status: int, message: str | None) -> Json:
    """The body of a failed call, with the vendor's own words where no message is given."""
    slug, words = _ERRORS.get(status, ("api_error", "the stub was told to fail"))
    text = message or words
    if kind == "anthropic":
        return {"type": "error", "error": {"type": slug, "message": text}, "request_id": "req_stub"}
    if kind == "gemini":
        names = {401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}
        return {"error": {"code": status, "message": text, "status": names.get(status, "INTERNAL")}}
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    return {"error": {"message": text, "type": slug, "param": None, "code": codes.get(status)}}


_ERRORS = {
    401: ("authentication_error", "Incorrect API key provided: sk-not-a*****0000."),
    429: ("rate_limit_error", "Rate limit reached for requests. Please try again in 20s."),
    500: ("api_error", "Internal server error"),
    529: ("overloaded_error", "Overloaded"),
}


# -- writing answers: each yields what a stream yields; `whole` is the same in one piece


def _next(prefix: str) -> str:
    return f"{prefix}{next(_NUMBERS):06}"


def whole(kind: Kind, answer: Answer, model: str) -> Json:
    """The answer to a request that didn't ask for a stream."""
    return {"chat": _chat_whole, "responses": _response, "anthropic": _message, "gemini": _candidates}[kind](
        answer, model
    )


def events(kind: Kind, answer: Answer, model: str) -> Iterator[Event]:
    """The answer as a stream opens, pauses and goes on."""
    streams: dict[Kind, Callable[[Answer, str], Iterator[Event]]] = {
        "chat": _chat_events,
        "responses": _response_events,
        "anthropic": _message_events,
        "gemini": _gemini_events,
    }
    return streams[kind](answer, model)


def _chat_calls(answer: Answer) -> list[Json]:
    if answer.tool is None:
        return []
    name, arguments = answer.tool
    call = {"name": name, "arguments": json.dumps(arguments)}
    return [{"index": 0, "id": _next("call_"), "type": "function", "function": call}]


def _chat_usage(answer: Answer) -> Json:
    total = answer.input_tokens + answer.output_tokens
    return {"prompt_tokens": answer.input_tokens, "completion_tokens": answer.output_tokens, "total_tokens": total}


def _chat_whole(answer: Answer, model: str) -> Json:
    message: Json = {"role": "assistant", "content": answer.text or None}
    if answer.tool:
        message["tool_calls"] = _chat_calls(answer)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if answer.tool else "stop"}
    head = {"id": _next("chatcmpl-"), "object": "chat.completion", "created": _CREATED, "model": model}
    return {**head, "usage": _chat_usage(answer), "choices": [choice]}


def _chat_events(answer: Answer, model: str) -> Iterator[Event]:
    head = {"id": _next("chatcmpl-"), "object": "chat.completion.chunk", "created": _CREATED, "model": model}

    def chunk(delta: Json, finish: str | None = None) -> Event:
        return Event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    yield PAUSE
    yield chunk({"tool_calls": _chat_calls(answer)} if answer.tool else {"content": answer.text})
    yield chunk({}, "tool_calls" if answer.tool else "stop")
    yield Event({**head, "choices": [], "usage": _chat_usage(answer)})
    yield Event("[DONE]")


def _response_item(answer: Answer) -> Json:
    if answer.tool is None:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        head = {"type": "message", "id": _next("msg_"), "role": "assistant", "status": "completed"}
        return {**head, "content": content}
    name, arguments = answer.tool
    head = {"type": "function_call", "id": _next("fc_"), "call_id": _next("call_"), "status": "completed"}
    group = {"namespace": answer.namespace} if answer.namespace else {}
    return {**head, "name": name, "arguments": json.dumps(arguments), **group}


def _response(answer: Answer, model: str) -> Json:
    usage = {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
    head = {"id": _next("resp_"), "object": "response", "created_at": _CREATED, "model": model}
    return {**head, "status": "completed", "output": [_response_item(answer)], "usage": usage}


def _response_events(answer: Answer, model: str) -> Iterator[Event]:
    done = _response(answer, model)
    item = done["output"][0]
    numbers = itertools.count()

    def event(name: str, **content: Any) -> Event:
        return Event({"type": name, "sequence_number": next(numbers), **content}, name)

    at = {"item_id": item["id"], "output_index": 0}
    yield event("response.created", response={**done, "status": "in_progress", "output": [], "usage": None})
    yield PAUSE
    if answer.tool:
        opened = {**item, "arguments": "", "status": "in_progress"}
        yield event("response.output_item.added", output_index=0, item=opened)
        yield event("response.function_call_arguments.delta", delta=item["arguments"], **at)
        yield event("response.function_call_arguments.done", arguments=item["arguments"], **at)
    else:
        part, at = item["content"][0], {**at, "content_index": 0}
        opened = {**item, "content": [], "status": "in_progress"}
        yield event("response.output_item.added", output_index=0, item=opened)
        yield event("response.content_part.added", part={**part, "text": ""}, **at)
        yield event("response.output_text.delta", delta=answer.text, **at)
        yield event("response.output_text.done", text=answer.text, **at)
        yield event("response.content_part.done", part=part, **at)
    yield event("response.output_item.done", output_index=0, item=item)
    yield event("response.completed", response=done)


def _message(answer: Answer, model: str) -> Json:
    block: Json = {"type": "text", "text": answer.text}
    if answer.tool:
        block = {"type": "tool_use", "id": _next("toolu_"), "name": answer.tool[0], "input": answer.tool[1]}
    usage = {"input_tokens": answer.input_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {
        "id": _next("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "tool_use" if answer.tool else "end_turn",
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": answer.output_tokens},
    }


def _message_events(answer: Answer, model: str) -> Iterator[Event]:
    done = _message(answer, model)
    block = done["content"][0]

    def event(name: str, **content: Any) -> Event:
        return Event({"type": name, **content}, name)

    opening = {**done, "content": [], "stop_reason": None, "usage": {**done["usage"], "output_tokens": 1}}
    yield event("message_start", message=opening)
    yield PAUSE
    if answer.tool:
        empty: Json = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.tool[1])}
    else:
        empty = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": answer.text}
    yield event("content_block_start", index=0, content_block=empty)
    yield event("content_block_delta", index=0, delta=delta)
    yield event("content_block_stop", index=0)
    end = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=end, usage=done["usage"])
    yield event("message_stop")


def _candidates(answer: Answer, model: str) -> Json:
    part: Json = {"text": answer.text}
    if answer.tool:
        part = {"functionCall": {"name": answer.tool[0], "args": answer.tool[1]}}
    usage = {
        "promptTokenCount": answer.input_tokens,
        "candidatesTokenCount": answer.output_tokens,
        "totalTokenCount": answer.input_tokens + answer.output_tokens,
    }
    candidate = {"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [part]}}
    return {"candidates": [candidate], "modelVersion": model, "responseId": _next("g"), "usageMetadata": usage}


def _gemini_events(answer: Answer, model: str) -> Iterator[Event]:
    yield PAUSE
    yield Event(_candidates(answer, model))
