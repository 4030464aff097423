"""`registry.json`: who the agents are, who watches whom, and which limits differ from the defaults.

`parse_registry` is the one door: text in, a valid `Registry` out, or a `RegistryInvalid` that lists every problem
with its key and the reason.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, PrivateAttr, StringConstraints, ValidationError

from mesh.errors import NewerSchema, RegistryInvalid, UnknownAgent
from mesh.limits import Limits
from mesh.models.base import RESERVED_IDS, SCHEMA_VERSION, AgentId, Asked, Line
from mesh.models.runner_choice import CHOICES, RunnerChoice, SkillsChoice

Port = Annotated[int, Field(ge=1, le=65535)]
ClockTime = Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class QuietHours(Asked):
    """From and to, `HH:MM` in the registry's time zone; may pass midnight."""

    from_: ClockTime = Field(alias="from")
    to: ClockTime


class AgentEntry(Asked):
    """One agent. Only name, port, responsibilities and buddy are required; `buddy` is whom it watches."""

    name: Line
    port: Port
    responsibilities: list[Line] = Field(min_length=1)
    buddy: AgentId
    can_delegate: list[AgentId] = []
    host: Line = "127.0.0.1"
    sync_minute: int | None = Field(default=None, ge=0, le=59)
    buddy_check_offset: int | None = Field(default=None, ge=0)
    user: Line | None = None
    runner: RunnerChoice = SkillsChoice()
    generate: Literal["auto", "propose", "skills", "off"] = "auto"
    quiet_hours: QuietHours | None = None
    repo: str | None = None
    settings: dict[str, Any] = {}
    limits: dict[str, Any] = {}


class Price(Asked):
    input_per_million: float = Field(ge=0)
    output_per_million: float = Field(ge=0)


class Registry(Asked):
    """The registry in force. Use `parse_registry` to make one."""

    schema_version: int = SCHEMA_VERSION
    agents: dict[AgentId, AgentEntry] = Field(min_length=2)
    orchestrator: AgentId
    policy: Literal["open", "peers", "orchestrator"] = "peers"
    timezone: str = "UTC"
    allowed_hosts: list[Line] = []
    restart_command: list[Line] = Field(default=["systemctl", "restart", "agent-{id}"], min_length=1)
    windows: dict[str, int] = {}
    prices: dict[str, Price] = {}
    limits: dict[str, Any] = {}
    #: Worked out once each: they are asked for with every message.
    _limits_of: dict[str | None, Limits] = PrivateAttr(default_factory=dict)

    def entry(self, agent: str) -> AgentEntry:
        """The agent's entry. Raises UnknownAgent, which lists the valid names."""
        if agent not in self.agents:
            known = ", ".join(self.agents)
            raise UnknownAgent(f"No agent is called {agent!r}; the registry has: {known}.", agentId=agent)
        return self.agents[agent]

    def watcher_of(self, agent: str) -> str | None:
        """Whose buddy the agent is."""
        return next((other for other, entry in self.agents.items() if entry.buddy == agent), None)

    def sync_minute(self, agent: str) -> int:
        """The minute of the hour of the agent's sync; by default five minutes apart in the registry's order."""
        chosen = self.entry(agent).sync_minute
        return list(self.agents).index(agent) * 5 % 60 if chosen is None else chosen

    def check_offset(self, agent: str) -> int:
        """The agent's offset within the ping period, in ticks; by default spread in the registry's order."""
        chosen = self.entry(agent).buddy_check_offset
        period = self.limits_for(agent).ping_every_ticks
        return (list(self.agents).index(agent) if chosen is None else chosen) % period

    def limits_for(self, agent: str | None = None) -> Limits:
        """The limits in force for the mesh, or for one agent."""
        found = self._limits_of.get(agent)
        if found is None:
            own = self.agents[agent].limits if agent in self.agents else {}
            found = self._limits_of[agent] = Limits().with_overrides({**self.limits, **own})
        return found


