"""What all tools share: who calls, how errors are told, and what arguments are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, Protocol, TypeVar

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from mesh.errors import MeshError
from mesh.interop.mcp.desk import Seat

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

#: Who calls, by what the transport knows of the request. Raises MeshError.
Seated = Callable[[Context], Awaitable[Seat]]

MessageId = Annotated[str, Field(description="A message's id", min_length=1, max_length=128)]
TaskId = Annotated[str, Field(description="A task's id", min_length=1, max_length=128)]
AgentName = Annotated[str, Field(description="An agent's id; list_agents shows them", min_length=1, max_length=32)]
Priority = Annotated[str, Field(description="urgent, high, normal or low", pattern="^(urgent|high|normal|low)$")]
Severity = Annotated[str, Field(description="low, medium, high or critical", pattern="^(low|medium|high|critical)$")]
Topic = Annotated[str, Field(description="One line of text", min_length=1, max_length=200)]
Words = Annotated[str, Field(max_length=100_000)]


class Toolbox(Protocol):
    """Several tools of one subject."""

    def tools(self) -> list[Callable[..., Any]]: ...


def tool(
    function: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Awaitable[T]]:
    """Tell what the mesh refuses as the tool's error, in the mesh's words."""

    @wraps(function)
    async def told(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(self, *args, **kwargs)
        except MeshError as error:
            raise ToolError(_words(error)) from error

    return told


def _words(error: MeshError) -> str:
    """The detail, and when to try again where only the facts say so."""
    retry_s = error.facts.get("retryAfterS")
    return error.detail if retry_s is None else f"{error.detail} (retryAfterS: {retry_s:g})"
