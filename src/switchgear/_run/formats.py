"""Formats the facts of a run as text: tests, cost, times. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from switchgear._text.formats import dollars, elapsed, plural

UNKNOWN = "unknown"


def passing(passed: int, total: int | None = None) -> str:
    """How many tests pass.

    >>> passing(2, 3), passing(1), passing(0), passing(1, 1)
    ('2 of 3 tests pass', '1 test passes', '0 tests pass', '1 of 1 test passes')
    """
    verb = "passes" if passed == 1 else "pass"
    if total is None or total < passed:
        return f"{plural(passed, 'test')} {verb}"
    return f"{passed:,} of {plural(total, 'test')} {verb}"


def spent(micros: int, unknown: int = 0) -> str:
    """The amount spent; `unknown` is the number of iterations without a known cost.

    >>> spent(1_200_000), spent(0, 2), spent(50_000, 1)
    ('$1.20', 'unknown cost', 'at least $0.05 (cost of 1 iteration unknown)')
    """
    if not unknown:
        return dollars(micros)
    if not micros:
        return f"{UNKNOWN} cost"
    return f"at least {dollars(micros)} (cost of {plural(unknown, 'iteration')} {UNKNOWN})"


def spend(micros: int, unknown: int = 0) -> str:
    """The amount spent, for a column of a table.

    >>> spend(1_200_000), spend(0, 2), spend(50_000, 1)
    ('$1.20', 'unknown', 'over $0.05')
    """
    if not unknown:
        return dollars(micros)
    return f"over {dollars(micros)}" if micros else UNKNOWN


def iteration(facts: Mapping[str, Any]) -> list[str]:
    """The measurements of an iteration as texts; `facts` is its line of iterations.jsonl.

    >>> iteration({"outcome": "worked", "seconds": 4.2, "files_changed": 1, "cost_micros": None})
    ['worked in 4.2 s', '1 file changed', 'unknown cost']
    """
    seconds, files, passed = (
        facts.get(key) for key in ("seconds", "files_changed", "tests_passing")
    )
    took = f" in {elapsed(seconds)}" if isinstance(seconds, int | float) else ""
    outcome = "provider failed" if facts.get("outcome") == "provider" else facts.get("outcome")
    parts = [f"{outcome}{took}"]
    if isinstance(files, int):
        parts.append(f"{plural(files, 'file')} changed")
    if isinstance(passed, int):
        parts.append(passing(passed, tests_total(facts)))
    cost = facts.get("cost_micros")
    tokens = facts.get("tokens")
    used = any(tokens.values()) if isinstance(tokens, dict) else True
    if facts.get("outcome") == "provider" and not used:
        cost = cost or 0  # a call that never reached its provider cost nothing
    if cost != 0:
        parts.append(price(cost))
    return parts


def tests_total(facts: Mapping[str, Any]) -> int | None:
    """How many tests an iteration's validation ran; `None`: unknown."""
    validation = facts.get("validation")
    if not isinstance(validation, Mapping):
        return None
    passed, failed = validation.get("passed"), validation.get("failed")
    return passed + failed if isinstance(passed, int) and isinstance(failed, int) else None


def price(micros: int | None) -> str:
    """What an iteration cost.

    >>> price(None), price(4_000)
    ('unknown cost', '$0.004')
    """
    return f"{UNKNOWN} cost" if micros is None else dollars(micros)


def local_time(at_s: float) -> str:
    """`2026-11-16 03:12:44`, in the time zone of the machine."""
    try:
        at = datetime.fromtimestamp(at_s, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return f"second {at_s:.0f}"
    return at.strftime("%Y-%m-%d %H:%M:%S")


def iso(at_s: float) -> str:
    """UTC in ISO 8601 with milliseconds."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
