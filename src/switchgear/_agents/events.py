"""The events of an agent's run, in the same form for all agents.

Every reader converts its agent's stream to these values, so that the evaluation of a run does not depend on the
agent. Texts are redacted, contain no control characters and have a limited length.
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from switchgear._providers.table import MESSAGES, PHRASES, ProviderErrorKind, kind_of_message
from switchgear._text.agent_text import LONGEST_ERROR, clean

ErrorKind = Literal[
    "rate_limit",  # a request to wait is not evidence against the agent
    "quota",  # the account's credit is used up; waiting does not help soon
    "overloaded",  # 503, 529
    "server",  # other 5xx
    "connection",  # refused, reset, no such host, timed out
    "auth",  # 401, 403, a missing or wrong key
    "context",  # the conversation no longer fits the model
    "loop",  # the agent's own loop guard stopped it
    "limit",  # the agent's own limit of turns or cost
    "other",
]
OUTAGE: frozenset[ErrorKind] = frozenset({"overloaded", "server", "connection"})
"""The provider cannot be reached or does not work."""
LIMITED: frozenset[ErrorKind] = frozenset({"rate_limit", "quota"})
"""The provider works, but requires a wait."""


class ToolStarted(NamedTuple):
    """A tool call has started; for live views. One `ToolStep` follows each."""

    tool: str
    arguments: str
    call_key: str
    agent: str = ""
    """The sub-agent that called it; empty: the agent itself."""


class ToolStep(NamedTuple):
    """One tool call with its result; exactly one per call."""

    tool: str
    arguments: str
    """A summary: the command, the path, or the start of the arguments."""
    ok: bool | None
    """`None`: the stream ended before the result."""
    error: str | None
    files_changed: tuple[str, ...] = ()
    """The files that this step changed, as the agent reports it; the run measures it as well."""
    call_key: str = ""
    """A digest of tool and all arguments: equal for literally repeated calls."""
    output_chars: int = 0
    silent: bool = False
    """Whether it failed without an error message of its own; `error` then names the call."""
    output_key: str = ""
    """A digest of the output: equal for equal outputs."""
    output: str = ""
    agent: str = ""
    """The sub-agent that called it; empty: the agent itself."""


class TextOutput(NamedTuple):
    text: str
    agent: str = ""
    """The sub-agent that wrote it; empty: the agent itself."""


class Usage(NamedTuple):
    """Tokens and cost of one model since the process started: a running total.

    The latest value of each model counts; `total_usage` adds the models up.
    """

    model: str | None
    input_tokens: int
    """All input, including tokens read from and written to the cache."""
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_micros: int | None = None
    """The cost that the agent reports, in millionths of a dollar; `None`: not reported."""
    estimated: bool = False
    """Whether the output tokens are estimated, because the agent has not reported them yet."""


class AgentError(NamedTuple):
    """An error of a provider, or of the agent itself."""

    kind: ErrorKind
    text: str
    status: int | None = None
    retry_after_s: float | None = None
    final: bool = False
    """Whether the agent gave up; otherwise it continues or tries again."""


class Question(NamedTuple):
    text: str
    by_tool: bool
    """Whether it was asked with a tool for questions; otherwise the agent's last text ends with a question mark."""


class AgentResult(NamedTuple):
    """The agent's own report about its run, which may be wrong."""

    text: str
    claimed_success: bool | None
    reason: str | None = None
    """Why it ended, in the agent's words: completed, max_turns, hook_stopped…"""


StreamEvent = ToolStarted | ToolStep | TextOutput | Usage | AgentError | Question | AgentResult


