"""The cost of a model's tokens, in integer millionths of a dollar.

Prices come from the package genai-prices if it is installed (`pip install switchgear[prices]`), otherwise
from the bundled list. Nothing is looked up over the network. An unknown price is `None` with the reason,
and never 0.
"""

import json
import re
import sys
from decimal import ROUND_CEILING, Decimal
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

_COMPACT_DATE = re.compile(r"-(20\d\d)(\d\d)(\d\d)$")
_MILLION = 1_000_000
ORDINARY_TOKENS = 100_000
"""The largest input of a request at the ordinary price; some models cost more for very long requests."""


class TokenUsage(NamedTuple):
    """The tokens of one response, or of several."""

    input: int = 0
    """All input tokens, including those read from or written to a cache."""
    output: int = 0
    """All output tokens, including reasoning."""
    cache_read: int = 0
    cache_write: int = 0
    """Tokens written to a cache for 5 minutes, or for the default time of the provider."""
    cache_write_1h: int = 0
    """Tokens written to a cache for an hour, which Anthropic offers."""

    def plus(self, other: "TokenUsage") -> "TokenUsage":
        """The sum of both.

        >>> TokenUsage(10, 1).plus(TokenUsage(5, 2, 4))
        TokenUsage(input=15, output=3, cache_read=4, cache_write=0, cache_write_1h=0)
        """
        return TokenUsage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Rates(NamedTuple):
    """Prices in millionths of a dollar per million tokens."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    window: int | None = None
    """The size of the context window in tokens."""

    def cost_micros(
        self, sent: int, output: int, read: int = 0, written: int = 0, written_1h: int = 0
    ) -> int:
        """The cost of tokens, rounded up; `sent` includes tokens read from or written to a cache.

        Caching a token for an hour costs 8/5 of caching it for 5 minutes: the ratio of Anthropic, the
        only provider that offers both.

        >>> Rates(3_000_000, 15_000_000, 300_000, 3_750_000).cost_micros(1_100, 20, 1_000)
        900
        >>> Rates(3_000_000, 15_000_000, 300_000, 3_750_000).cost_micros(1_000, 0, 0, 0, 1_000)
        6000
        """
        fresh = max(0, sent - read - written - written_1h)
        total = fresh * self.input + output * self.output
        total += read * self.cache_read + written * self.cache_write
        total += written_1h * self.cache_write * 8 // 5
        return -(-total // _MILLION)


def snapshot_date() -> str:
    """The date of the bundled list, such as `2026-11-16`."""
    return str(_list()["date"])


@lru_cache(1024)
def rates_of(model: str, provider: str = "") -> Rates | None:
    """The prices of a model, at a provider if one is given; `None`: not in the bundled list."""
    name = model.lower()
    rows: list[dict[str, Any]] = _list()["providers"]
    if provider:
        provider_name = provider.lower().strip()
        found = next((row for row in rows if row["id"] == provider_name), None) or next(
            (row for row in rows if _matches(row["provider_match"], provider_name)), None
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
    operator, *parts = clause
    if operator == "|":
        return any(_matches(part, text) for part in parts)
    if operator == "&":
        return all(_matches(part, text) for part in parts)
    pattern = str(parts[0])
    if operator == "~":
        return bool(re.search(pattern, text))
    pattern = pattern.lower()
    return {
        "=": text == pattern,
        "^": text.startswith(pattern),
        "$": text.endswith(pattern),
        "*": pattern in text,
    }[operator]


@cache
def _list() -> dict[str, Any]:
    file = resources.files("switchgear._providers") / "data" / "prices.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
    return found


def price_list() -> str:
    """The name of the price list in use: the installed package, or the bundled list with its date."""
    return _list_name(is_package=_package() is not None)


@cache
def _list_name(*, is_package: bool) -> str:
    if not is_package:
        return f"bundled price list of {snapshot_date()}"
    from importlib.metadata import version  # noqa: PLC0415

    return f"price list of genai-prices {version('genai-prices')}"


def _package() -> Any:
    """The package genai-prices; `None`: it is not installed."""
    return _import_package() if "genai_prices" in sys.modules else _find_package()


def _import_package() -> Any:
    try:
        import genai_prices  # noqa: PLC0415 - an extra, and slow to import; waits for a thread that imports it
    except ImportError:
        return None
    return genai_prices


_find_package = cache(_import_package)  # searching for a package that is not installed is slow


def window_of(model: str) -> int | None:
    """The size of a model's context window in tokens; `None`: unknown."""
    provider, _, name = model.rpartition("/")
    package = _package()
    if package is None:
        found = rates_of(name, provider) or rates_of(name)
        return None if found is None else found.window
    try:
        tokens = package.Usage(input_tokens=1)
        window: int | None = package.calc_price(tokens, model_ref=name).model.context_window
    except (LookupError, ValueError):
        return None
    return window


