"""The MCP server as installed, against the official inspector, the conformance suite and real CLIs."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.live.clis import Cli, home_for, installed
from tests.live.harness import MESH, LiveMesh
from tests.live.stub_llm import Stub, stub

pytestmark = pytest.mark.live

INSPECTOR, CONFORMANCE = "@modelcontextprotocol/inspector@2.12.0", "@modelcontextprotocol/conformance@0.1.16"
BASELINE = Path(__file__).with_name("mcp_baseline.yml")
_STDIO = (str(MESH), "mcp", "stdio", "--agent", "coder")


@contextlib.contextmanager
def serving(mesh: LiveMesh) -> Iterator[str]:
    """`mesh mcp serve`, as people start it; its address."""
    process = subprocess.Popen(
        [MESH, "mcp", "serve", "--port", "0"], env=mesh.environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/mcp", line)
        assert found is not None, line
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def secret(mesh: LiveMesh, agent: str) -> str:
    return (mesh.root / "agents" / agent / "secret").read_text().strip()


def mail(mesh: LiveMesh, agent: str) -> list[dict[str, Any]]:
    folder = mesh.root / "agents" / agent / "inbox"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


# -- the official programs


def npm(requirement: str, program: str) -> list[str]:
    """How to run a program of an npm package, installed once per machine with a Node that is new enough."""
    node = installed("node24").program
    cache = Path(os.environ.get("MESH_TEST_CLIS") or Path.home() / ".cache" / "agent-mesh-clis")
    folder = cache / re.sub(r"\W+", "-", requirement).strip("-")
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            folder.mkdir(exist_ok=True)
            (folder / "package.json").write_text("{}")
            flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
            subprocess.run(
                ["npm", "install", "--prefix", str(folder), *flags, requirement],
                env={**os.environ, "PATH": f"{node.resolve().parent}:{os.environ['PATH']}"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=600,
                check=True,
            )
            (folder / "ready").touch()
    return [str(node), str(folder / "node_modules/.bin" / program)]


def inspect(mesh: LiveMesh, target: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = npm(INSPECTOR, "mcp-inspector")
    return subprocess.run(
        [*program, "--cli", *target, *arguments],
        env={**mesh.environment(), "HOME": str(mesh.root.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_the_official_inspector(mesh: LiveMesh, transport: str) -> None:
    with serving(mesh) as url:
        target = [url, "--transport", "http", "--header", f"Authorization: Bearer {secret(mesh, 'coder')}"]
        target = target if transport == "http" else [*_STDIO, "--root", str(mesh.root)]
        listed = inspect(mesh, target, "--method", "tools/list", "--strict")
        assert listed.returncode == 0, listed.stderr
        assert "warning" not in listed.stderr.lower(), listed.stderr
        assert len(json.loads(listed.stdout)["tools"]) == 19

        def call(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            given = [part for argument in arguments for part in ("--tool-arg", argument)]
            return inspect(mesh, target, "--method", "tools/call", "--tool-name", tool, *given)

        assert json.loads(call("whoami").stdout)["structuredContent"]["agentId"] == "coder"
        sent = json.loads(call("send_message", "to=chief", "text=hello").stdout)["structuredContent"]
        assert [(message["id"], message["from"]) for message in mail(mesh, "chief")] == [(sent["id"], "coder")]
        refused = call("read_message", "message_id=none")
        assert refused.returncode != 0 and json.loads(refused.stdout)["isError"]
    if transport == "http":
        assert inspect(mesh, target, "--method", "tools/list").returncode != 0


def test_the_inspector_without_a_secret_gets_nothing(mesh: LiveMesh) -> None:
    with serving(mesh) as url:
        refused = inspect(mesh, [url, "--transport", "http"], "--method", "tools/list")
    assert refused.returncode != 0 and "check_inbox" not in refused.stdout


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_the_conformance_suite(mesh: LiveMesh, tmp_path: Path, version: str) -> None:
    """All but the fixture tools of the suite's own server, which the baseline lists. The suite sends no secret: one
    is added on the way."""
    program = npm(CONFORMANCE, "conformance")
    with serving(mesh) as url, with_secret(url, secret(mesh, "coder")) as front:
        suite = ["--suite", "all", "--spec-version", version, "--expected-failures", str(BASELINE)]
        done = subprocess.run(
            [*program, "server", "--url", front, *suite, "-o", str(tmp_path)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=110,
        )
    assert done.returncode == 0, done.stdout[-3_000:]
    newer = ("dns-rebinding-protection",) if version == "2025-11-25" else ()
    for scenario in ("server-initialize", "tools-list", "ping", *newer):
        assert f"✓ {scenario}" in done.stdout, done.stdout[-3_000:]


@contextlib.contextmanager
def with_secret(url: str, known: str) -> Iterator[str]:
    """An address that hands each request on as it came, with the secret."""
    port = int(url.rpartition(":")[2].partition("/")[0])

    class Front(BaseHTTPRequestHandler):
        def _hand_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {**dict(self.headers.items()), "Authorization": f"Bearer {known}"}
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "date"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            with contextlib.suppress(OSError):  # the suite tries what happens when it hangs up
                self.end_headers()
                self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _hand_on

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- real CLIs

#: What each CLI calls the mesh's tools.
TOOL = {
    "codex": "{}",
    "claude": "mcp__mesh__{}",
    "pi": "mcp__mesh__{}",
    "gemini": "mcp_mesh_{}",
    "opencode": "mesh_{}",
    "openclaw": "mesh__{}",
}
#: The fastest ones; the others take a minute each.
QUICK = ("codex", "claude", "pi")


def argv(cli: Cli, prompt: str) -> list[str]:
    program = str(cli.program)
    return {
        "codex": [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt],
        "claude": [program, "-p", prompt, "--allowedTools", "mcp__mesh"],
        "pi": [program, "--provider", "stub", "--model", "stub-model", "-p", prompt],
        "gemini": [program, "-m", "stub-model", "--approval-mode", "yolo", "-p", prompt],
        "opencode": [program, "run"],
        "openclaw": [
            program,
            "agent",
            "--local",
            "--agent",
            "main",
            "--session-id",
            "s",
            "--json",
            "--message",
            prompt,
        ],
    }[cli.name]


def run(cli: Cli, environment: dict[str, str], folder: Path, prompt: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(cli, prompt),
        env=environment,
        cwd=folder,
        input=prompt if cli.name == "opencode" else "",
        capture_output=True,
        text=True,
        timeout=300,
    )


def directive(cli: Cli, tool: str, **arguments: Any) -> str:
    """Has the stub call one of the mesh's tools. OpenClaw offers the tools of servers behind one of its own."""
    called, given = TOOL[cli.name].format(tool), arguments
    if cli.name == "openclaw":
        called, given = "tool_call", {"id": called, "args": arguments}
    return f"[[tool {called} {json.dumps(given)}]]"