def parse_registry(text: str | bytes, file: str) -> Registry:
    """A valid registry from JSON text. `file` is named in the error.

    Raises RegistryInvalid with `problems: [{key, reason}]`, or NewerSchema.
    """
    try:
        data = json.loads(text, object_pairs_hook=_no_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise _invalid(file, [("", f"not valid JSON: {error}")]) from None
    if not isinstance(data, dict):
        raise _invalid(file, [("", "must be a JSON object")])
    version = data.get("schemaVersion", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchema(f"{file} has schemaVersion {version}; this mesh knows {SCHEMA_VERSION}.", file=file)
    # A mesh whose registry doesn't say who orchestrates is led by its first agent.
    agents = data.get("agents")
    if "orchestrator" not in data and isinstance(agents, dict) and agents:
        data = {**data, "orchestrator": next(iter(agents))}
    try:
        registry = Registry.model_validate(data)
    except ValidationError as error:
        raise _invalid(file, _shape_problems(error)) from None
    problems = [*_pairing_problems(registry), *_other_problems(registry), *_limit_problems(registry)]
    if problems:
        raise _invalid(file, problems)
    return registry


def _no_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"the key {twice[0]!r} stands twice in one object")
    return dict(pairs)


def _invalid(file: str, problems: list[tuple[str, str]]) -> RegistryInvalid:
    lines = "; ".join(f"{key}: {reason}" if key else reason for key, reason in problems)
    listed = [{"key": key, "reason": reason} for key, reason in problems]
    return RegistryInvalid(f"{file}: {lines}", file=file, problems=listed)


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are: {', '.join(known)}"


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    model: type[Asked] = Registry
    if len(location) >= 3 and location[0] == "agents":
        inner: dict[str, type[Asked]] = {"quietHours": QuietHours}
        if location[2] == "runner" and len(location) > 4:
            model = CHOICES[str(location[3])]
        else:
            model = inner.get(str(location[2]), AgentEntry) if len(location) > 3 else AgentEntry
    elif location[0] == "prices" and len(location) > 2:
        model = Price
    return [field.alias or name for name, field in model.model_fields.items()]


def _shown(location: tuple[int | str, ...]) -> list[int | str]:
    """The place of a mistake as it stands in the file: the kind of a runner is no key of its own."""
    tagged = len(location) > 3 and location[0] == "agents" and location[2] == "runner"
    return [part for index, part in enumerate(location) if part != "[key]" and not (tagged and index == 3)]


_WORDS = {
    "missing": "is required",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "list_type": "must be a list",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
}


def _shape_problems(error: ValidationError) -> list[tuple[str, str]]:
    problems = []
    for item in error.errors():
        location = item["loc"]
        key = ".".join(str(part) for part in _shown(location))
        if item["type"] == "extra_forbidden":
            reason = "unknown key" + _nearest(str(location[-1]), _known_keys(location))
        elif item["type"] == "string_pattern_mismatch":
            reason = f"{item['input']!r} does not match {item['ctx']['pattern']}"
        elif item["type"] == "union_tag_invalid":
            kinds = ", ".join(CHOICES)
            key, reason = f"{key}.kind", f"{item['ctx']['tag']!r} is no kind of runner; known are: {kinds}"
        elif item["type"] == "too_short" and key == "agents":
            reason = "a mesh needs at least two agents, so that somebody watches each"
        else:
            reason = _WORDS.get(item["type"]) or item["msg"][0].lower() + item["msg"][1:]
        problems.append((key, reason))
    return problems


def _pairing_problems(registry: Registry) -> list[tuple[str, str]]:
    problems = []
    watched = Counter(entry.buddy for entry in registry.agents.values())
    for agent, entry in registry.agents.items():
        key = f"agents.{agent}"
        if agent in RESERVED_IDS:
            problems.append((key, f"{agent!r} is reserved and can't name an agent"))
        if entry.buddy == agent:
            problems.append((f"{key}.buddy", "an agent can't be its own buddy"))
        elif entry.buddy not in registry.agents:
            hint = _nearest(entry.buddy, list(registry.agents))
            problems.append((f"{key}.buddy", f"no agent is called {entry.buddy!r}{hint}"))
        if not watched[agent]:
            problems.append((key, f"nobody watches {agent!r}: it must be somebody's buddy"))
        for index, other in enumerate(entry.can_delegate):
            if other not in registry.agents:
                hint = _nearest(other, list(registry.agents))
                problems.append((f"{key}.canDelegate.{index}", f"no agent is called {other!r}{hint}"))
    return problems


def _other_problems(registry: Registry) -> list[tuple[str, str]]:
    problems = []
    if registry.orchestrator not in registry.agents:
        hint = _nearest(registry.orchestrator, list(registry.agents))
        problems.append(("orchestrator", f"no agent is called {registry.orchestrator!r}{hint}"))
    holders: dict[int, str] = {}
    for agent, entry in registry.agents.items():
        if entry.port in holders:
            reason = f"port {entry.port} is already the port of {holders[entry.port]!r}"
            problems.append((f"agents.{agent}.port", reason))
        holders.setdefault(entry.port, agent)
    try:
        ZoneInfo(registry.timezone)
    except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError, a path such as "/etc" a ValueError
        problems.append(("timezone", f"{registry.timezone!r} is not a time zone, such as 'Europe/Berlin'"))
    except KeyError:
        problems.append(("timezone", f"there is no time zone {registry.timezone!r}; an example is 'Europe/Berlin'"))
    return problems


def _limit_problems(registry: Registry) -> list[tuple[str, str]]:
    sets = [("limits", registry.limits)]
    sets += [(f"agents.{agent}.limits", entry.limits) for agent, entry in registry.agents.items() if entry.limits]
    problems = []
    for key, overrides in sets:
        merged = {**registry.limits, **overrides}
        try:
            Limits().with_overrides(merged)
        except ValidationError as error:
            for item in error.errors():
                name = str(item["loc"][0]) if item["loc"] else ""
                if name and name not in overrides:
                    continue
                if item["type"] == "extra_forbidden":
                    known = [field.alias or "" for field in Limits.model_fields.values()]
                    problems.append((f"{key}.{name}", "unknown limit" + _nearest(name, known)))
                else:
                    problems.append((f"{key}.{name}".rstrip("."), item["msg"].removeprefix("Value error, ")))
    return problems
