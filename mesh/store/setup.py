"""Making a root: folders, registry, templates, secrets, sample inputs. Doing it again changes nothing."""

from __future__ import annotations

import os
import pathlib
from importlib import resources

from mesh.errors import BadUse, StoreUnavailable
from mesh.models import Registry, parse_registry
from mesh.store.registry import LINK_NOTE
from mesh.store.store import Store

_PACKAGE = pathlib.Path(__file__).resolve().parent.parent


def checkout() -> str | None:
    """The checkout that this package runs from, if it does."""
    top = _PACKAGE.parent
    return str(top) if (top / "registry.json").is_file() and (top / "pyproject.toml").is_file() else None


def shipped(name: str) -> bytes:
    """A top-level file as shipped: from the checkout, else from the installed package."""
    top = checkout()
    source = pathlib.Path(top) / name if top else _PACKAGE / "defaults" / name
    return source.read_bytes()


def is_initialised(root: str) -> bool:
    return os.path.lexists(os.path.join(root, "agents", "registry.json"))


def resolve_root(option: str | None, environment: str | None) -> str:
    """Where the root is: `--root`, else `MESH_ROOT`, else an initialised `./shared`, else `/shared`."""
    try:
        if option or environment:
            return os.path.abspath(option or environment or "")
        here = os.path.abspath("shared")
    except FileNotFoundError:
        raise BadUse("The current folder has been deleted; change to another, or give --root in full.") from None
    return here if is_initialised(here) else "/shared"


def initialise(store: Store, base_port: int | None = None) -> list[str]:
    """Make what is missing under the root; returns what was made. An existing registry is kept, but its ports
    are moved to `base_port` + 1 … if given."""
    layout, made = store.layout, []
    try:
        _first_folder(layout.root)
    except OSError as error:
        raise StoreUnavailable(
            f"Could not make {layout.root}: {error.strerror}. Choose another place with --root."
        ) from error
    made += make_folders(store)
    top = checkout()
    linked = top if top and os.path.dirname(layout.root) == top else None
    for path, name in ((layout.registry, "registry.json"), (layout.templates, "templates.yaml")):
        if os.path.lexists(path):
            continue
        if linked:
            target = os.path.join(linked, name)
            _link(store, target, path)
            if name == "registry.json":
                store.files.replace(f"{layout.agents}/{LINK_NOTE}", target.encode() + b"\n")
        else:
            store.files.create(path, shipped(name))
        made.append(layout.relative(path))
    if base_port is not None:
        move_ports(store, base_port)
        made.append(f"ports {base_port + 1} and up")
    made += prepare_agents(store, store.registry.check())
    if store.secrets.ensure_operator():
        made.append(layout.relative(layout.operator_header))
    return made


def make_folders(store: Store) -> list[str]:
    """The folders that every root has, where they are missing; returns those that were."""
    missing = [folder for folder in store.layout.folders() if not store.files.exists(folder)]
    for folder in missing:
        store.files.make_folders(folder)
    return [store.layout.relative(folder) for folder in missing]


def prepare_agents(store: Store, registry: Registry) -> list[str]:
    """The folders, secrets and sample inputs of the registry's agents, where they are missing."""
    made = make_folders(store)
    for agent in registry.agents:
        for folder in store.layout.mail(agent).folders():
            if not store.files.exists(folder):
                store.files.make_folders(folder)
        if store.secrets.ensure(agent):
            made.append(store.layout.relative(store.layout.secret(agent)))
        inputs = store.layout.inputs(agent)
        if not store.files.exists(inputs):
            store.files.make_folders(inputs)
            samples = resources.files("agents") / "samples" / agent
            for sample in samples.iterdir() if samples.is_dir() else ():
                store.files.create(f"{inputs}/{sample.name}", sample.read_bytes())
                made.append(store.layout.relative(f"{inputs}/{sample.name}"))
    return made


def move_ports(store: Store, base_port: int) -> None:
    """Give the agents the ports from `base_port` + 1 on, in the registry's order."""
    data = store.files.read(store.layout.registry) or b"{}"
    count = len(parse_registry(data, store.layout.registry).agents)
    if not 1 <= base_port <= 65535 - count:
        raise BadUse(f"--base-port must be from 1 to {65535 - count}, so that {count} ports fit above it.")

    def change(document: dict[str, object]) -> None:
        agents = document["agents"]
        assert isinstance(agents, dict)
        for number, entry in enumerate(agents.values(), start=1):
            entry["port"] = base_port + number

    store.registry.edit(change)


def _link(store: Store, target: str, path: str) -> None:
    try:
        store.disk.symlink(os.path.relpath(target, os.path.dirname(path)), path)
    except OSError as error:
        raise StoreUnavailable(f"Could not make the link {path}: {error.strerror}.", file=path) from error


def _first_folder(root: str) -> None:
    os.makedirs(root, mode=0o700, exist_ok=True)
