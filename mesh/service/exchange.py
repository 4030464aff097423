"""What every route needs of a request, and how it answers."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request, Response

from mesh.service.agent import AgentService
from mesh.service.auth import Caller


def service_of(request: Request) -> AgentService:
    """The service of the agent that was called."""
    service: AgentService = request.app.state.service
    return service


def caller_of(request: Request) -> Caller:
    """Who calls, as the guard found."""
    caller: Caller = request.scope["caller"]
    return caller


def answer(content: Any, status: int = 200) -> Response:
    """The content as JSON."""
    # Halves of characters may come from hand-written files: they must not hide the rest.
    data = json.dumps(content, ensure_ascii=False).encode(errors="replace")
    return Response(data, status, media_type="application/json")
