"""The new end of a 100 MB transcript: how long reading it takes, and how much memory ten thousand looks cost."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Figure, at_most, quantile
from mesh.runners.transcripts import Transcript, open_transcript

_BYTES = 100_000_000
_LOOKS = 300
_FIRST_LOOKS = 9
_MEMORY_LOOKS = 10_000
_YARDSTICK = "reading and parsing the last 1 MB"
_MEMORY_YARDSTICK = "transcript, MB"


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder:
        path = Path(folder) / "transcript.jsonl"
        _write(path)
        bare_ms = statistics.median(_bare_ms(path) for _ in range(_FIRST_LOOKS))
        first_ms = statistics.median(_look_ms(_open(path), 0) for _ in range(_FIRST_LOOKS))
        transcript = _open(path)
        _look_ms(transcript, 0)
        looks_ms = [_append_and_look_ms(transcript, path, 1_000 + number) for number in range(_LOOKS)]
        grown_mb = float(
            subprocess.run(
                [sys.executable, "-m", "benchmarks.transcripts", str(path)], check=True, capture_output=True, text=True
            ).stdout
        )
    new_ms = quantile(looks_ms, 0.99)
    return [
        at_most("new end of a 100 MB transcript, p99", new_ms, "ms", 50, _YARDSTICK, bare_ms),
        at_most("first look at a 100 MB transcript", first_ms, "ms", 50, _YARDSTICK, bare_ms),
        at_most("10,000 looks at it, memory grown", grown_mb, "MB", 8, _MEMORY_YARDSTICK, _BYTES / 1e6),
    ]


def _write(path: Path) -> None:
    """A long session: turns with tool results of a few kilobytes, now and then a picture of half a megabyte."""
    turn = b"".join(_turn(5_000, "x" * size) for size in (400, 2_000, 20_000))
    picture = _turn(5_000, "A" * 500_000)
    with path.open("wb") as file:
        while file.tell() < _BYTES:
            file.write(turn * 100)
            file.write(picture)


def _turn(tokens: int, output: str) -> bytes:
    at = "2026-02-16T20:45:00.000Z"
    call = {"type": "tool_use", "id": f"t{tokens}", "name": "Bash", "input": {"command": "make"}}
    usage = {"input_tokens": 4, "cache_read_input_tokens": tokens - 104, "output_tokens": 100}
    message = {"id": f"m{tokens}", "model": "claude-opus-4-5", "content": [call], "stop_reason": "tool_use"}
    result = {"type": "tool_result", "tool_use_id": f"t{tokens}", "content": output}
    lines = [
        {"type": "assistant", "timestamp": at, "isSidechain": False, "message": {**message, "usage": usage}},
        {"type": "user", "timestamp": at, "isSidechain": False, "message": {"role": "user", "content": [result]}},
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def _open(path: Path) -> Transcript:
    transcript = open_transcript("claude", str(path), "")
    assert transcript is not None
    return transcript


def _look_ms(transcript: Transcript, least: int) -> float:
    began = time.perf_counter()
    reading = transcript.read()
    took_ms = 1000 * (time.perf_counter() - began)
    if reading.occupancy is None or reading.occupancy.tokens < least:
        raise RuntimeError(f"the transcript was read wrongly: {reading}")
    return took_ms


def _append_and_look_ms(transcript: Transcript, path: Path, tokens: int) -> float:
    """A turn of 20 KB comes to it, and must be what is read."""
    with path.open("ab") as file:
        file.write(_turn(tokens, "y" * 20_000))
    took_ms = _look_ms(transcript, tokens)
    reading = transcript.read()
    if reading.occupancy is None or reading.occupancy.tokens != tokens:
        raise RuntimeError(f"the new end was not read: {reading}")
    return took_ms


def _bare_ms(path: Path) -> float:
    began = time.perf_counter()
    with path.open("rb") as file:
        file.seek(-1_000_000, os.SEEK_END)
        for line in file.read().split(b"\n")[1:-1]:
            json.loads(line)
    return 1000 * (time.perf_counter() - began)


def _grown_mb(path: Path) -> float:
    """By how much a process grows at its peak, from a first look on through many with something new each."""
    reading = _open(path)
    small = path.with_suffix(".small")
    small.write_bytes(_turn(1, "z" * 20_000))
    _look_ms(_open(small), 0)  # what is imported and allocated once
    before_mb = _peak_mb()
    _look_ms(reading, 0)
    for number in range(_MEMORY_LOOKS):
        with path.open("ab") as file:
            file.write(_turn(1_000 + number, "z" * 500))
        _look_ms(reading, 1_000 + number)
    return _peak_mb() - before_mb


def _peak_mb() -> float:
    """The most memory that this process has had. (`ru_maxrss` would be the parent's, which it was forked from.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) / 1000
    raise RuntimeError("no VmHWM")


if __name__ == "__main__":
    print(_grown_mb(Path(sys.argv[1])))
