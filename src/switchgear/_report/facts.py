"""The facts of a run that the pages show, checked, and the wording for them.

A record may come from another version, be cut off, or have been edited by its agent. Values of a wrong
type become `None` or empty, which the report shows as unknown.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from switchgear._run.formats import price
from switchgear._text.formats import elapsed, plural

TONES = {
    "worked": "good",
    "completed": "best",
    "failed": "bad",
    "unproven": "warn",
    "no change": "idle",
    "provider": "away",
    "stuck": "warn",
    "blocked": "asks",
    "stopped": "cut",
}
"""The outcomes of an iteration and their colours, as classes of the style sheet."""
PHASES = {"closed": "good", "tripping": "warn", "half_open": "warn", "open": "bad"}
ENDS = {
    "completed": "best",
    "circuit_breaker": "bad",
    "agent_error": "bad",
    "blocked": "asks",
    "interrupted": "cut",
}
UNKNOWN = "-"
KINDS = {
    "consecutive_failures": "failures in a row",
    "same_error": "same error",
    "no_progress": "no progress",
    "output_decline": "output decline",
}


def tone(outcome: str) -> str:
    return TONES.get(outcome, "idle")


def kind_name(kind: str) -> str:
    return KINDS.get(kind, kind.replace("_", " "))


def phase_name(phase: str) -> str:
    return phase.replace("_", "-") or "unknown"


money = price


def short_money(micros: int) -> str:
    """A cost in few digits, for the axis of a chart.

    >>> short_money(3_865_331), short_money(63_000), short_money(420)
    ('$3.87', '$0.063', '$0.00042')
    """
    if micros < 100:
        return money(micros)
    amount = micros / 1_000_000
    return f"${amount:,.2f}" if micros >= 1_000_000 else f"${amount:.2g}"


def count(number: int | None, noun: str) -> str:
    """`2 files`; a dash if it was not measured."""
    return UNKNOWN if number is None else plural(number, noun)


def span(seconds: float | None) -> str:
    """A time; a dash if it was not measured."""
    return UNKNOWN if seconds is None else elapsed(max(seconds, 0.0))


_LARGEST = 1e15
"""Larger numbers are not measurements."""


class DetectorHeat(NamedTuple):
    kind: str
    heat: float
    reason: str


class Done(NamedTuple):
    """One iteration; `None`: not measured."""

    number: int
    outcome: str = ""
    seconds: float = 0.0
    began_s: float | None = None
    phase: str = ""
    heat: float = 0.0
    readings: tuple[DetectorHeat, ...] = ()
    cost_micros: int | None = None
    tests_passing: int | None = None
    output_chars: int | None = None
    files_changed: int | None = None
    steps: int | None = None
    error: str = ""
    nudge: str = ""
    would_stop: bool = False
    raw: Mapping[str, Any] = {}
    """The recorded facts, unchecked: read them with the functions below."""


def text(value: object, longest: int = 4000) -> str:
    """The value if it is a string, else its `repr`; cut to `longest` characters."""
    if value is None:
        return ""
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def whole(value: object) -> int | None:
    found = number(value)
    return None if found is None or math.isnan(found) else int(found)


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value if it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def moment(value: object) -> float | None:
    """An ISO time in seconds since the epoch."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def readings(value: object) -> tuple[DetectorHeat, ...]:
    return tuple(
        DetectorHeat(
            text(each.get("kind"), 60), _heat(each.get("heat")), text(each.get("reason"), 1000)
        )
        for each in map(mapping, items(value))
        if each
    )


def done(facts: Mapping[str, Any], place: int) -> Done:
    """One iteration; `place` is its number if it has none."""
    count = whole(facts.get("number"))
    return Done(
        number=place if count is None else count,
        outcome=text(facts.get("outcome"), 40) or "unknown",
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
    """The cost; 0 for an iteration that never reached its provider."""
    tokens = mapping(facts.get("tokens"))
    if facts.get("outcome") == "provider" and not any(whole(each) for each in tokens.values()):
        return whole(facts.get("cost_micros")) or 0
    return whole(facts.get("cost_micros"))


def _heat(value: object) -> float:
    found = number(value)
    return 0.0 if found is None or math.isnan(found) else min(max(found, 0.0), 9.99)
