from __future__ import annotations

from typing import Any

import pytest

from mesh.models.registry import Price
from mesh.models.running import Usage
from mesh.policy.prices import cost_usd, price_of, priced


def price(read: float, written: float) -> Price:
    return Price.model_validate({"inputPerMillion": read, "outputPerMillion": written})


PRICES = {
    "anthropic/claude-x": price(3, 15),
    "openai/gpt": price(1, 8),
    "openai/both": price(1, 1),
    "azure/both": price(2, 2),
    "openai/dated-20260101": price(9, 9),
}


def used(**tokens: Any) -> Usage:
    return Usage(**{"model": "anthropic/claude-x", **tokens})


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (used(input_tokens=1_000_000, output_tokens=100_000), 4.5),
        (used(input_tokens=100_000, cache_read_tokens=800_000, cache_write_tokens=100_000, output_tokens=0), 3.0),
        (used(output_tokens=1_000), 0.015),
        (used(input_tokens=1_000), 0.003),
        (used(input_tokens=0, output_tokens=0), 0.0),
        (used(), None),
        (used(input_tokens=5, model=None), None),
        (used(input_tokens=5, model="anthropic/unknown"), None),
        (used(input_tokens=5, cost_usd=0.25), 0.25),
        (used(cost_usd=0.0, input_tokens=1_000_000), 0.0),
        (used(cost_usd=0.25, model=None), 0.25),
    ],
)
def test_what_it_cost(usage: Usage, cost: float | None) -> None:
    assert cost_usd(usage, PRICES) == (None if cost is None else pytest.approx(cost))
    assert priced(usage, PRICES).cost_usd == cost_usd(usage, PRICES)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("openai/gpt", "openai/gpt"),
        ("openai/gpt-2026-02-16", "openai/gpt"),
        ("openai/gpt-20260216", "openai/gpt"),
        ("gpt", "openai/gpt"),
        ("claude-x-20260216", "anthropic/claude-x"),
        ("claude-x@20260216", "anthropic/claude-x"),
        ("openai/dated-20260101", "openai/dated-20260101"),
        ("dated-20260101", "openai/dated-20260101"),
        ("both", None),
        ("other/gpt", None),
        ("gpt-mini", None),
        ("openai/gpt-5", None),
        ("", None),
    ],
)
def test_whose_price_it_is(model: str, found: str | None) -> None:
    assert price_of(model, PRICES) == (PRICES[found] if found else None)


def test_the_usage_itself_is_left_as_it_was() -> None:
    usage = used(input_tokens=1_000_000)
    assert priced(usage, PRICES).cost_usd == 3 and usage.cost_usd is None
    assert priced(usage, {}) is usage
