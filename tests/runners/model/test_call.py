"""The program, called within this process against a provider on loopback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mesh.clock import parse
from mesh.errors import DiskFull
from mesh.runners.model.history import History
from tests.runners.model.conftest import KEY, Called, Program
from tests.runners.model.provider import CACHED, SAID, SENT, Provider, Request, Step, refuses, says

#: Each starts a process that imports heavy libraries.
pytestmark = pytest.mark.live

#: Each dialect that can be had at an address of one's own: the model, and what comes after the address.
PLACES = [("openai/gpt-5", "/v1"), ("anthropic/claude-sonnet-5", ""), ("own/small", "/v1")]
LOW_CREDIT = refuses(400, "Your credit balance is too low to access the API", type="invalid_request_error")
each_place = pytest.mark.parametrize(("model", "path"), PLACES, ids=["openai", "anthropic", "compatible"])


@each_place
def test_a_task_is_answered_in_the_promised_shape(program: Program, provider: Provider, model: str, path: str) -> None:
    provider.will(says("# Report"))
    called = program(model, f"--base-url={provider.url}{path}")
    assert called.status == 0 and called.err == ""
    reply = called.reply
    assert (reply.text, reply.evidence, reply.problem, reply.model) == ("# Report", ["the log"], None, model)
    assert reply.context_tokens == SENT + SAID
    assert reply.usage is not None and reply.usage.model == model
    assert reply.usage.input_tokens == SENT - CACHED and reply.usage.cache_read_tokens == CACHED
    assert (reply.usage.output_tokens, reply.usage.cost_usd) == (SAID, None)
    [request] = provider.requests
    assert KEY in (request.headers.get("x-api-key", ""), request.headers.get("authorization", "")[len("Bearer ") :])
    assert "Do it." in json.dumps(request.body) and "You have no tools" in json.dumps(request.body)


def test_a_schema_is_enforced_where_the_provider_can(program: Program, provider: Provider) -> None:
    provider.will(says())
    program("own/small", f"--base-url={provider.url}/v1", "--max-output-tokens=77")
    [request] = provider.requests
    schema = request.body["response_format"]["json_schema"]["schema"]
    assert {"text", "done"} <= set(schema["required"]) and schema["additionalProperties"] is False
    assert 77 in (request.body.get("max_completion_tokens"), request.body.get("max_tokens"))
    assert "One JSON object of this schema".lower() in json.dumps(request.body).lower()


def test_a_server_that_knows_no_schema_is_told_it_in_words(program: Program, provider: Provider) -> None:
    provider.will(refuses(400, "response_format of type json_schema is not supported"), says("in words"))
    assert program("own/small", f"--base-url={provider.url}/v1").reply.text == "in words"
    first, second = provider.requests
    assert first.body["response_format"]["type"] == "json_schema"
    assert second.body.get("response_format", {}).get("type") != "json_schema"
    assert "additionalProperties" in json.dumps(second.body["messages"])


def test_a_refused_request_is_not_repeated(program: Program, provider: Provider) -> None:
    provider.will(refuses(400, "temperature is out of range"))
    kind, detail = program("own/small", f"--base-url={provider.url}/v1").trouble
    assert kind == "failed" and "temperature is out of range" in detail and len(provider.requests) == 1


def test_an_invalid_answer_is_asked_for_again_with_the_reason(program: Program, provider: Provider) -> None:
    provider.will(Step("no JSON at all"), Step({"text": "x", "files": ["made up"], "done": True}), says("third time"))
    called = program("own/small", f"--base-url={provider.url}/v1", "--retries=2")
    assert called.reply.text == "third time"
    assert called.reply.usage is not None and called.reply.usage.output_tokens == 3 * SAID
    assert "files" in json.dumps(provider.requests[2].body["messages"][-1])


@pytest.mark.parametrize(
    "answer",
    [Step("no JSON"), Step({"text": "", "done": True}), Step(body=b'{"choices": ['), Step(body=b"<html>")],
    ids=["prose", "empty result", "half a body", "a web page"],
)
def test_what_is_no_answer_is_said_to_be_broken(program: Program, provider: Provider, answer: Step) -> None:
    provider.will(answer, answer)
    called = program("own/small", f"--base-url={provider.url}/v1", "--retries=1")
    assert called.status == 1 and called.trouble[0] == "broken", called.out


def test_an_answer_that_was_cut_off_names_the_limit(program: Program, provider: Provider) -> None:
    cut = {"index": 0, "message": {"role": "assistant", "content": '{"text": "and so'}, "finish_reason": "length"}
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "small", "choices": [cut]}
    provider.will(*[Step(body=json.dumps(body).encode())] * 3)
    kind, detail = program("own/small", f"--base-url={provider.url}/v1", "--retries=0").trouble
    assert kind == "broken" and "maxOutputTokens" in detail


def test_the_model_may_say_that_it_cannot(program: Program, provider: Provider) -> None:
    provider.will(says("I looked for the figures.", done=False, problem="the figures of March are missing"))
    called = program("openai/gpt-5", f"--base-url={provider.url}/v1")
    assert called.status == 1 and called.reply.text == "I looked for the figures."
    assert called.trouble == (
        "failed",
        "The model says that it can't do the task: the figures of March are missing",
    )


# -- refusals


@each_place
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_logged_out(program: Program, provider: Provider, model: str, path: str, status: int) -> None:
    provider.will(refuses(status, f"bad key {KEY}"))
    called = program(model, f"--base-url={provider.url}{path}")
    kind, detail = called.trouble
    assert kind == "logged_out" and "TEST_KEY" in detail and "[key]" in detail
    assert KEY not in called.out + called.err and len(provider.requests) == 1


@each_place
def test_too_many_requests_are_waited_for(program: Program, provider: Provider, model: str, path: str) -> None:
    provider.will(refuses(429, "slow down", {"retry-after": "1"}), says("after all"))
    assert program(model, f"--base-url={provider.url}{path}").reply.text == "after all"
    first, second = provider.requests
    assert 0.95 <= second.at - first.at < 5


def _until(called: Called) -> datetime:
    problem = called.reply.problem
    assert problem is not None and problem.kind == "limited" and problem.until is not None, called.out
    return parse(problem.until)


def test_a_limit_that_lasts_is_told_with_its_end(program: Program, provider: Provider) -> None:
    provider.will(refuses(429, "quota resets in an hour", {"retry-after": "3600"}))
    until = _until(program("own/small", f"--base-url={provider.url}/v1"))
    assert abs(until - datetime.now(UTC) - timedelta(hours=1)) < timedelta(seconds=30)
    assert len(provider.requests) == 1  # nobody waits an hour in vain


def test_a_wait_beyond_the_deadline_is_not_begun(program: Program, provider: Provider) -> None:
    provider.will(refuses(429, "slow down", {"retry-after": "30"}))
    assert _until(program("own/small", f"--base-url={provider.url}/v1", "--timeout-s=5")) > datetime.now(UTC)
    assert len(provider.requests) == 1


def test_a_limit_after_all_tries_names_its_end_from_the_headers(program: Program, provider: Provider) -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "6m0s",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "9h",
    }
    provider.will(refuses(429, "slow down", headers))
    until = _until(program("openai/gpt-5", f"--base-url={provider.url}/v1", "--retries=0"))
    assert abs(until - datetime.now(UTC) - timedelta(minutes=6)) < timedelta(seconds=30)


@pytest.mark.parametrize(
    ("model", "path", "step"),
    [
        ("openai/gpt-5", "/v1", refuses(429, "You exceeded your current quota", code="insufficient_quota")),
        ("own/small", "/v1", refuses(402, "Insufficient balance")),
        ("anthropic/claude-sonnet-5", "", LOW_CREDIT),
    ],
    ids=["openai", "402", "anthropic"],
)
def test_no_quota_is_a_limit_without_more_tries(
    program: Program, provider: Provider, model: str, path: str, step: Step
) -> None:
    provider.will(step)
    assert program(model, f"--base-url={provider.url}{path}").trouble[0] == "limited"
    assert len(provider.requests) == 1


@each_place
def test_a_fault_of_the_server_is_tried_again(program: Program, provider: Provider, model: str, path: str) -> None:
    provider.will(refuses(500), refuses(503), says("third time"))
    assert program(model, f"--base-url={provider.url}{path}", "--retries=2").reply.text == "third time"
    assert len(provider.requests) == 3


def test_a_server_that_stays_broken_fails(program: Program, provider: Provider) -> None:
    provider.will(refuses(500, "upstream is gone"), refuses(500, "upstream is gone"))
    called = program("own/small", f"--base-url={provider.url}/v1", "--retries=1")
    kind, detail = called.trouble
    assert kind == "failed" and "500" in detail and "upstream is gone" in detail and called.reply.usage is None


def test_an_unknown_model_names_the_settings(program: Program, provider: Provider) -> None:
    provider.will(refuses(404, "no such model"))
    kind, detail = program("own/small", f"--base-url={provider.url}/v1").trouble
    assert kind == "failed" and "'small'" in detail and "runner.model" in detail


def test_a_slow_answer_ends_at_the_deadline(program: Program, provider: Provider) -> None:
    provider.will(Step("late", delay_s=4))
    kind, detail = program("own/small", f"--base-url={provider.url}/v1", "--timeout-s=0.5").trouble
    assert (kind, detail) == ("failed", "own/small gave no answer within 0.5 s.")


def test_nobody_at_the_address(program: Program) -> None:
    kind, detail = program("own/small", "--base-url=http://127.0.0.1:1/v1", "--retries=1").trouble
    assert kind == "failed" and "could not be reached" in detail and "127.0.0.1:1" in detail


# -- keys and use


def test_the_key_is_scrubbed_wherever_it_comes_from(program: Program, provider: Provider, tmp_path: Path) -> None:
    provider.will(says(f"your key is {KEY}", evidence=[KEY]))
    file = tmp_path / "sessions" / "s.json"
    called = program("own/small", f"--base-url={provider.url}/v1", f"--session-file={file}", "--session=s", prompt=KEY)
    assert called.reply.text == "your key is [key]" and called.reply.evidence == ["[key]"]
    assert KEY not in called.out + called.err + file.read_text()


def test_a_provider_of_the_world_needs_a_key(program: Program) -> None:
    kind, detail = program("openai/gpt-5", key="").trouble
    assert kind == "logged_out" and "TEST_KEY" in detail and "secrets.toml" in detail


def test_a_model_of_ones_own_needs_none(program: Program, provider: Provider) -> None:
    provider.will(says())
    assert program("own/small", f"--base-url={provider.url}/v1", key="").status == 0


def test_another_address_may_come_from_the_environment(
    program: Program, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
    provider.will(says())
    assert program("anthropic/claude-sonnet-5").status == 0 and provider.requests[0].path == "/v1/messages"


def test_bad_use(program: Program) -> None:
    called = program("own/small")
    assert called.status == 2 and called.out == "" and "runner.baseUrl" in called.err and called.err.count("\n") == 1
    assert "empty" in program("own/small", "--base-url=http://127.0.0.1:1", prompt=" \n").trouble[1]


def test_a_summary_is_plain_text(program: Program, provider: Provider, tmp_path: Path) -> None:
    provider.will(Step("## Open\n- the migration"))
    file = tmp_path / "s.json"
    called = program(
        "openai/gpt-5", f"--base-url={provider.url}/v1", "--summarise", f"--session-file={file}", "--session=s"
    )
    assert called.reply.text == "## Open\n- the migration" and called.reply.session is None and not file.exists()
    assert "tools" not in provider.requests[0].body
    assert "Summarise the text" in json.dumps(provider.requests[0].body)


# -- conversations


def _talk(program: Program, provider: Provider, file: Path, *options: str, prompt: str) -> Called:
    place = (f"--base-url={provider.url}/v1", f"--session-file={file}", "--session=s1")
    return program("own/small", *place, *options, prompt=prompt)


def test_a_conversation_goes_on(program: Program, provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "sessions" / "s1.json"
    provider.will(says("the word is plum"), says("it was plum"))
    assert _talk(program, provider, file, prompt="Choose a word.").reply.session == "s1"
    assert file.stat().st_mode & 0o777 == 0o600 and json.loads(file.read_text())["schemaVersion"] == 1
    assert _talk(program, provider, file, "--resume", prompt="Which word?").reply.text == "it was plum"
    sent = [message["content"] for message in provider.requests[1].body["messages"] if message["role"] != "system"]
    assert sent[0] == "Choose a word." and "plum" in sent[1] and sent[2] == "Which word?"
    assert len(list(file.parent.iterdir())) == 1


def test_without_resume_a_conversation_begins_anew(program: Program, provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "s1.json"
    provider.will(says("one"), says("two"))
    _talk(program, provider, file, prompt="First.")
    _talk(program, provider, file, prompt="Second.")
    assert "First." not in json.dumps(provider.requests[1].body) + file.read_text()


def test_a_call_that_was_killed_is_gone_on_with(program: Program, provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "s1.json"
    provider.will(Step(delay_s=4, says="late"), says("done"))
    kept: list[str] = []
    answer = provider.answer

    def noted(request: Request) -> tuple[int, Mapping[str, str], bytes]:
        kept.append(file.read_text())  # what a kill at this moment leaves
        return answer(request)

    provider.answer = noted  # type: ignore[method-assign]
    _talk(program, provider, file, "--timeout-s=2", prompt="Count the apples.")
    assert not file.exists()  # it was not answered
    file.write_text(kept[0])
    assert _talk(program, provider, file, "--resume", prompt="Go on.").reply.text == "done"
    assert "Count the apples." in json.dumps(provider.requests[-1].body)


def test_a_failed_turn_leaves_the_conversation_as_it_was(program: Program, provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "s1.json"
    provider.will(says("one"), refuses(400, "no"), says("three"))
    _talk(program, provider, file, prompt="First.")
    before = json.loads(file.read_text())["messages"]
    called = _talk(program, provider, file, "--resume", prompt="Second.")
    assert called.reply.session is None and json.loads(file.read_text())["messages"] == before
    _talk(program, provider, file, "--resume", prompt="Third.")
    assert "Second." not in json.dumps(provider.requests[2].body)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"messages": [{"kind": "x"}]}', b"\xff"])
def test_a_broken_conversation_is_put_aside(
    program: Program, provider: Provider, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "s1.json"
    file.write_bytes(content)
    provider.will(says("anew"))
    assert _talk(program, provider, file, "--resume", prompt="Go on.").reply.session == "s1"
    assert (tmp_path / "s1.json.unreadable").read_bytes() == content


def test_an_answer_is_worth_more_than_its_conversation(
    program: Program, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(history: History, messages: object) -> None:
        raise DiskFull("There is no space left.")

    provider.will(says("the answer"))
    monkeypatch.setattr(History, "save", full)
    monkeypatch.setattr(History, "begin", lambda history, messages, prompt: None)
    called = _talk(program, provider, tmp_path / "s1.json", prompt="Ask.")
    assert called.status == 0 and called.reply.text == "the answer" and called.reply.session is None
    assert "not kept" in called.err
