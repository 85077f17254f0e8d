"""The wait that a response of a model provider requests. Pure: the time is an argument.

In order of precedence: `Retry-After-Ms`, `Retry-After` (seconds or an HTTP date), then the rate limits that
are used up: `anthropic-ratelimit-*` (RFC 3339) and `x-ratelimit-*` (`6m0s`, `250ms`, seconds, or a time since
the epoch). If several limits are used up, the last to be renewed counts.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

LIMITED_STATUSES = frozenset((429, 503, 529))
"""Statuses whose rate-limit headers contain the retry time."""
LONGEST_WAIT_S = 31 * 86_400.0
"""Maximum wait in seconds; a longer one is a time stamp or a mistake, and ignored."""
_MOST_HEADERS = 200
_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6}
_PART = r"(\d+(?:\.\d+)?)(ms|us|µs|d|h|m|s)"
_PARTS = re.compile(_PART)
_DURATION = re.compile(f"(?:{_PART})+")
_EPOCH_S, _EPOCH_MS = 1e9, 1e12


def wait_s(status: int, headers: Mapping[str, str] | None, now_s: float) -> float | None:
    """Seconds to wait before the next request; `None`: the response requests no wait. Never raises.

    `now_s` is the time since the epoch in seconds.

    >>> wait_s(429, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 0.0)
    360.0
    """
    found = _lower(headers)
    milliseconds = _number(found.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _wait(milliseconds / 1000.0)
    requested_s = _retry_after_s(found.get("retry-after", ""), now_s)
    if requested_s is not None:
        return requested_s
    if status not in LIMITED_STATUSES:
        return None
    resets = list(_resets(found, now_s))
    used_up = [seconds for is_used_up, seconds in resets if is_used_up]
    if used_up:
        return max(used_up)
    # If no limit reports what remains, the first to be renewed is the best guess.
    return min((seconds for is_used_up, seconds in resets if is_used_up is None), default=None)


def _lower(headers: Mapping[Any, Any] | None) -> dict[str, str]:
    """The headers with names in lower case; of headers with the same name, the first."""
    found: dict[str, str] = {}
    for name, value in list((headers or {}).items())[:_MOST_HEADERS]:
        if isinstance(name, str) and isinstance(value, str):
            found.setdefault(name.lower(), value)
    return found


def _retry_after_s(text: str, now_s: float) -> float | None:
    number = _number(text)
    if number is not None:
        return _wait(number)
    try:
        at = parsedate_to_datetime(text)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return _wait(at.timestamp() - now_s)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _resets(headers: Mapping[str, str], now_s: float) -> Iterator[tuple[bool | None, float]]:
    """Each limit: whether it is used up (`None`: unknown), and the seconds until it is renewed."""
    for name, value in headers.items():
        if "ratelimit" not in name:
            continue
        if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            limit = name.removesuffix("-reset")
            left, status = headers.get(f"{limit}-remaining"), headers.get(f"{limit}-status")
            used_up = _is_used_up(left) if status is None else status.strip() == "rejected"
        elif name.startswith(("x-ratelimit-reset", "ratelimit-reset")):
            used_up = _is_used_up(headers.get(name.replace("-reset", "-remaining", 1)))
        else:
            continue
        seconds = _until_s(value, now_s)
        if seconds is not None:
            yield used_up, seconds


def _is_used_up(remaining: str | None) -> bool | None:
    if remaining is None:
        return None
    left = _number(remaining)
    return None if left is None else left <= 0


def _until_s(text: str, now_s: float) -> float | None:
    """Seconds until a reset: a duration, seconds, a time since the epoch, or RFC 3339."""
    text = text.strip()[:100]
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_MS:
            number = number / 1000.0 - now_s
        elif number >= _EPOCH_S:
            number -= now_s
        return _wait(number)
    if _DURATION.fullmatch(text):
        return _wait(sum(float(part) * _UNITS_S[unit] for part, unit in _PARTS.findall(text)))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return _wait(at.timestamp() - now_s)


def _number(text: str) -> float | None:
    try:
        number = float(text.strip()[:100])
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _wait(seconds: float) -> float | None:
    return seconds if 0 < seconds <= LONGEST_WAIT_S else None
