"""What every request passes first: host, origin, secret, size and type of the body."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.service.stage import Mesh, Served, assert_problem, until

at_the_door = pytest.mark.asyncio(loop_scope="module")

# -- secrets


@at_the_door
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic dXNlcjpwYXNz",
        "bearer: x",
        "Bearer \xe9\xff",
        "Token {}",
        "{}",
    ],
)
async def test_a_missing_or_wrong_secret(front: Served, header: str | None) -> None:
    known = front.mesh.secret("dee")
    sent = {} if header is None else {"Authorization": header.format(known).encode("latin-1")}
    async with front.client(None) as client:
        for method, path in (("GET", "/status"), ("POST", "/task"), ("GET", "/openapi.json"), ("GET", "/nothing")):
            answer = await client.request(method, path, headers=sent)
            assert_problem(answer, 401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert known not in answer.text


@at_the_door
async def test_the_scheme_is_named_in_any_case(front: Served) -> None:
    async with front.client(None) as client:
        for scheme in ("Bearer", "bearer", "BEARER"):
            headers = {"Authorization": f"{scheme} {front.mesh.secret('dee')}"}
            assert (await client.get("/status", headers=headers)).status_code == 200


async def test_the_secret_of_an_agent_that_is_gone_opens_nothing(mesh: Mesh) -> None:
    async with mesh.running("ada") as ada, ada.client("dee") as client:
        assert (await client.get("/status")).status_code == 200

        def remove(document: dict[str, dict[str, dict[str, str]]]) -> None:
            del document["agents"]["dee"]
            document["agents"]["cyd"]["buddy"] = "ada"

        mesh.edit(remove)
        await until(lambda: "dee" not in ada.service.core.registry.agents)
        assert_problem(await client.get("/status"), 401, "unauthenticated")


async def test_a_new_secret_counts_at_once(ada: Served) -> None:
    path = ada.mesh.root / "agents" / "dee" / "secret"
    async with ada.client("dee") as client:
        path.write_text("another-secret-of-the-same-kind\n", encoding="utf-8")
        assert_problem(await client.get("/status"), 401, "unauthenticated")
        headers = {"Authorization": "Bearer another-secret-of-the-same-kind"}
        assert (await client.get("/status", headers=headers)).status_code == 200


async def test_an_empty_secret_file_lets_nobody_in(ada: Served) -> None:
    (ada.mesh.root / "agents" / "dee" / "secret").write_text("\n", encoding="utf-8")
    async with ada.client(None) as client:
        for sent in ("Bearer ", "Bearer  ", "Bearer \t"):
            assert_problem(await client.get("/status", headers={"Authorization": sent}), 401, "unauthenticated")


@at_the_door
async def test_the_operators_header_lines_work_as_they_are(front: Served) -> None:
    lines = (front.mesh.root / "operator.header").read_text(encoding="utf-8").splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    assert headers.keys() == {"Authorization", "Content-Type"}
    async with front.client(None) as client:
        answer = await client.post("/wake", content='{"from":"dee","reason":"check"}', headers=headers)
    assert answer.status_code == 200


# -- hosts


@at_the_door
@pytest.mark.parametrize("host", ["localhost", "localhost:18802", "127.0.0.1:1", "LOCALHOST", "[::1]:80", "[::1]"])
async def test_the_hosts_own_names(front: Served, host: str) -> None:
    async with front.client() as client:
        assert (await client.get("/status", headers={"Host": host})).status_code == 200
        assert (await client.get("/status", headers={"Origin": f"http://{host}"})).status_code == 200


@at_the_door
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "[::2]", ""]
)
async def test_a_foreign_host(front: Served, host: str) -> None:
    async with front.client() as client:
        for path in ("/status", "/health"):
            found = assert_problem(await client.get(path, headers={"Host": host}), 403, "foreign-host")
            assert "allowedHosts" in found["detail"] and found["allowedHosts"] == []


@at_the_door
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://evil.example:8443", "null", "http://localhost.evil.example", "file://"]
)
async def test_a_foreign_origin(front: Served, origin: str) -> None:
    async with front.client() as client:
        answer = await client.post("/task", json={"title": "Echo"}, headers={"Origin": origin})
        found = assert_problem(answer, 403, "foreign-host")
        assert "Origin" in found["detail"] and found["accepted"] is False
        assert (await client.get("/task")).json() == []


@pytest.mark.parametrize("allowed", ["vps.example", "VPS.Example"])
async def test_a_host_that_is_allowed(mesh: Mesh, allowed: str) -> None:
    """Names of hosts know no case; the edit counts at once."""
    async with mesh.running("ada") as ada, ada.client() as client:
        headers = {"Host": "vps.example:18802", "Origin": "https://vps.example"}
        assert_problem(await client.get("/status", headers=headers), 403, "foreign-host")
        mesh.edit(lambda document: document.update(allowedHosts=[allowed]))
        await until(lambda: ada.service.core.registry.allowed_hosts)
        assert (await client.get("/status", headers=headers)).status_code == 200
        found = assert_problem(await client.get("/status", headers={"Host": "other.example"}), 403, "foreign-host")
        assert found["allowedHosts"] == [allowed]


async def test_the_hosts_of_the_agents_own_entry(mesh: Mesh) -> None:
    mesh.edit(lambda document: document["agents"]["ada"].update(host="127.0.0.7"))
    async with mesh.running("ada") as ada, ada.client() as client:
        assert (await client.get("/status", headers={"Host": "127.0.0.7:19100"})).status_code == 200


# -- bodies


@at_the_door
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"])
async def test_a_wrong_content_type(front: Served, kind: str) -> None:
    """What a browser's form may send unasked gets nowhere."""
    async with front.client() as client:
        answer = await client.post("/task", content=b'{"title": "Echo"}', headers={"Content-Type": kind})
        found = assert_problem(answer, 415, "wrong-content-type")
        assert found["accepted"] is False
        assert (await client.get("/task")).json() == []


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json"]
)
async def test_a_right_content_type(ada: Served, kind: str) -> None:
    async with ada.client() as client:
        answer = await client.post("/task", content=b'{"title": "Echo"}', headers={"Content-Type": kind})
    assert answer.status_code == 202, answer.text


