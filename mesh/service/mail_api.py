"""The HTTP routes of mail. They validate and hand on; the postman acts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request, Response
from pydantic import ConfigDict, StringConstraints

from mesh.models import AGENT_ID_PATTERN, MESSAGE_TYPE_PATTERN, MessageRequest
from mesh.models.base import Asked
from mesh.service import api_docs, mail_desk
from mesh.service.auth import speaks_as
from mesh.service.exchange import answer, caller_of, service_of

_LIST_MAX = 1000


class AckRequest(Asked):
    """Body of `POST /message/{id}/ack`; may be left out."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "done"}]})

    text: Annotated[str, StringConstraints(max_length=10_000)] = ""


_NO_TEXT = AckRequest()


def add_mail(app: FastAPI) -> None:
    @app.post(
        "/message", status_code=202, tags=["mail"], responses=api_docs.MESSAGE_RECEIVED, dependencies=api_docs.SECRET
    )
    async def post_message(request: Request, body: MessageRequest) -> Response:
        """Send this agent a message; answered once it is durable in its inbox."""
        service, caller = service_of(request), caller_of(request)
        sender = speaks_as(service.core, caller, body.from_)
        message, response = await mail_desk.take_in(service, body, sender, caller)
        received: dict[str, Any] = {"received": True, "id": message.id}
        return answer(received if response is None else {**received, "response": response}, 202)

    @app.get("/message", tags=["mail"], responses=api_docs.MESSAGES, dependencies=api_docs.SECRET)
    async def list_messages(
        request: Request,
        type: Annotated[str | None, Query(pattern=MESSAGE_TYPE_PATTERN)] = None,
        sender: Annotated[str | None, Query(pattern=AGENT_ID_PATTERN)] = None,
        thread: Annotated[str | None, Query(max_length=128)] = None,
        unread: bool = False,
        limit: Annotated[int, Query(ge=1, le=_LIST_MAX)] = 100,
    ) -> Response:
        """What waits in the inbox, urgent first. Looking changes nothing; `unread` leaves out what was shown."""
        core = service_of(request).core
        mail_desk.may_read(core, caller_of(request))
        return answer(await core.io(mail_desk.listed, core, type, sender, thread, unread, limit))

    @app.post("/message/{message_id}/ack", tags=["mail"], responses=api_docs.ACKED, dependencies=api_docs.SECRET)
    async def ack_message(
        request: Request, message_id: str, body: Annotated[AckRequest, Body()] = _NO_TEXT
    ) -> Response:
        """Say that a message is dealt with. Again is harmless."""
        service = service_of(request)
        mail_desk.may_read(service.core, caller_of(request))
        await mail_desk.acknowledge(service, message_id, body.text)
        return answer({"acked": True})

    @app.post("/attachment", status_code=201, tags=["mail"], responses=api_docs.ATTACHED, dependencies=api_docs.SECRET)
    async def post_attachment(request: Request, name: Annotated[str, Query(min_length=1, max_length=200)]) -> Response:
        """Store a file for `attachments` of a message: its content is the body, its type the Content-Type."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower() or None
        stored = await mail_desk.attach(service_of(request).core, await request.body(), name, kind)
        return answer(stored.dump(), 201)

    @app.get("/attachment/{sha256}", tags=["mail"], responses=api_docs.ATTACHMENT, dependencies=api_docs.SECRET)
    async def get_attachment(request: Request, sha256: str) -> Response:
        """The content of an attachment. Never shown by a browser: it may be anything."""
        core = service_of(request).core
        data = await core.io(core.store.mail.attachments.read, sha256)
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Response(data, headers=headers, media_type="application/octet-stream")
