"""What an error text of a provider or an agent means: wait, log in, give up, or none of these.

Agents wrap the same few provider errors in their own words. The status number decides where one
is said; else a few phrases do. All patterns are bounded, so hostile text costs no more than other.
"""

import re

from switchgear._agents.events import AgentError, ErrorKind
from switchgear._text.agent_text import LONGEST_ERROR, clean

_LOOKED_AT = 4_000
_STATUS = re.compile(
    r"(?i)(?:status(?:[ _]?code)?|http|api error|error(?: code)?|code)[\"']?[:= ]{0,3}\(?([45]\d\d)\b"
    r"|\b(429|529|503|502|401)\b"
)
_RETRY_AFTER = re.compile(
    r"(?i)(?:retry[-_ ]?after|retry(?:ing)? (?:again )?in|try again in|retrydelay|reset(?:s)? in)"
    r"[\"']?[:= ]{0,3}[\"']?(\d{1,7}(?:\.\d{1,6})?) ?(ms|milliseconds?|s\b|sec|m\b|min|h\b|hour)?"
)
_BY_STATUS: dict[int, ErrorKind] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "connection",
    413: "context",
    429: "rate_limit",
    503: "overloaded",
    529: "overloaded",
}
_PHRASES: tuple[tuple[ErrorKind, tuple[str, ...]], ...] = (
    (
        "quota",
        ("insufficient_quota", "credit balance", "exceeded your current quota", "billing"),
    ),
    ("loop", ("loop detect", "repeated the same tool call", "doom loop")),
    ("limit", ("maximum number of turns", "max turns", "max session turns", "limitsexceeded")),
    (
        "context",
        ("context length", "context window", "prompt is too long", "maximum context", "too many tokens"),
    ),
    (
        "rate_limit",
        ("rate limit", "rate_limit", "ratelimit", "too many requests", "resource_exhausted", "usage limit"),
    ),
    ("overloaded", ("overloaded", "service unavailable", "at capacity", "high demand")),
    (
        "auth",
        (
            *("invalid api key", "invalid x-api-key", "incorrect api key", "api key not valid"),
            *("authentication", "unauthorized", "not logged in", "please run /login", "no api key"),
            *("api_key environment variable", "auth method"),
        ),
    ),
    (
        "connection",
        (
            *("econnrefused", "econnreset", "enotfound", "etimedout", "eai_again", "fetch failed"),
            *("connection refused", "connection reset", "connection failed", "connection error", "connect error"),
            *("connecterror", "unable to connect", "cannot connect", "could not connect"),
            *("network error", "stream disconnected", "error sending request", "socket hang up"),
        ),
    ),
    ("server", ("internal server error", "bad gateway", "internal_error", "api_error")),
)  # fmt: skip
_FAILURES = (
    r": (?:command )?not found$",
    r": No such file or directory",
    r": Permission denied",
    r"^Traceback \(most recent call last\):$",
    r"^\w{1,60}(?:Error|Exception): ",
    r"^(?:fatal|error|Error|ERROR|npm ERR!|npm error|panic|Blocked):? ",
    r"^error\[E\d{4}\]: ",
    r"^make(?:\[\d\])?: \*\*\* ",
    r"^(?:FAIL|FAILED|--- FAIL:) ",
    r" FAILED$",
    r"^Tests:.{0,80} failed",
    r"^=* ?\d{1,9} failed",
)
_FAILED_COMMAND = re.compile("|".join(_FAILURES), re.MULTILINE)
_UNITS = {"m": 60.0, "h": 3600.0}


def complaint(
    text: str,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
    final: bool = False,
) -> AgentError:
    """The text as an error; what it means is read from it where it is not given.

    >>> complaint("unexpected status 529: Overloaded").kind
    'overloaded'
    >>> complaint("429 Too Many Requests, retry after 20 s").retry_after_s
    20.0
    """
    seen = text[:_LOOKED_AT]
    if status is None and (match := _STATUS.search(seen)):
        status = int(match[1] or match[2])
    kind = _kind(seen.lower(), status)
    if retry_after_s is None and kind in {"rate_limit", "quota", "overloaded"}:
        retry_after_s = _retry_after(seen)
    return AgentError(kind, clean(text, LONGEST_ERROR), status, retry_after_s, final)


def known_complaint(text: str) -> AgentError | None:
    """The same, but None where the text is not recognisably an error of a provider."""
    seen = text[:_LOOKED_AT].lower()
    if not any(phrase in seen for _, phrases in _PHRASES for phrase in phrases) and (
        "status" not in seen and "error" not in seen
    ):
        return None
    found = complaint(text)
    return None if found.kind == "other" else found


def looks_failed(output: str) -> bool:
    """Whether a command's output reads like a failure, for agents that hide the exit code.

    >>> looks_failed("cat: a.toml: No such file or directory"), looks_failed("3 passed")
    (True, False)
    """
    return _FAILED_COMMAND.search(output[-_LOOKED_AT:]) is not None


def _kind(text: str, status: int | None) -> ErrorKind:
    for kind, phrases in _PHRASES[:3]:  # these say more than the status they come with
        if any(phrase in text for phrase in phrases):
            return kind
    if status is not None and (kind_of_status := _BY_STATUS.get(status)):
        return kind_of_status
    for kind, phrases in _PHRASES[3:]:
        if any(phrase in text for phrase in phrases):
            return kind
    return "server" if status is not None and status >= 500 else "other"


def _retry_after(text: str) -> float | None:
    match = _RETRY_AFTER.search(text)
    if match is None:
        return None
    unit = (match[2] or "s").lower()
    if unit.startswith(("ms", "milli")):
        return float(match[1]) / 1000
    return float(match[1]) * _UNITS.get(unit[0], 1.0)