async def _chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 10_000


def _assert_too_large(answer: httpx.Response) -> None:
    found = assert_problem(answer, 413, "too-large")
    assert found["limitBytes"] == 1_000_000 and found["accepted"] is False


async def test_a_body_over_one_megabyte(ada: Served) -> None:
    json_type = {"Content-Type": "application/json"}
    just = b'{"title": "Echo", "description": "' + b"x" * 90_000 + b'"}'
    just += b" " * (1_000_000 - len(just))
    async with ada.client(**json_type) as client:
        assert (await client.post("/task", content=just)).status_code == 202, "exactly the limit is within it"
        _assert_too_large(await client.post("/task", content=just + b" "))  # its length is declared
        _assert_too_large(await client.post("/task", content=_chunks(101)))  # it is only found out on the way
        liar = {"Content-Length": "17"}
        _assert_too_large(await client.post("/task", content=_chunks(101), headers=liar))


@at_the_door
async def test_an_endless_body_is_cut_off(front: Served) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 100_000

    async with front.client(**{"Content-Type": "application/json"}) as client:
        _assert_too_large(await client.post("/task", content=endless()))
    assert sent <= 12, "it isn't read to see how long it is"


async def test_the_size_is_a_limit(mesh: Mesh) -> None:
    mesh.limit(messageBytesMax=2_000, resultBytesMax=20_000)
    async with mesh.running("ada") as ada, ada.client() as client:
        found = await client.post("/task", json={"title": "Echo", "description": "x" * 2_000})
        assert assert_problem(found, 413, "too-large")["limitBytes"] == 2_000


@at_the_door
@pytest.mark.parametrize("length", ["-1", "1e9", "9" * 5000, "\xb2", "+5", "ten"])
async def test_a_nonsensical_length(front: Served, length: str) -> None:
    async with front.client(raising=False) as client:
        headers = {"Content-Length": length.encode("latin-1"), "Content-Type": "application/json"}
        answer = await client.post("/task", content=b'{"title": "Echo"}', headers=headers)
    assert answer.status_code < 500, answer.text
