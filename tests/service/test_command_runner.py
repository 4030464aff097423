"""An agent whose work a CLI does: real processes, a real agent, a program that stands in for the CLI."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import mesh.runners.profiles
from tests.service.fake_cli import FAKE
from tests.service.stage import Mesh, Served, until
from tests.service.test_worktrees import run_git

CLI = {"kind": "command", "cli": "claude"}


@pytest.fixture(autouse=True)
def fake_cli(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[None]:
    home = tmp_path / "home"
    (home / ".fake").mkdir(parents=True)
    (home / ".fake" / "login").write_text("in")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OTHERS_API_KEY", "sk-not-yours")
    monkeypatch.setenv("FAKE_API_KEY", "sk-own")
    monkeypatch.setattr(mesh.runners.profiles, "profile", lambda name: FAKE, raising=False)
    yield
    for process in left_over(tmp_path):
        process.kill()


def left_over(folder: pathlib.Path) -> list[psutil.Process]:
    """What still runs of a mesh below this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != "zombie" and str(folder) in process.environ().get("HOME", ""):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.fixture
def cli_mesh(mesh: Mesh) -> Mesh:
    """ada's work is done by the CLI."""
    mesh.edit(lambda document: document["agents"]["ada"].update(runner=CLI))
    return mesh


def runs(mesh: Mesh, agent: str = "ada") -> list[dict[str, Any]]:
    """The records of all runs, oldest first."""
    return [json.loads(path.read_text()) for path in sorted((mesh.root / "agents" / agent / "runs").glob("*/run.json"))]


def alive(mesh: Mesh, run: dict[str, Any]) -> bool:
    found = mesh.store.runs.find(run["agent"], run["id"])
    return found is not None and mesh.store.runs.is_alive(found)


async def started(mesh: Mesh, count: int = 1, agent: str = "ada") -> dict[str, Any]:
    """The newest run, once so many have begun to talk."""
    await until(lambda: [run for run in runs(mesh, agent) if run["begun"]][count - 1 :])
    return runs(mesh, agent)[-1]


