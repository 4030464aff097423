"""What goes over the wire to the providers' own addresses: seen by a transport in this process, nothing is sent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import httpx2
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from mesh.runners.model.asking import Question, ask
from mesh.runners.model.dialects import model_at, settled
from mesh.runners.model.endpoint import endpoint_of
from mesh.runners.model.reply import Reply
from tests.runners.model.conftest import KEY
from tests.runners.model.provider import Provider, Request, Step, refuses, says

QUESTION = Question("Do it.", retries=1, timeout_s=20)


async def _asked(model: str, *steps: Step) -> tuple[Reply, list[Request], list[str]]:
    provider, hosts = Provider(), []
    provider.will(*steps)

    def answer(request: httpx2.Request) -> httpx2.Response:
        hosts.append(str(request.url))
        seen = Request(request.url.path, dict(request.headers), json.loads(request.content), 0)
        status, headers, body = provider.answer(seen)
        return httpx2.Response(status, headers={"content-type": "application/json", **headers}, content=body)

    endpoint = endpoint_of(model)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        reply, _ = await ask(QUESTION, model_at(endpoint, KEY, client), endpoint)
    return reply, provider.requests, hosts


@pytest.mark.parametrize(
    ("model", "address"),
    [
        ("openai/gpt-5", "https://api.openai.com/v1/responses"),
        ("anthropic/claude-sonnet-5", "https://api.anthropic.com/v1/messages"),
    ],
)
async def test_the_providers_own_addresses(model: str, address: str) -> None:
    reply, requests, hosts = await _asked(model, refuses(503), says("# Report"))
    assert (reply.text, reply.model, reply.problem) == ("# Report", model, None)
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens, reply.usage.output_tokens) == (60, 40, 7)
    assert [host.partition("?")[0] for host in hosts] == [address, address]
    assert KEY in requests[0].headers.get("authorization", "") + requests[0].headers.get("x-api-key", "")


def test_another_address_of_the_environment_counts_only_without_one_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    found = settled(endpoint_of("openai/gpt-5", None, "OTHER"))
    assert (found.base_url, found.dialect, found.key_env) == ("http://127.0.0.1:9/v1", "chat", "OTHER")
    assert settled(endpoint_of("openai/gpt-5", "https://mine/v1")).base_url == "https://mine/v1"
    assert settled(endpoint_of("own/x", "https://mine/v1")).base_url == "https://mine/v1"
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert settled(endpoint_of("openai/gpt-5")).dialect == "responses"


# -- with the library's own models in place of a provider


ENDPOINT = endpoint_of("own/small", "http://127.0.0.1:9/v1")


def _function(answers: Callable[[list[ModelMessage], AgentInfo], ModelResponse]) -> FunctionModel:
    return FunctionModel(answers, profile={"supports_json_schema_output": True})


async def test_any_model_of_the_library_can_be_asked() -> None:
    model = TestModel(custom_output_text='{"text": "hello", "evidence": [], "done": true, "problem": null}')
    reply, said = await ask(QUESTION, model, ENDPOINT)
    assert reply.text == "hello" and said is not None and len(said) >= 2
    reply, _ = await ask(Question("Long text", summarise=True), TestModel(custom_output_text="short"), ENDPOINT)
    assert reply.text == "short" and reply.evidence == []


async def test_tries_are_bounded() -> None:
    calls = 0

    def prose(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal calls
        calls += 1
        return ModelResponse(parts=[TextPart("I would rather not use JSON.")])

    reply, said = await ask(Question("Do it.", retries=3), _function(prose), ENDPOINT)
    assert reply.problem is not None and reply.problem.kind == "broken" and calls == 4 and said is None


async def test_an_unforeseen_error_is_a_failure_in_its_own_words() -> None:
    def bang(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise RuntimeError("the sky fell")

    reply, _ = await ask(QUESTION, _function(bang), ENDPOINT)
    assert reply.problem is not None and reply.problem.kind == "failed"
    assert "RuntimeError: the sky fell" in reply.problem.detail


def test_nothing_reports_to_anybody() -> None:
    from mesh.runners.model.call import SILENT

    assert {"OTEL_SDK_DISABLED", "LOGFIRE_SEND_TO_LOGFIRE", "DO_NOT_TRACK"} <= set(SILENT)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ
