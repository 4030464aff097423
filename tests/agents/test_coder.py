"""The review queue, over real repositories."""

from __future__ import annotations

import os
import pathlib
import subprocess
from datetime import timedelta

import pytest

from agents import _git, coder
from mesh import Report, clock
from mesh.errors import SkillInputError
from tests.agents.stage import MORNING, ContextMaker, section

TITLE = "Code Review Queue"


class Repo:
    """A repository that a test works in. Every commit is dated by its age in days."""

    def __init__(self, path: pathlib.Path, *options: str) -> None:
        self.path = path
        subprocess.run(["git", "init", "-q", "-b", "main", *options, str(path)], check=True)

    def git(self, *arguments: str, days_ago: float = 0) -> str:
        at = clock.iso(MORNING - timedelta(days=days_ago))
        who = {"GIT_AUTHOR_NAME": "Ada | L", "GIT_COMMITTER_NAME": "Ada", "EMAIL": "ada@example.org"}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.path), "GIT_CONFIG_NOSYSTEM": "1", **who}
        dates = {"GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments], env={**environment, **dates}, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    def commit(self, file: str, text: str, days_ago: float, subject: str = "work") -> str:
        (self.path / file).write_text(text)
        self.git("add", "--", file)
        self.git("commit", "-q", "-m", subject, days_ago=days_ago)
        return self.git("rev-parse", "HEAD")

    def branch(self, name: str, base: str = "main") -> None:
        """Begin a branch and check it out, whatever it is called."""
        self.git("update-ref", f"refs/heads/{name}", base)
        self.git("symbolic-ref", "HEAD", f"refs/heads/{name}")
        self.git("reset", "-q", "--hard")

    def back(self) -> None:
        self.git("checkout", "-q", "main")

    def clone(self, name: str, *options: str) -> Repo:
        """A clone beside it."""
        path = self.path.parent / name
        self.git("clone", "-q", *options, ".", str(path))
        return Repo(path, *options)


@pytest.fixture
def repo(tmp_path: pathlib.Path) -> Repo:
    repo = Repo(tmp_path / "work")
    repo.commit("readme", "one\ntwo\n", 30)
    return repo


async def review(make_context: ContextMaker, **settings: object) -> Report:
    context = make_context("coder", settings={"repositories": ["work"], **settings}, title=TITLE)
    return await coder.agent.skills[TITLE](context)


async def refused(make_context: ContextMaker, **settings: object) -> str:
    with pytest.raises(SkillInputError) as caught:
        await review(make_context, **settings)
    return str(caught.value)


def test_the_role_does_what_its_template_is_called() -> None:
    assert list(coder.agent.skills) == [TITLE]
    assert coder.agent.id == "coder" and "test" in coder.agent.persona


# -- what is found


async def test_open_branches_oldest_first_with_age_author_distance_and_size(
    repo: Repo, make_context: ContextMaker
) -> None:
    repo.branch("young")
    young = repo.commit("new", "a\nb\nc\n", 2, "Add | three")
    repo.back()
    repo.branch("old")
    repo.commit("readme", "one\n", 20)
    old = repo.commit("more", "x\n", 10)
    repo.back()
    head = repo.commit("other", "y\n", 1)
    report = await review(make_context)
    path = str(repo.path)
    assert report.text.startswith(f"Code review queue: 2 open branches in 1 repository; the oldest is old in {path}.")
    lines = [line for line in section(report.text, path).splitlines() if line.startswith(("| old", "| young"))]
    assert lines == [
        rf"| old | 10 d | Ada \| L | 2 | 1 | 2 | +1 −1 | {old[:12]} work |",
        rf"| young | 2 d | Ada \| L | 1 | 1 | 1 | +3 −0 | {young[:12]} Add \| three |",
    ]
    assert report.evidence == [
        f"{path}: refs/heads/main {head}",
        f"{path}: refs/heads/old {old}",
        f"{path}: refs/heads/young {young}",
    ]


async def test_no_open_branch_is_a_report_with_the_head_in_evidence(repo: Repo, make_context: ContextMaker) -> None:
    repo.branch("merged")
    repo.commit("new", "a\n", 2)
    repo.back()
    repo.git("merge", "-q", "merged")
    head = repo.git("rev-parse", "main")
    report = await review(make_context)
    assert report.text.startswith("Code review queue: no open branches in 1 repository.")
    assert "No open branches." in report.text and "| merged |" not in report.text
    assert report.evidence == [f"{repo.path}: refs/heads/main {head}"]


async def test_uncommitted_changes_and_stashes_are_counted(repo: Repo, make_context: ContextMaker) -> None:
    (repo.path / "readme").write_text("stashed\n")
    repo.git("stash", "push", "-q")
    (repo.path / "readme").write_text("changed\n")
    (repo.path / "new\nfile").write_text("untracked\n")
    assert "2 uncommitted changes, 1 stash." in (await review(make_context)).text


async def test_looking_changes_nothing(repo: Repo, make_context: ContextMaker) -> None:
    os.utime(repo.path / "readme", (1_000_000, 1_000_000))  # git would note the file's new time in its index
    before = (repo.path / ".git" / "index").read_bytes()
    assert "0 uncommitted changes" in (await review(make_context)).text
    assert (repo.path / ".git" / "index").read_bytes() == before


async def test_a_squashed_branch_is_not_in_the_queue(repo: Repo, make_context: ContextMaker) -> None:
    repo.branch("squashed")
    repo.commit("new", "a\n", 5)
    repo.commit("new", "a\nb\n", 4)
    repo.back()
    repo.git("merge", "-q", "--squash", "squashed")
    repo.git("commit", "-q", "-m", "Add new (#1)", days_ago=3)
    repo.commit("readme", "since then\n", 2)
    text = (await review(make_context)).text
    assert text.startswith("Code review queue: no open branches")
    assert "Already in main by content" in text and "| squashed | 4 d |" in text


async def test_branches_of_the_origin(repo: Repo, tmp_path: pathlib.Path, make_context: ContextMaker) -> None:
    repo.branch("remote-only")
    repo.commit("a", "a\n", 9)
    repo.back()
    repo.branch("both")
    repo.commit("b", "b\n", 8)
    repo.back()
    clone = repo.clone("clone")
    clone.git("update-ref", "refs/heads/both", "refs/remotes/origin/both")
    text = (await review(make_context, repositories=["clone"])).text
    assert "2 open branches" in text
    assert "| origin/remote-only | 9 d |" in text and "| both | 8 d |" in text
    assert "origin/both" not in text
    repo.commit("c", "c\n", 7)
    clone.git("fetch", "-q")
    text = (await review(make_context, repositories=["clone"], base="both")).text
    assert "| origin/main | 7 d |" in text and "origin/HEAD" not in text  # an alias is not a branch


async def test_what_is_merged_at_the_origin_or_here_is_merged(
    repo: Repo, tmp_path: pathlib.Path, make_context: ContextMaker
) -> None:
    clone = repo.clone("clone")
    clone.branch("ours")
    clone.commit("a", "a\n", 9)
    clone.back()
    clone.git("merge", "-q", "ours")
    clone.branch("theirs", "refs/remotes/origin/main")
    merged = clone.commit("b", "b\n", 8)
    clone.git("update-ref", "refs/remotes/origin/main", merged)
    clone.back()
    report = await review(make_context, repositories=["clone"])
    assert report.text.startswith("Code review queue: no open branches")
    # The one at the origin has what the local one lacks, so it is the one to compare with.
    assert report.evidence == [f"{clone.path}: refs/remotes/origin/main {merged}"]


async def test_hostile_names_stay_names(repo: Repo, make_context: ContextMaker) -> None:
    names = ["--output=pwned", "-d", "a|b", "$(touch${IFS}pwned)", "`touch${IFS}pwned`", "HEAD"]
    for number, name in enumerate(names):
        repo.branch(name)
        repo.commit(f"file-{number}", "x\n", number + 1, f"break\f\u2028{number}")
    repo.back()
    report = await review(make_context)
    assert f"{len(names)} open branches" in report.text
    assert r"| a\|b |" in report.text and "| --output=pwned |" in report.text
    assert sum(line.count(" | ") == 7 for line in report.text.split("\n")) == len(names) + 2  # header and rule
    assert not list(repo.path.glob("pwned*"))


async def test_a_repositorys_own_settings_run_no_program(repo: Repo, make_context: ContextMaker) -> None:
    repo.branch("topic")
    repo.commit("readme", "two\n", 1)
    repo.back()
    marker = repo.path.parent / "ran"
    program = repo.path.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    (repo.path / ".gitattributes").write_text("* diff=evil\n")
    for key in ("core.fsmonitor", "diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager"):
        repo.git("config", key, str(program))
    assert "1 uncommitted change" in (await review(make_context)).text
    assert not marker.exists()


# -- the base


@pytest.mark.parametrize("name", ["master", "trunk"])
async def test_the_base_is_found_without_main(tmp_path: pathlib.Path, make_context: ContextMaker, name: str) -> None:
    repo = Repo(tmp_path / "work", f"--initial-branch={name}")
    head = repo.commit("readme", "x\n", 3)
    assert (await review(make_context)).evidence == [f"{repo.path}: refs/heads/{name} {head}"]


async def test_main_is_the_base_whatever_is_checked_out(repo: Repo, make_context: ContextMaker) -> None:
    repo.branch("topic")
    repo.commit("a", "a\n", 1)
    assert "1 open branch " in (await review(make_context)).text


async def test_a_setting_names_the_base(repo: Repo, make_context: ContextMaker) -> None:
    repo.branch("release")
    repo.commit("a", "a\n", 1)
    repo.back()
    report = await review(make_context, base="release")
    assert report.text.startswith("Code review queue: no open branches")
    assert report.evidence[0].startswith(f"{repo.path}: refs/heads/release ")


async def test_a_detached_head_is_a_base_of_last_resort(tmp_path: pathlib.Path, make_context: ContextMaker) -> None:
    repo = Repo(tmp_path / "work", "--initial-branch=trunk")
    head = repo.commit("readme", "x\n", 3)
    repo.git("checkout", "-q", "--detach")
    repo.branch("topic", "HEAD")
    repo.commit("a", "a\n", 1)
    repo.git("checkout", "-q", "--detach", head)
    report = await review(make_context)
    assert report.evidence[0] == f"{repo.path}: HEAD {head}"
    assert "1 open branch " in report.text and "| topic | 1 d |" in report.text


async def test_a_bare_repository_has_nothing_uncommitted(
    repo: Repo, tmp_path: pathlib.Path, make_context: ContextMaker
) -> None:
    repo.clone("bare.git", "--bare")
    text = (await review(make_context, repositories=["bare.git"])).text
    assert "A bare repository: nothing is checked out." in text


async def test_only_the_most_recent_are_measured(repo: Repo, make_context: ContextMaker) -> None:
    for number in range(4):
        repo.branch(f"b{number}")
        repo.commit(f"f{number}", "x\n", number + 1)
        repo.back()
    text = (await review(make_context, branchesMax=2)).text
    assert "2 open branches in 1 repository, and 2 older not measured; the oldest is b1" in text
    assert "| b0 |" in text and "| b2 |" not in text


# -- which repositories


async def test_without_the_setting_the_entrys_repo_is_looked_at(repo: Repo, make_context: ContextMaker) -> None:
    progress: list[float] = []
    context = make_context("coder", settings={}, entry={"repo": str(repo.path)}, progress=progress)
    report = await coder.agent.skills[TITLE](context)
    assert report.evidence[0].startswith(f"{repo.path}: refs/heads/main ")
    assert progress == [1.0]


async def test_several_repositories_and_the_same_one_twice(
    repo: Repo, tmp_path: pathlib.Path, make_context: ContextMaker
) -> None:
    Repo(tmp_path / "second").commit("a", "a\n", 1)
    report = await review(make_context, repositories=["work", str(tmp_path / "second"), "./work"])
    assert "no open branches in 2 repositories." in report.text
    assert len(report.evidence) == 2


async def test_nothing_configured_says_what_to_configure(make_context: ContextMaker) -> None:
    message = await refused(make_context, repositories=[])
    assert "agents.coder.settings.repositories" in message and "agents.coder.repo" in message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repositories": "work"}, "settings.repositories must be a list"),
        ({"repositories": ["work", 3]}, "settings.repositories must be a list of texts"),
        ({"repositories": [""]}, "settings.repositories must be a list of texts"),
        ({"base": 3}, "settings.base must be a text"),
        ({"base": "nowhere"}, "work: there is no branch 'nowhere' to compare with"),
        ({"base": "--all"}, "work: there is no branch '--all' to compare with"),
        ({"branchesMax": 0}, "settings.branchesMax must be a whole number from 1"),
        ({"repositories": ["work", "gone"]}, "gone: there is no such folder"),
        ({"repositories": ["a\0b"]}, "there is no such folder"),
        ({"repositories": ["work/readme"]}, "work/readme: there is no such folder"),
        ({"repositories": ["shared"]}, "shared: not a git repository"),
    ],
)
async def test_wrong_settings_are_named(
    repo: Repo, make_context: ContextMaker, settings: dict[str, object], words: str
) -> None:
    assert words in await refused(make_context, **settings)


