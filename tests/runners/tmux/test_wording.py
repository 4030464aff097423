"""What is typed: one line, harmless whatever it is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.errors import BadUse
from mesh.models import Message, Task
from mesh.models.tasks import Priority
from mesh.runners.tmux.wording import LENGTH_MAX, Command, for_messages, for_task

ID = "0197a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b"


def message(**changed: object) -> Message:
    fields = {"id": ID, "from_": "ops", "to": "coder", "type": "fix_ci_failure", "priority": Priority.URGENT}
    fields |= {"timestamp": "2026-01-01T00:00:00.000Z", "payload": {"error": "never\ntyped"}}
    return Message.model_construct(**{**fields, **changed})  # type: ignore[arg-type]


def task(**changed: object) -> Task:
    fields = {"id": ID, "from_": "chief", "title": "/quit\n!rm", "priority": Priority.HIGH}
    return Task.model_construct(**{**fields, **changed})  # type: ignore[arg-type]


def test_one_message_is_named_with_how_to_read_it() -> None:
    assert for_messages([message()], "coder") == (
        f"[mesh] urgent message (fix_ci_failure) from ops. Read it with: mesh mail show {ID}"
    )


def test_several_are_counted_and_the_first_is_named() -> None:
    three = [message(), message(id="b"), message(id="c")]
    assert for_messages(three, "coder") == (
        "[mesh] urgent message (fix_ci_failure) from ops and 2 more. Read with: mesh mail list coder"
    )


def test_mail_of_which_nothing_is_known() -> None:
    assert for_messages([], "coder") == "[mesh] Mail waits for you. Read with: mesh mail list coder"


def test_a_task_is_named_without_its_title() -> None:
    assert for_task(task()) == f"[mesh] high task from chief. Read it with: mesh task show {ID}"


def test_the_command_is_the_sessions_own() -> None:
    command = Command("/opt/mesh/bin/mesh", "--root /srv/mesh")
    assert for_messages([message()], "coder", command).endswith(f"/opt/mesh/bin/mesh mail show --root /srv/mesh {ID}")
    assert for_task(task(), command).endswith(f"/opt/mesh/bin/mesh task show --root /srv/mesh {ID}")
    assert len(for_messages([message(id="x" * 128)], "a" * 32, Command("m" * 40, "r" * 40))) <= LENGTH_MAX
    for part in ("mesh; rm", "mesh\n", "mesh @x", "m" * 41):
        with pytest.raises(BadUse):
            Command(part)
        with pytest.raises(BadUse):
            Command("mesh", part)


def test_an_id_is_told_whole_or_not_at_all() -> None:
    longest = "x" * 128
    line = for_messages([message(id=longest, type="t" * 64, from_="a" * 32)], "coder")
    assert line.endswith(f"mesh mail show {longest}") and len(line) <= LENGTH_MAX
    assert for_messages([message(id="-n")], "coder").endswith("mesh mail show -- -n")
    assert for_messages([message(id="a b;c")], "coder").endswith("mesh mail list coder")
    with pytest.raises(BadUse):
        for_task(task(id="a b"))


#: What hand-written files may hold, where nothing has checked them.
NASTY = st.text(max_size=300) | st.sampled_from(
    ["/quit", "!rm -rf", "# note", "@file", "a\nb", "\x1b[2J", "\r", "\x03"]
)


@given(id_=NASTY, type_=NASTY, sender=NASTY, agent=NASTY, count=st.integers(1, 3))
def test_whatever_it_is_made_of_it_is_one_harmless_line(
    id_: str, type_: str, sender: str, agent: str, count: int
) -> None:
    line = for_messages([message(id=id_, type=type_, from_=sender)] * count, agent)
    assert len(line) <= LENGTH_MAX
    assert line.isascii() and line.isprintable()
    assert line.startswith("[mesh] ")
    assert not set("/!#@\\`$;&|<>*?'\"{}") & set(line)
    assert "never" not in line
