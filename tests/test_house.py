"""The rules of the house, checked on the source itself: who may import whom, who touches files and clocks, sizes.

Each rule is a function from a parsed file to complaints. It runs over the packages, and over a snippet that breaks
it, so that a rule that has gone blind shows.
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
LINES_MAX, LINES_MEDIAN_MAX, FUNCTION_LINES_MAX = 400, 150, 70

GROUND = ("mesh.models", "mesh.errors", "mesh.limits", "mesh.clock")
#: What each room may import of the packages, itself always included. The longest prefix counts.
FLOORS: dict[str, tuple[str, ...]] = {
    "mesh.errors": (),
    "mesh.clock": (),
    "mesh.limits": (),
    "mesh.models": GROUND,
    "mesh.policy": GROUND,
    "mesh.store": GROUND,
    "mesh.runners": GROUND,
    "mesh.service": ("mesh.policy", "mesh.store", "mesh.runners", *GROUND),
    "mesh.interop": ("mesh.service", "mesh.policy", "mesh.store", "mesh.runners", *GROUND),
    "mesh.cli": ("mesh.interop", "mesh.service", "mesh.policy", "mesh.store", "mesh.runners", *GROUND),
    "agents": ("mesh.service", "mesh.store", *GROUND),
}
#: Module → what it may import beyond its floor, and why.
DOORS: dict[str, tuple[tuple[str, ...], str]] = {
    "mesh": (("mesh.service.roles", "mesh.service.mailbox"), "the public surface: imported when somebody asks for it"),
    "mesh.__main__": (("mesh.cli",), "`python -m mesh` is the command line"),
    "agents.__main__": (("mesh.cli",), "`python -m agents` is the command line of one agent"),
    "mesh.runners.model.history": (
        ("mesh.store.disk", "mesh.store.files"),
        "part of a program of its own, in no daemon: the conversation is written as every file of the root",
    ),
}
IMPURE = ("asyncio", "os", "pathlib", "time", "random", "httpx", "fastapi", "starlette", "threading", "subprocess")

#: What touches files. Descriptors of pipes (os.close, os.read, os.pipe, os.set_blocking) are none.
FILE_FUNCTIONS = frozenset(
    [
        "builtins.open",
        *(f"io.{name}" for name in ("open", "open_code", "FileIO")),
        *(
            f"os.{name}"
            for name in (
                "open mkdir makedirs rename renames replace unlink remove rmdir removedirs link symlink listdir "
                "scandir walk stat lstat statvfs truncate ftruncate fsync fdatasync pread pwrite utime chmod chown "
                "mkfifo mknod readlink sendfile copy_file_range posix_fadvise"
            ).split()
        ),
        *(f"os.path.{name}" for name in "exists lexists isfile isdir islink getsize getmtime realpath".split()),
        *(f"tempfile.{name}" for name in "mkstemp mkdtemp NamedTemporaryFile TemporaryFile".split()),
    ]
)
FILE_MODULES = frozenset({"shutil", "fcntl", "glob", "fileinput", "mmap"})
FILE_METHODS = frozenset(
    "read_text read_bytes write_text write_bytes rglob iterdir glob touch unlink rmdir mkdir is_file is_dir is_symlink "
    "exists stat lstat symlink_to hardlink_to".split()
)
#: Module → the calls that it may make all the same, and why.
FILE_EXCEPTIONS: dict[str, tuple[frozenset[str], str]] = {
    "mesh.clock": (frozenset({"builtins.open"}), "the boot id is the kernel's, and part of the clock"),
    "mesh.service.supervisor": (
        frozenset({".stat", ".rglob"}),
        "looks whether its own source has changed; nothing of the root",
    ),
    "mesh.service.doctor": (frozenset({"os.stat"}), "owners and modes, which the store's seam doesn't tell"),
    "agents._git": (frozenset({"os.path.isdir"}), "whether a configured repository is there; git reads it"),
    "agents._machine": (frozenset({"os.stat", "os.statvfs"}), "the machine's mounts are what it reports on"),
}
#: Rooms whose business is files that are not the mesh's, and why.
FILE_ROOMS = {
    "mesh.runners.transcripts": "reads what CLIs write of their sessions, below their own homes",
    "mesh.interop.cli_settings": "edits the CLIs' own configuration files, below their own homes",
}
#: `exists` and the like are also names of the store's own methods: through these objects they are the store.
STORE_OBJECTS = frozenset({"files", "_files", "disk", "_disk", "inputs", "store", "retention", "attachments"})

CLOCKS = frozenset(
    [
        *(
            f"time.{name}"
            for name in (
                "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time clock_gettime "
                "clock_gettime_ns localtime gmtime sleep"
            ).split()
        ),
        *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
        "datetime.date.today",
    ]
)
VAGUE = ("manager", "helper", "util", "utils", "common", "misc")


@dataclass(frozen=True)
class Module:
    """One file, parsed."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def is_package(self) -> bool:
        return self.name in PACKAGES


