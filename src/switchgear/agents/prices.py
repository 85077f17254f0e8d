"""What a run cost, in integer millionths of a dollar.

The agent's own figure is taken where it gives one. Else tokens are priced by the list of the
package genai-prices (`pip install switchgear[prices]`), whose data comes with it: nothing is asked
over the network. An unknown price is None, with the reason, and never 0.
"""

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from switchgear.agents.events import Usage

_REQUEST_TOKENS = 100_000
"""Totals are priced as requests of at most this size: some models cost more for very long requests,
and a run that sums up to a million tokens made hundreds of short ones."""


class Cost(NamedTuple):
    """A cost, or why there is none."""

    micros: int | None
    source: str
    """"agent", "price list", "agent and price list", or "" where the cost is not known."""
    unknown: str = ""
    """A sentence on what is not known; empty where all is."""


def cost_of(usages: Iterable[Usage]) -> Cost:
    """What the latest usage of each model adds up to; no usage at all is not known either.

    >>> cost_of([Usage("any", 10, 1, cost_micros=42)])
    Cost(micros=42, source='agent', unknown='')
    """
    total, sources, problems = 0, set(), []
    models = tuple(usages)
    for usage in models:
        if usage.cost_micros is not None:
            total += usage.cost_micros
            sources.add("agent")
            continue
        priced, problem = _listed(usage)
        if priced is None:
            problems.append(problem)
        else:
            total += priced
            sources.add("price list")
    if not models:
        return Cost(None, "", "the agent told no usage")
    if problems:
        return Cost(None, "", "; ".join(problems))
    return Cost(total, " and ".join(sorted(sources)))


def window_of(model: str) -> int | None:
    """How many tokens a model can hold, by the same list; `None`: it does not say."""
    try:
        from genai_prices import Usage as Tokens  # noqa: PLC0415 - an extra, and slow to import
        from genai_prices import calc_price  # noqa: PLC0415

        name = model.rpartition("/")[2]
        return calc_price(Tokens(input_tokens=1), model_ref=name).model.context_window
    except (ImportError, LookupError, ValueError):
        return None


def _listed(usage: Usage) -> tuple[int | None, str]:
    if not (usage.input_tokens or usage.output_tokens):
        return None, "the agent told neither tokens nor cost"
    if usage.model is None:
        return None, "the agent named no model, so its tokens have no price; name it by --model"
    try:
        from genai_prices import Usage as Tokens  # noqa: PLC0415 - an extra, and slow to import
        from genai_prices import calc_price  # noqa: PLC0415
    except ImportError:
        missing = "there is no price list: python3 -m pip install 'switchgear[prices]'"
        return None, missing
    provider, _, name = usage.model.rpartition("/")
    all_input = max(usage.input_tokens, usage.cache_read_tokens + usage.cache_write_tokens)
    requests = all_input // _REQUEST_TOKENS + 1
    tokens = Tokens(
        input_tokens=Decimal(all_input) / requests,
        output_tokens=Decimal(usage.output_tokens) / requests,
        cache_read_tokens=Decimal(usage.cache_read_tokens) / requests,
        cache_write_tokens=Decimal(usage.cache_write_tokens) / requests,
    )
    for provider_id in dict.fromkeys((provider or None, None)):
        try:
            price = calc_price(tokens, model_ref=name, provider_id=provider_id).total_price
        except (LookupError, ValueError):
            continue
        micros = round(price * requests * 1_000_000, 3).to_integral_value(ROUND_CEILING)
        return int(micros), ""
    return None, f"the price list does not know the model {usage.model!r}"
