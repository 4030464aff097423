"""Every path under the root. Plain strings: joining paths is on hot ways."""

from __future__ import annotations

import os

from mesh.models import HUMAN


class MailFolders:
    """Where the mail of one agent, or of the human, lies."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.inbox = f"{base}/inbox"
        #: How many messages wait, and who sent when: kept so that admission needs no scan.
        self.admission = f"{base}/inbox/.admission"
        self.claims = f"{base}/claims"
        self.claims_lock = f"{base}/claims/.lock"
        self.processed = f"{base}/processed"
        self.rejected = f"{base}/rejected"
        self.dead = f"{base}/dead"
        #: Ids that senders chose themselves, each a link to its message.
        self.ids = f"{base}/ids"
        self.outbox = f"{base}/outbox"
        #: What waits with its sender for a place in the recipient's inbox.
        self.queued = f"{base}/outbox/queued"
        self.archive = f"{base}/archive"

    def folders(self) -> list[str]:
        return [
            self.base,
            self.inbox,
            self.claims,
            self.processed,
            self.rejected,
            self.dead,
            self.ids,
            self.outbox,
            self.queued,
            self.archive,
        ]


class Layout:
    """The tree of one root (protocol document, section 3, completed)."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._mail: dict[str, MailFolders] = {}
        self.agents = f"{self.root}/agents"
        self.registry = f"{self.agents}/registry.json"
        self.health = f"{self.agents}/health.json"
        self.tasks = f"{self.root}/tasks"
        self.queue = f"{self.tasks}/queue.json"
        self.active = f"{self.tasks}/active.json"
        self.completed = f"{self.tasks}/completed"
        self.failed = f"{self.tasks}/failed"
        self.templates = f"{self.tasks}/templates.yaml"
        self.knowledge = f"{self.root}/knowledge"
        self.decisions = f"{self.knowledge}/decisions.json"
        self.blockers = f"{self.knowledge}/blockers.json"
        self.insights = f"{self.knowledge}/insights.json"
        self.system = f"{self.root}/system"
        self.clock = f"{self.system}/clock.json"
        self.locks = f"{self.system}/locks"
        self.events = f"{self.system}/events.log"
        self.syncs = f"{self.system}/syncs"
        self.human = f"{self.system}/human"
        self.attachments = f"{self.knowledge}/attachments"
        self.quarantine = f"{self.system}/quarantine"
        self.snapshots = f"{self.system}/snapshots"
        self.paused = f"{self.system}/paused"
        self.requests = f"{self.system}/requests"
        self.scratch = f"{self.system}/scratch"
        self.log = f"{self.system}/mesh.log"
        #: What programs need while they run. A short path: they make sockets in it, whose names are 107 bytes at most.
        self.temporary = f"{self.system}/tmp"
        #: Who takes one of the host's places for CLI programs, or waits for one.
        self.places = f"{self.system}/places.json"
        #: Logins and keys that can't be used now.
        self.accounts = f"{self.system}/accounts.json"
        self.registry_good = f"{self.system}/registry.last-good.json"
        self.operator_header = f"{self.root}/operator.header"

    def folders(self) -> list[str]:
        """The folders that every root has, parents first."""
        return [
            self.root,
            self.agents,
            self.tasks,
            self.completed,
            self.failed,
            self.knowledge,
            self.attachments,
            self.system,
            self.locks,
            self.syncs,
            self.human,
            *self.mail(HUMAN).folders()[1:],
            self.quarantine,
            self.snapshots,
            self.requests,
            self.scratch,
        ]

    def agent(self, agent: str) -> str:
        return f"{self.agents}/{agent}"

    def mail(self, address: str) -> MailFolders:
        """The mail of an agent, or of the human."""
        found = self._mail.get(address)
        if found is None:
            base = self.human if address == HUMAN else f"{self.agents}/{address}"
            found = self._mail[address] = MailFolders(base)
        return found

    def state(self, agent: str) -> str:
        return f"{self.agents}/{agent}/state.json"

    def inbox(self, agent: str) -> str:
        """The agent's own queue of tasks."""
        return f"{self.agents}/{agent}/inbox.json"

    def outbox(self, agent: str) -> str:
        """References to what the agent completed and delegated."""
        return f"{self.agents}/{agent}/outbox.json"

    def history(self, agent: str) -> str:
        return f"{self.agents}/{agent}/history.jsonl"

    def summary(self, agent: str) -> str:
        return f"{self.agents}/{agent}/context-summary.md"

    def memory(self, agent: str) -> str:
        """What the agent's skills remember from run to run."""
        return f"{self.agents}/{agent}/memory.json"

    def role(self, agent: str) -> str:
        """The persona of an agent that has no module of its own."""
        return f"{self.agents}/{agent}/role.md"

    def beat(self, agent: str) -> str:
        return f"{self.agents}/{agent}/beat"

    def socket(self, agent: str) -> str:
        return f"{self.agents}/{agent}/agent.sock"

    def secret(self, agent: str) -> str:
        return f"{self.agents}/{agent}/secret"

    def stopped(self, agent: str) -> str:
        """Stands while the agent is to stay stopped."""
        return f"{self.agents}/{agent}/stopped"

    def run(self, agent: str) -> str:
        """One folder an incarnation; the highest number is the present one."""
        return f"{self.agents}/{agent}/run"

    def session(self, agent: str) -> str:
        """The CLI session that goes on from task to task."""
        return f"{self.agents}/{agent}/session.json"

    def runs(self, agent: str) -> str:
        """One folder a process that worked for the agent."""
        return f"{self.agents}/{agent}/runs"

    def work(self, agent: str) -> str:
        """Where the agent's CLI works if it has no repository."""
        return f"{self.agents}/{agent}/work"

    def cli_sessions(self, agent: str) -> str:
        """One folder a session, for CLIs whose sessions are files that we name."""
        return f"{self.agents}/{agent}/cli-sessions"

    def worktrees(self, agent: str) -> str:
        """One git worktree a task."""
        return f"{self.agents}/{agent}/worktrees"

    def inputs(self, agent: str) -> str:
        """What people put there for the agent's skills."""
        return f"{self.knowledge}/{agent}"

    def ended(self, task: str) -> tuple[str, str]:
        """The two places where an ended task may lie: completed, failed."""
        return f"{self.completed}/{task}.json", f"{self.failed}/{task}.json"

    def alert(self, alert: str) -> str:
        return f"{self.human}/{alert}.json"

    def relative(self, path: str) -> str:
        """The path as people name it: from the root, where it lies below it."""
        return path.removeprefix(self.root + "/").rstrip("/")
