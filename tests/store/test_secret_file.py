from __future__ import annotations

import os
from pathlib import Path

import pytest

from mesh.errors import StoreUnavailable
from mesh.store.disk import PosixDisk
from mesh.store.secret_file import SecretFile
from tests.fakes import MemoryDisk


def secrets_at(path: Path, text: str | bytes, mode: int = 0o600) -> SecretFile:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return SecretFile(str(path), PosixDisk())


def test_values_by_name(tmp_path: Path) -> None:
    found = secrets_at(tmp_path / "secrets.toml", 'OPENAI_API_KEY = "sk-1"\n# a note\n"notify url" = \'mailto://x\'\n')
    assert found.get("OPENAI_API_KEY") == "sk-1" and found.get("OTHER") is None
    assert found.all() == {"OPENAI_API_KEY": "sk-1", "notify url": "mailto://x"}
    found.all().clear()
    assert found.get("OPENAI_API_KEY") == "sk-1"


def test_no_file_is_no_secrets(tmp_path: Path) -> None:
    assert SecretFile(str(tmp_path / "secrets.toml"), PosixDisk()).all() == {}
    assert SecretFile("/root/secrets.toml", MemoryDisk()).get("A") is None


def test_an_edit_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "secrets.toml"
    found = secrets_at(path, 'A = "one"')
    assert found.get("A") == "one"
    new = tmp_path / "new"
    secrets_at(new, 'A = "two!"')
    new.rename(path)
    assert found.get("A") == "two!"
    path.unlink()
    assert found.get("A") is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610, 0o777])
def test_what_others_may_touch_is_refused_even_if_it_was_read_before(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secrets.toml"
    found = secrets_at(path, 'A = "sesame"')
    assert found.get("A") == "sesame"
    path.chmod(mode)
    with pytest.raises(StoreUnavailable) as caught:
        found.get("A")
    assert f"chmod 600 {path}" in caught.value.detail and "sesame" not in str(caught.value.problem())
    path.chmod(0o400)
    assert found.get("A") == "sesame"


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    target, link = tmp_path / "kept", tmp_path / "secrets.toml"
    secrets_at(target, 'A = "sesame"')
    link.symlink_to(target)
    found = SecretFile(str(link), PosixDisk())
    assert found.get("A") == "sesame"
    target.chmod(0o644)
    with pytest.raises(StoreUnavailable, match="chmod 600"):
        found.get("A")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('A = "sesame', "end of document"),
        ("A = sesame", "line 1"),
        ('A = "x"\nB: "sesame"', "line 2"),
        ('A = "x"\nA = "sesame"', "end of document"),
        (b'A = "\xff sesame"', "UTF-8"),
        ("A = 12345", "A must be text"),
        ('[openai]\nkey = "sesame"', "openai must be text"),
    ],
)
def test_a_broken_file_says_where_and_shows_nothing_of_it(tmp_path: Path, text: str | bytes, word: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        secrets_at(tmp_path / "secrets.toml", text).get("A")
    assert word in caught.value.detail and "sesame" not in str(caught.value.problem())
    assert caught.value.__cause__ is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="can't be read"):
        secrets_at(tmp_path / "secrets.toml", "", 0o200).get("A")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "secrets.toml").mkdir(mode=0o700)
    with pytest.raises(StoreUnavailable, match="can't be read"):
        SecretFile(str(tmp_path / "secrets.toml"), PosixDisk()).get("A")
