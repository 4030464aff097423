"""What git knows of a repository: its base branch, the branches not in it, and work that lies about uncommitted.

Commands get commit ids, never names: a branch can't be called so that git takes it for an option. A repository of
another user is refused by git itself, and we leave it at that: its configuration could make git run programs.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mesh.errors import SkillInputError

if TYPE_CHECKING:
    from mesh.service.skill_context import Output, SkillContext

#: No file monitor of the repository's choice, and no lock on the index of whoever works there.
_GIT = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks", "-C")
_HEADS, _ORIGIN = "refs/heads/", "refs/remotes/origin/"
#: Ref, what it points to if it is an alias, commit, committer's time, author, subject.
_FORMAT = "%00".join(
    ["%(refname)", "%(symref)", "%(objectname)", "%(committerdate:unix)", "%(authorname)", "%(subject)"]
)


@dataclass(frozen=True)
class Ref:
    """A branch and its last commit."""

    name: str
    commit: str
    committed_s: float = 0.0
    author: str = ""
    subject: str = ""

    @property
    def short(self) -> str:
        """As people call it: `topic`, or `origin/topic`."""
        return self.name.removeprefix(_HEADS).removeprefix("refs/remotes/")


@dataclass(frozen=True)
class Branch:
    """A branch that isn't merged, measured against the base."""

    ref: Ref
    ahead: int
    behind: int
    files: int
    added: int
    removed: int
    #: Every file that it touches reads the same in the base: it was squashed or rebased into it.
    contained: bool


@dataclass(frozen=True)
class RepositoryFacts:
    path: str
    base: Ref
    #: Newest last. At most as many as were asked for: the most recent ones.
    branches: list[Branch]
    #: How many older ones were not measured.
    left_out: int
    #: Changed and untracked files; None in a bare repository.
    uncommitted: int | None
    stashes: int


