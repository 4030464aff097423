"""Fixtures of the model runner's tests: a provider on loopback, and the program called within this process."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mesh.runners.model import call
from mesh.runners.model.reply import Reply, reply_in
from tests.runners.model.provider import Provider, serving

KEY = "sk-looks-like-a-key-0123456789"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


@dataclass
class Called:
    status: int
    out: str
    err: str

    @property
    def reply(self) -> Reply:
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), self.out
        found = reply_in(self.out)
        assert found is not None, self.out
        return found

    @property
    def trouble(self) -> tuple[str, str]:
        problem = self.reply.problem
        assert problem is not None, self.out
        return problem.kind, problem.detail


class Program:
    """`call.main` with arguments, standard input and a key, as a process would have them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._caught = capsys

    def __call__(self, model: str, *options: str, prompt: str = "Do it.", key: str = KEY) -> Called:
        self._patch.setenv("TEST_KEY", key)
        for name in call.SILENT:
            self._patch.setenv(name, os.environ.get(name, ""))  # put back at the end of the test
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(prompt.encode())))
        self._caught.readouterr()
        status = call.main([f"--model={model}", "--key-env=TEST_KEY", "--timeout-s=20", *options])
        assert status == 2 or "TEST_KEY" not in os.environ
        out, err = self._caught.readouterr()
        return Called(status, out, err)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(monkeypatch, capsys)
