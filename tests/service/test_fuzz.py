"""Whatever is sent to an agent, it answers with what it means and never with a 500."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh.service import ports
from mesh.service.server import AgentServer
from tests.service.sockets import free_port
from tests.service.stage import Mesh, Served, until

ROUTES = [
    ("GET", "/health"),
    ("GET", "/status"),
    ("POST", "/task"),
    ("GET", "/task"),
    ("GET", "/task/some"),
    ("DELETE", "/task/some"),
    ("POST", "/buddy/ping"),
    ("POST", "/buddy/review"),
    ("POST", "/wake"),
    ("GET", "/openapi.json"),
    ("PATCH", "/nothing"),
]
KNOWN = st.sampled_from(
    "title type description priority estimatedMinutes outputs needs skill input blockedBy owner from id approval "
    "effects timestamp myStatus checkResults reason taskQueueLength currentTask contextTokens errors24h".split()
)
PLAIN = st.sampled_from(["Echo", "any", "ada", "human", "urgent", "external", "task", ""])
#: Half characters included: JSON can say them, UTF-8 can't.
TEXT = PLAIN | st.text(max_size=8) | st.sampled_from(["\ud800", "\x00", "\u202e", "a" * 300])
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KNOWN | TEXT, inner, max_size=4), max_leaves=8
)
#: A task that is taken in, but for what its fields may hold.
TASK = st.fixed_dictionaries(
    {"title": st.just("Echo")},
    optional={
        "input": st.dictionaries(TEXT, VALUE, max_size=3),
        "description": TEXT,
        "outputs": st.lists(TEXT, max_size=2),
    },
)
BODY = TASK | st.dictionaries(KNOWN, VALUE, max_size=6) | VALUE
#: Values as they can come over a wire: any byte but line ends.
HEADER = st.binary(max_size=12).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"").replace(b"\x00", b""))
HEADERS = st.dictionaries(
    st.sampled_from(["Authorization", "Host", "Origin", "Content-Length", "X-Other", "Accept", "Expect", "Range"]),
    HEADER,
    max_size=2,
)
WITHIN_A_LOOP = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    database=None,
)


def assert_answered(answer: Any) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
    else:
        json.loads(answer.content.decode())


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.asyncio(loop_scope="module")
@WITHIN_A_LOOP
@given(body=BODY, headers=HEADERS)
async def test_no_body_and_no_header_upsets_a_route(
    front: Served, method: str, path: str, body: Any, headers: dict[str, bytes]
) -> None:
    text = json.dumps(body).encode()
    async with front.client(raising=False, **{"Content-Type": "application/json"}) as client:
        if method == "GET":
            assert_answered(await client.request(method, path, headers=headers))
        else:
            assert_answered(await client.request(method, path, content=text, headers=headers))
        assert_answered(await client.get("/task?limit=1000"))
    assert front.service.core.fatal is None


@pytest.mark.asyncio(loop_scope="module")
@WITHIN_A_LOOP
@given(body=TASK)
async def test_whatever_is_taken_in_can_be_listed(front: Served, body: Any) -> None:
    async with front.client(raising=False, **{"Content-Type": "application/json"}) as client:
        answer = await client.post("/task", content=json.dumps(body).encode())
        assert_answered(answer)
        assert_answered(await client.get("/task?limit=5"))
        if answer.status_code == 202:
            await front.ended(answer.json()["taskId"])
            assert_answered(await client.get(f"/task/{answer.json()['taskId']}"))


@pytest.mark.asyncio(loop_scope="module")
@WITHIN_A_LOOP
@given(text=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
async def test_no_bytes_upset_the_task_route(front: Served, text: bytes) -> None:
    async with front.client(raising=False, **{"Content-Type": "application/json"}) as client:
        assert_answered(await client.post("/task", content=text))


@pytest.mark.asyncio(loop_scope="module")
@WITHIN_A_LOOP
@given(part=st.text(min_size=1, max_size=20), query=st.text(max_size=20))
async def test_no_path_and_no_query_upsets_it(front: Served, part: str, query: str) -> None:
    quoted, asked = (urllib.parse.quote(text.encode("utf-8", "ignore"), safe="") for text in (part, query))
    async with front.client(raising=False) as client:
        for url in (f"/task/{quoted}", f"/task?owner={asked}", f"/task?status={asked}&limit={asked}", f"/{quoted}"):
            answer = await client.get(url)
            if answer.status_code not in (301, 307):
                assert_answered(answer)


@pytest.mark.asyncio(loop_scope="module")
async def test_after_all_that_it_still_works(front: Served) -> None:
    await front.ended(await front.give("Echo"))
    async with front.client() as client:
        assert (await client.get("/health")).status_code == 200


@pytest.fixture
def address(mesh: Mesh) -> Iterator[str]:
    """ada behind a real socket, in a loop and thread of her own."""
    port = free_port()
    mesh.edit(lambda document: document["agents"]["ada"].update(port=port))
    ready: list[AgentServer] = []
    up = threading.Event()

    async def serve() -> None:
        server = AgentServer(mesh.service("ada"), ports.bind("127.0.0.1", port, "ada"))
        ready.append(server)
        running = asyncio.ensure_future(server.run_until_ended())
        await until(lambda: server.started or running.done())
        up.set()
        await running

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(10)
    yield f"http://127.0.0.1:{port}"
    server = ready[0]
    server.servers[0].get_loop().call_soon_threadsafe(server.end)
    thread.join(15)
    assert not thread.is_alive()


def test_the_openapi_document_tells_the_truth(mesh: Mesh, address: str) -> None:
    """Requests made from the description, over a real socket: no 500, and what the description says is answered."""
    headers = {"Authorization": f"Bearer {mesh.secret('operator')}"}
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json", headers=headers)
    called: set[str] = set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            answer = case.call(headers=headers)
            called.add(f"{case.method} {case.path}")
            assert answer.status_code < 500, (case.method, case.path, case.body, answer.text)

        check()
    assert len(called) == 20, called
