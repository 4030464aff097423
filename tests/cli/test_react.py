"""`mesh react`: a CI job's log, review comments, the events' payloads; once per head commit, with the mesh down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import Mesh, refused
from tests.policy.test_reactions import check_run, comment_event, pull_request

PR = ("--repo", "acme/shop", "--pr", "7", "--head", "a" * 40)


def mail(mesh: Mesh, agent: str) -> list[dict[str, Any]]:
    folder = mesh.root / "agents" / agent / "inbox"
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def a_file(tmp_path: Path, content: Any, name: str = "given") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_a_log_becomes_a_message_once(mesh: Mesh, tmp_path: Path) -> None:
    log = a_file(tmp_path, "Missing semicolon at line 42\n")
    done = mesh("react", "ci", "--to", "ada", *PR, "--check", "lint", "--from-file", log)
    assert done.status == 0 and done.err == ""
    [message] = mail(mesh, "ada")
    assert message["id"] == done.out.strip()
    assert (message["type"], message["from"], message["via"], message["requiresAck"]) == (
        "fix_ci_failure",
        "cyd",
        "operator",
        True,
    )
    assert message["payload"] == {
        "pr": "https://github.com/acme/shop/pull/7",
        "check": "lint",
        "error": "Missing semicolon at line 42",
        "head": "a" * 40,
    }
    again = mesh("react", "ci", "--to", "ada", *PR, "--check", "lint", "--from-file", a_file(tmp_path, "other words"))
    assert again.status == 0 and again.out == done.out
    assert "was told of acme/shop#7, check lint before" in again.err
    assert len(mail(mesh, "ada")) == 1
    assert mesh("react", "ci", "--to", "bob", *PR, "--check", "lint", "--from-file", log).err == ""


def test_from_standard_input(mesh: Mesh) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "mesh", "react", "ci", "--to", "ada", *PR, "--check", "t", "--from-file", "-"],
        input=b"it broke \xff\n",
        env={"MESH_ROOT": str(mesh.root), "PATH": "/usr/bin:/bin"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert mail(mesh, "ada")[0]["payload"]["error"].startswith("it broke")


def test_the_payload_of_an_event_says_all_itself(mesh: Mesh, tmp_path: Path) -> None:
    done = mesh("react", "ci", "--to", "ada", "--from-file", a_file(tmp_path, check_run()), "--json")
    [told] = done.json["messages"]
    assert (told["type"], told["alreadySent"], told["about"]) == ("fix_ci_failure", False, "acme/shop#7, check lint")
    assert mesh("react", "review", "--to", "ada", "--from-file", a_file(tmp_path, comment_event())).status == 0
    assert mesh("react", "mergeable", "--to", "ada", "--from-file", a_file(tmp_path, pull_request())).status == 0
    assert sorted(message["type"] for message in mail(mesh, "ada")) == [
        "fix_ci_failure",
        "fix_review_comments",
        "pr_mergeable",
    ]
    passed = mesh("react", "ci", "--to", "ada", "--from-file", a_file(tmp_path, check_run(conclusion="success")))
    assert (passed.status, passed.out) == (0, "") and "nothing was sent: it ended with success" in passed.err
    other = mesh("react", "ci", "--to", "ada", "--from-file", a_file(tmp_path, pull_request()))
    assert "say mesh react mergeable" in refused(other)


def test_review_comments_are_one_message_a_review(mesh: Mesh, tmp_path: Path) -> None:
    first = [
        {"path": "a.py", "line": 3, "body": "one", "pull_request_review_id": 1, "user": {"login": "kim"}},
        {"path": "b.py", "line": None, "original_line": 9, "body": "two", "pull_request_review_id": 1},
    ]
    done = mesh("react", "review", "--to", "ada", *PR, "--from-file", a_file(tmp_path, first), "--json")
    assert len(done.json["messages"]) == 1
    [message] = mail(mesh, "ada")
    assert [(comment["path"], comment["line"], comment["body"]) for comment in message["payload"]["comments"]] == [
        ("a.py", 3, "one"),
        ("b.py", 9, "two"),
    ]
    more = [*first, {"path": "c.py", "line": 1, "body": "three", "pull_request_review_id": 2}]
    done = mesh("react", "review", "--to", "ada", *PR, "--from-file", a_file(tmp_path, {"comments": more}), "--json")
    assert [told["alreadySent"] for told in done.json["messages"]] == [True, False]
    assert len(mail(mesh, "ada")) == 2
    plain = [{"path": "d.py", "body": "without a review"}]
    for before in (False, True):
        done = mesh("react", "review", "--to", "ada", *PR, "--from-file", a_file(tmp_path, plain), "--json")
        assert [told["alreadySent"] for told in done.json["messages"]] == [before]
    nothing = mesh("react", "review", "--to", "ada", *PR, "--from-file", a_file(tmp_path, []))
    assert "there are no comments" in nothing.err and nothing.status == 0


def test_mergeable_and_an_address_for_the_pull_request(mesh: Mesh) -> None:
    link = "https://git.example/acme/shop/pull/7"
    done = mesh("react", "mergeable", "--to", "ada", "--repo", "acme/shop", "--pr", link, "--head", "b" * 40)
    assert done.status == 0
    [message] = mail(mesh, "ada")
    assert message["type"] == "pr_mergeable" and link in message["payload"]["text"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("ci", "--to", "ada", *PR, "--check", "x"), "--from-file"),
        (("ci", "--to", "eve", *PR, "--check", "x"), "eve"),
        (("ci", "--to", "human", *PR), "human"),
        (("ci", *PR), "--to"),
        (("ci", "--to", "ada", *PR, "--from-file", "no-such-file"), "no-such-file"),
        (("review", "--to", "ada", *PR), "gh api"),
        (("mergeable", "--to", "ada"), "--repo, --pr, --head"),
        (("mergeable", "--to", "ada", "--repo", "a/b", "--pr", "seven", "--head", "c"), "neither a number"),
    ],
)
def test_bad_use(mesh: Mesh, arguments: tuple[str, ...], told: str) -> None:
    assert told in refused(mesh("react", *arguments))


@pytest.mark.parametrize(
    "content", ["{", "3", '["x"]', '[{"line": 1}]', '{"comments": 1}', '[{"path": "a", "body": "b", "line": "x"}]']
)
def test_comments_of_another_shape(mesh: Mesh, tmp_path: Path, content: str) -> None:
    refused(mesh("react", "review", "--to", "ada", *PR, "--from-file", a_file(tmp_path, content)))
    assert mail(mesh, "ada") == []


def test_a_failed_check_needs_its_name(mesh: Mesh, tmp_path: Path) -> None:
    assert "--check" in refused(mesh("react", "ci", "--to", "ada", *PR, "--from-file", a_file(tmp_path, "log")))
