"""What a model's tokens cost, for hooks: looked up once a day and kept in a file beside the store.

The price list takes half a second to load, and a hook has no such time. The file is believed as the
compiled configuration is: if it belongs to this user and nobody else could have written it.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from switchgear._hooks import compiled

NAME = "prices.json"
MOST_MODELS = 64
KNOWN_FOR_S = 86_400.0
"""How long a price is believed: the list comes with a package, which may be renewed."""
UNKNOWN_FOR_S = 3_600.0
_MILLION = 1_000_000


class Card(NamedTuple):
    """A model on the price list; prices in millionths of a dollar for a million tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    window: int | None = None
    """How many tokens the model can hold."""
    unknown: str = ""
    """Why there is no price."""
    made_s: float = 0.0

    def cost_micros(self, tokens: Sequence[int]) -> int | None:
        """What input, output, and of the input what was read from and written to a cache cost.

        >>> Card(3_000_000, 15_000_000, 300_000, 3_750_000).cost_micros((1_100, 20, 1_000, 0))
        900
        """
        if self.unknown:
            return None
        sent, said, read, written = tokens
        fresh = max(0, sent - read - written)
        total = fresh * self.input + said * self.output
        total += read * self.cache_read + written * self.cache_write
        return -(-total // _MILLION)


def card_of(model: str, folder: str, now_s: float) -> Card:
    """The card of a model; prices are kept in `folder`. Never raises for what is in the file."""
    place = os.path.join(folder, NAME)
    cards = _read(place)
    card = cards.get(model)
    if card is not None:
        for_s = UNKNOWN_FOR_S if card.unknown else KNOWN_FOR_S
        if 0 <= now_s - card.made_s < for_s:
            return card
    card = _looked_up(model)._replace(made_s=now_s)
    cards.pop(model, None)
    cards[model] = card
    compiled.write(place, dict(list(cards.items())[-MOST_MODELS:]))
    return card


def _looked_up(model: str) -> Card:
    compiled.use_all_modules()
    from switchgear._agents.events import Usage  # noqa: PLC0415
    from switchgear._agents.prices import cost_of  # noqa: PLC0415
    from switchgear._providers.prices import window_of  # noqa: PLC0415

    much = _MILLION
    kinds = (
        *(Usage(model or None, much, 0), Usage(model or None, 0, much)),
        *(Usage(model or None, much, 0, much), Usage(model or None, much, 0, 0, much)),
    )
    costs = [cost_of([usage]) for usage in kinds]
    unknown = next((cost.unknown for cost in costs if cost.unknown), "")
    sent, said, read, written = (cost.micros or 0 for cost in costs)
    return Card(sent, said, read, written, window_of(model), unknown)


def _read(place: str) -> dict[str, Card]:
    data: Any = compiled.read_own(place)
    try:
        return {str(model): _card(fields) for model, fields in data.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _card(fields: Any) -> Card:
    prices: list[Any] = fields[:4]
    if not all(isinstance(price, int) and price >= 0 for price in prices):
        raise ValueError  # caught above: the file is made anew
    return Card._make(fields)
