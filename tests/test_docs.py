"""The documentation tells the truth: links, commands, keys, limits, skills, calls, statuses, messages and alerts are
as in the code.

Each check is a function from text to complaints. It runs over the pages, and over text that breaks it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

from agents import _calendar, _grants, _invoices, _leads
from agents._health import Thresholds
from mesh import errors
from mesh.cli.app import add_commands, cli
from mesh.errors import MeshError
from mesh.limits import DEFAULT
from mesh.models import (
    MESSAGE_TRANSITIONS,
    TASK_TRANSITIONS,
    AgentEntry,
    DeliveryState,
    Message,
    MessageRequest,
    Registry,
    TaskRequest,
    TaskStatus,
    parse_registry,
)
from mesh.models.mail import PAYLOADS, Payload, payload_problems
from mesh.models.registry import Price, QuietHours
from mesh.models.runner_choice import CHOICES
from mesh.service.mailbox import Mailbox
from mesh.service.roles import load
from mesh.store.layout import MailFolders

TOP = Path(__file__).resolve().parent.parent
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").glob("*.md"))]
PAGE_NAMES = [str(page.relative_to(TOP)) for page in PAGES]
COLUMNS = {
    "leads.csv": _leads.COLUMNS,
    "grants.csv": _grants.COLUMNS,
    "invoices.csv": _invoices.COLUMNS,
    "calendar.csv": _calendar.COLUMNS,
}
#: Errors that never leave as an answer of HTTP: of the command line, of a start, of a skill, or a mere family.
NOT_ANSWERED = {
    "not-admitted",
    "role-broken",
    "bad-use",
    "registry-invalid",
    "port-taken",
    "peer-unavailable",
    "skill-input",
    "internal",
    "unreadable",
}

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
ROW = re.compile(r"^\|(.+)\|$")


def text_of(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return FENCE.sub("", text)


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text) if language in languages]


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one of its level or above. Fails if there is no such heading."""
    level = len(heading) - len(heading.lstrip("#"))
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading!r}"
    return found[1]


def tables(text: str) -> list[list[dict[str, str]]]:
    """The tables as rows by column, without backticks."""
    found: list[list[dict[str, str]]] = []
    header: list[str] = []
    for line in [*prose(text).splitlines(), ""]:
        match = ROW.match(line.strip())
        if not match:
            header = []
            continue
        cells = [cell.strip().strip("`") for cell in match[1].split("|")]
        if not header:
            header = cells
            found.append([])
        elif not set("".join(cells)) <= set("-: "):
            found[-1].append(dict(zip(header, cells, strict=True)))
    return found


def column(text: str, name: str) -> list[str]:
    """A column of all tables that have it."""
    return [row[name] for rows in tables(text) for row in rows if name in row]


# -- links


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ +(.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(text: str, page: Path) -> Iterator[str]:
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target}: there is no such file"
        elif anchor and anchor not in anchors(file.read_text(encoding="utf-8") if path else text):
            yield f"{target}: there is no such heading"


