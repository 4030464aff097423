"""The tail of a file: what is new, cut, replaced, damaged, half-written or large."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from mesh.runners.transcripts import Transcript, open_transcript, tail
from mesh.runners.transcripts.tail import LINE_BYTES_MAX, LOOK_BACK_BYTES
from tests.runners.transcripts.stage import brief


def _answer(tokens: int, text: str = "", stop: str = "stop") -> bytes:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop}
    line = {"type": "message", "message": {**message, "usage": {"totalTokens": tokens}, "model": "m"}}
    return json.dumps(line).encode() + b"\n"


def _asked(text: str = "go") -> bytes:
    return json.dumps({"type": "message", "message": {"role": "user", "content": text}}).encode() + b"\n"


class Stage:
    def __init__(self, path: Path) -> None:
        self.path = path
        opened = open_transcript("pi", str(path), "")
        assert opened is not None
        self.transcript: Transcript = opened

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def tokens(self) -> int | None:
        return brief(self.transcript.read())[0]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "t.jsonl")


def test_a_file_that_is_not_there_yet(stage: Stage) -> None:
    first = stage.transcript.read()
    assert first.occupancy is None and first.problem is not None and "No such file" in first.problem
    stage.add(_answer(7))
    second = stage.transcript.read()
    assert (brief(second)[0], second.problem) == (7, None)


def test_what_is_new_is_read(stage: Stage) -> None:
    for tokens in (100, 200, 50):
        stage.add(_answer(tokens))
        assert stage.tokens() == tokens
        assert stage.tokens() == tokens, "asked again with nothing new"


def test_a_half_line_waits_for_its_rest(stage: Stage) -> None:
    line = _answer(300, "é€😀")
    stage.add(_answer(100))
    for cut in range(0, len(line) - 2):
        stage.add(line[cut : cut + 1])
        assert stage.tokens() == 100, "not a word of it counts before it is whole"
    stage.add(line[-2:-1])
    assert stage.tokens() == 300, "whole, though no newline stands behind it yet"
    stage.add(b"\n" + _answer(400))
    assert stage.tokens() == 400


def test_a_cut_file_is_read_anew(stage: Stage) -> None:
    stage.add(_answer(100) + _answer(200))
    assert stage.tokens() == 200
    os.truncate(stage.path, len(_answer(100)))
    assert stage.tokens() == 100


def test_a_replaced_file_is_read_anew(stage: Stage, tmp_path: Path) -> None:
    stage.add(_answer(100) + _answer(200))
    assert stage.tokens() == 200
    other = tmp_path / "other"
    other.write_bytes(_answer(300) + _asked("x" * 35) + _asked() * 9)
    other.replace(stage.path)
    assert stage.tokens() == 300 + 16


def test_a_file_written_anew_in_place_is_read_anew(stage: Stage) -> None:
    """Same inode, and at least as long as before: only what stands before the offset tells."""
    stage.add(_answer(100) + _answer(200))
    assert stage.tokens() == 200
    stage.path.write_bytes(_answer(300, "x" * 500))
    assert stage.tokens() == 300


def test_a_file_that_went_away_keeps_what_was_known(stage: Stage) -> None:
    stage.add(_answer(90) + _answer(100)[:-1])
    assert stage.tokens() == 100
    stage.path.unlink()
    gone = stage.transcript.read()
    assert brief(gone)[0] == 100 and gone.problem is not None


@pytest.mark.parametrize(
    ("junk", "why"),
    [
        (b"\n\n", "empty lines"),
        (b"not json\n", "no JSON"),
        (b"[1, 2]\n42\nnull\n", "no objects"),
        (b'{"type": "message", "message": {"role": "assis\n', "a line that a crash cut short"),
        (b'{"type": "never_seen", "usage": {"totalTokens": 9}}\n', "an unknown type"),
        (b'{"type": "message", "message": ["?"]}\n{"type": 5}\n', "other shapes"),
        (b"\xff\xfe\x80\n", "no UTF-8"),
        (b"\0" * 4096, "a block that was never written: the next line begins behind it"),
        (b"[" * 100_000 + b"\n", "nested deeper than any parser goes"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "a number longer than Python takes"),
        (b'{"type":"message","message":{"role":"assistant","usage":{"totalTokens":1e400}}}\n', "infinitely many"),
        (b'{"type":"message","message":{"role":"assistant","usage":{"totalTokens":-5}}}\n', "less than none"),
        (b'{"type":"message","message":{"role":"assistant","usage":{"totalTokens":true}}}\n', "no number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_junk_between_lines_is_passed_over(junk: bytes, why: str, stage: Stage) -> None:
    stage.add(_answer(100) + junk + _answer(200))
    assert stage.tokens() == 200
    stage.add(junk + _answer(300))
    assert stage.tokens() == 300


def test_text_that_is_half_of_a_character_can_still_be_written(stage: Stage) -> None:
    stage.add(
        b'{"type":"message","message":{"role":"assistant","stopReason":"toolUse","usage":{"totalTokens":9},'
        b'"model":"m\\ud800","content":[{"type":"toolCall","id":"c","name":"b\\udfffsh"}]}}\n'
    )
    reading = stage.transcript.read()
    assert brief(reading) == (9, "tool", "b?sh")
    assert reading.usage is not None and json.dumps(reading.usage.dump(), ensure_ascii=False).encode()


def test_a_line_of_many_megabytes_is_passed_over_in_constant_memory(stage: Stage) -> None:
    stage.add(_answer(100))
    assert stage.tokens() == 100
    picture = b'{"type":"message","message":{"role":"toolResult","content":"' + b"A" * (3 * LINE_BYTES_MAX) + b'"}}\n'
    tracemalloc.start()
    try:
        for begin in range(0, len(picture), 1_000_000):
            stage.add(picture[begin : begin + 1_000_000])
            assert stage.tokens() == 100
        stage.add(_answer(200))
        assert stage.tokens() == 200
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * LINE_BYTES_MAX, "never as much as the line is long"


def test_a_large_file_is_looked_at_from_its_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    filler = _asked("x" * 990)
    stage.add(filler * (2 * LOOK_BACK_BYTES[1] // len(filler)) + _answer(500) + filler * 3)
    taken = 0
    read = os.pread

    def counted(fd: int, count: int, offset: int) -> bytes:
        nonlocal taken
        data = read(fd, count, offset)
        taken += len(data)
        return data

    monkeypatch.setattr(os, "pread", counted)
    later = -(-3 * 990 // 3.5)
    assert stage.tokens() == 500 + later
    assert taken < 2 * LOOK_BACK_BYTES[0], "one step back was enough"
    taken = 0
    stage.add(_answer(600))
    assert stage.tokens() == 600
    assert taken < 1000, "then only what is new"


def test_it_goes_back_until_a_call_is_found(stage: Stage) -> None:
    filler = b'{"type":"custom","data":"' + b"x" * 970 + b'"}\n'
    stage.add(filler * 50 + _answer(500) + filler * (LOOK_BACK_BYTES[1] // len(filler) + 500))
    assert stage.tokens() == 500


def test_beyond_the_last_step_nothing_is_looked_for(stage: Stage) -> None:
    filler = b'{"type":"custom","data":"' + b"x" * 99_970 + b'"}\n'
    stage.add(_answer(500) + filler * (LOOK_BACK_BYTES[-1] // len(filler) + 2))
    reading = stage.transcript.read()
    assert reading.occupancy is None and reading.problem is None, "unknown, not 0"
    stage.add(_answer(600))
    assert stage.tokens() == 600


def test_a_step_that_ends_just_at_a_line_takes_that_line(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "LOOK_BACK_BYTES", LOOK_BACK_BYTES[:1])
    last = _answer(700, "y" * (LOOK_BACK_BYTES[0] - len(_answer(700))))
    assert len(last) == LOOK_BACK_BYTES[0]
    stage.add(_asked() * 10 + last)
    assert stage.tokens() == 700


def test_what_is_no_file_has_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        reading = Stage(path).transcript.read()
        assert reading.occupancy is None and reading.problem is not None and str(path) in reading.problem


def test_a_figure_without_a_time_is_as_old_as_the_file(stage: Stage) -> None:
    stage.add(_answer(100))
    os.utime(stage.path, (1_771_274_700, 1_771_274_700))
    occupancy = stage.transcript.read().occupancy
    assert occupancy is not None and occupancy.at == "2026-02-16T20:45:00.000Z"
