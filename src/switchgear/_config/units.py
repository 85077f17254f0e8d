"""Units of keys: times are written in seconds (`…_seconds`) and money in dollars (`…_dollars`).

The Python arguments behind them end in `_s`, `_ms` or `_micros`. Keys with these endings were the
only ones in earlier versions, and are accepted with a note.
"""

from collections.abc import Iterable
from typing import NamedTuple

SECONDS, DOLLARS = "_seconds", "_dollars"
_TIMES = {SECONDS: 1.0, "_s": 1.0, "_ms": 0.001, "_days": 86_400.0}
_AMOUNTS = {DOLLARS: 1_000_000.0, "_micros": 1.0}
_KEPT = frozenset({"_days"})
"""Endings that are as good as the one of their kind: the unit is in the name, and it reads well."""


class Meant(NamedTuple):
    """The argument that a key stands for."""

    name: str
    factor: float
    """What the value is multiplied with."""


def written(name: str) -> str:
    """The key for an argument.

    >>> written("timeout_s"), written("hard_cap_micros"), written("baseline_p95_ms"), written("name")
    ('timeout_seconds', 'hard_cap_dollars', 'baseline_p95_seconds', 'name')
    """
    for endings, key in ((_TIMES, SECONDS), (_AMOUNTS, DOLLARS)):
        stem, ending = _split(name, endings)
        if ending and ending not in _KEPT:
            return stem + key
    return name


def meant(key: str, allowed: Iterable[str]) -> Meant | None:
    """The argument among those allowed that a key with another unit stands for; `None`: none.

    >>> meant("timeout_seconds", ["name", "timeout_s"])
    Meant(name='timeout_s', factor=1.0)
    >>> meant("hard_cap_dollars", ["hard_cap_micros"])
    Meant(name='hard_cap_micros', factor=1000000.0)
    """
    names = set(allowed)
    for endings in (_TIMES, _AMOUNTS):
        stem, ending = _split(key, endings)
        if not ending:
            continue
        for other, size in endings.items():
            if stem + other in names:
                return Meant(stem + other, endings[ending] / size)
    return None


def is_old(key: str) -> bool:
    """Whether a key is one of an earlier version."""
    return written(key) != key


def converted(value: object, factor: float, name: str) -> object:
    """A value in the unit of the argument. What is no number stays, for others to object to."""
    if isinstance(value, bool) or not isinstance(value, int | float) or factor == 1.0:
        return value
    found = value * factor
    near = round(found)
    if name.endswith("_micros") and abs(found - near) < 1e-6 * max(1.0, abs(found)):
        return near
    return float(f"{found:.15g}")


def _split(name: str, endings: dict[str, float]) -> tuple[str, str]:
    for ending in endings:
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending), ending
    return name, ""
