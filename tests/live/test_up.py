"""`mesh up` and its children: ending, detaching, taken ports, crash loops, orphans, one process."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import termios
import time

import pytest

from tests.live.harness import EIGHT, MESH, PYTHON, LiveMesh, exists, title, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

BOTH = pytest.mark.parametrize("flags", [(), ("--one-process",)], ids=["processes", "one-process"])


@BOTH
def test_interrupt_stops_all_cleanly(mesh: LiveMesh, flags: tuple[str, ...]) -> None:
    mesh.up(*flags)
    pids = {mesh.pid(agent) for agent in EIGHT}
    assert len(pids) == (1 if flags else 8)
    assert mesh.interrupt() == 0
    assert not any(exists(pid) for pid in pids)
    assert mesh.json("status")["supervisor"] is None
    assert "Traceback" not in mesh.output()
    stopped = {event["agentId"] for event in mesh.events() if event["event"] == "stopped"}
    assert stopped == set(EIGHT), "every agent ended in order"


def test_the_table_on_a_terminal_names_every_agent_with_port_status_task_buddy_and_beat(mesh: LiveMesh) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (40, 140))
    process = subprocess.Popen(
        [MESH, "up"], env=mesh.environment(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    mesh.up_process = process  # type: ignore[assignment]
    os.close(theirs)
    os.set_blocking(ours, False)
    shown = ""

    def has_beats() -> bool:
        nonlocal shown
        with contextlib.suppress(BlockingIOError):
            shown += os.read(ours, 100_000).decode()
        return shown.rpartition("AGENT")[2].count(" s ago") == 8

    until(has_beats, 10, "the table with eight beats, drawn again in place")
    last = shown.rpartition("\x1b[2J")[2]
    for column in ("AGENT", "PORT", "STATUS", "CURRENT TASK", "BUDDY", "LAST BEAT"):
        assert column in last
    for agent, entry in mesh.registry()["agents"].items():
        line = next(line for line in last.splitlines() if line.startswith(agent))
        assert line.split()[1:3] == [str(entry["port"]), "idle"] and entry["buddy"] in line
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    os.close(ours)


def test_detached_mesh_survives_its_terminal_and_ends_by_down(mesh: LiveMesh) -> None:
    # As a login shell would: its own session, whose end sends SIGHUP to what belongs to it.
    shell = subprocess.Popen(
        ["bash", "-c", f"{MESH} up -d; echo status $?; sleep 60"],
        env=mesh.environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shell.stdout is not None
    until(lambda: "status 0" in (shell.stdout.readline() if shell.stdout else ""), 20, "up -d returned 0")
    os.killpg(shell.pid, signal.SIGHUP)
    shell.wait(5)
    shell.stdout.close()
    time.sleep(0.5)
    assert all(mesh.healthy(agent) for agent in EIGHT)
    again = mesh.run("up", "-d", check=False)
    assert again.returncode == 2 and "is up already" in again.stderr
    pids = [mesh.pid(agent) for agent in EIGHT]
    mesh.run("down")
    assert not any(exists(pid) for pid in pids)
    assert "is not up" in mesh.run("down").stdout


@BOTH
def test_a_taken_port_stops_only_that_agent_and_names_the_holder(mesh: LiveMesh, flags: tuple[str, ...]) -> None:
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", mesh.port("sales")))
        taken.listen()
        mesh.start(*flags)
        others = [agent for agent in EIGHT if agent != "sales"]
        until(lambda: all(mesh.healthy(agent) for agent in others), 15, "the others healthy")
        until(lambda: f"is taken by pid {os.getpid()}" in mesh.output(), 5, "the holder named")
        until(lambda: "its port is taken" in mesh.run("status").stdout, 5, "the reason in status")
        lone = subprocess.run([PYTHON, "-m", "agents", "sales"], env=mesh.environment(), capture_output=True, text=True)
        assert lone.returncode == 3
        assert f"pid {os.getpid()}" in lone.stderr and len(lone.stderr.splitlines()) == 1
        time.sleep(1.5)
        assert mesh.output().count("can't start: port") == 1, "it is not tried again for ever"
        found = json.loads(mesh.run("doctor", "--json", check=False).stdout)
        assert any(entry["check"] == "port" and str(os.getpid()) in entry["detail"] for entry in found)
    mesh.run("start", "sales")
    until(lambda: mesh.healthy("sales"), 5, "sales up once the port is free")


def test_an_agent_that_crashes_again_and_again_is_left_down_and_reported(mesh: LiveMesh) -> None:
    mesh.up()
    chief = mesh.pid("chief")
    seen: set[int] = set()
    for _ in range(4):
        pid = until(
            lambda: (p := mesh.pid("comms")) not in seen and exists(p) and mesh.healthy("comms") and p, 10, "comms up"
        )
        seen.add(pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda gone=pid: not exists(gone), 5, "comms gone")
    time.sleep(3)
    assert mesh.pid("comms") in seen, "three restarts within a minute are the most"
    status = mesh.json("status")
    alert = next(alert for alert in status["alerts"] if alert["agentId"] == "comms")
    assert (
        alert["type"] == "agent_down" and "crashed 4 times" in alert["detail"] and "mesh start comms" in alert["next"]
    )
    assert mesh.pid("chief") == chief, "nobody else was restarted"
    mesh.run("start", "comms")
    assert mesh.healthy("comms")
    assert not mesh.json("status")["alerts"]


def test_agents_end_when_their_supervisor_is_killed(mesh: LiveMesh) -> None:
    mesh.up()
    assert mesh.up_process is not None
    pids = [mesh.pid(agent) for agent in EIGHT]
    mesh.up_process.kill()
    mesh.up_process.wait()
    until(lambda: not any(exists(pid) for pid in pids), 10, "no orphan left")
    mesh.up()  # and nothing of it is in the way of the next


@BOTH
def test_stop_holds_until_start_and_restart_makes_a_new_incarnation(mesh: LiveMesh, flags: tuple[str, ...]) -> None:
    mesh.up(*flags)
    mesh.run("stop", "sales", "--reason", "holiday")
    until(lambda: not mesh.healthy("sales"), 5, "sales stopped")
    time.sleep(1)
    assert not mesh.healthy("sales")
    row = next(row for row in mesh.json("status")["agents"] if row["agent"] == "sales")
    assert row["note"] == "stopped"
    mesh.run("start", "sales")
    until(lambda: mesh.healthy("sales"), 5, "sales started")
    before = mesh.call("sales", "GET", "/health")[1]["incarnation"]
    mesh.run("restart", "sales")
    until(lambda: mesh.healthy("sales"), 5, "sales restarted")
    assert mesh.call("sales", "GET", "/health")[1]["incarnation"] == before + 1
    assert all(mesh.healthy(agent) for agent in EIGHT)


def test_process_titles_say_which_agent_it_is_and_hold_no_secret(mesh: LiveMesh) -> None:
    mesh.up()
    assert mesh.up_process is not None
    assert title(mesh.up_process.pid) == "mesh: supervisor"
    assert {title(mesh.pid(agent)) for agent in EIGHT} == {f"mesh: {agent}" for agent in EIGHT}


def test_a_supervisor_replaces_itself_before_a_restart_when_its_source_changed(mesh: LiveMesh) -> None:
    package = mesh.root.parent / "code"
    package.mkdir()
    subprocess.run(["cp", "-r", "mesh", "agents", package], check=True)
    environment = {**mesh.environment(), "PYTHONPATH": str(package)}
    with open(mesh.root.parent / "up.out", "a") as out:
        mesh.up_process = subprocess.Popen(
            [PYTHON, "-m", "mesh", "up"],
            env=environment,
            cwd=package,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            text=True,
            start_new_session=True,
        )
    until(lambda: all(mesh.healthy(agent) for agent in EIGHT), 15, "all healthy")
    pids = {agent: mesh.pid(agent) for agent in EIGHT}
    changed = package / "agents" / "sales.py"
    changed.write_text(changed.read_text().replace('@agent.skill("Lead Follow-up")', '@agent.skill("Renamed Skill")'))
    mesh.run("restart", "sales")
    until(lambda: mesh.healthy("sales") and mesh.status("sales")["skills"] == ["Renamed Skill"], 10, "the new code")
    assert {a: mesh.pid(a) for a in EIGHT if a != "sales"} == {a: p for a, p in pids.items() if a != "sales"}
    # Once more with an agent that hangs in the old code: it is killed when its grace is over.
    sales = package / "agents" / "sales.py"
    good = sales.read_text()
    sales.write_text(good + "\n\n@agent.skill('Hang')\nasync def hang(context):\n    __import__('time').sleep(300)\n")
    mesh.run("restart", "sales")
    until(lambda: mesh.healthy("sales") and "Hang" in mesh.status("sales")["skills"], 10, "the hanging code")
    mesh.run("task", "add", "Hang", "--to", "sales")
    until(lambda: not mesh.healthy("sales"), 10, "sales hangs")
    sales.write_text(good)
    mesh.run("restart", "sales", timeout_s=40)
    until(lambda: mesh.healthy("sales") and "Hang" not in mesh.status("sales")["skills"], 10, "the mended code")
    os.kill(mesh.pid("ops"), signal.SIGKILL)
    until(lambda: mesh.pid("ops") != pids["ops"] and mesh.healthy("ops"), 5, "children are still its children")
    assert mesh.interrupt() == 0
    assert not any(exists(mesh.pid(agent)) for agent in EIGHT)


def test_down_ends_a_supervisor_that_hangs(mesh: LiveMesh) -> None:
    mesh.up()
    assert mesh.up_process is not None
    pids = [mesh.pid(agent) for agent in EIGHT]
    os.kill(mesh.up_process.pid, signal.SIGSTOP)
    mesh.run("down", timeout_s=40)
    mesh.up_process.wait(5)
    assert not any(exists(pid) for pid in pids)


def test_a_role_that_cannot_be_loaded_keeps_down_only_its_agent(mesh: LiveMesh) -> None:
    package = mesh.root.parent / "code"
    package.mkdir()
    subprocess.run(["cp", "-r", "mesh", "agents", package], check=True)
    (package / "agents" / "sales.py").write_text("def broken(:\n")
    with open(mesh.root.parent / "up.out", "a") as out:
        mesh.up_process = subprocess.Popen(
            [PYTHON, "-m", "mesh", "up"],
            env={**mesh.environment(), "PYTHONPATH": str(package)},
            cwd=package,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            text=True,
            start_new_session=True,
        )
    until(lambda: all(mesh.healthy(agent) for agent in EIGHT if agent != "sales"), 15, "the others healthy")
    until(lambda: mesh.json("status")["alerts"], 5, "the alert")
    assert "sales.py" in mesh.output() and "SyntaxError" in mesh.output()
    assert mesh.json("status")["alerts"][0]["agentId"] == "sales"
