"""The store of one root, as one process uses it."""

from __future__ import annotations

import os
from typing import Any

from mesh import clock
from mesh.errors import Invalid, MeshError, StoreUnavailable, TooLarge
from mesh.limits import Limits
from mesh.models import AgentState, HealthFile
from mesh.store import beats, incarnations
from mesh.store.accounts import Accounts
from mesh.store.alerts import Alerts
from mesh.store.codec import encode
from mesh.store.disk import Disk, PosixDisk
from mesh.store.documents import HEALTH, MEMORY, STATE, Documents
from mesh.store.edits import Edits
from mesh.store.files import Files
from mesh.store.handed import HandedMail
from mesh.store.inputs import Inputs
from mesh.store.journal import Journal
from mesh.store.knowledge import Knowledge
from mesh.store.layout import Layout
from mesh.store.locks import Locks, SleepingClock
from mesh.store.mailbox import MailStore
from mesh.store.places import Places
from mesh.store.quarantine import Quarantine
from mesh.store.registry import RegistryStore
from mesh.store.retention import Retention
from mesh.store.runs import Runs
from mesh.store.secret_file import SecretFile
from mesh.store.secrets import Secrets
from mesh.store.sessions import Sessions
from mesh.store.switches import Switches
from mesh.store.tasks import TaskStore
from mesh.store.ticks import Ticks

MB = 1_000_000


