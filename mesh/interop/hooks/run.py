"""The hook program: hands what the CLI says to its agent, and the agent's answer to the CLI.

It stands on the path of every tool call, so it is one file that runs by itself, with nothing but what is built into
the interpreter (`python -I -S run.py CLI AGENT SOCKET`), and understands none of what it carries. Whatever goes wrong,
the session must go on: no output, exit status 0.
"""

from __future__ import annotations

import posix
import sys

TYPE_CHECKING = False  # as in `typing`, which would have to be imported for it
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable

#: All of it, seconds. A session waits for this while a mesh hangs.
PATIENCE_S = 1.0
#: So much of what the CLI says is passed on: what matters stands in front, results of tools may be huge.
INPUT_BYTES_MAX = 200_000
_PART = 65_536
#: An address of a Unix socket holds no more.
_ADDRESS_BYTES_MAX = 100


def main(argv: list[str]) -> int:
    """`argv` is CLI, agent, path of the agent's socket."""
    import _signal  # type: ignore[import-not-found]

    # One alarm over everything: no step can hang, whatever it waits for.
    _signal.signal(_signal.SIGALRM, lambda number, frame: posix._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, PATIENCE_S)
    try:
        _carry(argv[0], argv[1], argv[2], lambda: _signal.setitimer(_signal.ITIMER_REAL, 0))
    except (OSError, EOFError, ValueError, IndexError):
        return 0  # no mesh, no mail; the session goes on
    return 0


def _carry(cli: str, agent: str, path: str, in_time: Callable[[], object]) -> None:
    if posix.isatty(0):
        return
    said, cut = _read_input()
    run = ""
    marked = posix.environ.get(b"MESH_AGENT", b"").decode()
    if marked and "/" not in marked:
        # The mesh started this session itself, and says for whom.
        path = path.removesuffix(f"/{agent}/agent.sock") + f"/{marked}/agent.sock" if marked != agent else path
        run = posix.environ.get(b"MESH_RUN", b"").decode()
    sock = _connect(path)
    query = f"cli={cli}&waitS={PATIENCE_S}&cut={int(cut)}&run={_quoted(run)}"
    sock.sendall(
        f"POST /hook?{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(said)}\r\n\r\n".encode()
        + said
    )
    head, body = _read_answer(sock)
    if not body or not head.startswith(b"HTTP/1.1 200 "):
        return
    in_time()  # from here on the CLI alone may keep us waiting: half an answer would be worse than a late one
    left = body
    while left:
        left = left[posix.write(1, left) :]
    token = _header(head, b"mesh-token")
    if token:
        # Now it was shown. Nobody has to wait for the answer.
        sock.sendall(b"POST /hook/shown?token=" + token + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")


def _read_input() -> tuple[bytes, bool]:
    """What the CLI says, and whether it was cut. All is taken, or the CLI would see a broken pipe."""
    parts, size = [], 0
    while part := posix.read(0, _PART):
        if size < INPUT_BYTES_MAX:
            parts.append(part)
        size += len(part)
    return b"".join(parts)[:INPUT_BYTES_MAX], size > INPUT_BYTES_MAX


def _connect(path: str) -> _socket.socket:
    import _socket  # the module `socket` imports five others

    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if len(path.encode()) > _ADDRESS_BYTES_MAX:
        folder, _, path = path.rpartition("/")
        posix.chdir(folder)
    sock.connect(path)
    return sock


def _read_answer(sock: _socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(_header(head, b"content-length") or 0)
    while len(body) < length:
        body += _received(sock)
    return head, body


def _received(sock: _socket.socket) -> bytes:
    part: bytes = sock.recv(_PART)
    if not part:
        raise EOFError
    return part


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.lower() == name:
            return value.strip()
    return b""


def _quoted(text: str) -> str:
    return "".join(sign for sign in text if sign.isalnum() or sign in "-._")


if __name__ == "__main__":
    # Not sys.exit: nothing of ours has to be tidied up, and the interpreter's own end takes longer than the call.
    posix._exit(main(sys.argv[1:]))
