"""Numbers in a readable form: money, counts, waits and elapsed time.

Money is counted in whole millionths of a dollar, never in floats.
"""

import math
from typing import Any, Self

CENTURY_S = 100 * 365.25 * 86_400
"""Longer times have a fixed text: in hours they would be a line of digits, or infinite."""


def dollars(micros: int) -> str:
    """An amount as `$1.23`, with more decimals if cents are not exact.

    >>> dollars(1_230_000), dollars(42), dollars(-2_500_000)
    ('$1.23', '$0.000042', '-$2.50')
    """
    whole, rest = divmod(abs(micros), 1_000_000)
    digits = f"{rest:06}"
    return f"{'-' if micros < 0 else ''}${whole:,}.{digits[:2]}{digits[2:].rstrip('0')}"


def percent(heat: float) -> str:
    """A heat as `40%`, at most `100%`; rounded down, so that only a trip shows as 100 %.

    >>> percent(0.999), percent(1.0), percent(1.66), percent(math.inf)
    ('99%', '100%', '100%', '100%')
    """
    share = min(max(heat, 0.0), 1.0) if math.isfinite(heat) else 1.0
    return f"{math.floor(share * 100 + 1e-9)}%"


def plural(count: int, noun: str) -> str:
    """`1 failure`, `2 failures`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def span(seconds: float) -> str:
    """`0.4 s`, `75 s`, `1 h 12 min 5 s`: exact enough to compare with a limit.

    >>> span(75.25), span(5400.0), span(86401.0)
    ('75.25 s', '1 h 30 min', '24 h 1 s')
    """
    if seconds < 600.0 or seconds > CENTURY_S:
        return f"{seconds:.4g} s"
    minutes, whole_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (whole_s, "s"))
    return " ".join(f"{amount:,} {unit}" for amount, unit in parts if amount)


def duration(seconds: float) -> str:
    """`0.4 s`, `42 s`, `3 min`, `2 h`: rounded up.

    >>> duration(0.35), duration(41.2), duration(121.0), duration(7_199.0)
    ('0.4 s', '42 s', '3 min', '2 h')
    """
    if seconds > CENTURY_S:
        return "over 100 years"
    # Rounded first: a sum of floats may be 60.0000000001 instead of 60, and must not become 61.
    seconds = round(seconds, 6)
    tenths = math.ceil(round(seconds * 10, 5))
    if tenths < 100:
        return f"{tenths / 10:g} s"
    unit_s, unit = (1, "s") if seconds < 120 else (60, "min") if seconds <= 7140 else (3600, "h")
    return f"{math.ceil(seconds / unit_s)} {unit}"


def elapsed(seconds: float) -> str:
    """`0.4 s`, `41 s`, `2 min`, `2 h 28 min`: time that has passed, rounded to the nearest unit.

    >>> elapsed(0.35), elapsed(41.2), elapsed(121.0), elapsed(8_900.0)
    ('0.4 s', '41 s', '2 min', '2 h 28 min')
    """
    if seconds > CENTURY_S:
        return "over 100 years"
    seconds = max(round(seconds, 6), 0.0)
    if 0 < seconds < 0.05:
        return "under 0.1 s"
    if seconds < 9.95:
        return f"{_half_up(seconds * 10) / 10:g} s"
    if seconds < 119.5:
        return f"{_half_up(seconds)} s"
    minutes = _half_up(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def _half_up(value: float) -> int:
    return math.floor(round(value, 5) + 0.5)


class Money(int):
    """An amount in whole millionths of a dollar, shown as dollars: `Money("$5")`.

    From a string: `$5`, `$0.25`, `$1,250.5`, with at most six decimals. From an `int`: micro-dollars.
    Raises ValueError for any other string.

    >>> Money("$1,250.5"), int(Money("$0.25")), str(Money(5_000_000))
    (Money('$1,250.50'), 250000, '$5.00')
    """

    __slots__ = ()

    def __new__(cls, amount: "int | str") -> Self:
        return super().__new__(cls, _parse_dollars(amount) if isinstance(amount, str) else amount)

    def __repr__(self) -> str:
        return f"Money('{dollars(self)}')"

    def __str__(self) -> str:
        return dollars(self)


_LONGEST_AMOUNT = 24


def _parse_dollars(text: str) -> int:
    sign, _, amount = text.strip().partition("$")
    whole, point, part = amount.partition(".")
    groups = whole.split(",")
    grouped = len(groups) == 1 or (
        0 < len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    )
    digits = "".join(groups)
    known = digits.isdecimal() and (part.isdecimal() if point else not part) and text.isascii()
    if sign or not known or not grouped or len(part) > 6 or len(text) > _LONGEST_AMOUNT:
        raise ValueError(f"{text!r} is not an amount of money: write it as '$5' or '$0.25'")
    return int(digits) * 1_000_000 + int(part.ljust(6, "0"))


def micros_of(field: str, money: Any, micros: int | None, *, suffix: str = "_micros") -> int | None:
    """The micro-dollars of the argument `field` (`"$5"`, `Money`), or of the argument `<field><suffix>`.

    `None` if neither is given. Raises ValueError for both, and for what is not an amount of money.

    >>> micros_of("limit", "$5", None), micros_of("limit", None, 7)
    (5000000, 7)
    """
    if money is None:
        return micros
    if micros is not None:
        raise ValueError(f"{field} and {field}{suffix} are both given: give one of them")
    if not isinstance(money, str | Money):
        example = f"write {field}='$5', or give {field}{suffix}"
        raise ValueError(f"{field} is {money!r}: it must be a text or Money; {example}")
    try:
        return int(Money(money))
    except ValueError:
        raise ValueError(f"{field} is {money!r}: write it as '$5' or '$0.25'") from None
