"""Git worktrees on real repositories: each task its own, and nothing that git would lose is ever removed."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

import pytest

from mesh.models.running import Checkout
from mesh.service import worktrees
from mesh.service.worktrees import GitFailed

Git = Callable[..., str]


def run_git(folder: pathlib.Path, *arguments: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    found = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return found.stdout.strip()


@pytest.fixture
def repo(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    run_git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitignore").write_text("*.db\n")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-qm", "first")
    return folder


async def opened(repo: pathlib.Path, task: str = "t1", known: Checkout | None = None) -> Checkout:
    return await worktrees.open_worktree(str(repo), str(repo.parent / "trees"), "coder", task, known)


def at(tree: Checkout) -> pathlib.Path:
    return pathlib.Path(tree.path)


async def test_each_task_has_its_own(repo: pathlib.Path) -> None:
    first, second = await opened(repo), await opened(repo, "t2")
    assert (first.branch, second.branch) == ("mesh/coder/t1", "mesh/coder/t2")
    (at(first) / "a.txt").write_text("two\n")
    assert (at(second) / "a.txt").read_text() == "one\n"
    assert (repo / "a.txt").read_text() == "one\n"
    assert await opened(repo, "t1", first) == first, "a known one is used again"


async def test_commits_and_dirt_are_told(repo: pathlib.Path) -> None:
    tree = await opened(repo)
    assert await worktrees.work_in(tree) == ([], False)
    path = at(tree)
    (path / "b.txt").write_text("new\n")
    assert await worktrees.work_in(tree) == ([], True)
    run_git(path, "add", ".")
    run_git(path, "commit", "-qm", "second")
    commit = run_git(path, "rev-parse", "HEAD")
    assert await worktrees.work_in(tree) == ([commit], False)


def _untracked(path: pathlib.Path) -> None:
    (path / "new.txt").write_text("x")


def _changed(path: pathlib.Path) -> None:
    (path / "a.txt").write_text("changed")


def _staged(path: pathlib.Path) -> None:
    _changed(path)
    run_git(path, "add", ".")


def _ignored(path: pathlib.Path) -> None:
    (path / "work.db").write_text("rows")


def _committed(path: pathlib.Path) -> None:
    _staged(path)
    run_git(path, "commit", "-qm", "unpushed")


@pytest.mark.parametrize("work", [_untracked, _changed, _staged, _ignored, _committed])
async def test_what_would_be_lost_stays(repo: pathlib.Path, work: Callable[[pathlib.Path], None]) -> None:
    tree = await opened(repo)
    work(at(tree))
    before = run_git(at(tree), "status", "--porcelain", "--ignored")
    assert not await worktrees.leave(tree)
    assert run_git(at(tree), "status", "--porcelain", "--ignored") == before
    assert run_git(repo, "branch", "--list", tree.branch)


async def test_one_in_which_nothing_was_done_goes(repo: pathlib.Path) -> None:
    tree = await opened(repo)
    assert await worktrees.leave(tree)
    assert not at(tree).exists()
    assert not run_git(repo, "branch", "--list", tree.branch)
    assert not await worktrees.leave(tree), "it is gone already"


async def test_a_stash_is_the_repository_s_and_stays(repo: pathlib.Path) -> None:
    tree = await opened(repo)
    _changed(at(tree))
    run_git(at(tree), "stash")
    assert await worktrees.leave(tree)
    run_git(repo, "stash", "apply")
    assert (repo / "a.txt").read_text() == "changed"


async def test_pushed_work_may_go(repo: pathlib.Path, tmp_path: pathlib.Path) -> None:
    remote = tmp_path / "remote.git"
    run_git(tmp_path, "init", "-q", "--bare", str(remote))
    run_git(repo, "remote", "add", "origin", str(remote))
    tree = await opened(repo)
    _committed(at(tree))
    assert not await worktrees.leave(tree)
    run_git(at(tree), "push", "-q", "-u", "origin", tree.branch)
    assert await worktrees.leave(tree)
    assert run_git(remote, "branch", "--list", tree.branch), "the remote has it"


async def test_a_branch_of_an_earlier_attempt_is_gone_on_with(repo: pathlib.Path) -> None:
    tree = await opened(repo)
    _committed(at(tree))
    commit = run_git(at(tree), "rev-parse", "HEAD")
    run_git(repo, "worktree", "remove", tree.path)
    again = await opened(repo, "t1", tree)
    assert (again.branch, again.base) == (tree.branch, tree.base)
    assert await worktrees.work_in(again) == ([commit], False)


async def test_a_patch_holds_all_that_is_uncommitted(repo: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tree = await opened(repo)
    path = at(tree)
    (path / "a.txt").write_text("two\n")
    (path / "new.bin").write_bytes(bytes(range(256)))
    status = run_git(path, "status", "--porcelain")
    patch = await worktrees.patch_of(tree, str(tmp_path / "index"))
    assert run_git(path, "status", "--porcelain") == status, "its own index is as it was"
    (tmp_path / "p.patch").write_bytes(patch)
    run_git(repo, "apply", str(tmp_path / "p.patch"))
    assert (repo / "a.txt").read_text() == "two\n"
    assert (repo / "new.bin").read_bytes() == bytes(range(256))


@pytest.mark.parametrize("task", ["a..b", "x.lock", "t" * 128, "-dash", "a.b"])
async def test_any_task_id_makes_a_branch(repo: pathlib.Path, task: str) -> None:
    tree = await opened(repo, task)
    assert run_git(at(tree), "rev-parse", "--abbrev-ref", "HEAD") == tree.branch


async def test_what_is_no_repository_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(GitFailed, match="not a git repository"):
        await opened(tmp_path)
    with pytest.raises(GitFailed, match="No such file"):
        await opened(tmp_path / "nowhere")


async def test_a_repository_without_a_commit_is_said(tmp_path: pathlib.Path) -> None:
    run_git(tmp_path, "init", "-q")
    with pytest.raises(GitFailed, match="rev-parse"):
        await opened(tmp_path)