class TokenCost(NamedTuple):
    """The cost of tokens, or why it is unknown."""

    micros: int | None
    """Millionths of a dollar; `None`: unknown."""
    unknown: str = ""
    """Why the cost is unknown; empty if it is known."""


def token_cost(model: str, usage: TokenUsage, provider: str = "", requests: int = 1) -> TokenCost:
    """The total cost of the tokens of `requests` requests. Cheap after the first call for a model.

    A model is looked up at the provider first, then at all others. `provider/model` names both.

    >>> token_cost("claude-sonnet-4-5", TokenUsage(1_000, 100)).micros
    4500
    >>> token_cost("no-such-model", TokenUsage(1_000, 100)).micros is None
    True
    """
    sent = max(usage.input, usage.cache_read + usage.cache_write + usage.cache_write_1h)
    if sent > ORDINARY_TOKENS * requests:
        micros = _by_package(model, usage._replace(input=sent), provider, requests)
        if micros is not None:
            return TokenCost(micros)
    rates = model_price(model, provider)
    if rates is None:
        named = repr(model) if model else "without a name"
        return TokenCost(None, f"the {price_list()} has no price for the model {named}")
    return TokenCost(rates.cost_micros(sent, *usage[1:]))


@lru_cache(256)
def model_price(model: str, provider: str = "") -> Rates | None:
    """The prices of a model for requests of ordinary length; `None`: unknown model."""
    within, _, name = model.rpartition("/")
    for at in dict.fromkeys((provider, within, "")):
        for each in dict.fromkeys((model, name)):
            found = _package_rates(each, at) or rates_of(each, at)
            if found is not None:
                return found
    return None


def _package_rates(model: str, provider: str) -> Rates | None:
    most = ORDINARY_TOKENS
    kinds = ((most,), (0, most), (most, 0, most), (most, 0, 0, most))
    costs = [by_package(model, TokenUsage(*counts), provider, 2) for counts in kinds]
    if None in costs:
        return None
    return Rates(*(cost * (_MILLION // ORDINARY_TOKENS) for cost in costs if cost is not None))


def _by_package(model: str, usage: TokenUsage, provider: str, requests: int) -> int | None:
    within, _, name = model.rpartition("/")
    for at in dict.fromkeys((provider, within, "")):
        found = by_package(name, usage, at, requests)
        if found is not None:
            return found
    return None


def by_package(model: str, usage: TokenUsage, provider: str, requests: int) -> int | None:
    """The cost by the package genai-prices; `None`: it is not installed or has no price for the model."""
    package = _package()
    if package is None:
        return None
    written = usage.cache_write + usage.cache_write_1h
    counts = {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": written,
    }
    if usage.cache_write_1h:
        counts["cache_write_1h_tokens"] = usage.cache_write_1h
    tokens = package.Usage(**{name: Decimal(count) / requests for name, count in counts.items()})
    try:
        found = package.calc_price(tokens, model_ref=model, provider_id=provider or None)
    except (LookupError, ValueError):
        return None
    price: Decimal = found.total_price
    return int(round(price * requests * _MILLION, 3).to_integral_value(ROUND_CEILING))
