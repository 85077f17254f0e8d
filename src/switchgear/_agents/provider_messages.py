"""Error messages that agents print, classified by the table of provider errors.

Adds what only agents report: their own loop guards and limits. All patterns are bounded, so hostile
text costs no more than other text.
"""

import re

from switchgear._agents.events import AgentError, ErrorKind
from switchgear._providers.table import MESSAGES, PHRASES, ProviderErrorKind, kind_of_message
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
_OWN_STOPS: tuple[tuple[ErrorKind, tuple[str, ...]], ...] = (
    ("loop", ("loop detect", "repeated the same tool call", "doom loop")),
    ("limit", ("maximum number of turns", "max turns", "max session turns", "limitsexceeded")),
)
"""The agent stopped itself: the provider's part in the message does not matter then."""
_KINDS: dict[ProviderErrorKind, ErrorKind] = {
    ProviderErrorKind.RATE_LIMIT: "rate_limit",
    ProviderErrorKind.QUOTA: "quota",
    ProviderErrorKind.OVERLOAD: "overloaded",
    ProviderErrorKind.OUTAGE: "connection",
    ProviderErrorKind.TIMEOUT: "connection",
    ProviderErrorKind.AUTH: "auth",
    ProviderErrorKind.CONTEXT_LENGTH: "context",
}
"""The kinds of `_providers/table.py` as runs store them; the rest is `other`: the request was wrong."""
_SERVER = ("internal server error", "bad gateway", "internal_error", "api_error")
_MARKS = tuple(phrase for _, phrases in (*PHRASES, *MESSAGES, *_OWN_STOPS) for phrase in phrases)
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
    delay_s = _retry_after(seen) if retry_after_s is None else retry_after_s
    kind = _kind(seen.lower(), status, delay_s)
    if kind in {"rate_limit", "quota", "overloaded"}:
        retry_after_s = delay_s
    return AgentError(kind, clean(text, LONGEST_ERROR), status, retry_after_s, final)


def known_complaint(text: str) -> AgentError | None:
    """The same, but None where the text is not recognisably an error of a provider."""
    seen = text[:_LOOKED_AT].lower()
    if not any(mark in seen for mark in (*_MARKS, "status", "error", "resource_exhausted")):
        return None
    found = complaint(text)
    return None if found.kind == "other" else found


def looks_failed(output: str) -> bool:
    """Whether a command's output reads like a failure, for agents that hide the exit code.

    >>> looks_failed("cat: a.toml: No such file or directory"), looks_failed("3 passed")
    (True, False)
    """
    return _FAILED_COMMAND.search(output[-_LOOKED_AT:]) is not None


def _kind(text: str, status: int | None, delay_s: float | None) -> ErrorKind:
    for own, phrases in _OWN_STOPS:
        if any(phrase in text for phrase in phrases):
            return own
    kind = kind_of_message(text, status, delay_s)
    if kind is None:
        return "other"
    if kind is ProviderErrorKind.OUTAGE and (
        status is not None or any(phrase in text for phrase in _SERVER)
    ):
        return "server"
    return _KINDS.get(kind, "other")


def _retry_after(text: str) -> float | None:
    match = _RETRY_AFTER.search(text)
    if match is None:
        return None
    unit = (match[2] or "s").lower()
    if unit.startswith(("ms", "milli")):
        return float(match[1]) / 1000
    return float(match[1]) * _UNITS.get(unit[0], 1.0)
