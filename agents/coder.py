"""The builder: writes and tests software, and keeps the review queue short."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agents._git import Branch, Repository, RepositoryFacts
from agents._markdown import count, escape, report, table
from agents._settings import texts, whole_number
from agents._spans import say
from mesh import Agent, Report
from mesh.errors import SkillInputError

if TYPE_CHECKING:
    from mesh.service.skill_context import SkillContext

_BRANCHES_MAX = 100

agent = Agent(
    "coder",
    persona=(
        "You are the builder of a team of agents: you write code, look after its architecture, test it and bring it "
        "out. You read before you change, make the smallest change that solves the problem, and prove it with a "
        "test. You leave nothing half merged: open branches are reviewed oldest first. You never rewrite history "
        "that others build on, and you say what you did not verify."
    ),
)


@agent.skill("Code Review Queue")
async def code_review_queue(context: SkillContext) -> Report:
    """Which branches of the configured repositories wait for a review, oldest first."""
    base = context.setting("base", str, "") or None
    branches_max = whole_number(context, "branchesMax", _BRANCHES_MAX, least=1, most=10_000)
    found = []
    paths = repositories(context)
    for number, path in enumerate(paths, start=1):
        found.append(await Repository(context, path).facts(base, branches_max))
        context.progress(number / len(paths))
    text = report(summary(found), *((escape(facts.path), _section(facts, context.now)) for facts in found))
    return Report(text, evidence=[line for facts in found for line in evidence(facts)])


def repositories(context: SkillContext) -> list[str]:
    """The configured repositories, absolute: the setting `repositories`, else the entry's `repo`. Relative paths
    start at the folder that the root lies in. Raises SkillInputError where none is configured."""
    repo = context.registry.entry(context.agent).repo
    configured = texts(context, "repositories") or ([repo] if repo else [])
    if not configured:
        raise SkillInputError(
            f"No repository is configured: list paths in registry.json under agents.{context.agent}.settings."
            f"repositories, or set agents.{context.agent}.repo.",
            file="registry.json",
        )
    beside = os.path.dirname(context.root)
    paths = (os.path.normpath(os.path.join(beside, os.path.expanduser(path))) for path in configured)
    return list(dict.fromkeys(paths))


# -- the page


def summary(found: list[RepositoryFacts]) -> str:
    """The whole in one line."""
    waiting = [(branch.ref.committed_s, branch, facts) for facts in found for branch in to_review(facts)]
    left_out = sum(facts.left_out for facts in found)
    more = f", and {left_out} older not measured" if left_out else ""
    where = count(len(found), "repository", "repositories")
    if not waiting:
        return f"Code review queue: no open branches in {where}{more}."
    _, oldest, facts = min(waiting, key=lambda entry: entry[0])
    branches = count(len(waiting), "open branch", "open branches")
    return f"Code review queue: {branches} in {where}{more}; the oldest is {oldest.ref.short} in {facts.path}."


def to_review(facts: RepositoryFacts) -> list[Branch]:
    """The branches that would still change the base, oldest first."""
    return [branch for branch in facts.branches if not branch.contained]


def _section(facts: RepositoryFacts, now: datetime) -> str:
    merged = [branch for branch in facts.branches if branch.contained]
    parts = [f"Compared with {escape(facts.base.short)} at {facts.base.commit[:12]}. {_loose_work(facts)}"]
    waiting = to_review(facts)
    parts.append(_branch_table(waiting, now) if waiting else "No open branches.")
    if merged:
        parts.append(f"Already in {escape(facts.base.short)} by content (squashed or rebased), so they can be deleted:")
        parts.append(_branch_table(merged, now))
    if facts.left_out:
        parts.append(f"{count(facts.left_out, 'older branch', 'older branches')} not measured (setting `branchesMax`).")
    return "\n\n".join(parts)


def _loose_work(facts: RepositoryFacts) -> str:
    if facts.uncommitted is None:
        return "A bare repository: nothing is checked out."
    return f"{count(facts.uncommitted, 'uncommitted change')}, {count(facts.stashes, 'stash', 'stashes')}."


def _branch_table(branches: list[Branch], now: datetime) -> str:
    headers = ["Branch", "Age", "Author", "Ahead", "Behind", "Files", "Lines", "Last commit"]
    rows = []
    for branch in branches:
        ref = branch.ref
        age = now - datetime.fromtimestamp(ref.committed_s, UTC)
        lines = f"+{branch.added} −{branch.removed}"
        commit = f"{ref.commit[:12]} {ref.subject}"
        rows.append([ref.short, say(age), ref.author, branch.ahead, branch.behind, branch.files, lines, commit])
    return table(headers, rows)


def evidence(facts: RepositoryFacts) -> list[str]:
    """The refs looked at, with their commits."""
    refs = [facts.base, *(branch.ref for branch in facts.branches)]
    return [f"{facts.path}: {ref.name} {ref.commit}" for ref in refs]


def __getattr__(name: str) -> Any:
    # Built when uvicorn asks for it: importing a role must not start a web framework.
    if name == "app":
        return agent.app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
