"""The HTTP routes of an agent. They validate, enqueue and answer; the worker and the tick act."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from mesh.clock import MINUTE_S, iso
from mesh.errors import BadUse, Invalid, MeshError
from mesh.models import (
    AGENT_ID_PATTERN,
    PingAnswer,
    PingRequest,
    ReviewAnswer,
    ReviewRequest,
    TaskRequest,
    TaskStatus,
    WakeRequest,
)
from mesh.service import api_docs, task_desk
from mesh.service.agent import AgentService
from mesh.service.auth import speaks_as
from mesh.service.core import log
from mesh.service.exchange import answer, caller_of, service_of
from mesh.service.guard import Door, Guard, encode_problem, is_task_post
from mesh.service.hook_api import add_hooks, desk_of
from mesh.service.mail_api import add_mail
from mesh.service.roles import Agent
from mesh.service.told_api import add_told
from mesh.service.webhook_api import add_webhook

_LIST_MAX = 1000
_RETRY_AFTER_S = 30


def build_app(title: str, make_service: Callable[[], AgentService]) -> FastAPI:
    """The application of one agent. `make_service` is called as the application starts."""
    door = Door()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            service = make_service()
            await service.start()
        except Exception as error:
            app.state.failure = error  # uvicorn swallows it; whoever serves raises it again
            raise
        app.state.service, door.core = service, service.core
        yield
        await service.stop()

    app = FastAPI(
        title=f"Agent {title}",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from elsewhere; the OpenAPI document itself is served
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.add_middleware(Guard, door=door)
    _add_errors(app)
    _add_looks(app)
    _add_tasks(app)
    _add_buddy(app)
    add_mail(app)
    add_hooks(app)
    add_told(app)
    add_webhook(app)
    return app


def standalone_app(role: Agent) -> FastAPI:
    """For `uvicorn agents.<id>:app`: root and speed from the environment."""
    from mesh.store.setup import resolve_root

    def end_server(reason: str) -> None:
        log.error("%s ends: %s", role.id, reason)
        os.kill(os.getpid(), signal.SIGTERM)  # uvicorn's way to be asked to end

    def make_service() -> AgentService:
        root = resolve_root(None, os.environ.get("MESH_ROOT"))
        seconds = tick_seconds(os.environ.get("MESH_TICK_SECONDS"))
        return AgentService(role, root, tick_seconds=seconds, on_fatal=end_server)

    return build_app(role.id, make_service)


def tick_seconds(text: str | None) -> float:
    """How long a tick is; a minute unless a number from 0.05 to 60 says otherwise."""
    try:
        seconds = float(text) if text else MINUTE_S
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= MINUTE_S:
        raise BadUse(f"A tick lasts from 0.05 to {MINUTE_S:g} seconds, not {text}.")
    return seconds


def _add_looks(app: FastAPI) -> None:
    @app.get("/health", tags=["look"], responses=api_docs.HEALTH)
    async def health(request: Request) -> Response:
        """Whether the agent is healthy, from memory: it answers with a full disk, and needs no secret."""
        core = service_of(request).core
        status, reasons = core.health()
        body = {
            "status": status,
            "uptime": round(core.uptime_s, 1),
            "agentId": core.agent,
            "incarnation": core.incarnation,
            "reasons": reasons,
        }
        return answer(body, 503 if status == "unhealthy" else 200)

    @app.get("/status", tags=["look"], responses=api_docs.STATUS, dependencies=api_docs.SECRET)
    async def status(request: Request) -> Response:
        """All of the agent's state, and how it stands in the mesh."""
        service = service_of(request)
        core = service.core
        error = core.store.registry.error
        alerts = await core.io(core.store.alerts.open)
        entry = core.registry.agents.get(core.agent)
        body = {
            **core.state.dump(),
            "now": iso(core.time.wall()),
            "buddy": entry.buddy if entry else None,
            "watchedBy": core.registry.watcher_of(core.agent),
            "inboxLength": core.queue_length,
            "mail": service.mail.overview(),
            **desk_of(request).view(),
            "runner": service.runner.overview(),
            "root": core.store.layout.root,
            "registry": {"ok": error is None, "error": error.problem() if error else None},
            "alerts": [alert.dump() for alert in alerts],
            "health": dict(zip(("status", "reasons"), core.health(), strict=True)),
        }
        return answer(body)


