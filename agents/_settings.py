"""Settings of skills, checked: a wrong one is an error that names it, never a silent default."""

from __future__ import annotations

from mesh.errors import SkillInputError
from mesh.service.skill_context import SkillContext


def whole_number(context: SkillContext, name: str, default: int, *, least: int, most: int) -> int:
    """A setting that is a whole number from `least` to `most`."""
    value = context.setting(name, int, default)
    # In Python `true` is an int, which nobody means who writes it here.
    if isinstance(value, bool) or not least <= value <= most:
        raise _wrong(context, name, f"must be a whole number from {least} to {most}, not {value!r}")
    return int(value)


def texts(context: SkillContext, name: str) -> list[str]:
    """A setting that is a list of texts, each once; empty where it isn't set."""
    value = context.setting(name, list, [])
    if not all(isinstance(text, str) and text.strip() for text in value):
        raise _wrong(context, name, f"must be a list of texts, none empty, not {value!r}")
    return list(dict.fromkeys(text.strip() for text in value))


def _wrong(context: SkillContext, name: str, what: str) -> SkillInputError:
    return SkillInputError(f"registry.json: agents.{context.agent}.settings.{name} {what}.", file="registry.json")
