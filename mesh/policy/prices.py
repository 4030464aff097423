"""What the work on a model cost, from the registry's `prices`.

A price is for `provider/model`. What a CLI tells of its model is often less (no provider) or more (a date at the end),
so the price of the one model that fits is taken; where two would do, none is. Cached tokens are priced as input: the
registry names no other price for them, and a bill must not be guessed too low. A cost that was told stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mesh.models.registry import Price
from mesh.models.running import Usage

_MILLION = 1_000_000
_DATE = re.compile(r"[-@](\d{8}|\d{4}-\d{2}-\d{2})$")


def priced(usage: Usage, prices: Mapping[str, Price]) -> Usage:
    """The usage with its cost in US dollars; as it was where that is known already, or can't be."""
    cost = cost_usd(usage, prices)
    return usage if cost == usage.cost_usd else usage.model_copy(update={"cost_usd": cost})


def cost_usd(usage: Usage, prices: Mapping[str, Price]) -> float | None:
    """The cost in US dollars; None without tokens, model or price."""
    if usage.cost_usd is not None:
        return usage.cost_usd
    price = price_of(usage.model, prices) if usage.model else None
    sent = [usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens]
    if price is None or (usage.output_tokens is None and all(tokens is None for tokens in sent)):
        return None
    read = sum(tokens or 0 for tokens in sent)
    return (read * price.input_per_million + (usage.output_tokens or 0) * price.output_per_million) / _MILLION


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of a model, named as in the registry, without its provider, or with the date of its release."""
    for name in (model, _DATE.sub("", model)):
        if name in prices:
            return prices[name]
    if "/" in model:
        return None  # a provider is named: another's price is not its own
    for name in (model, _DATE.sub("", model)):
        fitting = [price for key, price in prices.items() if key.partition("/")[2] == name]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None
