"""What a run cost, in integer millionths of a dollar.

The agent's own figure is taken where it gives one. Else its tokens are priced: by the rates that the
user gives, by the package genai-prices where it is installed (`pip install switchgear[prices]`), or
by the list that ships with Switchgear. Nothing is asked over the network. An unknown price is None,
with the reason, and never 0.
"""

import json
import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from switchgear._agents.events import Usage

_COMPACT_DATE = re.compile(r"-(20\d\d)(\d\d)(\d\d)$")


class Rates(NamedTuple):
    """Prices in millionths of a dollar for a million tokens."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    window: int | None = None
    """How many tokens the model can hold."""

    def cost_micros(self, sent: int, said: int, read: int = 0, written: int = 0) -> int:
        """What tokens cost, rounded up; `sent` includes what was read from and written to a cache.

        >>> Rates(3_000_000, 15_000_000, 300_000, 3_750_000).cost_micros(1_100, 20, 1_000)
        900
        """
        fresh = max(0, sent - read - written)
        total = fresh * self.input + said * self.output
        total += read * self.cache_read + written * self.cache_write
        return -(-total // 1_000_000)


def snapshot_date() -> str:
    """The day of the list, as `2026-11-16`."""
    return str(_list()["date"])


def rates_of(model: str, provider: str = "") -> Rates | None:
    """The prices of a model, at a provider if one is named; `None`: the list does not know it."""
    name = model.lower()
    rows: list[dict[str, Any]] = _list()["providers"]
    if provider:
        wanted = provider.lower().strip()
        found = next((row for row in rows if row["id"] == wanted), None) or next(
            (row for row in rows if _matches(row["provider_match"], wanted)), None
        )
    else:
        found = next((row for row in rows if _matches(row["model_match"], name)), None)
    if found is None:
        return None
    dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", name)
    for text in dict.fromkeys((name, dashed)):
        by_id = {row["id"]: row for row in rows}
        for row in (found, *(by_id[other] for other in found["fallback"] if other in by_id)):
            for _, clause, *prices in row["models"]:
                if _matches(clause, text):
                    return Rates(*prices)
    return None


def _matches(clause: Any, text: str) -> bool:
    if clause is None:
        return False
    sign, *parts = clause
    if sign == "|":
        return any(_matches(part, text) for part in parts)
    if sign == "&":
        return all(_matches(part, text) for part in parts)
    what = str(parts[0])
    if sign == "~":
        return bool(re.search(what, text))
    what = what.lower()
    return {
        "=": text == what,
        "^": text.startswith(what),
        "$": text.endswith(what),
        "*": what in text,
    }[sign]


@cache
def _list() -> dict[str, Any]:
    file = resources.files("switchgear._agents") / "data" / "prices.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
    return found


_REQUEST_TOKENS = 100_000
"""Totals are priced as requests of at most this size: some models cost more for very long requests,
and a run that sums up to a million tokens made hundreds of short ones."""


class UsageCost(NamedTuple):
    """A cost, or why there is none."""

    micros: int | None
    source: str
    """"agent", "price list", "given prices", several of them, or "" where the cost is unknown."""
    unknown: str = ""
    """A sentence on what is not known; empty where all is."""


def cost_of(usages: Iterable[Usage], rates: Rates | None = None) -> UsageCost:
    """What the latest usage of each model adds up to; no usage at all is unknown too.

    `rates` are the user's own prices for tokens, and take precedence over any list.

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
        priced, problem = _listed(usage, rates)
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


def price_list() -> str:
    """Which list prices tokens: the installed package, or the bundled one with its date."""
    try:
        from importlib.metadata import version  # noqa: PLC0415

        import genai_prices  # noqa: F401, PLC0415 - an extra, and slow to import
    except ImportError:
        return f"bundled price list of {snapshot_date()}"
    return f"price list of genai-prices {version('genai-prices')}"


def model_rates(model: str) -> tuple[int, int] | None:
    """What a million tokens of input and of output of a model cost in millionths of a dollar."""
    costs = [cost_of([Usage(model, *tokens)]) for tokens in ((1_000_000, 0), (0, 1_000_000))]
    if costs[0].micros is None or costs[1].micros is None:
        return None
    return costs[0].micros, costs[1].micros


def window_of(model: str) -> int | None:
    """How many tokens a model can hold, by the same list; `None`: it does not say."""
    provider, _, name = model.rpartition("/")
    try:
        from genai_prices import Usage as Tokens  # noqa: PLC0415 - an extra, and slow to import
        from genai_prices import calc_price  # noqa: PLC0415

        return calc_price(Tokens(input_tokens=1), model_ref=name).model.context_window
    except ImportError:
        found = rates_of(name, provider) or rates_of(name)
        return None if found is None else found.window
    except (LookupError, ValueError):
        return None


def _listed(usage: Usage, rates: Rates | None) -> tuple[int | None, str]:
    if not (usage.input_tokens or usage.output_tokens):
        return None, "the agent reported neither tokens nor cost"
    tokens = (usage.input_tokens, usage.output_tokens)
    cached = (usage.cache_read_tokens, usage.cache_write_tokens)
    all_input = max(usage.input_tokens, sum(cached))
    if rates is not None:
        return rates.cost_micros(all_input, tokens[1], *cached), ""
    if usage.model is None:
        return None, "the agent named no model, so its tokens have no price; name it by --model"
    provider, _, name = usage.model.rpartition("/")
    for provider_id in dict.fromkeys((provider, "")):
        micros = _by_package(usage, name, provider_id, all_input)
        if micros is None:
            found = rates_of(name, provider_id)
            micros = None if found is None else found.cost_micros(all_input, tokens[1], *cached)
        if micros is not None:
            return micros, ""
    return None, f"the {price_list()} does not know the model {usage.model!r}"


def _by_package(usage: Usage, name: str, provider: str, all_input: int) -> int | None:
    """By the installed package genai-prices; `None`: it is not there, or does not know the model."""
    try:
        from genai_prices import Usage as Tokens  # noqa: PLC0415 - an extra, and slow to import
        from genai_prices import calc_price  # noqa: PLC0415
    except ImportError:
        return None
    requests = all_input // _REQUEST_TOKENS + 1
    tokens = Tokens(
        input_tokens=Decimal(all_input) / requests,
        output_tokens=Decimal(usage.output_tokens) / requests,
        cache_read_tokens=Decimal(usage.cache_read_tokens) / requests,
        cache_write_tokens=Decimal(usage.cache_write_tokens) / requests,
    )
    try:
        price = calc_price(tokens, model_ref=name, provider_id=provider or None).total_price
    except (LookupError, ValueError):
        return None
    return int(round(price * requests * 1_000_000, 3).to_integral_value(ROUND_CEILING))
