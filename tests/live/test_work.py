"""Tasks over real processes: killed agents, external effects, cancelling, hung daemons and pauses."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import http.server
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.live.harness import EIGHT, LiveMesh, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

FEED = b"""<?xml version="1.0"?><rss version="2.0"><channel><title>T</title>
<item><title>News</title><link>http://localhost/1</link><guid>1</guid></item></channel></rss>"""


class SlowFeed(http.server.ThreadingHTTPServer):
    """Answers with a feed, but only after a while: work that takes as long as a test needs."""

    daemon_threads = True

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.asked = 0
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/feed"


class Answer(http.server.BaseHTTPRequestHandler):
    server: SlowFeed

    def do_GET(self) -> None:
        self.server.asked += 1
        time.sleep(self.server.delay_s)
        self.send_response(200)
        self.send_header("Content-Length", str(len(FEED)))
        self.end_headers()
        with contextlib.suppress(OSError):  # who asked may have been killed meanwhile
            self.wfile.write(FEED)

    def log_message(self, *arguments: object) -> None:
        return


@pytest.fixture
def feed(mesh: LiveMesh) -> Iterator[SlowFeed]:
    """A slow feed that intel of the mesh reads."""
    server = SlowFeed()
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def change(registry: dict) -> None:
        registry["agents"]["intel"]["settings"] = {"feeds": [server.url]}
        registry["limits"].update(restartsMax=20, restartBackoffS=0.05)

    mesh.edit_registry(change)
    yield server
    server.shutdown()
    server.server_close()


def test_a_task_survives_kill_9_of_its_agent_and_runs_again(mesh: LiveMesh, feed: SlowFeed) -> None:
    mesh.up()
    feed.delay_s = 20
    task_id = mesh.give("intel", title="News Scan")
    until(lambda: feed.asked == 1, 5, "the work has begun")
    assert mesh.task(task_id)["status"] == "working"
    feed.delay_s = 0
    os.kill(mesh.pid("intel"), signal.SIGKILL)
    task = mesh.ended(task_id)
    assert (task["status"], task["attempts"]) == ("completed", 2)
    until(lambda: mesh.bodies(task_id) == [f"completed/{task_id}"], 2, "its body in one place")


@pytest.mark.parametrize(
    "kills", [8, pytest.param(150, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])], ids=["few", "many"]
)
def test_tasks_given_and_killed_at_random_instants_are_never_lost(mesh: LiveMesh, feed: SlowFeed, kills: int) -> None:
    seeded = random.Random(kills)
    mesh.edit_registry(
        lambda registry: registry["limits"].update(
            taskRetryDelayTicks=0, taskAttemptsMax=20, restartsWindowS=1, tasksWaitingMax=5000
        )
    )
    mesh.up()
    accepted: list[str] = []
    stop = threading.Event()

    def keep_giving() -> None:
        while not stop.is_set():
            try:
                accepted.append(mesh.give("intel", title="News Scan"))
            except (OSError, ValueError):
                time.sleep(0.02)  # it is being restarted; nothing was accepted

    with ThreadPoolExecutor() as pool:
        giving = pool.submit(keep_giving)
        for _ in range(kills):
            time.sleep(seeded.uniform(0.1, 0.8))
            os.kill(mesh.pid("intel"), signal.SIGKILL)
            until(lambda: mesh.healthy("intel"), 8, "intel back")
        stop.set()
        giving.result(20)
    assert len(accepted) > 20
    for task_id in accepted:
        assert mesh.ended(task_id, 30, by="chief")["status"] == "completed"
        until(lambda t=task_id: mesh.bodies(t) == [f"completed/{t}"], 2, f"the body of {task_id} in one place")


def test_work_with_external_effects_is_never_repeated_by_itself(mesh: LiveMesh, feed: SlowFeed) -> None:
    mesh.up()
    feed.delay_s = 20
    task_id = mesh.give("intel", title="News Scan", effects="external")
    until(lambda: feed.asked == 1, 5, "the work has begun")
    os.kill(mesh.pid("intel"), signal.SIGKILL)
    until(lambda: mesh.healthy("intel"), 5, "intel back")
    assert mesh.ended(task_id)["status"] == "outcome_unknown"
    alert = next(alert for alert in mesh.json("status")["alerts"] if alert["type"] == "outcome_unknown")
    assert task_id in alert["next"]
    assert feed.asked == 1
    feed.delay_s = 0
    mesh.run("task", "resolve", task_id, "--as", "retry", "--note", "nothing was sent")
    assert mesh.ended(task_id)["status"] == "completed"
    assert not mesh.json("status")["alerts"]


def test_cancelling_stops_the_work(mesh: LiveMesh, feed: SlowFeed) -> None:
    mesh.up()
    feed.delay_s = 30
    running, waiting = mesh.give("intel", title="News Scan"), mesh.give("intel", title="News Scan")
    until(lambda: feed.asked == 1, 5, "the work has begun")
    assert mesh.call("chief", "DELETE", f"/task/{waiting}", secret="sales")[0] == 403, "neither owner nor giver"
    for task_id in (waiting, running):  # any agent takes it, whoever has the task
        assert mesh.call("sales", "DELETE", f"/task/{task_id}") == (200, {"cancelled": True})
        assert mesh.ended(task_id, 3)["status"] == "cancelled"
    assert mesh.call("sales", "DELETE", f"/task/{running}")[0] == 409
    until(lambda: mesh.status("intel")["status"] == "idle", 3, "intel free again")