class Store:
    """Every part of the store, wired for one root.

    Without `agent` it is an outsider's (the command line): it may read all and write what is shared. With
    `become` it is an agent's present incarnation, and a later one locks it out.
    """

    def __init__(
        self,
        root: str,
        *,
        holder: str | None = None,
        scratch: str | None = None,
        disk: Disk | None = None,
        time: SleepingClock = clock.SYSTEM,
        incarnation: int = 0,
    ) -> None:
        self.layout = layout = Layout(root)
        self.disk = disk = disk or PosixDisk()
        self.time = time
        self.files = files = Files(disk, scratch or layout.scratch)
        self.locks = locks = Locks(disk, layout.locks, holder or f"pid{os.getpid()}", time)
        self.quarantine = quarantine = Quarantine(files, layout, time)
        self.documents = documents = Documents(files, locks, layout, quarantine, time)
        self.journal = journal = Journal(files, locks, layout, time)
        self.mail = MailStore(files, journal, layout, time, incarnation)
        self.alerts = Alerts(files, locks, layout, time)
        self.knowledge = knowledge = Knowledge(documents, layout, time)
        self.registry = RegistryStore(files, locks, layout)
        self.tasks = TaskStore(files, documents, locks, layout, quarantine, knowledge, self.mail, time)
        self.ticks = Ticks(documents, locks, layout, time)
        self.secrets = Secrets(files, layout)
        self.secret_file = SecretFile(f"{layout.agents}/secrets.toml", disk)
        self.switches = Switches(files, locks, layout, time)
        self.runs = Runs(files, documents, disk, layout, time)
        self.places = Places(documents, layout, time)
        self.accounts = Accounts(files, documents, layout)
        self.sessions = Sessions(files, documents, locks, layout)
        self.handed = HandedMail(files, documents, layout)
        self.edits = Edits(files, layout)
        self.retention = Retention(files, self.journal, layout, time)
        quarantine.on_kept = self._alert_quarantine

    @classmethod
    def become(
        cls, root: str, agent: str, *, disk: Disk | None = None, time: SleepingClock = clock.SYSTEM
    ) -> tuple[Store, int]:
        """The store of the agent's next incarnation, and its number. Earlier ones can't write any more."""
        outside = cls(root, holder=f"{agent}-starting", disk=disk, time=time)
        known = outside.state(agent)
        beat = beats.read(outside.disk, outside.layout.beat(agent))
        highest = max(known.incarnation if known else 0, beat.incarnation if beat else 0)
        recover = outside.mail.sending.recover
        number = incarnations.begin(outside.disk, outside.layout, outside.locks, agent, highest, time, recover)
        scratch = f"{outside.layout.run(agent)}/{number}"
        store = cls(root, holder=f"{agent}.{number}", scratch=scratch, disk=outside.disk, time=time, incarnation=number)
        return store, number

    def state(self, agent: str) -> AgentState | None:
        """What the agent last wrote of itself."""
        document = self.documents.read(self.layout.state(agent), STATE)
        return None if document is None else AgentState.model_validate(document)

    def write_state(self, state: AgentState) -> None:
        """To be called by the agent itself alone: no lock is taken."""
        path = self.layout.state(state.agent_id)
        before = self.documents.read(path, STATE) or {}  # keys of a newer version survive
        self.documents.write(path, {**before, **state.dump()})

    def health(self) -> HealthFile | None:
        document = self.documents.read(self.layout.health, HEALTH)
        return None if document is None else HealthFile.model_validate(document)

    def write_health(self, health: HealthFile) -> None:
        self.documents.update(self.layout.health, HEALTH, lambda before: {**before, **health.dump()})

    def write_sync(self, agent: str, name: str, report: dict[str, object]) -> None:
        """One hourly sync report, `system/syncs/<name>-<agent>.json`."""
        self.files.replace(f"{self.layout.syncs}/{name}-{agent}.json", encode(report))

    def beat(self, agent: str) -> beats.Beat | None:
        return beats.read(self.disk, self.layout.beat(agent))

    def process(self, agent: str) -> incarnations.Process | None:
        """The process of the agent's present incarnation, or None where none runs."""
        found = incarnations.current(self.disk, self.layout, agent)
        return found if found and found.alive(self.time.boot_id()) else None

    def inputs(self, agent: str) -> Inputs:
        return Inputs(self.files, self.layout, agent)

    def memory(self, agent: str) -> dict[str, Any]:
        """What the agent's skills asked to remember."""
        document = self.documents.read(self.layout.memory(agent), MEMORY) or MEMORY.empty()
        return dict(document["memory"])

    def remember(self, agent: str, facts: dict[str, Any]) -> None:
        """Add to what the agent's skills remember; the same key again replaces."""
        self.documents.update(self.layout.memory(agent), MEMORY, lambda document: document["memory"].update(facts))

    def persona(self, agent: str) -> str | None:
        """The role file of an agent that has no module of its own."""
        data = self.files.read(self.layout.role(agent))
        return data.decode(errors="replace") if data is not None else None

    def open_log(self) -> int:
        """A descriptor for the output of a detached mesh, adding at the end."""
        return self.disk.open_append(self.layout.log)

    def read_log(self) -> str:
        """What a detached mesh has printed."""
        return (self.files.read(self.layout.log) or b"").decode(errors="replace")

    def read_outside(self, path: str, bytes_max: int) -> bytes:
        """A file that somebody wants to attach, wherever it lies. Raises Invalid, TooLarge."""
        try:
            found = self.disk.signature(path)
            if found is None:
                raise Invalid(f"There is no file {path}.", errors=[{"field": "attachments", "reason": "no such file"}])
            if found.size > bytes_max:
                raise TooLarge(f"{path} is larger than {bytes_max} bytes.", limitBytes=bytes_max)
            return self.disk.read(path)
        except OSError as error:
            reason = error.strerror or str(error)
            problem = [{"field": "attachments", "reason": reason}]
            raise Invalid(f"{path} can't be read: {reason}.", errors=problem) from None

    def free_mb(self) -> int:
        """Free space where the root lies."""
        try:
            return self.disk.free_bytes(self.layout.root) // MB
        except OSError as error:
            raise StoreUnavailable(f"Could not look at {self.layout.root}: {error.strerror}.") from error

    def apply(self, limits: Limits) -> None:
        """Put the limits in force that the store itself goes by."""
        self.locks.wait_s = limits.lock_wait_s

    def _alert_quarantine(self, file: str, reason: str, kept_as: str) -> None:
        self.journal.event("mesh", "quarantined", reason, file=file, keptAs=kept_as)
        try:
            self.alerts.raise_alert(
                "damaged_file",
                "mesh",
                f"{file} was damaged",
                reason,
                about=file,
                severity="high",
                next_=f"look at system/quarantine/{kept_as}; nothing is waiting for you to do so",
            )
        except MeshError as error:
            # The alert must not keep the damaged file in the way; the journal has it.
            self.journal.event("mesh", "alert_failed", str(error), file=file)
