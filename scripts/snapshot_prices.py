"""Write the bundled price list from the installed package genai-prices.

    python scripts/snapshot_prices.py [--date YYYY-MM-DD]

The result, src/switchgear/_providers/data/prices.json, ships in the wheel, so that tokens have prices in
the default installation. Prices are whole millionths of a dollar for a million tokens, of requests of
ordinary length; what a model charges for very long requests, audio and images is left out.
"""

import argparse
import json
import math
from datetime import UTC, date, datetime, time
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from genai_prices import Usage
from genai_prices import types as kinds
from genai_prices.data import providers

TARGET = Path(__file__).parents[1] / "src" / "switchgear" / "_providers" / "data" / "prices.json"
_SOME = 50_000
"""Tokens of an ordinary request: a fee for each request weighs little, and no surcharge begins."""
_HOURS = (0, 6, 12, 18)
"""Some models are cheaper at night; the dearest price counts."""


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat())
    day = date.fromisoformat(parser.parse_args().date)
    package = distribution("genai-prices")
    licence = next(file for file in package.files or () if file.name.upper().startswith("LICEN"))
    whole = {
        "source": f"genai-prices {package.version}, https://github.com/pydantic/genai-prices",
        "date": day.isoformat(),
        "licence": Path(str(package.locate_file(licence))).read_text(encoding="utf-8"),
        "unit": "millionths of a dollar for a million tokens: input, output, cache read, cache write",
        "providers": [row for each in providers if (row := _provider(each, day))],
    }
    text = json.dumps(whole, ensure_ascii=True, separators=(",", ":"))
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text.replace(',["', ',\n["') + "\n", encoding="ascii")


def _provider(provider: Any, day: date) -> dict[str, Any] | None:
    models = [row for model in provider.models if (row := _model(model, provider, day))]
    if not models and not provider.fallback_model_providers:
        return None
    return {
        "id": provider.id,
        "model_match": _clause(provider.model_match),
        "provider_match": _clause(provider.provider_match),
        "fallback": provider.fallback_model_providers or [],
        "models": models,
    }


def _model(model: Any, provider: Any, day: date) -> list[Any] | None:
    """Its id, its clause, its four prices and its context window; `None`: it has no token prices."""
    at = [datetime.combine(day, time(hour), UTC) for hour in _HOURS]
    usages = (
        Usage(input_tokens=_SOME),
        Usage(output_tokens=_SOME),
        Usage(input_tokens=_SOME, cache_read_tokens=_SOME),
        Usage(input_tokens=_SOME, cache_write_tokens=_SOME),
    )
    prices = []
    for usage in usages:
        try:
            price = max(
                model.calc_price(usage, provider, genai_request_timestamp=each).total_price
                for each in at
            )
        except (LookupError, ValueError):
            return None
        prices.append(math.ceil(price * (1_000_000 // _SOME) * 1_000_000))
    return [model.id, _clause(model.match), *prices, model.context_window]


def _clause(clause: Any) -> Any:
    if clause is None:
        return None
    for kind, sign, field in (
        (kinds.ClauseEquals, "=", "equals"),
        (kinds.ClauseStartsWith, "^", "starts_with"),
        (kinds.ClauseEndsWith, "$", "ends_with"),
        (kinds.ClauseContains, "*", "contains"),
        (kinds.ClauseRegex, "~", "regex"),
    ):
        if isinstance(clause, kind):
            return [sign, getattr(clause, field)]
    parts = clause.or_ if isinstance(clause, kinds.ClauseOr) else clause.and_
    return ["|" if isinstance(clause, kinds.ClauseOr) else "&", *map(_clause, parts)]


if __name__ == "__main__":
    main()
