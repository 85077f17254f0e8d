"""What a session has used since its last hook: each response once, however often it is read.

A part of the session's note, changed in the same transaction as the circuits: how far each
transcript was read, and what was charged for its last answers. Agents write an answer in several
lines and repeat its tokens, or more of them, in each; only what is new is charged.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import DEFAULT_WINDOW, AnswerUsage, lines_since
from switchgear._agents.registry import usages_in
from switchgear._hooks import hook_config
from switchgear._hooks.open_calls import Book

NAME = "prices.json"
MOST_MODELS = 64
KNOWN_FOR_S = 86_400.0
"""How long a price is cached: the package with the list may be upgraded."""
UNKNOWN_FOR_S = 3_600.0
_MILLION = 1_000_000


class Card(NamedTuple):
    """The prices of a model, in millionths of a dollar for a million tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    window: int | None = None
    """How many tokens the model can hold."""
    unknown: str = ""
    made_s: float = 0.0

    def cost_micros(self, tokens: Sequence[int]) -> int | None:
        """What input, output, and of the input what was read from and written to a cache cost.

        >>> Card(3_000_000, 15_000_000, 300_000, 3_750_000).cost_micros((1_100, 20, 1_000, 0))
        900
        """
        if self.unknown:
            return None
        sent, output, read, written = tokens
        fresh = max(0, sent - read - written)
        total = fresh * self.input + output * self.output
        total += read * self.cache_read + written * self.cache_write
        return -(-total // _MILLION)


def card_of(model: str, folder: str, now_s: float) -> Card:
    """The prices of a model, cached in `folder`. Never raises for the content of the cache."""
    place = os.path.join(folder, NAME)
    cards = _read(place)
    card = cards.get(model)
    if card is not None:
        for_s = UNKNOWN_FOR_S if card.unknown else KNOWN_FOR_S
        if 0 <= now_s - card.made_s < for_s:
            return card
    card = _price_from_list(model)._replace(made_s=now_s)
    cards.pop(model, None)
    cards[model] = card
    hook_config.write(place, dict(list(cards.items())[-MOST_MODELS:]))
    return card


def _price_from_list(model: str) -> Card:
    hook_config.use_all_modules()
    from switchgear._agents.events import Usage  # noqa: PLC0415
    from switchgear._agents.prices import cost_of  # noqa: PLC0415
    from switchgear._providers.prices import window_of  # noqa: PLC0415

    much = _MILLION
    kinds = ((much, 0), (0, much), (much, 0, much), (much, 0, 0, much))
    costs = [cost_of([Usage(model or None, *tokens)]) for tokens in kinds]
    unknown = next((cost.unknown for cost in costs if cost.unknown), "")
    sent, output, read, written = (cost.micros or 0 for cost in costs)
    return Card(sent, output, read, written, window_of(model), unknown)


def _read(place: str) -> dict[str, Card]:
    data: Any = hook_config.read_own(place)
    try:
        cards = {str(model): Card._make(fields) for model, fields in data.items()}
        prices: list[Any] = [price for card in cards.values() for price in card[:4]]
        return cards if all(isinstance(each, int) and each >= 0 for each in prices) else {}
    except (ValueError, TypeError, AttributeError):
        return {}


LAST = 8
"""Responses of a transcript that may still be repeated."""


class Bill(NamedTuple):
    context_used: float | None = None
    """The share of the window that the last answer has left in use."""
    cost_micros: int | None = None
    unpriced: Mapping[str, str] = {}
    """The models whose price is not known, and why."""


class Reader(NamedTuple):
    """A transcript, and what is known about it."""

    agent: str
    transcript: str
    is_sub_agent: bool
    model: str
    """The model of answers that name none."""
    since_s: float
    """Answers from before are not charged: the session was not guarded then."""
    folder: str
    """Where prices are kept."""
    context_tokens: int | None
    """Size of the window in tokens, if configured."""


def charge(book: Book, reader: Reader, now_s: float) -> tuple[Book, Bill]:
    offset, lines = lines_since(reader.transcript, book.offset)
    answers = dict(book.answers)
    spent: dict[str, list[int]] = {}
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(reader.since_s))
    latest: AnswerUsage | None = None
    model = reader.model or book.model
    for used in usages_in(reader.agent, lines):
        if used.window != 0 and (reader.is_sub_agent or not used.aside):
            latest = used
        model = used.model or model
        before = answers.pop(used.id, (0, 0, 0, 0))
        answers[used.id] = tuple(map(max, before, used.tokens))
        if used.at and used.at < since:
            continue
        new = [now - then for now, then in zip(answers[used.id], before, strict=True)]
        total = spent.setdefault(model, [0, 0, 0, 0])
        total[:] = [one + other for one, other in zip(total, new, strict=True)]
    kept = dict(list(answers.items())[-LAST:])
    if latest is not None:
        latest = latest._replace(model=latest.model or model)
    return Book(offset, kept, model), _bill(reader, spent, latest, now_s)


def _bill(
    reader: Reader, spent: dict[str, list[int]], latest: AnswerUsage | None, now_s: float
) -> Bill:
    cards = {name: card_of(name, reader.folder, now_s) for name in spent}
    micros: int | None = None
    for name, tokens in spent.items():
        cost = cards[name].cost_micros(tokens)
        if cost is not None:
            micros = cost + (micros or 0)
    unpriced = {name: card.unknown for name, card in cards.items() if card.unknown}
    used = None
    if latest is not None:
        listed = cards.get(latest.model, Card()).window
        window = latest.window or reader.context_tokens or listed or DEFAULT_WINDOW
        used = min(1.0, (latest.tokens.input + latest.tokens.output) / window)
    return Bill(used, micros, unpriced)
