"""The server itself: who gets in, what is offered, and both transports."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest

from mesh.errors import PortTaken
from mesh.interop.mcp.desk import Desk
from mesh.interop.mcp.server import _bound, stdio_server
from mesh.store.secrets import OPERATOR
from tests.interop.mcp.stage import TOOLS, Session, Tools, on_stdio
from tests.service.mail_stage import filed, send
from tests.service.stage import Mesh, assert_problem

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


async def _post(tools: Tools, body: Any = INITIALIZE, secret: str | None = None, **headers: str) -> httpx.Response:
    accepts = {"Accept": "application/json, text/event-stream", **headers}
    if secret is not None:
        accepts["Authorization"] = f"Bearer {secret}"
    async with httpx.AsyncClient(headers=accepts, timeout=20) as http:
        return await http.post(tools.url, json=body)


async def test_every_tool_is_offered_described_and_typed(bob: Session) -> None:
    listed = (await bob.client.list_tools()).tools
    assert {tool.name for tool in listed} == TOOLS
    for tool in listed:
        assert tool.description and tool.output_schema, tool.name
        assert tool.annotations is not None and tool.annotations.destructive_hint is False
        assert tool.input_schema["additionalProperties"] is False, tool.name
        assert "self" not in tool.input_schema["properties"] and "ctx" not in tool.input_schema["properties"]


async def test_tools_that_only_look_say_so(bob: Session) -> None:
    listed = (await bob.client.list_tools()).tools
    assert {tool.name for tool in listed if tool.annotations and tool.annotations.read_only_hint} == {
        "whoami",
        "list_agents",
        "my_context",
        "check_inbox",
        "read_message",
        "next_task",
    }


async def test_both_generations_of_the_protocol_are_answered(mesh: Mesh, tools: Tools) -> None:
    answer = await _post(tools, secret=mesh.secret("bob"))
    assert answer.status_code == 200
    result = answer.json()["result"]
    assert result["protocolVersion"] == "2025-06-18" and "ack" in result["instructions"]
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}}
    answer = await _post(tools, call, mesh.secret("bob"), **{"MCP-Protocol-Version": "2025-06-18"})
    assert answer.json()["result"]["structuredContent"]["agentId"] == "bob"


async def test_no_secret_no_tools(mesh: Mesh, tools: Tools) -> None:
    refused = await _post(tools)
    assert_problem(refused, 401, "unauthenticated")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert_problem(await _post(tools, secret="wrong"), 401, "unauthenticated")
    assert_problem(await _post(tools, Authorization=f"Basic {mesh.secret('bob')}"), 401, "unauthenticated")
    assert "send that agent's own" in assert_problem(await _post(tools, secret=mesh.secret(OPERATOR)), 403)["detail"]
    async with httpx.AsyncClient() as http:
        assert (await http.get(tools.url)).status_code == 401
        assert (await http.delete(tools.url)).status_code == 401


async def test_who_left_the_registry_gets_in_no_more(mesh: Mesh, tools: Tools) -> None:
    secret = mesh.secret("dee")
    assert (await _post(tools, secret=secret)).status_code == 200

    def remove(document: dict[str, Any]) -> None:
        del document["agents"]["dee"]
        document["agents"]["cyd"]["buddy"] = "ada"

    mesh.edit(remove)
    assert (await _post(tools, secret=secret)).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:18799"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost.evil.example:8080"},
        {"Origin": "null"},
    ],
)
async def test_foreign_pages_get_nowhere_even_with_the_secret(
    mesh: Mesh, tools: Tools, headers: dict[str, str]
) -> None:
    assert_problem(await _post(tools, secret=mesh.secret("bob"), **headers), 403, "foreign-host")


async def test_hosts_that_the_operator_allows_count_at_once(mesh: Mesh, tools: Tools) -> None:
    headers = {"Host": "mesh.example", "Origin": "https://mesh.example"}
    assert (await _post(tools, secret=mesh.secret("bob"), **headers)).status_code == 403
    mesh.edit(lambda document: document.update(allowedHosts=["mesh.example"]))
    assert (await _post(tools, secret=mesh.secret("bob"), **headers)).status_code == 200
    assert (await _post(tools, secret=mesh.secret("bob"), Origin="http://localhost:3000")).status_code == 200


async def test_no_stream_stays_open(mesh: Mesh, tools: Tools) -> None:
    known = {"Authorization": f"Bearer {mesh.secret('bob')}", "Accept": "text/event-stream"}
    async with httpx.AsyncClient(headers=known) as http:
        for answer in (await http.get(tools.url), await http.delete(tools.url)):
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_other_paths(tools: Tools) -> None:
    base = tools.url.removesuffix("/mcp")
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{base}/health")).json()["status"] == "healthy"
        assert (await http.get(f"{base}/.well-known/oauth-protected-resource")).status_code == 404
        assert (await http.post(f"{base}/mcp/", json=INITIALIZE)).status_code in (307, 401, 404)
        assert_problem(await http.get(f"{base}/health", headers={"Host": "evil.example"}), 403, "foreign-host")


async def test_garbage_is_refused_and_the_server_goes_on(mesh: Mesh, tools: Tools) -> None:
    secret = mesh.secret("bob")
    for body in (None, [], "x", {"jsonrpc": "2.0"}, {"jsonrpc": "2.0", "id": 1, "method": "no/such"}):
        answer = await _post(tools, body, secret)
        assert answer.status_code < 500, (body, answer.text)
    huge = {**INITIALIZE, "params": {"text": "x" * 5_000_000}}
    assert (await _post(tools, huge, secret)).status_code == 413
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as http:
        assert (await http.post(tools.url, content=b"text", headers={"Content-Type": "text/plain"})).status_code < 500
    assert (await _post(tools, secret=secret)).status_code == 200


async def test_unknown_tools_are_refused(bob: Session) -> None:
    result: Any = await bob.client.call_tool("no_such_tool", {})
    assert result.is_error and "no_such_tool" in result.content[0].text


async def test_a_session_goes_on_when_the_server_was_restarted(mesh: Mesh, tools: Tools) -> None:
    """It is stateless: what another server began, this one goes on with."""
    headers = {"MCP-Protocol-Version": "2025-06-18", "Mcp-Session-Id": "of-a-server-that-is-gone"}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}}
    answer = await _post(tools, call, mesh.secret("bob"), **headers)
    assert answer.json()["result"]["structuredContent"]["agentId"] == "bob"


async def test_stdio_is_the_same_server_for_one_agent(mesh: Mesh) -> None:
    id_ = await send(mesh, "ada", "bob", payload={"text": "over stdio"})
    async with on_stdio(mesh, "bob") as bob:
        assert {tool.name for tool in (await bob.client.list_tools()).tools} == TOOLS
        assert (await bob("whoami"))["agentId"] == "bob"
        assert [message["id"] for message in (await bob("check_inbox"))["messages"]] == [id_]
        await bob("ack_message", message_id=id_)
        await bob("send_message", to="ada", text="got it")
        assert "No agent is called 'eve'" in await bob.refused("send_message", to="eve", text="x")
    assert [message["payload"]["text"] for message in filed(mesh, "ada")] == ["got it"]


async def test_stdio_serves_all_tools_without_a_process_too(mesh: Mesh) -> None:
    desk = Desk(str(mesh.root))
    server = stdio_server(desk, "bob")
    assert {tool.name for tool in await server.list_tools()} == TOOLS
    await desk.close()


def test_a_taken_port_names_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"Port {port} is taken by pid \d+ .*mesh mcp serve --port"):
            _bound(port)
