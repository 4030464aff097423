"""One question to a model: asked until the answer has the promised shape, or the tries or the time are used up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent, NativeOutput, PromptedOutput
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.exceptions import ModelRequestRejectedError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from mesh import clock
from mesh.models.running import Usage
from mesh.runners.model.answer import SHAPE, SUMMARY, TASK, Answer
from mesh.runners.model.backoff import BackOff
from mesh.runners.model.endpoint import Endpoint
from mesh.runners.model.refusals import problem_of
from mesh.runners.model.reply import Reply, Trouble, trouble

#: A server that knows no such way of asking for a shape says so by one of these words.
_SHAPE_WORDS = ("response_format", "json_schema", "json_object", "grammar", "tool_choice", "tools", "function call")


@dataclass(frozen=True)
class Question:
    prompt: str
    #: A summary is plain text; a task has the shape of `Answer`.
    summarise: bool = False
    #: For invalid answers, and for each request that meets a passing fault.
    retries: int = 2
    timeout_s: float = 900
    max_output_tokens: int = 4096
    history: Sequence[ModelMessage] = field(default=())


async def ask(question: Question, model: Model, endpoint: Endpoint) -> tuple[Reply, list[ModelMessage] | None]:
    """The reply, and the conversation to keep (None if nothing was answered). Raises nothing of the world's."""
    deadline_s = clock.SYSTEM.monotonic() + question.timeout_s
    used = RunUsage()
    try:
        async with model:  # closes its connections
            result = await _asked(question, model, used, deadline_s)
    except Exception as error:
        problem = problem_of(error, endpoint, question.timeout_s, clock.SYSTEM.wall())
        return Reply(usage=_usage(used, endpoint), model=endpoint.name, problem=trouble(problem)), None
    said = result.all_messages()
    last = next(message for message in reversed(said) if isinstance(message, ModelResponse))
    reply = Reply(
        usage=_usage(used, endpoint),
        model=f"{endpoint.provider}/{last.model_name}" if last.model_name else endpoint.name,
        context_tokens=(last.usage.input_tokens + last.usage.output_tokens) or None,
    )
    return reply.model_copy(update=_outcome(result.output)), said


def _outcome(output: Answer | str) -> dict[str, Any]:
    if isinstance(output, str):
        return {"text": output}
    found: dict[str, Any] = {"text": output.text, "evidence": output.evidence}
    if not output.done:
        detail = f"The model says that it can't do the task: {output.problem or output.text}"
        found["problem"] = Trouble(kind="failed", detail=detail)
    return found


async def _asked(question: Question, model: Model, used: RunUsage, deadline_s: float) -> AgentRunResult[Any]:
    ways = [str] if question.summarise else _ways(model)
    for index, way in enumerate(ways):
        left_s = deadline_s - clock.SYSTEM.monotonic()
        if left_s <= 0:
            raise TimeoutError
        try:
            return await _run(question, model, way, used, deadline_s, left_s)
        except ModelRequestRejectedError as error:
            refused = str(error).lower()
            if index + 1 == len(ways) or not any(word in refused for word in _SHAPE_WORDS):
                raise
    raise AssertionError("there is always a last way")


def _ways(model: Model) -> list[Any]:
    """How a model is asked for a shape, the best way first. OpenAI and Anthropic have one that the library knows;
    of others, most enforce a schema, and all can be told it."""
    prompted = PromptedOutput(Answer, template=SHAPE)
    if model.system in ("openai", "anthropic"):
        return [Answer, prompted]
    native = NativeOutput(Answer, template=SHAPE, strict=True)
    return [native, prompted] if model.profile.get("supports_json_schema_output") else [prompted]


async def _run(
    question: Question, model: Model, way: Any, used: RunUsage, deadline_s: float, left_s: float
) -> AgentRunResult[Any]:
    agent = Agent(
        model,
        output_type=way,
        instructions=SUMMARY if question.summarise else TASK,
        retries=question.retries,
        capabilities=[BackOff(question.retries, deadline_s)],
        # Its own retries would know nothing of the deadline.
        model_settings=ModelSettings(max_tokens=question.max_output_tokens, max_retries=0, timeout=left_s),
        name="mesh",
    )
    return await agent.run(
        question.prompt, message_history=list(question.history) or None, usage=used, timeout=left_s, infer_name=False
    )


def _usage(used: RunUsage, endpoint: Endpoint) -> Usage | None:
    """All calls added up, cached tokens apart; None where nothing was told."""
    if not used.input_tokens and not used.output_tokens:
        return None
    cached = used.cache_read_tokens + used.cache_write_tokens
    return Usage(
        input_tokens=max(0, used.input_tokens - cached),
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        output_tokens=used.output_tokens,
        model=endpoint.name,
    )
