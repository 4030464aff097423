"""The session that an agent works in: bound, noted, followed, left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mesh.errors import Conflict
from mesh.models.running import Session
from mesh.store import Store
from mesh.store.edits import EditNote, TextStep
from mesh.store.handed import Handed

AGENTS = ["ada", "bob"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for agent in AGENTS:
        (tmp_path / "agents" / agent).mkdir(parents=True)
    (tmp_path / "system" / "scratch").mkdir(parents=True)
    (tmp_path / "system" / "locks").mkdir()
    return Store(str(tmp_path))


def test_found_as_it_is_on_disk(store: Store) -> None:
    assert store.sessions.find("ada") is None
    store.sessions.bind("ada", Session(cli="codex", id="one"))
    found = store.sessions.find("ada")
    assert found is not None and (found.id, found.joined) == ("one", False)
    found.id = "changed in memory"
    again = store.sessions.find("ada")
    assert again is not None and again.id == "one"
    Store(store.layout.root).sessions.bind("ada", Session(cli="codex", id="two"))
    again = store.sessions.find("ada")
    assert again is not None and again.id == "two", "another process wrote it"


def test_a_note_is_of_the_session_that_is_bound(store: Store) -> None:
    store.sessions.join("ada", Session(cli="codex", id="one"), AGENTS)
    told = Session(cli="codex", id="one", busy=True, seen_for="Stop", seen_at="now", transcript="/t")
    assert store.sessions.note("ada", told) is True
    found = store.sessions.find("ada")
    assert found is not None and (found.busy, found.seen_for, found.joined) == (True, "Stop", True)
    assert store.sessions.note("ada", told.model_copy(update={"id": "other"})) is False
    assert store.sessions.note("bob", told) is False
    store.sessions.bind("ada", Session(cli="codex", id="one", joined=True))
    found = store.sessions.find("ada")
    assert found is not None and found.seen_for == "Stop", "the same session: what its hooks told stays"
    store.sessions.bind("ada", Session(cli="codex", id="two"))
    found = store.sessions.find("ada")
    assert found is not None and found.seen_for is None


def test_keys_of_a_newer_version_stay(store: Store) -> None:
    store.sessions.bind("ada", Session(cli="codex", id="one"))
    path = Path(store.layout.session("ada"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "newer": 1}))
    store.sessions.note("ada", Session(cli="codex", id="one", busy=True))
    assert json.loads(path.read_text())["newer"] == 1


def test_joining_excludes(store: Store) -> None:
    store.sessions.join("ada", Session(cli="codex", id="one"), AGENTS)
    with pytest.raises(Conflict, match="is ada's already"):
        store.sessions.join("bob", Session(cli="codex", id="one"), AGENTS)
    with pytest.raises(Conflict, match="bound to codex session one"):
        store.sessions.join("ada", Session(cli="codex", id="two"), AGENTS)
    store.sessions.bind("bob", Session(cli="claude", id="own"))
    with pytest.raises(Conflict, match="is bob's already"):
        store.sessions.join("ada", Session(cli="claude", id="own"), AGENTS)
    store.sessions.join("bob", Session(cli="claude", id="mine"), AGENTS)
    assert store.sessions.leave("bob") is not None and store.sessions.find("bob") is None


def test_leaving_leaves_the_agent_s_own(store: Store) -> None:
    assert store.sessions.leave("ada") is None
    store.sessions.bind("ada", Session(cli="codex", id="one"))
    assert store.sessions.leave("ada") is None and store.sessions.find("ada") is not None


def test_following(store: Store) -> None:
    store.sessions.join("ada", Session(cli="codex", id="one"), AGENTS)
    fresh = Session(cli="codex", id="two", joined=True)
    assert store.sessions.follow("ada", "one", fresh) is True
    assert store.sessions.follow("ada", "one", fresh) is False
    found = store.sessions.find("ada")
    assert found is not None and (found.id, found.joined) == ("two", True)


def test_handed_out(store: Store) -> None:
    assert store.handed.all("ada") == []
    store.handed.write("ada", [])
    assert not (Path(store.layout.agent("ada")) / "handed.json").exists()
    entry = Handed(id="m", name="m.json", at="now", by="hook", session="s")
    store.handed.write("ada", [entry])
    assert store.handed.all("ada") == [entry]
    path = Path(store.layout.agent("ada")) / "handed.json"
    document = json.loads(path.read_text())
    document["mail"].append({"id": 3})
    path.write_text(json.dumps(document))
    assert store.handed.all("ada") == [entry], "what a hand edit broke is left out"
    store.handed.write("ada", [])
    assert store.handed.all("ada") == []


def test_edits(store: Store) -> None:
    note = EditNote(path="/home/x/a.json", existed=True, digest="d", steps=[TextStep(at=1, drop="a", put="b")])
    assert store.edits.find(note.path) is None
    store.edits.keep(note)
    assert store.edits.find(note.path) == note and store.edits.find("/home/x/b.json") is None
    next(Path(store.layout.system, "edits").iterdir()).write_text("{")
    assert store.edits.find(note.path) is None
    store.edits.forget(note.path)
    store.edits.forget(note.path)
