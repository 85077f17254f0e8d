"""The price list that ships with Switchgear: what a million tokens of a model cost, on its date.

`data/prices.json` is made by `scripts/snapshot_prices.py` from the package genai-prices (MIT, its
licence is in the file). Where that package is installed, it is used instead, because it may be newer.
"""

import json
import re
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

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
    file = resources.files("switchgear.agents") / "data" / "prices.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="ascii"))
    return found
