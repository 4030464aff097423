"""What `POST /task` takes and what not: shapes, and JSON that not everybody can read."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.service.stage import Served, assert_problem

at_the_door = pytest.mark.asyncio(loop_scope="module")

WRONG: list[tuple[Any, str]] = [
    ({}, "title"),
    ({"title": ""}, "title"),
    ({"title": "   "}, "title"),
    ({"title": "x" * 201}, "title"),
    ({"title": 5}, "title"),
    ({"title": "Echo", "priority": "asap"}, "priority"),
    ({"title": "Echo", "estimatedMinutes": 0}, "estimatedMinutes"),
    ({"title": "Echo", "estimatedMinutes": "soon"}, "estimatedMinutes"),
    ({"title": "Echo", "needs": "code"}, "needs"),
    ({"title": "Echo", "needs": [""]}, "needs.0"),
    ({"title": "Echo", "input": []}, "input"),
    ({"title": "Echo", "id": "a b"}, "id"),
    ({"title": "Echo", "id": "../../etc/passwd"}, "id"),
    ({"title": "Echo", "id": ".hidden"}, "id"),
    ({"title": "Echo", "id": "x" * 129}, "id"),
    ({"title": "Echo", "type": "A Type"}, "type"),
    ({"title": "Echo", "effects": "some"}, "effects"),
    ({"title": "Echo", "blockedBy": ["a/b"]}, "blockedBy.0"),
    ({"title": "Echo", "approval": "perhaps"}, "approval"),
    ({"title": "Echo", "colour": "red"}, "colour"),
    ({"title": "Echo", "blocked_by": []}, "blocked_by"),
    ({"title": "Echo", "from_": "ada"}, "from_"),
    ([], ""),
    ("Echo", ""),
    (None, ""),
]


@at_the_door
@pytest.mark.parametrize(("body", "field"), WRONG)
async def test_a_wrong_shape_names_the_field(front: Served, body: Any, field: str) -> None:
    async with front.client() as client:
        before = [task["id"] for task in (await client.get("/task")).json()]
        found = assert_problem(await client.post("/task", json=body), 422, "invalid")
        assert field in [error["field"] for error in found["errors"]]
        assert found["accepted"] is False and all(error["reason"] for error in found["errors"])
        assert [task["id"] for task in (await client.get("/task")).json()] == before


@at_the_door
@pytest.mark.parametrize("text", ["", "{", '{"title": "Echo"', "title=Echo", "{'title': 'Echo'}"])
async def test_what_is_no_json(front: Served, text: str) -> None:
    async with front.client(**{"Content-Type": "application/json"}) as client:
        assert_problem(await client.post("/task", content=text), 422, "invalid")


#: JSON for Python's parser, but not for others, or not for every step on the way.
ODD = [
    '{"title": "Echo", "input": {"x": NaN}}',
    '{"title": "Echo", "input": {"x": Infinity}}',
    '{"title": "Echo", "input": {"x": "\\ud800"}}',
    '{"title": "Echo", "input": {"\\ud800": 1}}',
    '{"title": "Echo", "input": {"x": ' + "9" * 5000 + "}}",
    '{"title": "Echo", "input": ' + '{"a":' * 300 + "1" + "}" * 301,
    '{"title": "Echo", "input": {"x": ' + "[" * 90_000 + "]" * 90_000 + "}}",
]


@pytest.mark.parametrize("text", ODD, ids=["nan", "infinity", "surrogate", "surrogate-key", "long", "deep", "deepest"])
async def test_odd_json_is_refused_or_kept_as_json(ada: Served, text: str) -> None:
    """Whatever is taken in must be answered, listed and filed as JSON that everybody can read."""
    async with ada.client(raising=False, **{"Content-Type": "application/json"}) as client:
        answer = await client.post("/task", content=text)
        assert answer.status_code in (202, 400, 422), answer.text
        listed = await client.get("/task")
        assert listed.status_code == 200, "one odd task must not hide the others"
        strict(listed)
        if answer.status_code == 202:
            strict(await client.get(f"/task/{answer.json()['taskId']}"))


def strict(answer: httpx.Response) -> Any:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    assert answer.status_code == 200
    return json.loads(answer.content.decode(), parse_constant=refuse)