def test_pause_stops_running_work_within_two_seconds(mesh: LiveMesh, feed: SlowFeed) -> None:
    mesh.up()
    feed.delay_s = 30
    task_id = mesh.give("intel", title="News Scan")
    until(lambda: feed.asked == 1, 5, "the work has begun")
    mesh.run("pause", "intel")
    until(lambda: mesh.task(task_id)["status"] == "queued", 2.0, "the attempt stopped, the task back in the queue")
    assert mesh.task(task_id)["attempts"] == 0, "it doesn't count"
    feed.delay_s = 0
    mesh.run("resume", "intel")
    assert mesh.ended(task_id)["status"] == "completed"


def test_pause_works_while_every_daemon_hangs(mesh: LiveMesh, feed: SlowFeed) -> None:
    mesh.up()
    pids = [mesh.pid(agent) for agent in EIGHT]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        mesh.run("pause", "--all", timeout_s=8)
        # Durable work that arrives while they hang: on the disk, for when they go on.
        given = mesh.run("task", "add", "News Scan", "--to", "intel", check=False, timeout_s=30)
        assert "did not answer" in given.stderr and given.returncode == 1
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    until(lambda: all(mesh.healthy(agent) for agent in EIGHT), 5, "all go on")
    task_id = mesh.give("intel", title="News Scan")
    time.sleep(2)
    assert feed.asked == 0 and mesh.task(task_id)["status"] == "queued"


def test_any_idle_agent_with_the_responsibility_takes_global_work_in_priority_order(mesh: LiveMesh) -> None:
    mesh.up()
    mesh.run("pause", "finance")
    until(lambda: mesh.status("finance")["status"] == "blocked", 2, "paused")
    low = mesh.give("chief", title="Grant Deadline Check", owner="any", needs=["grants"], priority="low")
    urgent = mesh.give("ops", title="Grant Deadline Check", owner="any", needs=["grants"], priority="urgent")
    after = mesh.give("sales", title="Invoice Follow-up", owner="any", needs=["invoicing"], blockedBy=[low])
    assert mesh.task(low)["blocks"] == [after]
    assert mesh.task(after)["status"] == "blocked"
    mesh.run("resume", "finance")
    ended = [mesh.ended(task_id) for task_id in (urgent, low, after)]
    assert [task["status"] for task in ended] == ["completed"] * 3
    assert [task["owner"] for task in ended] == ["finance"] * 3
    starts = [task["startedAt"] for task in ended]
    assert starts == sorted(starts)
    code, problem = mesh.call("chief", "POST", "/task", {"title": "Unheard of", "owner": "any"})
    assert code == 409 and "Grant Deadline Check" in problem["skills"] and problem["accepted"] is False


def test_rules_of_delegation_hold_over_http(mesh: LiveMesh) -> None:
    mesh.up()
    body = {"title": "Lead Follow-up", "from": "coder"}
    code, problem = mesh.call("sales", "POST", "/task", body, secret="coder")
    assert code == 403 and "devops" in problem["detail"]
    code, answer = mesh.call("sales", "POST", "/task", {**body, "from": "comms"}, secret="comms")
    assert code == 202, "sales is comms' buddy"
    task = mesh.ended(answer["taskId"])
    assert task["from"] == "comms"
    outbox = until(
        lambda: [
            found
            for found in json.loads((mesh.root / "agents/comms/outbox.json").read_text())["tasks"]
            if found["id"] == task["id"] and found["status"] == "completed"
        ],
        3,
        "the giver is told the end",
    )
    assert outbox[0]["to"] == "sales" and outbox[0]["finishedAt"]


def test_pause_and_beats_hold_while_a_hung_process_keeps_the_lock_of_all_tasks(mesh: LiveMesh, feed: SlowFeed) -> None:
    mesh.edit_registry(lambda registry: registry["limits"].update(lockWaitS=3))
    mesh.up()
    feed.delay_s = 60
    mesh.give("intel", title="News Scan")
    until(lambda: feed.asked == 1, 5, "the work has begun")
    pid, port = mesh.pid("intel"), feed.server_address[1]

    def at_work() -> bool:
        return any(c.raddr and c.raddr.port == port for c in psutil.Process(pid).net_connections("tcp"))

    assert at_work()
    with (mesh.root / "system/locks/tasks.lock").open("r+") as lock, ThreadPoolExecutor() as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        calls = [pool.submit(mesh.call, "intel", "POST", "/task", {"title": "News Scan"}) for _ in range(4)]
        time.sleep(0.5)
        (mesh.root / "system/paused").touch()
        until(lambda: not at_work(), 2.0, "the work stopped")
        ages = []
        for _ in range(20):
            ages.append(mesh.json("status")["agents"][EIGHT.index("intel")]["beatAgeS"])
            time.sleep(0.1)
        assert max(ages) < 2.5, "it beats all the while"
        assert mesh.healthy("intel")
        assert {call.result(30)[0] for call in calls} == {503}
    mesh.run("resume", "--all")
    feed.delay_s = 0
    until(
        lambda: mesh.status("intel")["status"] == "idle" and not mesh.json("task", "list", "--status", "queued"),
        15,
        "all done",
    )


def test_requests_on_one_connection_are_not_held_up(mesh: LiveMesh) -> None:
    """Nagle's delay costs 40 ms a request; a hundred of them would take four seconds."""
    mesh.up()
    connection = http.client.HTTPConnection("127.0.0.1", mesh.port("chief"), timeout=5)
    began = time.monotonic()
    for _ in range(100):
        connection.request("GET", "/health")
        assert connection.getresponse().read()
    connection.close()
    assert time.monotonic() - began < 2.0
