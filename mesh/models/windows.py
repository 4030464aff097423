"""How many tokens a model's context holds: the registry's `windows` first, then the table of this file.

A CLI's transcript rarely names the window, so the model's name has to. Names come in many spellings
(`anthropic/claude-opus-4-5`, `us.anthropic.claude-opus-4-5-20251101-v1:0`, `claude-opus-4.5`, `claude-opus-4-6[1m]`);
the table matches the family and its version wherever they stand in the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

#: `[1m]` and the like at the end of a name: the CLI itself says which window it asked for.
_ASKED_FOR = re.compile(r"\[(\d{1,4})([km])\]$")
_UNITS = {"k": 1_000, "m": 1_000_000}

#: Family → the windows that it is sold with, smallest first. The first pattern that matches counts, so what is
#: special stands before its family. Model names have `_` and `.` between digits turned into `-`.
_TABLE: tuple[tuple[str, tuple[int, ...]], ...] = (
    (r"claude-(fable-\d|mythos-\d)", (1_000_000,)),
    (r"claude-(opus|sonnet)-4-6(\D|$)", (200_000, 1_000_000)),
    (r"claude-(opus|sonnet)-4-[7-9](\D|$)", (1_000_000,)),
    (r"claude-haiku-(5-[5-9]|[6-9])", (1_000_000,)),
    (r"claude-(opus|sonnet)-([5-9])(\D|$)", (1_000_000,)),
    (r"claude-sonnet-4(\D|$)", (200_000, 1_000_000)),
    (r"claude-2", (100_000, 200_000)),
    (r"claude-", (200_000,)),
    (r"gpt-5-3-codex-spark|gpt-5[\d-]*-chat", (128_000,)),
    (r"gpt-(5-[45]|6)[\d-]*-(pro|cyber)", (1_050_000,)),
    (r"gpt-5-4-(mini|nano)|gpt-5-6-cyber", (400_000,)),
    (r"gpt-(5-[4-9]|[6-9])", (272_000, 1_050_000)),
    (r"gpt-5", (272_000, 400_000)),
    (r"gpt-4-1", (1_047_576,)),
    (r"gpt-4o|gpt-4-turbo|chatgpt-4o", (128_000,)),
    (r"gpt-4-32k", (32_768,)),
    (r"gpt-4", (8_192, 128_000)),
    (r"gpt-3-5", (16_385,)),
    (r"gpt-oss", (131_072,)),
    (r"codex-mini", (200_000,)),
    (r"(^|/)o[134](-|$)", (200_000,)),
    (r"gemini-1-5-pro", (1_048_576, 2_097_152)),
    (r"gemini-2-5-computer-use", (128_000,)),
    (r"gemini-robotics", (131_072, 1_048_576)),
    (r"gemini-", (1_048_576,)),
    (r"gemma-4", (262_144,)),
    (r"gemma-3", (131_072,)),
    (r"grok-4-3|grok-4-fast|grok-4-1-fast", (1_000_000, 2_000_000)),
    (r"grok-4-[5-9]", (500_000,)),
    (r"grok-4|grok-code", (256_000,)),
    (r"grok-", (131_072,)),
    (r"deepseek-(v4|flash)", (1_000_000,)),
    (r"deepseek-", (128_000,)),
    (r"kimi-k3", (1_048_576,)),
    (r"kimi-k2", (262_144,)),
    (r"glm-5-[2-9]", (1_000_000,)),
    (r"glm-(4-[6-9]|5)", (200_000,)),
    (r"glm-4", (128_000,)),
    (r"minimax-m3", (1_000_000,)),
    (r"minimax-m2", (196_608, 204_800)),
    (r"qwen3-[6-9]-(flash|plus|max)|qwen4", (1_000_000,)),
    (r"qwen3-coder|qwen3-max", (262_144, 1_000_000)),
    (r"qwen3|qwen-?2-5", (131_072, 262_144)),
    (r"mistral-large-4", (1_048_576,)),
    (r"codestral|labs-devstral", (256_000,)),
    (r"devstral-small-(2505|2507)|mistral-(medium|small)-25(05|06|08)", (128_000, 262_144)),
    (r"devstral|magistral|ministral|mistral-(large|medium|small)", (262_144,)),
    (r"muse-", (1_048_576,)),
    (r"llama-4", (1_048_576,)),
    (r"llama-?3-[123]", (131_072,)),
)
_PATTERNS = tuple((re.compile(pattern), sizes) for pattern, sizes in _TABLE)


@dataclass(frozen=True)
class Window:
    """How many tokens a context holds, and who says so."""

    tokens: int
    source: str


def find_window(model: str | None, windows: Mapping[str, int], tokens: int = 0) -> Window | None:
    """The window of a model, named as `provider/model` or by its name alone, or None if nobody knows.

    `windows` are the registry's (`provider/model` or a plain name → tokens) and beat the table. `tokens` is what the
    context is known to hold: where a model is sold with several windows, the smallest that it fits into is meant;
    if it fits into none, the table is wrong about this model and None comes back.
    """
    if not model:
        return None
    own = _of_registry(model, windows)
    if own is not None:
        return own
    name = model.lower()
    asked = _ASKED_FOR.search(name)
    if asked is not None:
        return Window(int(asked[1]) * _UNITS[asked[2]], f"the model's name, {model}")
    name = re.sub(r"[._]", "-", name)
    for pattern, sizes in _PATTERNS:
        if pattern.search(name):
            fitting = [size for size in sizes if tokens <= size]
            return Window(fitting[0], f"the table of models, for {model}") if fitting else None
    return None


def _of_registry(model: str, windows: Mapping[str, int]) -> Window | None:
    """A full name is taken first; then one that is the same without its provider, if there is just one such."""
    if model in windows:
        return Window(windows[model], f"the registry's windows, {model}")
    plain = model.rpartition("/")[2].lower()
    alike = {key: size for key, size in windows.items() if _alike(key, model, plain)}
    if len(set(alike.values())) != 1:
        return None
    key, size = next(iter(alike.items()))
    return Window(size, f"the registry's windows, {key}")


def _alike(key: str, model: str, plain: str) -> bool:
    """Whether the key means this model, one of both perhaps without a provider. Two providers never match."""
    if key.lower() == model.lower():
        return True
    return ("/" not in key or "/" not in model) and key.rpartition("/")[2].lower() == plain
