"""`POST /webhook/github`: what GitHub tells of pull requests becomes mail of the agent that is called.

The call carries no agent's secret, it is signed: HMAC-SHA256 over the body with a secret that GitHub and the mesh
share. Set it up in the repository with content type `application/json` and one of the events for failures (`check_run`
tells most), `pull_request_review`, `pull_request_review_comment` and `pull_request`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import Annotated, Any

from fastapi import FastAPI, Header, Request, Response

from mesh.errors import DiskFull, Forbidden, Invalid, Unauthenticated
from mesh.policy.reactions import Ignored, Reaction, of_github
from mesh.service import api_docs
from mesh.service.agent import AgentService
from mesh.service.core import Core
from mesh.service.exchange import answer, service_of
from mesh.service.guard import WEBHOOK_PATH
from mesh.service.reacting import WEBHOOK, Outcome, message_of, outcome
from mesh.store.mailbox import Again
from mesh.store.secret_file import SecretFile

SECRET_NAME = "MESH_WEBHOOK_SECRET"
_SCHEME = "sha256="
_ANSWERS: api_docs.Responses = {
    202: {"description": "taken: `messages` that were sent, or why it was `ignored`"},
    **api_docs.problems(401, 403, 404, 413, 415, 422, 503, 507),
}
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


def add_webhook(app: FastAPI) -> None:
    # No secret of an agent stands in `dependencies`: the signature takes its place.
    @app.post(WEBHOOK_PATH, status_code=202, tags=["mail"], responses=_ANSWERS, openapi_extra=_BODY)
    async def github(
        request: Request,
        event: Annotated[str, Header(alias="X-GitHub-Event", max_length=100)] = "",
        signature: Annotated[str, Header(alias="X-Hub-Signature-256", max_length=200)] = "",
        delivery: Annotated[str, Header(alias="X-GitHub-Delivery", max_length=100)] = "",
    ) -> Response:
        """A failed check, review comments or a mergeable pull request become a message to this agent, once per head
        commit. Anything else is ignored, and the answer says why."""
        service = service_of(request)
        body = await request.body()
        check_signature(await service.core.io(shared_secret, service.core), body, signature)
        found = of_github(event, _payload(body))
        if isinstance(found, Ignored):
            return answer({"received": True, "ignored": found.reason}, 202)
        sent = [await _send(service, reaction, delivery) for reaction in found]
        return answer({"received": True, "messages": [entry.view() for entry in sent]}, 202)


def shared_secret(core: Core) -> str:
    """What GitHub signs with. Raises Forbidden if none is set, StoreUnavailable if its file can't be used."""
    secret = os.environ.get(SECRET_NAME) or _secret_file(core).get(SECRET_NAME)
    if not secret:
        raise Forbidden(
            f"No webhook is set up here: set {SECRET_NAME} in the agent's environment or in secrets.toml beside "
            "registry.json (chmod 600), and the same secret at GitHub."
        )
    return secret


def _secret_file(core: Core) -> SecretFile:
    return SecretFile(f"{core.store.layout.agents}/secrets.toml", core.store.disk)


def check_signature(secret: str, body: bytes, signature: str) -> None:
    """Raise Unauthenticated unless the body was signed with the secret. Compares in constant time."""
    right = _SCHEME + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(right.encode(), signature.encode(errors="replace")):
        what = "doesn't fit the body" if signature else "is missing"
        raise Unauthenticated(f"X-Hub-Signature-256 {what}: is the secret at GitHub the same as {SECRET_NAME} here?")


def _payload(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Invalid("The body is no JSON object; choose the content type application/json at GitHub.", errors=[])
    return found


async def _send(service: AgentService, reaction: Reaction, delivery: str) -> Outcome:
    core = service.core
    if core.disk_low:
        raise DiskFull(f"Less than {core.limits.disk_free_min_mb} MB of disk are free: no mail is taken.")
    message = await core.io(message_of, core.store, core.registry, reaction, core.agent, WEBHOOK)
    posted = (await service.mail.outgoing.post([message], again=Again.BY_ID, queue=True))[0]
    told = outcome(reaction, posted)
    service.mail.postman.ring()
    if not told.before:
        core.event("reacted", told.about, messageId=told.id, type=told.type, delivery=delivery[:100])
    return told
