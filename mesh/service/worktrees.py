"""Git worktrees: each task of an agent with a repository works in one of its own, on a branch `mesh/<agent>/<task>`.

Nothing that is dirty or unpushed is ever removed: what git would lose is asked of git first.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re

from mesh.errors import SkillInputError
from mesh.models.running import Checkout

_GIT_S = 120.0
_COMMITS_MAX = 100


class GitFailed(SkillInputError):
    """Git refused; the detail has its own words."""


async def git(cwd: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """What git printed. Raises GitFailed."""
    ours = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *arguments,
            cwd=cwd,
            env={**ours, "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", **(environment or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise GitFailed(f"Can't run git in {cwd}: {error.strerror} ({error.filename}).") from None
    try:
        async with asyncio.timeout(_GIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        raise GitFailed(f"git {arguments[0]} in {cwd} took longer than {_GIT_S:g} s.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        words = err.decode(errors="replace").strip() or out.decode(errors="replace").strip()
        raise GitFailed(f"git {' '.join(arguments[:2])} in {cwd}: {words[-500:]}", gitStatus=process.returncode)
    return out.decode(errors="replace")


async def open_worktree(repo: str, folder: str, agent: str, task_id: str, known: Checkout | None) -> Checkout:
    """The task's worktree below `folder`: the known one if it still is one, else a new one at the repository's HEAD,
    or at the task's branch where an earlier attempt left it. Raises GitFailed."""
    top = (await git(repo, "rev-parse", "--show-toplevel")).strip()
    if known is not None and await _is_worktree(known.path):
        return known
    branch, path = f"mesh/{agent}/{_slug(task_id)}", f"{folder}/{_slug(task_id)}"
    await git(top, "worktree", "prune")
    base = (await git(top, "rev-parse", "HEAD")).strip()
    there = await git(top, "for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
    if await _is_worktree(path):
        pass
    elif there.strip():
        await git(top, "worktree", "add", path, branch)
        base = (await git(top, "merge-base", "HEAD", branch)).strip()
    else:
        await git(top, "worktree", "add", "-b", branch, path, base)
    if known is not None:
        base = known.base
    return Checkout(repo=top, path=path, branch=branch, base=base)


async def work_in(checkout: Checkout) -> tuple[list[str], bool]:
    """The commits above the base, oldest first, and whether anything is uncommitted or untracked."""
    commits = await git(checkout.path, "rev-list", "--reverse", f"--max-count={_COMMITS_MAX}", f"{checkout.base}..HEAD")
    dirty = await git(checkout.path, "status", "--porcelain", "--untracked-files=all")
    return commits.split(), bool(dirty.strip())


async def leave(checkout: Checkout) -> bool:
    """Remove a worktree and its branch if nothing would be lost: clean, nothing ignored that isn't in git elsewhere,
    and every commit known to a remote or below the base. True if it went."""
    if not await _is_worktree(checkout.path):
        return False
    # Ignored files count: a .env or a database that the agent made is work too.
    left = await git(checkout.path, "status", "--porcelain", "--untracked-files=all", "--ignored")
    if left.strip():
        return False
    unpushed = await git(checkout.path, "rev-list", "HEAD", "--not", "--remotes", checkout.base, "--max-count=1")
    if unpushed.strip():
        return False
    await git(checkout.repo, "worktree", "remove", checkout.path)  # without --force: git looks once more itself
    await git(checkout.repo, "branch", "-d", checkout.branch)
    return True


async def patch_of(checkout: Checkout, index_file: str) -> bytes:
    """All that is uncommitted, untracked files included, as a patch that `git apply` takes. The checkout's own index
    stays as it is: the patch is made by one of its own."""
    environment = {"GIT_INDEX_FILE": index_file}
    await git(checkout.path, "read-tree", "HEAD", environment=environment)
    await git(checkout.path, "add", "--all", environment=environment)
    text = await git(checkout.path, "diff", "--cached", "--binary", "HEAD", environment=environment)
    return text.encode()


async def _is_worktree(path: str) -> bool:
    try:
        return (await git(path, "rev-parse", "--is-inside-work-tree")).strip() == "true"
    except GitFailed:
        return False


def _slug(task_id: str) -> str:
    """The id as part of a branch's name, which git is choosy about: no `..`, no `.lock` at the end."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", task_id):
        return task_id
    mark = hashlib.sha256(task_id.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', task_id)[:80]}-{mark}"
