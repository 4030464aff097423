"""Routes for a session that works on a task interactively: it tells how far it is, and how it ended."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from pydantic import ConfigDict, Field

from mesh.errors import Forbidden
from mesh.models import HUMAN
from mesh.models.base import Asked
from mesh.runners.base import Report
from mesh.service import api_docs
from mesh.service.agent import AgentService
from mesh.service.exchange import answer, caller_of, service_of


class ProgressTold(Asked):
    """How far the task in hand is."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"progress": 0.5, "note": "the tests pass"}]})

    progress: float = Field(ge=0, le=1)
    note: str = Field(default="", max_length=2000)


class CompletionTold(Asked):
    """The report of a task that is done."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Done, see the branch."}]})

    text: str = Field(min_length=1)
    files: list[str] = []
    evidence: list[str] = []


class FailureTold(Asked):
    """Why a task can't be done."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"error": "The tests need a database."}]})

    error: str = Field(min_length=1, max_length=20_000)


def add_told(app: FastAPI) -> None:
    def own(request: Request) -> AgentService:
        """The service, if the caller may speak for its agent."""
        service, caller = service_of(request), caller_of(request)
        if not (caller.is_operator or caller.is_local) and caller.name != service.core.agent:
            agent = service.core.agent
            raise Forbidden(f"Only {agent} itself or {HUMAN} tells how {agent}'s task goes.", agentId=caller.name)
        return service

    @app.post("/task/{task_id}/progress", tags=["tasks"], responses=api_docs.TOLD, dependencies=api_docs.SECRET)
    async def progress(request: Request, task_id: str, body: ProgressTold) -> Response:
        """The session that works on the task in hand says how far it is."""
        service = own(request)
        service.runner.told.progress(task_id, body.progress)
        if body.note:
            service.core.event("task_note", body.note, taskId=task_id)
        return answer({"noted": True})

    @app.post("/task/{task_id}/complete", tags=["tasks"], responses=api_docs.TOLD, dependencies=api_docs.SECRET)
    async def complete(request: Request, task_id: str, body: CompletionTold) -> Response:
        """The session that works on the task in hand says that it is done."""
        report = Report(body.text, files=body.files, evidence=body.evidence)
        own(request).runner.told.complete(task_id, report)
        return answer({"completed": True})

    @app.post("/task/{task_id}/fail", tags=["tasks"], responses=api_docs.TOLD, dependencies=api_docs.SECRET)
    async def fail(request: Request, task_id: str, body: FailureTold) -> Response:
        """The session that works on the task in hand says that it can't be done."""
        own(request).runner.told.fail(task_id, body.error)
        return answer({"failed": True})
