"""The tokens and cost of a session since its last event, read from transcripts.

A part of the session's note stores how far each transcript was read and what was charged for its last
responses. Agents write a response in several lines, each with its tokens so far; only the increase is charged.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import DEFAULT_WINDOW, AnswerUsage, new_lines
from switchgear._agents.registry import usages_in
from switchgear._hooks import hook_config
from switchgear._hooks.open_calls import ReadPosition

CACHE_NAME = "prices.json"
MAX_MODELS = 64
KNOWN_PRICE_S = 86_400.0
"""Seconds for which a price is cached; an upgrade of the package with the price list may change it."""
UNKNOWN_PRICE_S = 3_600.0
_MILLION = 1_000_000


class ModelPrices(NamedTuple):
    """The prices of a model, in millionths of a dollar for a million tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    window: int | None = None
    """The context window of the model in tokens."""
    unknown: str = ""
    fetched_s: float = 0.0

    def cost_micros(self, tokens: Sequence[int]) -> int | None:
        """The cost of `tokens`: input, output, and the parts of the input read from and written to the cache.

        >>> ModelPrices(3_000_000, 15_000_000, 300_000, 3_750_000).cost_micros((1_100, 20, 1_000, 0))
        900
        """
        if self.unknown:
            return None
        sent, output, read, written = tokens
        fresh = max(0, sent - read - written)
        total = fresh * self.input + output * self.output
        total += read * self.cache_read + written * self.cache_write
        return -(-total // _MILLION)


def prices_of(model: str, folder: str, now_s: float) -> ModelPrices:
    """The prices of a model, cached in `folder`. An unreadable cache is ignored."""
    path = os.path.join(folder, CACHE_NAME)
    price_cache = _read_cache(path)
    prices = price_cache.get(model)
    if prices is not None:
        max_age_s = UNKNOWN_PRICE_S if prices.unknown else KNOWN_PRICE_S
        if 0 <= now_s - prices.fetched_s < max_age_s:
            return prices
    prices = _price_from_list(model)._replace(fetched_s=now_s)
    price_cache.pop(model, None)
    price_cache[model] = prices
    hook_config.write(path, dict(list(price_cache.items())[-MAX_MODELS:]))
    return prices


def _price_from_list(model: str) -> ModelPrices:
    hook_config.enable_site_packages()
    from switchgear._agents.events import Usage  # noqa: PLC0415
    from switchgear._agents.prices import cost_of  # noqa: PLC0415
    from switchgear._providers.prices import window_of  # noqa: PLC0415

    million = _MILLION
    kinds = ((million, 0), (0, million), (million, 0, million), (million, 0, 0, million))
    costs = [cost_of([Usage(model or None, *tokens)]) for tokens in kinds]
    unknown = next((cost.unknown for cost in costs if cost.unknown), "")
    sent, output, read, written = (cost.micros or 0 for cost in costs)
    return ModelPrices(sent, output, read, written, window_of(model), unknown)


def _read_cache(path: str) -> dict[str, ModelPrices]:
    data: Any = hook_config.read_private_json(path)
    try:
        price_cache = {str(model): ModelPrices._make(fields) for model, fields in data.items()}
        amounts: list[Any] = [amount for each in price_cache.values() for amount in each[:4]]
        return price_cache if all(isinstance(each, int) and each >= 0 for each in amounts) else {}
    except (ValueError, TypeError, AttributeError):
        return {}


MAX_RESPONSES = 8
"""Number of last responses of a transcript that may be repeated in later lines."""


class UsageCharge(NamedTuple):
    context_used: float | None = None
    """The share of the context window in use after the last response."""
    cost_micros: int | None = None
    unpriced: Mapping[str, str] = {}
    """The models whose price is unknown, and why."""


class TranscriptReader(NamedTuple):
    """A transcript, and what is needed to charge it."""

    agent: str
    transcript: str
    is_sub_agent: bool
    model: str
    """The model of responses that name none."""
    since_s: float
    """Earlier responses are not charged: the session was not guarded then."""
    folder: str
    """Where prices are cached."""
    context_tokens: int | None
    """The configured size of the context window in tokens; `None`: not configured."""


def charge(
    position: ReadPosition, reader: TranscriptReader, now_s: float
) -> tuple[ReadPosition, UsageCharge]:
    """Read what a transcript has gained since `position`. Returns the new position and what to charge."""
    offset, lines = new_lines(reader.transcript, position.offset)
    charged = dict(position.charged)
    spent: dict[str, list[int]] = {}
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(reader.since_s))
    latest: AnswerUsage | None = None
    model = reader.model or position.model
    for used in usages_in(reader.agent, lines):
        if used.window != 0 and (reader.is_sub_agent or not used.of_sub_agent):
            latest = used
        model = used.model or model
        before = charged.pop(used.id, (0, 0, 0, 0))
        charged[used.id] = tuple(map(max, before, used.tokens))
        if used.at and used.at < since:
            continue
        increase = [now - then for now, then in zip(charged[used.id], before, strict=True)]
        total = spent.setdefault(model, [0, 0, 0, 0])
        total[:] = [sum(pair) for pair in zip(total, increase, strict=True)]
    kept = dict(list(charged.items())[-MAX_RESPONSES:])
    if latest is not None:
        latest = latest._replace(model=latest.model or model)
    return ReadPosition(offset, kept, model), _charge_for(reader, spent, latest, now_s)


def _charge_for(
    reader: TranscriptReader, spent: dict[str, list[int]], latest: AnswerUsage | None, now_s: float
) -> UsageCharge:
    prices = {name: prices_of(name, reader.folder, now_s) for name in spent}
    micros: int | None = None
    for name, tokens in spent.items():
        cost = prices[name].cost_micros(tokens)
        if cost is not None:
            micros = cost + (micros or 0)
    unpriced = {name: each.unknown for name, each in prices.items() if each.unknown}
    used = None
    if latest is not None:
        listed = prices.get(latest.model, ModelPrices()).window
        window = latest.window or reader.context_tokens or listed or DEFAULT_WINDOW
        used = min(1.0, (latest.tokens.input + latest.tokens.output) / window)
    return UsageCharge(used, micros, unpriced)
