"""The HTTP routes of hooks: what a CLI says goes in as it is, and what it must read comes back."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from mesh.service import api_docs, mail_desk
from mesh.service.exchange import answer, caller_of, service_of
from mesh.service.hook_desk import HookDesk

_TOKEN = "mesh-token"
_PROBLEMS = api_docs.problems(401, 403, 413, 415, 422, 503)
_ANSWERS: api_docs.Responses = {
    200: {
        "description": "what the CLI must read, as it is",
        "content": {"application/json": {"schema": {"type": "object"}}},
        "headers": {"Mesh-Token": {"schema": {"type": "string"}, "description": "mail is in it: confirm with it"}},
    },
    204: {"description": "nothing is to be said"},
    **_PROBLEMS,
}
_SHOWN: api_docs.Responses = {
    200: {
        "description": "whether there was such a token",
        "content": {"application/json": {"schema": {"type": "object", "properties": {"shown": {"type": "boolean"}}}}},
    },
    **_PROBLEMS,
}


def add_hooks(app: FastAPI) -> None:
    @app.post("/hook", tags=["hooks"], responses=_ANSWERS, dependencies=api_docs.SECRET)
    async def post_hook(
        request: Request,
        cli: Annotated[str, Query(max_length=32)],
        wait_s: Annotated[float, Query(alias="waitS", ge=0.05, le=60)] = 1.0,
        run: Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{0,200}$")] = "",
        cut: bool = False,
    ) -> Response:
        """A CLI session's hook: the body is what the CLI wrote. Answers what it must read, or 204 for nothing. Mail in
        it counts as shown once `/hook/shown` was called with the answer's `Mesh-Token`."""
        service = service_of(request)
        mail_desk.may_read(service.core, caller_of(request))
        said = await desk_of(request).call(cli, await request.body(), cut=cut, run=run, wait_s=wait_s)
        if not said.output:
            return Response(status_code=204)
        headers = {_TOKEN: said.token} if said.token else None
        return Response(said.output, headers=headers, media_type="application/json")

    @app.post("/hook/shown", tags=["hooks"], responses=_SHOWN, dependencies=api_docs.SECRET)
    async def post_shown(request: Request, token: Annotated[str, Query(max_length=64)]) -> Response:
        """The hook wrote its output out: the mail in it was shown. Again is harmless."""
        mail_desk.may_read(service_of(request).core, caller_of(request))
        return answer({"shown": await desk_of(request).was_written(token)})


def desk_of(request: Request) -> HookDesk:
    """The desk of the agent that was called."""
    state = request.app.state
    found: HookDesk | None = getattr(state, "hook_desk", None)
    if found is None:
        service = service_of(request)
        found = state.hook_desk = HookDesk(service.core, service.mail)
    return found
