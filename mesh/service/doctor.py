"""`mesh doctor`: looks at everything that keeps a mesh from running well, and says how to mend each."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from mesh import clock
from mesh.errors import MeshError
from mesh.models import HUMAN
from mesh.service import ports
from mesh.service.mail_overview import ended
from mesh.service.overview import supervisor
from mesh.store import Store
from mesh.store.documents import BLOCKERS, CLOCK, HEALTH, MEMORY, STATE, TASKS
from mesh.store.files import last_copy
from mesh.store.locks import read_label
from mesh.store.mail.ages import written
from mesh.store.mail.names import is_mail

_OPEN_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CLOCK_AHEAD_S = 120
_OLD_LOCK_S = 10
_OLD_QUEUED_S = 3_600


@dataclass(frozen=True)
class Finding:
    check: str
    ok: bool
    detail: str
    mend: str = ""

    def dump(self) -> dict[str, Any]:
        return asdict(self)


def examine(store: Store) -> list[Finding]:
    """Every check's findings; a check that itself fails is a finding too."""
    checks: list[Callable[[Store], Iterator[Finding]]] = [
        _registry,
        _supervision,
        _ports,
        _permissions,
        _disk,
        _clock,
        _writing,
        _documents,
        _files,
        _mail,
        _agents,
    ]
    findings: list[Finding] = []
    for check in checks:
        name = check.__name__.strip("_")
        try:
            findings += check(store)
        except (MeshError, OSError, ValueError) as error:
            findings.append(Finding(name, False, f"could not be looked at: {error}", "see the message"))
    return findings


def _registry(store: Store) -> Iterator[Finding]:
    try:
        registry = store.registry.check()
        yield Finding("registry", True, f"valid, {len(registry.agents)} agents")
    except MeshError as error:
        yield Finding("registry", False, error.detail, f"edit {store.layout.registry}; try `mesh registry check`")
    target = store.registry.replaced_link()
    if target is not None:
        mend = f"copy your edit to {target}, then: ln -sf {target} {store.layout.registry}"
        detail = f"agents/registry.json is a file now, no longer a link to {target}; the file is in force"
        yield Finding("registry link", False, detail, mend)


def _supervision(store: Store) -> Iterator[Finding]:
    found = supervisor(store)
    detail = f"up (pid {found['pid']}, {found['mode']})" if found else "no supervisor runs"
    yield Finding("supervisor", True, detail)
    for agent, note in store.switches.paused().items():
        who = "every agent" if agent == "*" else agent
        detail = f"{who} is paused since {note.get('at')}: {note.get('reason') or 'no reason given'}"
        yield Finding("paused", True, detail)


def _ports(store: Store) -> Iterator[Finding]:
    taken = []
    for agent, entry in store.registry.current.agents.items():
        process, found = store.process(agent), ports.holder(entry.port)
        if found is not None and (process is None or process.pid != found[0]):
            who = f"pid {found[0]} ({found[1]})"
            mend = f"stop it, or change {agent}'s port in registry.json, or: mesh init --base-port N"
            taken.append(Finding("port", False, f"{entry.port} of {agent} is held by {who}", mend))
    yield from taken
    if not taken:
        yield Finding("ports", True, "each is free or its agent's")


def _permissions(store: Store) -> Iterator[Finding]:
    bad = []
    layout, us = store.layout, os.geteuid()
    secrets = [layout.operator_header, *(layout.secret(agent) for agent in store.registry.current.agents)]
    for path in [layout.root, layout.agents, *secrets]:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            bad.append(Finding("permissions", False, f"{path} is missing", "mesh init"))
            continue
        if us not in (0, found.st_uid):
            mend = f"run the mesh as the owner, or: chown -R $(id -un) {layout.root}"
            bad.append(Finding("permissions", False, f"{path} belongs to another user (uid {found.st_uid})", mend))
        elif path in secrets and found.st_mode & _OPEN_TO_OTHERS:
            bad.append(Finding("permissions", False, f"{path} can be read by others", f"chmod 600 {path}"))
    yield from bad
    if not bad:
        yield Finding("permissions", True, "the folder and its secrets are the mesh's own")


def _disk(store: Store) -> Iterator[Finding]:
    free_mb, needed_mb = store.free_mb(), store.registry.current.limits_for().disk_free_min_mb
    detail = f"{free_mb} MB free, {needed_mb} MB needed"
    yield Finding("disk", free_mb >= needed_mb, detail, "free some space; nothing new starts until then")


def _clock(store: Store) -> Iterator[Finding]:
    ticks = store.ticks.read()
    if not ticks.timestamp:
        yield Finding("clock", True, "no tick yet")
        return
    age_s = (store.time.wall() - clock.parse(ticks.timestamp)).total_seconds()
    late = age_s > 3 * ticks.tick_seconds and any(store.process(agent) for agent in store.registry.current.agents)
    if age_s < -_CLOCK_AHEAD_S:
        mend = "check the host's clock (timedatectl); ticks go on, by the clock that can't be set"
        yield Finding("clock", False, f"the last tick lies {-age_s:.0f} s in the future", mend)
    elif late:
        yield Finding(
            "clock", False, f"the last tick was {age_s:.0f} s ago", "mesh events; then mesh restart the agents"
        )
    else:
        yield Finding("clock", True, f"tick {ticks.tick}, {age_s:.0f} s ago, {ticks.missed} slots missed")


