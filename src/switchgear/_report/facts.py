"""The record of a run as the report needs it: whatever the files hold, each field has its type.

A record may be of another version, cut off, or edited by the agent that it is about. What is not
as it should be is `None` or empty, and the report says that it is not known.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

MOST = 1e15
"""Beyond this a number is no measurement."""


class DetectorHeat(NamedTuple):
    """What one detector held."""

    kind: str
    heat: float
    reason: str


class Done(NamedTuple):
    """One iteration."""

    number: int
    outcome: str
    seconds: float
    began_s: float | None
    phase: str
    heat: float
    readings: tuple[DetectorHeat, ...]
    cost_micros: int | None
    tests_passing: int | None
    output_chars: int | None
    files_changed: int | None
    steps: int | None
    error: str
    nudge: str
    would_stop: bool
    raw: Mapping[str, Any]
    """The rest of it, to be read with the functions below."""


def text(value: object, longest: int = 4000) -> str:
    """A text; anything else that was written in its place is shown as it is."""
    if value is None:
        return ""
    said = value if isinstance(value, str) else repr(value)
    return said if len(said) <= longest else f"{said[: longest - 1]}…"


def number(value: object) -> float | None:
    """A number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= MOST else None


def whole(value: object) -> int | None:
    """A count."""
    found = number(value)
    return None if found is None or math.isnan(found) else int(found)


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object; empty where there is none."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """A JSON list; empty where there is none."""
    return value if isinstance(value, list) else []


def moment(value: object) -> float | None:
    """An ISO time in seconds since the epoch."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def readings(value: object) -> tuple[DetectorHeat, ...]:
    """What the detectors held, in the order of the record."""
    return tuple(
        DetectorHeat(
            text(each.get("kind"), 60), _heat(each.get("heat")), text(each.get("reason"), 1000)
        )
        for each in map(mapping, items(value))
        if each
    )


def done(facts: Mapping[str, Any], place: int) -> Done:
    """One iteration; `place` is its number where it does not say one."""
    count = whole(facts.get("number"))
    return Done(
        number=place if count is None else count,
        outcome=text(facts.get("outcome"), 40) or "not known",
        seconds=max(number(facts.get("seconds")) or 0.0, 0.0),
        began_s=moment(facts.get("started_at")),
        phase=text(facts.get("phase"), 40),
        heat=_heat(facts.get("heat")),
        readings=readings(facts.get("readings")),
        cost_micros=_cost(facts),
        tests_passing=whole(facts.get("tests_passing")),
        output_chars=whole(facts.get("output_chars")),
        files_changed=whole(facts.get("files_changed")),
        steps=whole(facts.get("steps")),
        error=text(facts.get("error")),
        nudge=text(facts.get("nudge")),
        would_stop=facts.get("would_stop") is True,
        raw=facts,
    )


def _cost(facts: Mapping[str, Any]) -> int | None:
    """What never reached its provider cost nothing, and nothing unknown."""
    tokens = mapping(facts.get("tokens"))
    if facts.get("outcome") == "provider" and not any(whole(each) for each in tokens.values()):
        return whole(facts.get("cost_micros")) or 0
    return whole(facts.get("cost_micros"))


def _heat(value: object) -> float:
    found = number(value)
    return 0.0 if found is None or math.isnan(found) else min(max(found, 0.0), 9.99)