class Repository:
    """One repository, looked at through git."""

    def __init__(self, context: SkillContext, path: str) -> None:
        self._context = context
        self.path = path

    async def facts(self, base: str | None, branches_max: int) -> RepositoryFacts:
        """Look at everything. Raises SkillInputError, which names the path, where there is nothing to look at."""
        await self._check()
        base_ref, exclude = await self._base(base)
        refs = await self._unmerged(exclude)
        measured = [await self._measure(base_ref, ref) for ref in refs[-branches_max:]]
        uncommitted = stashes = None
        if (await self._git("rev-parse", "--is-bare-repository")).strip() != "true":
            uncommitted = (await self._git("status", "--porcelain", "--no-renames", "-z")).count("\0")
            stashes = (await self._git("stash", "list", "-z")).count("\0")
        return RepositoryFacts(self.path, base_ref, measured, len(refs) - len(measured), uncommitted, stashes or 0)

    # -- running git

    async def _try(self, *arguments: str) -> Output:
        return await self._context.run([*_GIT, self.path, *arguments])

    async def _git(self, *arguments: str) -> str:
        output = await self._try(*arguments)
        if output.status != 0:
            raise self._wrong(f"git {arguments[0]} failed: {_last_line(output.stderr)}")
        return output.stdout

    def _wrong(self, reason: str) -> SkillInputError:
        return SkillInputError(f"{self.path}: {reason}.", file=self.path)

    async def _check(self) -> None:
        if not await asyncio.to_thread(os.path.isdir, self.path):  # the path may lie on a disk that hangs
            raise self._wrong("there is no such folder")
        output = await self._try("rev-parse", "--git-dir")
        if output.status == 0:
            return
        if "dubious ownership" in output.stderr:
            raise self._wrong(
                "the repository belongs to another user; if you trust it, run as the agent's user: "
                f"git config --global --add safe.directory {self.path}"
            )
        raise self._wrong(f"not a git repository ({_last_line(output.stderr)})")

    # -- refs

    async def _refs(self, *arguments: str) -> list[Ref]:
        printed = await self._git("for-each-ref", "--sort=committerdate", f"--format={_FORMAT}", *arguments)
        refs = []
        for line in printed.split("\n")[:-1]:  # a subject may hold other characters that Python takes for line ends
            name, symref, commit, committed, author, subject = line.split("\0")
            if not symref and committed:  # a ref may also name a file or a tree, which has no date
                refs.append(Ref(name, commit, float(committed), author, subject))
        return refs

    async def _base(self, wanted: str | None) -> tuple[Ref, list[Ref]]:
        """The base, and the refs whose commits count as merged: the local branch and the one at the origin."""
        refs = {ref.name: ref for ref in await self._refs(_HEADS, _ORIGIN)}
        head = await self._head()
        if not refs and head is None:
            raise self._wrong("the repository has no commits yet")
        name = wanted or await self._default_name(refs)
        known = [refs[ref] for prefix in (_HEADS, _ORIGIN) if (ref := f"{prefix}{name}") in refs]
        if known:
            return await self._furthest(known), known
        if wanted:
            raise self._wrong(f"there is no branch {wanted!r} to compare with; correct the setting `base`")
        if head is None:
            raise self._wrong("can't tell the default branch; name it in the setting `base`")
        return head, [head]  # nothing is checked out but a commit

    async def _head(self) -> Ref | None:
        output = await self._try("log", "-1", "--no-show-signature", "--format=%H%x00%ct%x00%an%x00%s", "HEAD", "--")
        if output.status != 0:
            return None
        commit, committed, author, subject = output.stdout.rstrip("\n").split("\0")
        return Ref("HEAD", commit, float(committed), author, subject)

    async def _default_name(self, refs: dict[str, Ref]) -> str:
        origin_head = await self._try("symbolic-ref", "-q", f"{_ORIGIN}HEAD")
        named = origin_head.stdout.strip().removeprefix(_ORIGIN)
        for name in (named, "main", "master"):
            if name and (f"{_HEADS}{name}" in refs or f"{_ORIGIN}{name}" in refs):
                return name
        return (await self._try("symbolic-ref", "-q", "HEAD")).stdout.strip().removeprefix(_HEADS)

    async def _furthest(self, known: list[Ref]) -> Ref:
        """The one at the origin where it has what the local branch lacks, else the local one."""
        if len(known) == 2:
            missing = await self._git("rev-list", "--count", f"{known[0].commit}..{known[1].commit}")
            return known[1] if int(missing) else known[0]
        return known[0]

    async def _unmerged(self, exclude: list[Ref]) -> list[Ref]:
        """Branches that none of these contains, oldest first; those at the origin where no local one is open."""
        merged = [f"--no-merged={ref.commit}" for ref in exclude]
        refs = await self._refs(*merged, _HEADS, _ORIGIN)
        local = {ref.name.removeprefix(_HEADS) for ref in refs if ref.name.startswith(_HEADS)}
        names = {ref.name for ref in exclude}
        open_refs = [ref for ref in refs if ref.name not in names]
        return [ref for ref in open_refs if ref.name.removeprefix(_ORIGIN) not in local]

    # -- measuring

    async def _measure(self, base: Ref, ref: Ref) -> Branch:
        spread = f"{base.commit}...{ref.commit}"
        counts = await self._try("rev-list", "--left-right", "--count", spread)
        behind, ahead = (int(number) for number in counts.stdout.split()) if counts.status == 0 else (0, 0)
        own = await self._try("diff", "--shortstat", spread)
        if own.status != 0:  # no common ancestor: everything in it is new
            own = await self._try("diff", "--shortstat", base.commit, ref.commit)
        files, added, removed = parse_shortstat(own.stdout)
        return Branch(ref, ahead, behind, files, added, removed, await self._contained(base, ref))

    async def _contained(self, base: Ref, ref: Ref) -> bool:
        touched = await self._try("diff", "--name-only", "--no-renames", "-z", f"{base.commit}...{ref.commit}")
        differ = await self._try("diff", "--name-only", "--no-renames", "-z", base.commit, ref.commit)
        if touched.status != 0 or differ.status != 0:
            return False
        return share_nothing(touched.stdout, differ.stdout)


def parse_shortstat(text: str) -> tuple[int, int, int]:
    """Files changed, lines added, lines removed, from `git diff --shortstat`; it leaves out what is zero."""
    found = {"file": 0, "insertion": 0, "deletion": 0}
    for part in text.strip().split(", "):
        number, _, what = part.partition(" ")
        for word in found:
            if what.startswith(word):
                found[word] = int(number)
    return found["file"], found["insertion"], found["deletion"]


def share_nothing(touched: str, differ: str) -> bool:
    """Whether no path is in both lists, each ended by NUL. A list that was cut off counts as sharing."""
    if any(paths and not paths.endswith("\0") for paths in (touched, differ)):
        return False
    return not set(filter(None, touched.split("\0"))) & set(filter(None, differ.split("\0")))


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].rstrip(".") if lines else "no reason given"