def _add_tasks(app: FastAPI) -> None:
    @app.post("/task", status_code=202, tags=["tasks"], responses=api_docs.TASK_ACCEPTED, dependencies=api_docs.SECRET)
    async def post_task(request: Request, body: TaskRequest) -> Response:
        """Give this agent a task, or with `"owner": "any"` the mesh. The same id and body again is one task."""
        service, caller = service_of(request), caller_of(request)
        giver = speaks_as(service.core, caller, body.from_)
        task = await task_desk.take_in(service.core, service.worker.can_run, body, giver, caller)
        return answer({"accepted": True, "taskId": task.id}, 202)

    @app.get("/task/{task_id}", tags=["tasks"], responses=api_docs.TASK, dependencies=api_docs.SECRET)
    async def get_task(request: Request, task_id: str) -> Response:
        """A task with its progress and result, whichever agent has it."""
        core = service_of(request).core
        return answer(task_desk.view(await core.io(task_desk.find, core, task_id)))

    @app.get("/task", tags=["tasks"], responses=api_docs.TASKS, dependencies=api_docs.SECRET)
    async def list_tasks(
        request: Request,
        status: TaskStatus | None = None,
        owner: Annotated[str | None, Query(pattern=AGENT_ID_PATTERN)] = None,
        limit: Annotated[int, Query(ge=1, le=_LIST_MAX)] = 100,
    ) -> Response:
        """Tasks of the whole mesh: the open ones in the order they are served, then the ended, newest first."""
        core = service_of(request).core
        found = await core.io(task_desk.listed, core, status, owner, limit)
        return answer([task_desk.view(task) for task in found])

    @app.delete("/task/{task_id}", tags=["tasks"], responses=api_docs.CANCELLED, dependencies=api_docs.SECRET)
    async def cancel_task(request: Request, task_id: str) -> Response:
        """Cancel a task: one that waits at once; the work on one that runs stops within a moment."""
        await task_desk.cancel(service_of(request).core, task_id, caller_of(request))
        return answer({"cancelled": True})


def _add_buddy(app: FastAPI) -> None:
    @app.post("/buddy/ping", tags=["buddy"], responses=api_docs.BUDDY, dependencies=api_docs.SECRET)
    async def ping(request: Request, body: PingRequest) -> PingAnswer:
        """How this agent is, for its buddy."""
        core = service_of(request).core
        giver = speaks_as(core, caller_of(request), body.from_)
        concerns = core.concerns()
        core.event("pinged", f"by {giver}", watcher=giver)
        return PingAnswer(
            agent_id=core.agent,
            status=core.health()[0],
            task_queue_length=core.queue_length,
            current_task=core.state.current_task.title if core.state.current_task else None,
            concerns=concerns,
            needs_help=bool(concerns) and core.paused is None,
        )

    @app.post("/buddy/review", tags=["buddy"], responses=api_docs.BUDDY, dependencies=api_docs.SECRET)
    async def review(request: Request, body: ReviewRequest) -> ReviewAnswer:
        """What the watcher found; answers what this agent does about it."""
        service = service_of(request)
        giver = speaks_as(service.core, caller_of(request), body.from_)
        return await service.rounds.act_on_review(giver, body.check_results)

    @app.post("/wake", tags=["buddy"], responses=api_docs.WAKE, dependencies=api_docs.SECRET)
    async def wake(request: Request, body: WakeRequest) -> Response:
        """Do the agent's own pass now. Never touches a task that runs."""
        service = service_of(request)
        giver = speaks_as(service.core, caller_of(request), body.from_)
        return answer({"awake": True, "did": service.wake(giver, body.reason)})


def _add_errors(app: FastAPI) -> None:
    def problem(request: Request, error: MeshError) -> Response:
        refused = is_task_post(request.method, request.url.path)
        headers = None
        if error.status in (429, 503, 507):
            headers = {"Retry-After": str(math.ceil(error.facts.get("retryAfterS", _RETRY_AFTER_S)))}
        return Response(encode_problem(error, task_refused=refused), error.status, headers, api_docs.PROBLEM)

    @app.exception_handler(MeshError)
    async def mesh_error(request: Request, error: MeshError) -> Response:
        return problem(request, error)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        return problem(request, MeshError(f"A bug in the mesh: {type(error).__name__}; its log says where."))

    @app.exception_handler(RequestValidationError)
    async def wrong_shape(request: Request, error: RequestValidationError) -> Response:
        errors = [_mistake(item) for item in error.errors()]
        detail = "; ".join(f"{item['field']}: {item['reason']}" if item["field"] else item["reason"] for item in errors)
        return problem(request, Invalid(detail, errors=errors))

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:  # the only one that the framework raises itself: a body that can't be parsed
            return problem(request, Invalid("The body can't be read as JSON.", errors=[]))
        titles = {404: "There is nothing at this path", 405: "This path doesn't take this method"}
        title = titles.get(error.status_code, str(error.detail))
        content = {"type": "about:blank", "title": title, "status": error.status_code}
        content["detail"] = f"{request.method} {request.url.path}"
        return Response(json.dumps(content), error.status_code, dict(error.headers or {}), api_docs.PROBLEM)


def _mistake(item: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with which field of a request, in words for people."""
    if item["type"] == "json_invalid":
        return {
            "field": "",
            "reason": f"the body is not valid JSON: {item['ctx']['error']} at character {item['loc'][-1]}",
        }
    if item["type"] == "missing" and len(item["loc"]) == 1:
        return {"field": "", "reason": "a JSON body is required"}
    field = ".".join(str(part) for part in item["loc"] if part not in ("body", "query", "path"))
    if item["type"] == "string_pattern_mismatch" and "x00" in item["ctx"]["pattern"]:
        return {"field": field, "reason": "must be one line without control characters"}
    if item["type"] == "extra_forbidden":
        return {"field": field, "reason": "there is no such field"}
    return {"field": field, "reason": str(item["msg"]).removeprefix("Value error, ")}
