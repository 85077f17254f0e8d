"""The cost of a run, in integer millionths of a dollar.

If the agent reports its cost, that is used. Otherwise its tokens are priced with the rates that the user
configured, or with the price list (`switchgear._providers.prices`). An unknown cost is `None`, with the reason,
and never 0.
"""

from collections.abc import Iterable
from typing import NamedTuple

from switchgear._agents.events import Usage
from switchgear._providers.prices import (
    ORDINARY_TOKENS,
    Rates,
    TokenUsage,
    by_package,
    price_list,
    rates_of,
)


class UsageCost(NamedTuple):
    """A cost, or why it is unknown."""

    micros: int | None
    source: str
    """"agent", "price list", "given prices", several of them, or "" if the cost is unknown."""
    unknown: str = ""
    """Why the cost is unknown, as a sentence; empty: it is known."""


def cost_of(usages: Iterable[Usage], rates: Rates | None = None) -> UsageCost:
    """The cost of the latest usage of each model; without any usage it is unknown.

    `rates` are the user's prices for tokens; they take precedence over the price list.

    >>> cost_of([Usage("any", 10, 1, cost_micros=42)])
    UsageCost(micros=42, source='agent', unknown='')
    """
    total, sources, problems = 0, set(), []
    models = tuple(usages)
    for usage in models:
        if usage.cost_micros is not None:
            total += usage.cost_micros
            sources.add("agent")
            continue
        priced, problem = _list_price(usage, rates)
        if priced is None:
            problems.append(problem)
        else:
            total += priced
            sources.add("price list" if rates is None else "given prices")
    if not models:
        return UsageCost(None, "", "the agent reported no token usage")
    if problems:
        return UsageCost(None, "", "; ".join(problems))
    return UsageCost(total, " and ".join(sorted(sources)))


def model_rates(model: str) -> tuple[int, int] | None:
    """The prices of a million tokens of input and of output, in millionths of a dollar; `None`: unknown."""
    costs = [cost_of([Usage(model, *tokens)]) for tokens in ((1_000_000, 0), (0, 1_000_000))]
    if costs[0].micros is None or costs[1].micros is None:
        return None
    return costs[0].micros, costs[1].micros


def _list_price(usage: Usage, rates: Rates | None) -> tuple[int | None, str]:
    if not (usage.input_tokens or usage.output_tokens):
        return None, "the agent reported neither tokens nor cost"
    tokens = (usage.input_tokens, usage.output_tokens)
    cached = (usage.cache_read_tokens, usage.cache_write_tokens)
    all_input = max(usage.input_tokens, sum(cached))
    if rates is not None:
        return rates.cost_micros(all_input, tokens[1], *cached), ""
    if usage.model is None:
        return (
            None,
            "the agent named no model, so its tokens cannot be priced; name it with --model",
        )
    provider, _, name = usage.model.rpartition("/")
    total = TokenUsage(all_input, tokens[1], *cached)
    # Priced as ordinary requests: a run with a million tokens consists of hundreds of short requests.
    for provider_id in dict.fromkeys((provider, "")):
        micros = by_package(name, total, provider_id, all_input // ORDINARY_TOKENS + 1)
        if micros is None:
            found = rates_of(name, provider_id)
            micros = None if found is None else found.cost_micros(all_input, tokens[1], *cached)
        if micros is not None:
            return micros, ""
    return None, f"the {price_list()} has no price for the model {usage.model!r}"