def _writing(store: Store) -> Iterator[Finding]:
    missing = [folder for folder in store.layout.folders() if not store.files.exists(folder)]
    if missing:
        names = ", ".join(store.layout.relative(folder) for folder in missing)
        yield Finding("folders", False, f"missing: {names}", f"mesh init --root {store.layout.root}")
    probe = f"{store.layout.scratch}/probe"
    try:
        store.files.replace(probe, b"probe\n")
        store.files.remove(probe)
        yield Finding("writing", True, "a file can be written durably")
    except MeshError as error:
        yield Finding("writing", False, error.detail, "check the file system and who owns the root")


def _documents(store: Store) -> Iterator[Finding]:
    """Every document of the root, read without mending anything."""
    layout = store.layout
    kinds = {layout.queue: TASKS, layout.active: TASKS, layout.blockers: BLOCKERS, layout.health: HEALTH}
    kinds[layout.clock] = CLOCK
    for agent in store.registry.current.agents:
        kinds |= {layout.inbox(agent): TASKS, layout.outbox(agent): TASKS, layout.state(agent): STATE}
        kinds[layout.memory(agent)] = MEMORY
    bad = [(path, problem) for path, kind in kinds.items() if (problem := store.documents.problem(path, kind))]
    for path, problem in bad:
        yield Finding(
            "document",
            False,
            f"{layout.relative(path)}: {problem}",
            f"mend it; the version before is {last_copy(path)}",
        )
    if not bad:
        yield Finding("documents", True, f"{len(kinds)} looked at, each readable or not there yet")


def _files(store: Store) -> Iterator[Finding]:
    kept = [name for name in store.files.names(store.layout.quarantine) if not name.endswith(".reason.json")]
    if kept:
        mend = f"look at {store.layout.quarantine}; delete what you don't need"
        yield Finding("quarantine", False, f"{len(kept)} damaged files were set aside", mend)
    alerts = store.alerts.open()
    yield Finding("alerts", not alerts, f"{len(alerts)} open", f"see `mesh status` and {store.layout.human}")
    for name in store.files.names(store.layout.locks):
        path = f"{store.layout.locks}/{name}"
        signature = store.disk.signature(path)
        age_s = store.time.wall().timestamp() - signature.mtime_ns / 1e9 if signature else 0.0
        if age_s > _OLD_LOCK_S and name != "supervisor.lock":
            handle = store.disk.try_lock(path)
            if handle is None:
                holder = read_label(store.disk, path).get("holder", "an unknown process")
                detail = f"{name} has been held for {age_s:.0f} s by {holder}"
                yield Finding("lock", False, detail, "restart its holder: the lock goes with it")
            else:
                store.disk.unlock(handle)


def _mail(store: Store) -> Iterator[Finding]:
    """Who may read the mail, and what of it is stuck."""
    addresses = [*store.registry.current.agents, HUMAN]
    bad = [finding for address in addresses for finding in (*_open_mail(store, address), *_stuck_mail(store, address))]
    yield from bad
    if not bad:
        yield Finding("mail", True, "private, and none is dead or stuck")


def _open_mail(store: Store, address: str) -> Iterator[Finding]:
    folders = store.layout.mail(address)
    for folder in folders.folders()[1:]:
        # What people drop there by hand has whatever mode their shell gave it; the folder around it is closed.
        names = [] if folder in (folders.inbox, folders.rejected) else filter(is_mail, store.files.names(folder))
        open_files = [name for name in names if _is_open(f"{folder}/{name}")]
        where = store.layout.relative(folder)
        if _is_open(folder):
            yield Finding("mail modes", False, f"{where} is open to others", f"chmod 700 {folder}")
        if open_files:
            detail = f"{where}: others may use {open_files[0]} (files like it: {len(open_files)})"
            yield Finding("mail modes", False, detail, f"chmod 600 {folder}/*.json")


def _is_open(path: str) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & _OPEN_TO_OTHERS)


def _stuck_mail(store: Store, address: str) -> Iterator[Finding]:
    queued, now_s = store.layout.mail(address).queued, store.time.wall().timestamp()
    stamps = [written(store.files, f"{queued}/{name}") for name in filter(is_mail, store.files.names(queued))]
    old = [stamp for stamp in stamps if stamp is not None and now_s - stamp > _OLD_QUEUED_S]
    if old:
        detail = (
            f"{len(old)} of {address}'s messages wait in its outbox, the oldest since {(now_s - min(old)) / 60:.0f} min"
        )
        mend = f"see what fills the recipients' inboxes: mesh mail list; they lie in {queued}"
        yield Finding("mail queued", False, detail, mend)
    dead = sum(1 for _ in ended(store, address, ["dead"]))
    if dead:
        mend = f"mesh mail dead {address}; mesh mail retry ID, or delete what you don't need"
        yield Finding("dead mail", False, f"{dead} in {address}'s dead/", mend)


def _agents(store: Store) -> Iterator[Finding]:
    if supervisor(store) is None:
        return
    for agent in store.registry.current.agents:
        beat = store.beat(agent)
        age_s = beat.age_s(store.time) if beat else None
        if store.switches.is_stopped(agent):
            yield Finding("agent", True, f"{agent} is stopped until `mesh start {agent}`")
        elif store.process(agent) is None:
            yield Finding("agent", False, f"{agent} is not running", f"mesh events --agent {agent}; mesh start {agent}")
        elif age_s is None or age_s > store.registry.current.limits_for(agent).stale_after_s:
            age = "never" if age_s is None else f"{age_s:.0f} s ago"
            yield Finding("agent", False, f"{agent} runs but its last beat was {age}", f"mesh restart {agent}")