def _read() -> tuple[list[Module], frozenset[str]]:
    modules, packages = [], set()
    for package in ("mesh", "agents"):
        for path in sorted((TOP / package).rglob("*.py")):
            parts = path.relative_to(TOP).with_suffix("").parts
            if parts[-1] == "__init__":
                parts = parts[:-1]
                packages.add(".".join(parts))
            modules.append(Module(".".join(parts), path.read_text(encoding="utf-8")))
    return modules, frozenset(packages)


MODULES, PACKAGES = _read()
NAMES = frozenset(module.name for module in MODULES)


# -- what a file imports


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    base = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*base, *([node.module] if node.module else [])])


def imports(module: Module, *, lazy: bool = True) -> Iterator[tuple[str, int]]:
    """Every module that is imported, with its line; without `lazy` only what importing the module runs."""
    roots: list[ast.AST] = [module.tree]
    while roots:
        node = roots.pop()
        if not lazy and (_checks_types(node) or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield (inner if inner in NAMES else source), node.lineno
        roots.extend(ast.iter_child_nodes(node))


def _checks_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _under(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def _room(name: str) -> str | None:
    rooms = [room for room in FLOORS if _under(name, room)]
    return max(rooms, key=len) if rooms else None


# -- the rules


def wrong_way(module: Module) -> Iterator[str]:
    room = _room(module.name)
    allowed = (*FLOORS.get(room or "", ()), *DOORS.get(module.name, ((), ""))[0], *([room] if room else []))
    for name, line in imports(module):
        ours = _under(name, "mesh") or _under(name, "agents")
        # `mesh` itself holds nothing but the version and the door to the roles.
        if ours and name != "mesh" and not any(_under(name, floor) for floor in allowed):
            yield f"{module.name}:{line} imports {name}"


def impure_policy(module: Module) -> Iterator[str]:
    if _under(module.name, "mesh.policy"):
        for name, line in imports(module):
            if any(_under(name, impure) for impure in IMPURE):
                yield f"{module.name}:{line} imports {name}"


def _spelled(module: Module) -> dict[str, str]:
    """What the names of the module stand for: `wall` → `datetime.datetime`."""
    known = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return known


def _full_name(node: ast.expr, known: dict[str, str]) -> str:
    """`os.path.exists` for what means it; `.exists` for a method of something else."""
    if isinstance(node, ast.Name):
        return known.get(node.id, f"builtins.{node.id}")
    if not isinstance(node, ast.Attribute):
        return ""
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    if isinstance(inner, ast.Name) and inner.id in known:
        return f"{_full_name(node.value, known)}.{node.attr}"
    return f".{node.attr}"


def _uses(module: Module) -> Iterator[tuple[str, ast.expr]]:
    """Every name and attribute that is used, called or handed on."""
    known = _spelled(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            yield _full_name(node, known), node


def _of_the_store(node: ast.expr) -> bool:
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name in STORE_OBJECTS


def foreign_files(module: Module) -> Iterator[str]:
    if any(_under(module.name, room) for room in ("mesh.store", *FILE_ROOMS)):
        return
    excepted = FILE_EXCEPTIONS.get(module.name, (frozenset(), ""))[0]
    for name, node in _uses(module):
        method = name.startswith(".") and name[1:] in FILE_METHODS and not _of_the_store(node)
        through_path = name.startswith("pathlib.Path.") and name.rpartition(".")[2] in FILE_METHODS
        if (name in FILE_FUNCTIONS or method or through_path) and name not in excepted:
            yield f"{module.name}:{node.lineno} uses {name}"
    for name, line in imports(module):
        if name in FILE_MODULES:
            yield f"{module.name}:{line} imports {name}"


def foreign_clock(module: Module) -> Iterator[str]:
    if module.name == "mesh.clock":
        return
    for name, node in _uses(module):
        loop_time = name == ".time" and isinstance(node, ast.Attribute) and _is_loop(node.value)
        if name in CLOCKS or loop_time:
            yield f"{module.name}:{node.lineno} reads {name}"


def _is_loop(node: ast.expr) -> bool:
    name = ast.unparse(node)
    return name in ("loop", "self._loop", "self.loop") or name.endswith(("get_running_loop()", "get_event_loop()"))


def too_long(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > LINES_MAX:
        yield f"{module.name} has {lines} lines"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{module.name}:{node.lineno} {node.name} has {length} lines"


def vague_name(module: Module) -> Iterator[str]:
    for part in module.name.split("."):
        if any(word in VAGUE for word in part.strip("_").split("_")):
            yield f"{module.name} says nothing about what lives there"


def swallowed(module: Module) -> Iterator[str]:
    """`except Exception: pass`: everything is caught, nothing is done about it and nobody hears of it."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler) and _catches_all(node.type) and all(map(_does_nothing, node.body)):
            yield f"{module.name}:{node.lineno} swallows every error"
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            if any(map(_catches_all, node.args)):
                yield f"{module.name}:{node.lineno} suppresses every error"


def _catches_all(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Tuple):
        return any(map(_catches_all, node.elts))
    return node is None or ast.unparse(node).rpartition(".")[2] in ("Exception", "BaseException")


def _does_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass | ast.Continue | ast.Break):
        return True
    if isinstance(node, ast.Return):
        return node.value is None or isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


RULES = (wrong_way, impure_policy, foreign_files, foreign_clock, too_long, vague_name, swallowed)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_obeys(rule: Callable[[Module], Iterator[str]]) -> None:
    assert [complaint for module in MODULES for complaint in rule(module)] == []


def _cycle(edges: dict[str, set[str]]) -> list[str]:
    """Some cycle of imports, or nothing."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(edges.get(name, ())):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(edges) if (found := visit(name, []))), [])


def test_no_cycles() -> None:
    edges = {
        module.name: {name for name, _ in imports(module, lazy=False) if name in NAMES and name != module.name}
        for module in MODULES
    }
    # A package's own front re-exports its rooms; they don't import the front to get at each other.
    assert _cycle(edges) == []


def test_the_median_file_is_short() -> None:
    assert statistics.median(module.text.count("\n") for module in MODULES) < LINES_MEDIAN_MAX


def test_exceptions_are_needed() -> None:
    """An exception that nobody uses any more is a hole."""
    unused = []
    for name, (calls, _) in FILE_EXCEPTIONS.items():
        used = {use for module in MODULES if module.name == name for use, _ in _uses(module)}
        unused += [f"{name}: {call}" for call in calls - used]
    for name, (doors, _) in DOORS.items():
        used = {found for module in MODULES if module.name == name for found, _ in imports(module)}
        unused += [f"{name}: {door}" for door in set(doors) - used]
    assert unused == []


# -- each rule can fail

BREACHES: list[tuple[Callable[[Module], Iterator[str]], str, str]] = [
    (wrong_way, "mesh.policy.plan", "from mesh.store.files import Files"),
    (wrong_way, "mesh.policy.plan", "from mesh import store"),
    (wrong_way, "mesh.store.files", "from mesh.policy import tasks"),
    (wrong_way, "mesh.store.files", "def late():\n    import mesh.service.core"),
    (wrong_way, "mesh.models.tasks", "from mesh.store import Store"),
    (wrong_way, "mesh.models.tasks", "from ..store import Store"),
    (wrong_way, "mesh.limits", "from mesh.models import Task"),
    (wrong_way, "mesh.service.core", "from mesh.cli.app import cli"),
    (wrong_way, "mesh.service.core", "import agents.coder"),
    (wrong_way, "mesh.runners.model", "from mesh.store import Store"),
    (wrong_way, "mesh.runners.model", "from mesh.service.core import Core"),
    (wrong_way, "agents.coder", "from mesh.cli import main"),
    (wrong_way, "agents.coder", "from mesh.policy import tasks"),
    (wrong_way, "mesh.clock", "if TYPE_CHECKING:\n    from mesh.models import Task"),
    *((impure_policy, "mesh.policy.plan", f"import {name}") for name in IMPURE),
    (impure_policy, "mesh.policy.plan", "from os.path import join"),
    (foreign_files, "mesh.service.core", "open('x')"),
    (foreign_files, "mesh.service.core", "read = open"),
    (foreign_files, "mesh.service.core", "import os\nos.rename('a', 'b')"),
    (foreign_files, "mesh.service.core", "from os import replace as swap\nswap('a', 'b')"),
    (foreign_files, "mesh.service.core", "import os\nos.unlink('a')"),
    (foreign_files, "mesh.service.core", "import os\nos.open('a', 0)"),
    (foreign_files, "mesh.service.core", "import os.path\nos.path.exists('a')"),
    (foreign_files, "mesh.service.core", "from pathlib import Path\nPath('a').read_text()"),
    (foreign_files, "mesh.service.core", "from pathlib import Path\nread = Path.read_bytes"),
    (foreign_files, "mesh.service.core", "def f(path):\n    path.write_text('x')"),
    (foreign_files, "mesh.service.core", "def f(path):\n    return path.exists()"),
    (foreign_files, "mesh.service.core", "import shutil"),
    (foreign_files, "mesh.cli", "import os\nos.rename('a', 'b')"),
    (foreign_files, "agents.coder", "import tempfile\ntempfile.mkstemp()"),
    (foreign_clock, "mesh.service.core", "import time\ntime.time()"),
    (foreign_clock, "mesh.service.core", "from time import monotonic as now\nnow()"),
    (foreign_clock, "mesh.service.core", "import time\nclock = time.perf_counter"),
    (foreign_clock, "mesh.service.core", "from datetime import datetime, UTC\ndatetime.now(UTC)"),
    (foreign_clock, "mesh.service.core", "import datetime\ndatetime.datetime.utcnow()"),
    (foreign_clock, "agents.coder", "from datetime import datetime as moment\nmoment.today()"),
    (foreign_clock, "agents.coder", "from datetime import date\ndate.today()"),
    (foreign_clock, "mesh.service.core", "import asyncio\nasyncio.get_running_loop().time()"),
    (foreign_clock, "mesh.service.core", "def f(loop):\n    return loop.time()"),
    (too_long, "mesh.service.core", "x = 1\n" * (LINES_MAX + 1)),
    (too_long, "mesh.service.core", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (too_long, "mesh.service.core", "async def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    *((vague_name, f"mesh.service.{word}", "") for word in VAGUE),
    (vague_name, "mesh.service.task_manager", ""),
    (vague_name, "agents._helper", ""),
    (swallowed, "mesh.service.core", "try:\n    x = 1\nexcept Exception:\n    pass"),
    (swallowed, "mesh.service.core", "try:\n    x = 1\nexcept:\n    ..."),
    (
        swallowed,
        "mesh.service.core",
        "while True:\n    try:\n        x = 1\n    except BaseException:\n        continue",
    ),
    (swallowed, "mesh.service.core", "try:\n    x = 1\nexcept (ValueError, Exception):\n    pass"),
    (swallowed, "mesh.service.core", "def f():\n    try:\n        x = 1\n    except Exception:\n        return None"),
    (swallowed, "mesh.service.core", "import contextlib\nwith contextlib.suppress(Exception):\n    x = 1"),
]


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    BREACHES,
    ids=[f"{rule.__name__}-{number}" for number, (rule, _, _) in enumerate(BREACHES)],
)
def test_a_breach_is_seen(rule: Callable[[Module], Iterator[str]], name: str, text: str) -> None:
    assert list(rule(Module(name, text)))


HARMLESS: list[tuple[Callable[[Module], Iterator[str]], str, str]] = [
    (wrong_way, "mesh.service.core", "from mesh.policy import tasks\nfrom mesh import clock\nimport asyncio"),
    (wrong_way, "mesh.policy.plan", "from mesh.policy.tasks import decide\nfrom mesh.limits import Limits"),
    (foreign_files, "mesh.store.files", "import os\nos.rename('a', 'b')"),
    (foreign_files, "mesh.service.core", "import os\nos.close(3)\nos.pipe()\nos.kill(1, 0)"),
    (foreign_files, "mesh.service.core", "def f(store):\n    return store.files.exists('a')"),
    (foreign_clock, "mesh.clock", "import time\ntime.time()"),
    (foreign_clock, "mesh.service.core", "def f(self):\n    return self.time.wall()"),
    (foreign_clock, "mesh.service.core", "from datetime import datetime\ndatetime.fromtimestamp(0)"),
    (too_long, "mesh.service.core", "x = 1\n" * LINES_MAX),
    (swallowed, "mesh.service.core", "try:\n    x = 1\nexcept ValueError:\n    pass"),
    (swallowed, "mesh.service.core", "try:\n    x = 1\nexcept Exception as error:\n    print(error)"),
]


@pytest.mark.parametrize(("rule", "name", "text"), HARMLESS)
def test_what_is_fine_passes(rule: Callable[[Module], Iterator[str]], name: str, text: str) -> None:
    assert list(rule(Module(name, text))) == []


def test_a_cycle_is_seen() -> None:
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert _cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