def total_usage(usages: Iterable[Usage]) -> Usage:
    """The sum over all models. The cost is `None` if that of any model is.

    >>> total_usage([Usage("a", 10, 1, cost_micros=5), Usage("b", 20, 2, cost_micros=7)])[1:6]
    (30, 3, 0, 0, 12)
    """
    models = tuple(usages)
    costs = [usage.cost_micros for usage in models]
    known = [cost for cost in costs if cost is not None]
    return Usage(
        model=models[0].model if len(models) == 1 else None,
        input_tokens=sum(usage.input_tokens for usage in models),
        output_tokens=sum(usage.output_tokens for usage in models),
        cache_read_tokens=sum(usage.cache_read_tokens for usage in models),
        cache_write_tokens=sum(usage.cache_write_tokens for usage in models),
        cost_micros=sum(known) if costs and len(known) == len(costs) else None,
        estimated=any(usage.estimated for usage in models),
    )


_MAX_EXAMINED_CHARS = 4_000
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
"""Messages of an agent that stops itself; they are checked before those of providers."""
_KINDS: dict[ProviderErrorKind, ErrorKind] = {
    ProviderErrorKind.RATE_LIMIT: "rate_limit",
    ProviderErrorKind.QUOTA: "quota",
    ProviderErrorKind.OVERLOAD: "overloaded",
    ProviderErrorKind.OUTAGE: "connection",
    ProviderErrorKind.TIMEOUT: "connection",
    ProviderErrorKind.AUTH: "auth",
    ProviderErrorKind.CONTEXT_LENGTH: "context",
}
"""The kinds of `_providers/table.py` in the form that runs store; all others are `other`: an invalid request."""
_SERVER_ERRORS = ("internal server error", "bad gateway", "internal_error", "api_error")
_ERROR_PHRASES = tuple(
    phrase for _, phrases in (*PHRASES, *MESSAGES, *_OWN_STOPS) for phrase in phrases
)
_FAILURE_PATTERNS = (
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
_FAILED_COMMAND = re.compile("|".join(_FAILURE_PATTERNS), re.MULTILINE)
_UNITS = {"m": 60.0, "h": 3600.0}


def error_from_text(
    text: str, *, status: int | None = None, retry_after_s: float | None = None, final: bool = False
) -> AgentError:
    """The error that a text reports. The status and the wait are parsed from the text unless they are given.

    >>> error_from_text("unexpected status 529: Overloaded").kind
    'overloaded'
    >>> error_from_text("429 Too Many Requests, retry after 20 s").retry_after_s
    20.0
    """
    seen = text[:_MAX_EXAMINED_CHARS]
    if status is None and (match := _STATUS.search(seen)):
        status = int(match[1] or match[2])
    delay_s = _retry_after(seen) if retry_after_s is None else retry_after_s
    kind = _kind(seen.lower(), status, delay_s)
    if kind in {"rate_limit", "quota", "overloaded"}:
        retry_after_s = delay_s
    return AgentError(kind, clean(text, LONGEST_ERROR), status, retry_after_s, final)


def recognised_error(text: str) -> AgentError | None:
    """The error that a text reports; `None` if it is not recognised as an error of a provider."""
    seen = text[:_MAX_EXAMINED_CHARS].lower()
    if not any(mark in seen for mark in (*_ERROR_PHRASES, "status", "error", "resource_exhausted")):
        return None
    found = error_from_text(text)
    return None if found.kind == "other" else found


def looks_failed(output: str) -> bool:
    """Whether a command's output looks like a failure, for agents that do not report the exit code.

    >>> looks_failed("cat: a.toml: No such file or directory"), looks_failed("3 passed")
    (True, False)
    """
    return _FAILED_COMMAND.search(output[-_MAX_EXAMINED_CHARS:]) is not None


def _kind(text: str, status: int | None, delay_s: float | None) -> ErrorKind:
    for own, phrases in _OWN_STOPS:
        if any(phrase in text for phrase in phrases):
            return own
    kind = kind_of_message(text, status, delay_s)
    if kind is None:
        return "other"
    if kind is ProviderErrorKind.OUTAGE and (
        status is not None or any(phrase in text for phrase in _SERVER_ERRORS)
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