async def test_a_repository_without_commits_is_refused(tmp_path: pathlib.Path, make_context: ContextMaker) -> None:
    Repo(tmp_path / "work")
    assert await refused(make_context) == f"{tmp_path / 'work'}: the repository has no commits yet."


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to another user")
async def test_a_repository_of_another_user_is_refused_with_the_way_out(
    repo: Repo, make_context: ContextMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(repo.path.parent))
    for path in (repo.path, repo.path / ".git"):
        os.chown(path, 12345, 12345)
    message = await refused(make_context)
    assert "belongs to another user" in message and f"safe.directory {repo.path}" in message


# -- pure computation


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", (0, 0, 0)),
        (" 1 file changed, 1 insertion(+)\n", (1, 1, 0)),
        (" 3 files changed, 10 insertions(+), 2 deletions(-)\n", (3, 10, 2)),
        (" 2 files changed, 1 deletion(-)\n", (2, 0, 1)),
        (" 1 file changed, 0 insertions(+), 0 deletions(-)\n", (1, 0, 0)),
    ],
)
def test_parse_shortstat(text: str, numbers: tuple[int, int, int]) -> None:
    assert _git.parse_shortstat(text) == numbers


@pytest.mark.parametrize(
    ("touched", "differ", "nothing"),
    [
        ("a\0b\0", "c\0", True),
        ("a\0b\0", "b\0c\0", False),
        ("a\0", "", True),
        ("", "a\0", True),
        ("a\0", "b\0c", False),
    ],
)
def test_share_nothing(touched: str, differ: str, nothing: bool) -> None:
    assert _git.share_nothing(touched, differ) is nothing