def answers(llm: Stub) -> str:
    return "\n".join(request.answer for request in llm.requests)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.soak) for name in TOOL if name not in QUICK)]
)
def test_a_real_cli_checks_its_inbox_and_sends(mesh: LiveMesh, tmp_path: Path, name: str) -> None:
    cli = installed(name)
    mesh.run("mail", "send", "coder", "--type", "message", "--from", "chief", "--text", "a word from chief", "--ack")
    [waiting] = mail(mesh, "coder")
    with serving(mesh) as url, stub() as llm:
        environment = home_for(cli, tmp_path, llm.url)
        environment |= {"GEMINI_CLI_TRUST_WORKSPACE": "true", "PI_OFFLINE": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        port = url.rpartition(":")[2].partition("/")[0]
        where = (name, "--agent", "coder", "--home", environment["HOME"], "--port", port)
        mesh.run("mcp", "install", *where)
        assert mesh.json("mcp", "check", *where)["ok"]

        known = {**environment, "MESH_AGENT_SECRET": secret(mesh, "coder")}
        done = run(cli, known, tmp_path, directive(cli, "check_inbox"))
        assert done.returncode == 0, done.stderr[-2_000:]
        assert "a word from chief" in answers(llm), answers(llm)
        assert [message["id"] for message in mail(mesh, "coder")] == [waiting["id"]]  # checking isn't reading

        done = run(cli, known, tmp_path, directive(cli, "send_message", to="chief", text=f"hello from {name}"))
        assert done.returncode == 0, done.stderr[-2_000:]
        [sent] = mail(mesh, "chief")
        assert (sent["from"], sent["payload"]) == ("coder", {"text": f"hello from {name}"})
        mesh.run("mcp", "uninstall", name, "--home", environment["HOME"])
    assert secret(mesh, "coder") not in _all_text(Path(environment["HOME"]))


def test_without_its_secret_a_cli_gets_no_tools(mesh: LiveMesh, tmp_path: Path) -> None:
    cli = installed("codex")
    with serving(mesh) as url, stub() as llm:
        environment = home_for(cli, tmp_path, llm.url)
        port = url.rpartition(":")[2].partition("/")[0]
        mesh.run("mcp", "install", "codex", "--agent", "coder", "--home", environment["HOME"], "--port", port)
        for more in ({}, {"MESH_AGENT_SECRET": "wrong"}):
            run(cli, {**environment, **more}, tmp_path, "hello")
        assert llm.requests and not any("check_inbox" in request.tools for request in llm.requests)


def _all_text(folder: Path) -> str:
    """What the CLI left in its home, to see that the secret isn't in it."""
    return "".join(
        path.read_bytes().decode(errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 5_000_000
    )