async def test_a_task_is_done_and_what_it_used_recorded(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Anything at all", description="!step one\n!say it is **done**")
        task = await ada.ended(task_id)
    assert task["result"]["text"] == "it is **done**"
    assert task["result"]["usage"]["inputTokens"] == 10
    [run] = runs(cli_mesh)
    assert run["session"] in task["result"]["evidence"][0]
    assert json.loads((cli_mesh.root / "agents/ada/session.json").read_text())["id"] == run["session"]
    assert cli_mesh.store.places.taken() == []
    assert not list((cli_mesh.root / "system/tmp").iterdir()), "what it needed while it ran is gone"


async def test_skills_come_first(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        await ada.ended(await ada.give("Echo"))
    assert runs(cli_mesh) == []


async def test_the_prompt_is_on_no_command_line(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Hidden", description="!sleep 20\nthe launch code is tulip")
        run = await started(cli_mesh)
        await until(lambda: len(psutil.Process(run["pid"]).children()) == 1)
        [child] = psutil.Process(run["pid"]).children()
        assert "tulip" not in " ".join([*child.cmdline(), *psutil.Process(run["pid"]).cmdline()])
        async with ada.client() as client:
            await client.delete(f"/task/{task_id}")
        await ada.ended(task_id, "cancelled")


async def test_the_child_sees_its_own_keys_only(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Look around", description="!env"))
    names = set(task["result"]["text"].split())
    assert {"FAKE_API_KEY", "FAKE_NO_UPDATE", "HOME", "PATH", "MESH_RUN"} <= names
    assert "OTHERS_API_KEY" not in names
    kept = {name for name in names if name.startswith(("MESH_", "FAKE_"))}
    assert kept == {"FAKE_API_KEY", "FAKE_NO_UPDATE", "MESH_RUN", "MESH_AGENT", "MESH_AGENT_SECRET"}


async def test_a_secret_that_it_prints_is_kept_nowhere(cli_mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_API_KEY", "sk-own-0123456789")
    own = cli_mesh.secret("ada")
    async with cli_mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Leak", description=f"!say key sk-own-0123456789 and {own}"))
    assert task["result"]["text"] == "key [secret] and [secret]"


async def test_a_cancelled_task_leaves_no_process_behind(cli_mesh: Mesh, tmp_path: pathlib.Path) -> None:
    cli_mesh.limit(stopGraceS=1.0)
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Endless", description="!stubborn\n!daemon\n!step\n!sleep 300")
        await until(lambda: len(left_over(tmp_path)) >= 3)
        async with ada.client() as client:
            assert (await client.delete(f"/task/{task_id}")).status_code == 200
        await ada.ended(task_id, "cancelled")
        await until(lambda: left_over(tmp_path) == [])
        assert cli_mesh.store.places.taken() == []


async def test_what_takes_too_long_is_ended(cli_mesh: Mesh, tmp_path: pathlib.Path) -> None:
    cli_mesh.edit(lambda document: document["agents"]["ada"].update(runner={**CLI, "timeoutS": 0.5}))
    cli_mesh.limit(taskAttemptsMax=1)
    async with cli_mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Slow", description="!sleep 300"), "failed")
        assert "longer than 0.5 s" in task["error"]
        await until(lambda: left_over(tmp_path) == [])


async def test_work_goes_on_without_its_daemon_and_has_one_result(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Long", description="!sleep 1.5\n!say survived")
        run = await started(cli_mesh)
    assert alive(cli_mesh, run), "the daemon has ended, the work hasn't"
    assert cli_mesh.task(task_id)["status"] == "working"
    async with cli_mesh.running("ada") as ada:
        assert cli_mesh.events("work_taken_up")
        task = await ada.ended(task_id)
        assert ada.service.core.incarnation == 2
    assert (task["result"]["text"], task["attempts"]) == ("survived", 1)
    assert len(runs(cli_mesh)) == 1
    completed = [event for event in cli_mesh.events("task_completed") if event["taskId"] == task_id]
    assert len(completed) == 1


async def test_a_result_that_came_while_nobody_watched_is_taken(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Quick", description="!sleep 0.7\n!say in the meantime")
        run = await started(cli_mesh)
    await until(lambda: not alive(cli_mesh, run))
    async with cli_mesh.running("ada") as ada:
        task = await ada.ended(task_id)
    assert (task["result"]["text"], task["attempts"], len(runs(cli_mesh))) == ("in the meantime", 1, 1)


async def test_a_pause_ends_the_work_and_the_same_session_goes_on(cli_mesh: Mesh, tmp_path: pathlib.Path) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Paused", description="!sleep 300\n!say went on")
        run = await started(cli_mesh)
        began_s = time.monotonic()
        cli_mesh.store.switches.pause("ada", "human", "lunch")
        await until(lambda: left_over(tmp_path) == [], 3.0)
        assert time.monotonic() - began_s < 2.5
        assert (await ada.ended(task_id, "queued"))["attempts"] == 0
        cli_mesh.store.switches.resume("ada")
        task = await ada.ended(task_id)
    first, second = runs(cli_mesh)
    assert first["id"] == run["id"] and "lunch" in first["stopped"]
    assert (second["session"], second["resumed"]) == (first["session"], True)
    assert task["result"]["text"] == "went on"
    prompt = (cli_mesh.root / "agents/ada/runs" / second["id"] / "prompt").read_text()
    assert "interrupted (lunch)" in prompt and "!sleep" not in prompt


async def test_an_agent_that_is_to_stay_stopped_ends_its_work(cli_mesh: Mesh, tmp_path: pathlib.Path) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Stopped", description="!sleep 300")
        await started(cli_mesh)
        cli_mesh.store.switches.stop("ada", "human", "enough")
    assert left_over(tmp_path) == []
    assert cli_mesh.task(task_id)["status"] == "queued"


async def test_host_that_went_down_resumes_the_session(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Reboot", description="!sleep 300\n!say after the reboot")
        run = await started(cli_mesh)
    path = cli_mesh.root / "agents/ada/runs" / run["id"] / "run.json"
    path.write_text(json.dumps({**run, "bootId": "the-boot-before"}))  # as after a reboot: no process, no status
    async with cli_mesh.running("ada") as ada:
        task = await ada.ended(task_id)
    assert task["result"]["text"] == "after the reboot"
    first, second = runs(cli_mesh)
    assert (second["resumed"], second["session"]) == (True, first["session"])


# -- what the host can take


async def test_one_place_and_the_rest_waits_visibly(mesh: Mesh) -> None:
    for agent in ("ada", "bob"):
        mesh.edit(lambda document, agent=agent: document["agents"][agent].update(runner=CLI))
    mesh.limit(maxRunning=1)
    async with mesh.running("ada") as ada, mesh.running("bob") as bob:
        first = await ada.give("First", description="!sleep 2")
        await started(mesh)
        second = await bob.give("Second", description="!say at last")
        await until(lambda: "all 1 places" in (bob.service.core.state.reason or ""))
        assert "ada (First)" in str(bob.service.core.state.reason)
        assert [place.agent for place in mesh.store.places.waiting()] == ["bob"]
        await ada.ended(first)
        assert (await bob.ended(second))["result"]["text"] == "at last"
        assert bob.service.core.state.reason is None


async def test_who_is_cancelled_in_the_line_leaves_it(mesh: Mesh) -> None:
    for agent in ("ada", "bob"):
        mesh.edit(lambda document, agent=agent: document["agents"][agent].update(runner=CLI))
    mesh.limit(maxRunning=1)
    async with mesh.running("ada") as ada, mesh.running("bob") as bob:
        first = await ada.give("First", description="!sleep 3")
        await started(mesh)
        second = await bob.give("Second")
        await until(mesh.store.places.waiting)
        async with bob.client() as client:
            await client.delete(f"/task/{second}")
        await bob.ended(second, "cancelled")
        assert mesh.store.places.waiting() == []
        await ada.ended(first)


# -- repositories


@pytest.fixture
def repo(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    run_git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-qm", "first")
    return folder


def give_repo(mesh: Mesh, repo: pathlib.Path, agents: tuple[str, ...] = ("ada",), **choice: Any) -> None:
    for agent in agents:
        fields = {"runner": {**CLI, **choice}, "repo": str(repo)}
        mesh.edit(lambda document, agent=agent, fields=fields: document["agents"][agent].update(fields))


async def test_a_task_works_in_a_worktree_of_its_own(mesh: Mesh, repo: pathlib.Path) -> None:
    give_repo(mesh, repo)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Code", description="!write b.txt hello\n!commit add b\n!write c.txt dirty")
        task = await ada.ended(task_id)
    assert task["result"]["branch"] == f"mesh/ada/{task_id}"
    [commit] = task["result"]["commits"]
    assert run_git(repo, "show", f"{commit}:b.txt") == "hello"
    assert "uncommitted changes" in task["result"]["evidence"][-1]
    worktree = pathlib.Path(runs(mesh)[0]["checkout"]["path"])
    assert (worktree / "c.txt").read_text() == "dirty"
    assert run_git(repo, "status", "--porcelain") == "", "the checkout itself is untouched"


async def test_a_worktree_in_which_nothing_was_done_goes(mesh: Mesh, repo: pathlib.Path) -> None:
    give_repo(mesh, repo)
    async with mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Look", description="!say looked"))
    assert (task["result"]["branch"], task["result"]["commits"]) == (None, [])
    assert "mesh/ada" not in run_git(repo, "worktree", "list")


async def test_interrupted_work_is_kept_as_a_patch_and_goes_on_in_its_worktree(mesh: Mesh, repo: pathlib.Path) -> None:
    give_repo(mesh, repo)
    async with mesh.running("ada") as ada:
        task_id = await ada.give("Half", description="!write b.txt half\n!step\n!sleep 300\n!commit whole")
        run = await started(mesh)
        path = pathlib.Path(run["checkout"]["path"])
        await until(lambda: (path / "b.txt").exists())
        mesh.store.switches.pause("ada", "human", "lunch")
        await ada.ended(task_id, "queued")
        kept = runs(mesh)[0]["patch"]
        assert "+half" in (mesh.root / kept).read_text()
        mesh.store.switches.resume("ada")
        task = await ada.ended(task_id)
    assert runs(mesh)[1]["checkout"] == runs(mesh)[0]["checkout"]
    assert len(task["result"]["commits"]) == 1


async def test_a_shared_checkout_has_one_writer_at_a_time(mesh: Mesh, repo: pathlib.Path) -> None:
    give_repo(mesh, repo, ("ada", "bob"), checkout="shared")
    mesh.limit(maxRunning=5)
    async with mesh.running("ada") as ada, mesh.running("bob") as bob:
        first = await ada.give("First", description="!sleep 1.5\n!write a.txt first")
        await started(mesh)
        second = await bob.give("Second", description="!write a.txt second")
        await until(lambda: "is being worked in by ada (First)" in (bob.service.core.state.reason or ""))
        await ada.ended(first)
        await bob.ended(second)
    assert (repo / "a.txt").read_text() == "second"


async def test_a_repository_that_is_none_fails_the_task_with_the_reason(mesh: Mesh, tmp_path: pathlib.Path) -> None:
    give_repo(mesh, tmp_path / "nowhere")
    async with mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Code"), "failed")
    assert "nowhere" in task["error"]


# -- when the runner can't work


async def parked(served: Served, word: str) -> None:
    await until(lambda: word in (served.service.core.state.reason or ""))


async def test_a_logout_parks_with_one_alert_and_costs_no_attempt(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        task_id = await ada.give("Work", description="!401")
        await parked(ada, "401 invalid key")
        task = await ada.ended(task_id, "queued")
        assert task["attempts"] == 0
        assert ada.service.core.state.status == "blocked"
        await ada.ended(await ada.give("Echo"))  # skills need no login
        [alert] = [alert for alert in cli_mesh.store.alerts.open() if alert.type == "runner_unfit"]
        assert (alert.count, "logged out" in alert.title) == (1, True)
        assert len(runs(cli_mesh)) == 1, "it isn't tried again by itself"
        ada.service.wake("human", "logged in again")
        await until(lambda: len(runs(cli_mesh)) == 2)
        await until(lambda: [a.count for a in cli_mesh.store.alerts.open() if a.type == "runner_unfit"] == [2])


async def test_a_usage_limit_parks_every_agent_of_the_account_until_it_ends(mesh: Mesh) -> None:
    for agent in ("ada", "bob"):
        mesh.edit(lambda document, agent=agent: document["agents"][agent].update(runner={**CLI, "account": "team"}))
    async with mesh.running("ada", tick_seconds=0.3) as ada, mesh.running("bob", tick_seconds=0.3) as bob:
        soon = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 3))
        await ada.give("Work", description=f"!limit {soon}")
        await parked(ada, "usage limit reached")
        await parked(bob, "usage limit reached")
        waiting = await bob.give("Later", description="!say after the limit")
        assert runs(mesh, "bob") == []
        assert (await bob.ended(waiting))["result"]["text"] == "after the limit"


async def test_a_program_that_is_not_there_parks_before_anything_is_tried(cli_mesh: Mesh) -> None:
    cli_mesh.edit(lambda document: document["agents"]["ada"]["runner"].update(binary="no-such-cli"))
    async with cli_mesh.running("ada", tick_seconds=0.3) as ada:
        await parked(ada, "no-such-cli is not installed")
        task_id = await ada.give("Work", description="!say ok")
        async with ada.client() as client:
            status = (await client.get("/status")).json()
            health = (await client.get("/health")).json()
        assert status["runner"]["health"]["state"] == "missing"
        assert health["status"] == "degraded", "the daemon is fine: nobody restarts it for that"
        cli_mesh.edit(lambda document: document["agents"]["ada"]["runner"].update(binary=sys.executable))
        await ada.ended(task_id)
        await until(lambda: not [a for a in cli_mesh.store.alerts.open() if a.type == "runner_unfit"])


async def test_no_login_and_no_key_is_seen_before(
    cli_mesh: Mesh, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.delenv("FAKE_API_KEY")
    login = tmp_path / "home" / ".fake" / "login"
    login.unlink()
    async with cli_mesh.running("ada", tick_seconds=0.3) as ada:
        await parked(ada, "no login")
        login.write_text("in again")
        await until(lambda: ada.service.core.parked is None)


async def test_output_that_is_not_what_was_promised_is_an_error_that_says_so(cli_mesh: Mesh) -> None:
    cli_mesh.limit(taskAttemptsMax=2)
    async with cli_mesh.running("ada") as ada:
        task = await ada.ended(await ada.give("Work", description="!garbage"), "failed")
    assert "no result came" in task["error"] and "what is this?" in task["error"]
    prompt = (cli_mesh.root / "agents/ada/runs" / runs(cli_mesh)[1]["id"] / "prompt").read_text()
    assert "An earlier attempt failed" in prompt


async def test_old_runs_go_and_what_is_dirty_stays(mesh: Mesh, repo: pathlib.Path) -> None:
    give_repo(mesh, repo)
    mesh.limit(runRetentionDays=0)
    async with mesh.running("ada") as ada:
        await ada.ended(await ada.give("Clean", description="!say nothing"))
        await ada.ended(await ada.give("Dirty", description="!write b.txt x"))
        assert len(runs(mesh)) == 2
        assert await ada.service.runner.tidy() == 2
    assert runs(mesh) == []
    [worktree] = (mesh.root / "agents/ada/worktrees").iterdir()
    assert (worktree / "b.txt").read_text() == "x"


# -- mail


async def test_mail_is_shown_in_the_agent_s_session(cli_mesh: Mesh) -> None:
    async with cli_mesh.running("ada") as ada:
        await ada.ended(await ada.give("First", description="!say hello"))
        message = await ada.tell("note", payload={"text": "the fair is on Friday"})
        await until(lambda: (cli_mesh.root / "agents/ada/processed").exists())
        await until(lambda: list((cli_mesh.root / "agents/ada/processed").glob(f"*{message}*")))
    first, second = runs(cli_mesh)
    assert (second["session"], second["resumed"], second["taskId"]) == (first["session"], True, None)
    prompt = (cli_mesh.root / "agents/ada/runs" / second["id"] / "prompt").read_text()
    assert "the fair is on Friday" in prompt


async def test_mail_finds_a_new_session_where_the_old_one_is_gone(cli_mesh: Mesh, tmp_path: pathlib.Path) -> None:
    async with cli_mesh.running("ada") as ada:
        await ada.ended(await ada.give("First", description="!say hello"))
        for kept in (tmp_path / "home" / ".fake").glob("*.txt"):
            kept.unlink()
        message = await ada.tell("note", payload={"text": "still there?"})
        await until(lambda: list((cli_mesh.root / "agents/ada/processed").glob(f"*{message}*")))
    assert [run["resumed"] for run in runs(cli_mesh)] == [False, True, False]


def test_the_stand_in_is_a_program(tmp_path: pathlib.Path) -> None:
    """What the tests above rest on."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.service.fake_cli", "new", "s1"],
        input="!say hi",
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        text=True,
        capture_output=True,
        check=True,
    )
    assert json.loads(found.stdout.splitlines()[-1])["result"] == "hi"