@pytest.mark.parametrize("name", [*PAGE_NAMES, "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    assert list(broken_links(text_of(name), TOP / name)) == []


# -- commands


@cache
def commands() -> click.Group:
    add_commands()
    return cli


def command_lines(text: str) -> Iterator[str]:
    """Every `mesh …` in blocks of shell and in inline code."""
    for block in blocks(text, "", "sh", "bash", "console"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||[|;]", line):
                bare = re.sub(r"^(\$ )?(\w+=\S+ )*(\S*/bin/)?", "", part.strip())
                if bare.startswith("mesh "):
                    yield bare
    yield from (code for code in INLINE.findall(prose(text)) if code.startswith("mesh "))


def wrong_commands(text: str) -> Iterator[str]:
    for line in command_lines(text):
        command: click.Command = commands()
        options = {"--help", "-h", "--version"}
        for word in shlex.split(line, comments=True)[1:]:
            if word.startswith("-") and word != "-":
                name = word.partition("=")[0]
                known = {option for parameter in command.params for option in parameter.opts} | options
                if name not in known:
                    yield f"{line}: {command.name} has no option {name}"
            elif isinstance(command, click.Group) and word not in ("COMMAND", "…"):
                if word not in command.commands:
                    yield f"{line}: there is no command {word!r}"
                    break
                command = command.commands[word]


@pytest.mark.parametrize("name", [*PAGE_NAMES, "CHANGELOG.md"])
def test_commands_exist(name: str) -> None:
    assert list(wrong_commands(text_of(name))) == []


def leaves(group: click.Group, before: str = "mesh") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def test_every_command_is_documented_with_its_options() -> None:
    page = text_of("docs/operations.md")
    rows = {row["Command"]: row["`--json`".strip("`")] for rows in tables(page) for row in rows if "Command" in row}
    for path, command in leaves(commands()):
        line = next((line for line in rows if f"{line} ".startswith(f"{path} ")), None)
        assert line, f"{path} is not in docs/operations.md"
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        missing = {option for option in options - {"--json", "--root"} if option not in page}
        missing -= {"--follow", "--lines", "--detach"}  # documented by their short names
        assert not missing, f"{path}: {missing} not in docs/operations.md"
        assert (rows[line] == "yes") == ("--json" in options), f"{path}: does it take --json?"


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_make_targets_exist(name: str) -> None:
    known = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    page = text_of(name)
    named = re.findall(r"^make ([a-z-]+)", "\n".join([*blocks(page, "", "sh"), *INLINE.findall(prose(page))]), re.M)
    assert set(named) <= known


# -- the registry


def registry_keys() -> tuple[set[str], set[str]]:
    """The keys of the whole mesh and of one agent, those inside with a dot."""

    def keys(model: type, before: str = "") -> set[str]:
        fields = model.model_fields  # type: ignore[attr-defined]
        return {f"{before}{field.alias or name}" for name, field in fields.items()}

    runner = {key for choice in CHOICES.values() for key in keys(choice, "runner.")}
    agent = keys(AgentEntry) | runner | keys(QuietHours, "quietHours.")
    return keys(Registry) | keys(Price, "prices.<model>."), agent


def limit_names() -> set[str]:
    return {row["name"] for row in DEFAULT.rows()}


def differing(documented: list[str], real: set[str], what: str) -> Iterator[str]:
    yield from (f"{what} {name} doesn't exist" for name in sorted(set(documented) - real))
    yield from (f"{what} {name} is not documented" for name in sorted(real - set(documented)))
    yield from (f"{what} {name} stands twice" for name in sorted(set(documented)) if documented.count(name) > 1)


def wrong_registry_page(text: str) -> Iterator[str]:
    whole, agent = registry_keys()
    yield from differing(column(section(text, "## Keys of the whole mesh"), "Key"), whole, "the key")
    yield from differing(column(section(text, "## Keys of one agent"), "Key"), agent, "an agent's key")
    yield from differing(column(text, "Limit"), limit_names(), "the limit")
    known = {part for key in whole | agent for part in key.split(".")} | limit_names()
    for code in INLINE.findall(prose(text)):
        for word in re.findall(r"(?<![\w/.-])[a-z]+(?:[A-Z][a-z0-9]*)+(?![\w/-])", code):
            if word not in known:
                yield f"{word} is no key and no limit"


def test_the_page_of_the_registry() -> None:
    assert list(wrong_registry_page(text_of("docs/registry.md"))) == []


def number(cell: str) -> float | None:
    return None if cell == "none" else float(cell.replace("_", ""))


def test_limits_have_the_defaults_and_units_that_the_page_says() -> None:
    rows = {row["Limit"]: row for rows in tables(text_of("docs/registry.md")) for row in rows if "Limit" in row}
    documented = {name: (number(row["Default"]), row["Unit"]) for name, row in rows.items()}
    assert documented == {row["name"]: (row["default"], row["unit"]) for row in DEFAULT.rows()}


def test_limits_and_keys_named_on_other_pages_exist() -> None:
    """Limits end in a unit, so a wrong one shows wherever it is named."""
    ends = re.compile(r"^[a-z]+[A-Za-z]*(Ticks|Max|MaxS|Days|Ratio|AfterS|WaitS|GraceS|WindowS|BackoffS|MinMb)$")
    others = {"branchesMax", "horizonDays", "gapDays", "draftDays", "retryAfterS"}
    for name in PAGE_NAMES:
        named = {code for code in INLINE.findall(prose(text_of(name))) if ends.match(code)}
        assert named <= limit_names() | others, name


def test_every_limit_of_mail_is_explained_beside_what_it_bounds() -> None:
    names = [name for name in limit_names() if name.startswith(("mail", "inbox", "turn", "messages", "attachment"))]
    assert len(names) > 10
    pages = text_of("docs/mailbox.md") + text_of("docs/operations.md")
    assert [name for name in sorted(names) if f"`{name}`" not in pages] == []


def test_examples_of_the_registry_are_valid() -> None:
    examples = blocks(text_of("docs/registry.md"), "json")
    assert examples
    for example in examples:
        parse_registry(example, "docs/registry.md")


# -- skills


def shipped_skills() -> dict[str, set[str]]:
    agents = json.loads(text_of("registry.json"))["agents"]
    return {agent: set(load(agent).skills) for agent in agents}


def wrong_skills(text: str, real: dict[str, set[str]]) -> Iterator[str]:
    for agent, titles in real.items():
        try:
            part = section(text, f"## {agent}")
        except AssertionError:
            yield f"the role {agent} is not documented"
            continue
        yield from differing(re.findall(r"^### (.+)$", part, re.MULTILINE), titles, f"{agent}'s skill")


def test_the_page_of_skills() -> None:
    assert list(wrong_skills(text_of("docs/skills.md"), shipped_skills())) == []


def test_inputs_have_the_columns_that_the_page_says() -> None:
    page = text_of("docs/skills.md")
    for file, columns in COLUMNS.items():
        after = page[page.index(f"`{file}`:") :]
        assert tuple(row["Column"] for row in tables(after)[0]) == columns, file


def test_settings_on_the_page_are_read_by_the_role() -> None:
    page = text_of("docs/skills.md")
    for agent in shipped_skills():
        read = set(re.findall(r'(?:setting|whole_number|texts)\((?:context, )?"(\w+)"', text_of(f"agents/{agent}.py")))
        assert set(column(section(page, f"## {agent}"), "Setting")) == read, agent
    bounds = {field.alias or "": field.default for field in Thresholds.model_fields.values()}
    rows = next(rows for rows in tables(page) if "Threshold" in rows[0])
    assert {row["Threshold"]: number(row["Default"]) for row in rows} == bounds


def test_the_example_of_a_skill_can_be_loaded() -> None:
    example = blocks(section(text_of("docs/skills.md"), "## Writing a skill"), "python")[0]
    names: dict[str, object] = {}
    exec(compile(example, "docs/skills.md", "exec"), names)
    assert list(names["agent"].skills) == ["Weekly Minutes"]  # type: ignore[attr-defined]


def test_every_role_and_skill_that_a_command_names_exists() -> None:
    titles = {title for skills in shipped_skills().values() for title in skills}
    for name in PAGE_NAMES:
        for line in command_lines(text_of(name)):
            words = shlex.split(line, comments=True)
            if words[1:3] == ["task", "add"] and len(words) > 3 and words[3] != "TITLE":
                assert words[3] in titles, f"{name}: {line}"


# -- HTTP and tasks


@cache
def routes() -> set[str]:
    from mesh.service.api import standalone_app

    paths = standalone_app(load("chief")).openapi()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def wrong_calls(text: str) -> Iterator[str]:
    yield from differing(re.findall(r"^## `([A-Z]+ [^`]+)`$", text, re.MULTILINE), routes(), "the call")


def answered_errors() -> dict[str, int]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MeshError)]
    return {f"urn:mesh:{kind.slug}": kind.status for kind in kinds if kind.slug not in NOT_ANSWERED}


def wrong_errors(text: str) -> Iterator[str]:
    rows = [row for rows in tables(section(text, "## Errors")) for row in rows if row["type"] != "about:blank"]
    yield from differing([row["type"] for row in rows], set(answered_errors()), "the error")
    for row in rows:
        if int(row["Status"]) != answered_errors().get(row["type"], int(row["Status"])):
            yield f"{row['type']} is not {row['Status']}"


def keys_of(model: type[BaseModel]) -> set[str]:
    """The names of a model's fields as they stand in JSON."""
    return {field.alias or name for name, field in model.model_fields.items()}


def wrong_fields(text: str) -> Iterator[str]:
    for call, model in (("POST /task", TaskRequest), ("POST /message", MessageRequest)):
        documented = column(section(text, f"## `{call}`"), "Field")
        yield from differing(documented, keys_of(model), f"{call}'s field")


def wrong_transitions(
    rows: dict[str, str], kind: type[StrEnum], real: Mapping[Any, AbstractSet[str]], what: str
) -> Iterator[str]:
    """Where the page lets a state go otherwise than the code."""
    yield from differing(list(rows), set(kind), what)
    for state, others in rows.items():
        goes_to = real[kind(state)] - {kind(state)} if state in set(kind) else frozenset()
        if set(re.findall(r"\w+", others)) != goes_to:
            yield f"{state} goes to {', '.join(sorted(goes_to)) or 'nothing'}, not {others}"


def wrong_lifecycle(text: str) -> Iterator[str]:
    rows = {row["Status"]: row["Goes to"] for row in tables(section(text, "## Lifecycle"))[0]}
    yield from wrong_transitions(rows, TaskStatus, TASK_TRANSITIONS, "the status")


@pytest.mark.parametrize("check", [wrong_calls, wrong_errors, wrong_fields], ids=lambda check: check.__name__)
def test_the_page_of_http(check: Callable[[str], Iterator[str]]) -> None:
    assert list(check(text_of("docs/http.md"))) == []


def test_the_page_of_tasks() -> None:
    assert list(wrong_lifecycle(text_of("docs/tasks.md"))) == []


# -- the mailbox


def written_keys(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """The keys of a payload as the page writes them: those inside with a dot, those that may be left out with `?`."""
    for name, field in model.model_fields.items():
        key = f"{before}{field.alias or name}"
        yield key if field.is_required() else f"{key}?"
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not TaskRequest:
                yield from written_keys(inner, f"{key}.")


def wrong_types(text: str) -> Iterator[str]:
    rows = tables(section(text, "## Types"))[0]
    yield from differing([row["Type"] for row in rows], set(PAYLOADS), "the type")
    for row in rows:
        documented = re.findall(r"[A-Za-z.]+\??", row["Payload"])
        yield from differing(documented, set(written_keys(PAYLOADS.get(row["Type"], Payload))), f"{row['Type']}'s key")


def wrong_message(text: str) -> Iterator[str]:
    rows = {row["Field"]: row["Default"] for row in tables(section(text, "## A message"))[0]}
    yield from differing(list(rows), keys_of(Message), "the field")
    required = {field.alias or name for name, field in Message.model_fields.items() if field.is_required()}
    for name, default in rows.items():
        if (default == "required") != (name in required):
            yield f"{name}: is it required?"


def wrong_states(text: str) -> Iterator[str]:
    rows = {row["State"]: row["Goes to"] for row in tables(section(text, "## States"))[0]}
    yield from wrong_transitions(rows, DeliveryState, MESSAGE_TRANSITIONS, "the state")


def wrong_folders(text: str) -> Iterator[str]:
    real = {path.removeprefix("base/") for path in MailFolders("base").folders()[1:]}
    yield from differing(column(section(text, "## Where everything lies"), "Folder"), real, "the folder")


def trees() -> Iterator[ast.Module]:
    for path in sorted((TOP / "mesh").rglob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def name_of(function: ast.AST) -> str:
    """The last part of the name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Calls of functions and methods with these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in names:
            yield node


@cache
def mail_events() -> frozenset[str]:
    """The names of events about mail that the source records."""
    found: set[str] = set()
    for node in (
        part for tree in trees() for call in calls(tree, "event", "_event", "_entry") for part in ast.walk(call)
    ):
        if isinstance(node, ast.JoinedStr) and ast.unparse(node).startswith("f'mail_{state"):
            found |= {f"mail_{state}" for state in (DeliveryState.EXPIRED, DeliveryState.DEAD)}
        elif isinstance(node, ast.Constant) and re.fullmatch(r"mail_[a-z_]+[a-z]", str(node.value)):
            found.add(str(node.value))
    return frozenset(found)


def wrong_events(text: str) -> Iterator[str]:
    yield from differing(column(section(text, "## Following all mail"), "Event"), set(mail_events()), "the event")


def constant(node: ast.AST) -> str:
    """The text that stands there in the source; empty if it is none."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@cache
def rejections() -> tuple[str, ...]:
    """Why a file is rejected: of each reason in the source the longest piece that is always the same."""
    found = []
    for name, functions in (
        ("mesh/store/mail/reading.py", ("look_at", "parse_message")),
        ("mesh/service/inspection.py", ("_why_not", "_why_not_dropped")),
    ):
        for function in ast.walk(ast.parse(text_of(name))):
            if not isinstance(function, ast.FunctionDef) or function.name not in functions:
                continue
            told = [call.args[0] for call in calls(function, "BadMail")]
            told += [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
            for node in told:
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                piece = max((constant(part).strip(" :") for part in parts), key=len)
                if len(piece) > 2:
                    found.append(piece)
    return tuple(found)


def wrong_rejections(text: str) -> Iterator[str]:
    page = " ".join(column(section(text, "## Bad mail"), "Reason"))
    for piece in rejections():
        if piece.partition(": use")[0] not in page:
            yield f"the reason {piece!r} is not documented"


def wrong_examples(text: str) -> Iterator[str]:
    """Messages on the page that are none, and payloads that the mesh would refuse."""
    for block in blocks(text, "json"):
        Message.model_validate_json(block)
    for line in command_lines(text):
        words = shlex.split(line, comments=True)
        if words[1:3] == ["mail", "send"] and "--payload" in words:
            type_ = words[words.index("--type") + 1]
            problems = payload_problems(type_, json.loads(words[words.index("--payload") + 1]))
            yield from (f"{line}: {item['field']}: {item['reason']}" for item in problems)


def wrong_python(text: str) -> Iterator[str]:
    """Calls of a mailbox in the page's Python that it hasn't, or not with these arguments."""
    for block in blocks(text, "python"):
        for call in [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]:
            function = call.func
            if (
                isinstance(function, ast.Attribute)
                and isinstance(function.value, ast.Name)
                and function.value.id == "box"
            ):
                method = getattr(Mailbox, function.attr, None)
                if method is None:
                    yield f"a mailbox has no {function.attr}"
                    continue
                try:
                    given = {keyword.arg or "": None for keyword in call.keywords}
                    inspect.signature(method).bind(None, *call.args, **given)
                except TypeError as error:
                    yield f"{function.attr}: {error}"
    for name in re.findall(r"`(?:await )?(?:box|Mailbox)\.(\w+)", prose(text)):
        if not hasattr(Mailbox, name):
            yield f"a mailbox has no {name}"


OF_THE_MAILBOX = [
    wrong_types,
    wrong_message,
    wrong_states,
    wrong_folders,
    wrong_events,
    wrong_rejections,
    wrong_examples,
    wrong_python,
]


@pytest.mark.parametrize("check", OF_THE_MAILBOX, ids=lambda check: check.__name__)
def test_the_page_of_the_mailbox(check: Callable[[str], Iterator[str]]) -> None:
    assert list(check(text_of("docs/mailbox.md"))) == []


def test_the_source_is_looked_through_for_what_the_page_lists() -> None:
    assert len(rejections()) >= 10 and len(mail_events()) >= 10 and len(alert_types()) >= 8


# -- alerts

#: Functions that raise an alert, and which of their arguments is its type.
RAISERS = {"raise_alert": 0, "_alarm": 2}


@cache
def alert_types() -> frozenset[str]:
    """The types of alerts that the source raises. Fails at one that can't be told."""
    found: set[str] = set()
    for tree in trees():
        named = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in calls(tree, "io", *RAISERS):
            # Either it is called, or handed to whoever calls it.
            function, *arguments = (call.func, *call.args)
            if name_of(function) == "io":
                function, *arguments = call.args
            if name_of(function) not in RAISERS:
                continue
            told = arguments[RAISERS[name_of(function)]]
            type_ = told.value if isinstance(told, ast.Constant) else named.get(ast.unparse(told))
            # `_alarm` hands on the type that it was called with.
            assert type_ is not None or ast.unparse(told) == "type_", ast.unparse(call)
            found |= {str(type_)} if type_ is not None else set()
    return frozenset(found)


def wrong_alerts(text: str) -> Iterator[str]:
    yield from differing(column(section(text, "## Alerts"), "Alert"), set(alert_types()), "the alert")


def test_the_alerts_on_the_page_of_operations() -> None:
    assert list(wrong_alerts(text_of("docs/operations.md"))) == []


def test_a_role_of_the_page_reads_mail() -> None:
    example = blocks(section(text_of("docs/skills.md"), "## Reading mail"), "python")[0]
    names: dict[str, Any] = {}
    exec(compile(example, "docs/skills.md", "exec"), names)
    assert names["agent"].mail_reader is names["read"]


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_examples_of_json_are_json(name: str) -> None:
    for example in blocks(text_of(name), "json"):
        json.loads(example)
    for block in blocks(text_of(name), "", "sh"):
        for body in re.findall(r"-d\s+'(\{.*?\})'", block, re.DOTALL):
            json.loads(body)


def test_the_licence_is_there() -> None:
    assert text_of("LICENSE").startswith("MIT License") and text_of("CHANGELOG.md").splitlines()[2] == "## Unreleased"


# -- each check can fail


def registry_page(old: str, new: str) -> list[str]:
    page = text_of("docs/registry.md")
    assert old in page
    return list(wrong_registry_page(page.replace(old, new)))


def changed(page: str, old: str, new: str) -> str:
    text = text_of(f"docs/{page}.md")
    assert old in text
    return text.replace(old, new)


def mailbox(old: str, new: str) -> str:
    return changed("mailbox", old, new)


def raises(check: Callable[[str], Iterator[str]], text: str) -> str:
    with pytest.raises(ValueError) as raised:
        list(check(text))
    return str(raised.value)


BREACHES: list[tuple[str, Callable[[], object]]] = [
    ("a file", lambda: list(broken_links("see [this](nowhere.md)", PAGES[0]))),
    ("a file with a heading", lambda: list(broken_links("see [this](docs/nowhere.md#x)", PAGES[0]))),
    ("a heading of another page", lambda: list(broken_links("[x](docs/tasks.md#no-such-heading)", PAGES[0]))),
    ("a heading of this page", lambda: list(broken_links("# A\n[x](#b)", PAGES[0]))),
    ("a command", lambda: list(wrong_commands("say `mesh fly`"))),
    ("a command in a block", lambda: list(wrong_commands("```sh\ncd x && mesh fly\n```"))),
    ("a command after a variable", lambda: list(wrong_commands("```\n$ MESH_ROOT=/x .venv/bin/mesh fly # up\n```"))),
    ("an option", lambda: list(wrong_commands("say `mesh up --high`"))),
    ("an option of a subcommand", lambda: list(wrong_commands('`mesh task add "A B" --high=3`'))),
    ("an option of another command", lambda: list(wrong_commands("`mesh down --detach`"))),
    ("an invented key", lambda: registry_page("| `repo` |", "| `repos` |")),
    ("a key left out", lambda: registry_page("| `generate` |", "| `host` |")),
    ("an invented limit", lambda: registry_page("| `pingRetries` |", "| `pingTries` |")),
    ("an invented limit in a sentence", lambda: registry_page("`staleAfterS` at least", "`staleBeforeS` at least")),
    ("an invented skill", lambda: list(wrong_skills("## ops\n\n### A\n\n### B\n", {"ops": {"A"}}))),
    ("a skill left out", lambda: list(wrong_skills("## ops\n\n### A\n", {"ops": {"A", "B"}}))),
    ("a skill under another role", lambda: list(wrong_skills("## a\n\n## b\n\n### A\n", {"a": {"A"}, "b": set()}))),
    ("a role left out", lambda: list(wrong_skills("## ops\n", {"ops": set(), "chief": set()}))),
    ("an invented call", lambda: list(wrong_calls(text_of("docs/http.md") + "\n## `GET /metrics`\n"))),
    (
        "a wrong status",
        lambda: list(wrong_errors(text_of("docs/http.md").replace("`| 413", "` | 413").replace("413 |", "414 |"))),
    ),
    ("an invented field", lambda: list(wrong_fields(text_of("docs/http.md").replace("| `outputs`", "| `output`")))),
    ("an invented field of a message", lambda: list(wrong_fields(changed("http", "| `ackBy`", "| `ackTill`")))),
    ("an invented type", lambda: list(wrong_types(mailbox("| `escalation`", "| `escalate`")))),
    ("a type left out", lambda: list(wrong_types(mailbox("| `ack` |", "| `error` |")))),
    ("an invented key of a payload", lambda: list(wrong_types(mailbox("`issue`, `severity`", "`issue`, `grade`")))),
    ("a key of a payload left out", lambda: list(wrong_types(mailbox("`topic`, `context?`", "`topic`")))),
    ("a key inside a payload", lambda: list(wrong_types(mailbox("`comments.line?`", "`comments.lines?`")))),
    ("a key that must be there", lambda: list(wrong_types(mailbox("`taskId`, `progress`", "`taskId`, `progress?`")))),
    ("an invented field of the schema", lambda: list(wrong_message(mailbox("| `via` |", "| `through` |")))),
    ("a default that is none", lambda: list(wrong_message(mailbox("object | required", "object | none")))),
    ("a state left out", lambda: list(wrong_states(mailbox("| `uncertain` |", "| `lost` |")))),
    ("a wrong step", lambda: list(wrong_states(mailbox("is dealt with | – |", "is dealt with | `dead` |")))),
    ("an invented folder", lambda: list(wrong_folders(mailbox("| `claims` |", "| `locks` |")))),
    ("a folder left out", lambda: list(wrong_folders(mailbox("| `ids` |", "| `inbox` |")))),
    ("an invented event", lambda: list(wrong_events(mailbox("| `mail_retried` |", "| `mail_again` |")))),
    ("a reason left out", lambda: list(wrong_rejections(mailbox("it is a link", "it is linked")))),
    ("an example that is no message", lambda: raises(wrong_examples, mailbox('"from": "chief",', ""))),
    ("a payload of an example", lambda: list(wrong_examples(mailbox('"check": "lint", ', "")))),
    ("an invented method", lambda: list(wrong_python(mailbox("box.serve(", "box.listen(")))),
    ("an invented argument", lambda: list(wrong_python(mailbox("timeout_s=60):", "timeout=60):")))),
    ("an invented method in a sentence", lambda: list(wrong_python(mailbox("`Mailbox.ack`", "`Mailbox.read`")))),
    ("an invented alert", lambda: list(wrong_alerts(changed("operations", "| `inbox_growing` |", "| `inbox_big` |")))),
    (
        "a wrong lifecycle",
        lambda: list(
            wrong_lifecycle(
                text_of("docs/tasks.md").replace("done; `result`", "x").replace("report | – |", "report | `queued` |")
            )
        ),
    ),
]


@pytest.mark.parametrize("find", [find for _, find in BREACHES], ids=[name for name, _ in BREACHES])
def test_a_breach_is_seen(find: Callable[[], object]) -> None:
    assert find()


HARMLESS = (
    '`mesh --help`, `mesh init --base-port`, `mesh task add "X" --to devops --wait 20`, `mesh`, [x](https://x.org)'
)


def test_what_is_fine_passes() -> None:
    assert list(wrong_commands(HARMLESS)) == [] and list(broken_links(HARMLESS, PAGES[0])) == []
    assert list(command_lines("```python\nmesh fly\n```\n```\nmesh: an error\n```")) == []
