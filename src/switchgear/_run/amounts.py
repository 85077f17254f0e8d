"""Amounts as people type them: spans of time, dollars, rates. Every problem is one sentence."""

import math
import re
from decimal import Decimal, InvalidOperation

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|sec|m|min|h|d)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_RATE = re.compile(r"(\d{1,9})(?: ?/ ?(?:h|hour))?", re.ASCII)
MOST_MICROS = 10**15


def seconds(field: str, text: str, *, bare: bool = False) -> float:
    """`90s`, `30m`, `1.5h`, `1h30m` in seconds; 0 needs no unit. Raises ValueError.

    `bare`: a number without a unit is seconds, as in files that were written so.

    >>> seconds("--timeout", "1h30m"), seconds("timeout", "45", bare=True)
    (5400.0, 45.0)
    """
    total, rest = 0.0, text.strip()
    alone = _SPAN.fullmatch(rest)
    if alone is not None and alone[2] is None and not bare and float(alone[1]):
        number = alone[1]
        raise ValueError(
            f"{field} is {text!r}: it needs a unit; write {number}s for seconds, {number}m for "
            f"minutes or {number}h for hours"
        )
    while rest:
        match = _SPAN.match(rest)
        if match is None or (match[2] is None and (total or match.end() < len(rest))):
            break
        total += float(match[1]) * _SECONDS[match[2] or "s"]
        rest = rest[match.end() :].strip()
    if rest or not text.strip() or not math.isfinite(total):
        raise ValueError(f"{field} is {text!r}: it must be a span such as 90s, 30m, 2h or 1h30m")
    return total


def micros(field: str, text: str) -> int:
    """Dollars in whole micro-dollars. Raises ValueError.

    >>> micros("--budget", "1.50"), micros("--budget", "$0.000001")
    (1500000, 1)
    """
    try:
        amount = Decimal(text.strip().removeprefix("$")) * 1_000_000
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= MOST_MICROS or amount != int(amount):
        raise ValueError(
            f"{field} is {text!r}: it must be dollars such as 5 or 0.25, with at most six decimals, "
            f"and not above {MOST_MICROS // 1_000_000:,}"
        )
    return int(amount)


def per_hour(field: str, text: str) -> int:
    """`50/h` or `50`. Raises ValueError.

    >>> per_hour("--rate-limit", "50/h")
    50
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(f"{field} is {text!r}: it must be iterations an hour, such as 50 or 50/h")
    return int(match[1])
