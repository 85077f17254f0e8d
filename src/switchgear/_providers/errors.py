"""SDK exceptions and HTTP responses of model providers, in one table.

Reads the exceptions of the SDKs (Anthropic, OpenAI, Google, and those with the same shape) by their
attributes, not by their types: no SDK is imported.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from switchgear._breaker.signals import describe, is_no_evidence, retry_after_s
from switchgear._core.errors import CAUSE, is_interrupt
from switchgear._core.types import Signal
from switchgear._text.redact import redact


class ProviderErrorKind(StrEnum):
    """What kind of error of a provider it is."""

    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"
    OUTAGE = "outage"
    TIMEOUT = "timeout"
    AUTH = "auth"
    """The key or its permissions: a person must change something."""
    QUOTA = "quota"
    """The account's money or allowance is used up."""
    CONTEXT_LENGTH = "context_length"
    CONTENT_POLICY = "content_policy"
    """Refused because of its content."""
    BAD_REQUEST = "bad_request"


PROVIDER_FAILURES = frozenset(
    (
        ProviderErrorKind.RATE_LIMIT,
        ProviderErrorKind.OVERLOAD,
        ProviderErrorKind.OUTAGE,
        ProviderErrorKind.TIMEOUT,
    )
)
"""Count against the circuit of the provider; all others concern the request or the account."""
AGENT_FAILURES = frozenset(
    (
        ProviderErrorKind.CONTEXT_LENGTH,
        ProviderErrorKind.CONTENT_POLICY,
        ProviderErrorKind.BAD_REQUEST,
    )
)
"""Count against the circuit of the agent that made the request."""
NO_FAILOVER = frozenset(
    (ProviderErrorKind.AUTH, ProviderErrorKind.CONTENT_POLICY, ProviderErrorKind.BAD_REQUEST)
)
"""Are raised at once: another provider would hide them, or refuse the request as well."""
NOT_STARTED = frozenset(
    (
        ProviderErrorKind.RATE_LIMIT,
        ProviderErrorKind.OVERLOAD,
        ProviderErrorKind.AUTH,
        ProviderErrorKind.QUOTA,
    )
)
"""A provider responds with these before it starts work. The others may be billed."""

CODES: dict[str, ProviderErrorKind] = {
    # Anthropic
    "authentication_error": ProviderErrorKind.AUTH,
    "permission_error": ProviderErrorKind.AUTH,
    "billing_error": ProviderErrorKind.QUOTA,
    "request_too_large": ProviderErrorKind.CONTEXT_LENGTH,
    "rate_limit_error": ProviderErrorKind.RATE_LIMIT,
    "api_error": ProviderErrorKind.OUTAGE,
    "overloaded_error": ProviderErrorKind.OVERLOAD,
    "timeout_error": ProviderErrorKind.TIMEOUT,
    # OpenAI and Azure
    "invalid_api_key": ProviderErrorKind.AUTH,
    "account_deactivated": ProviderErrorKind.AUTH,
    "insufficient_quota": ProviderErrorKind.QUOTA,
    "billing_hard_limit_reached": ProviderErrorKind.QUOTA,
    "billing_not_active": ProviderErrorKind.QUOTA,
    "context_length_exceeded": ProviderErrorKind.CONTEXT_LENGTH,
    "string_above_max_length": ProviderErrorKind.CONTEXT_LENGTH,
    "content_filter": ProviderErrorKind.CONTENT_POLICY,
    "content_policy_violation": ProviderErrorKind.CONTENT_POLICY,
    "moderation_blocked": ProviderErrorKind.CONTENT_POLICY,
    "responsibleaipolicyviolation": ProviderErrorKind.CONTENT_POLICY,
    "rate_limit_exceeded": ProviderErrorKind.RATE_LIMIT,
    "slow_down": ProviderErrorKind.OVERLOAD,
    "server_overloaded": ProviderErrorKind.OVERLOAD,
    "server_error": ProviderErrorKind.OUTAGE,
    # Google
    "unauthenticated": ProviderErrorKind.AUTH,
    "permission_denied": ProviderErrorKind.AUTH,
    "api_key_invalid": ProviderErrorKind.AUTH,
    "prohibited_content": ProviderErrorKind.CONTENT_POLICY,
    "unavailable": ProviderErrorKind.OVERLOAD,
    "internal": ProviderErrorKind.OUTAGE,
    "deadline_exceeded": ProviderErrorKind.TIMEOUT,
    # AWS
    "accessdeniedexception": ProviderErrorKind.AUTH,
    "servicequotaexceededexception": ProviderErrorKind.QUOTA,
    "throttlingexception": ProviderErrorKind.RATE_LIMIT,
    "serviceunavailableexception": ProviderErrorKind.OVERLOAD,
    "internalserverexception": ProviderErrorKind.OUTAGE,
    "modeltimeoutexception": ProviderErrorKind.TIMEOUT,
}
"""Codes and types in the body of an error. `resource_exhausted` depends on the rest of the body."""

PHRASES: tuple[tuple[ProviderErrorKind, tuple[str, ...]], ...] = (
    (
        ProviderErrorKind.QUOTA,
        ("credit balance", "exceeded your current quota", "check your plan and billing"),
    ),
    (
        ProviderErrorKind.CONTEXT_LENGTH,
        (
            *("prompt is too long", "maximum context", "context window", "context length"),
            *("input token count", "maximum number of tokens", "input is too long"),
        ),
    ),
    (
        ProviderErrorKind.CONTENT_POLICY,
        (
            *("content filtering policy", "content management policy", "safety system"),
            *("content policy", "usage policies", "flagged as potentially violating"),
        ),
    ),
    (
        ProviderErrorKind.AUTH,
        ("api key not valid", "api key expired", "invalid api key", "invalid x-api-key"),
    ),
)
"""What a message means where its status has several meanings."""
AMBIGUOUS = frozenset((400, 403, 413, 422, 429, None))
"""Statuses with several meanings; `None`: no status."""

STATUSES: dict[int, ProviderErrorKind] = {
    401: ProviderErrorKind.AUTH,
    402: ProviderErrorKind.QUOTA,
    403: ProviderErrorKind.AUTH,
    404: ProviderErrorKind.BAD_REQUEST,
    407: ProviderErrorKind.AUTH,
    408: ProviderErrorKind.TIMEOUT,
    413: ProviderErrorKind.CONTEXT_LENGTH,
    425: ProviderErrorKind.OVERLOAD,
    429: ProviderErrorKind.RATE_LIMIT,
    503: ProviderErrorKind.OVERLOAD,
    504: ProviderErrorKind.TIMEOUT,
    529: ProviderErrorKind.OVERLOAD,
}
"""All others are an outage from 500 on, and a bad request below."""

EXCEPTIONS: dict[str, ProviderErrorKind] = {
    "ContentFilterFinishReasonError": ProviderErrorKind.CONTENT_POLICY,
    "ContentPolicyViolationError": ProviderErrorKind.CONTENT_POLICY,
    "BlockedPromptException": ProviderErrorKind.CONTENT_POLICY,
    "LengthFinishReasonError": ProviderErrorKind.CONTEXT_LENGTH,
    "ContextWindowExceededError": ProviderErrorKind.CONTEXT_LENGTH,
}
"""Exceptions that are more specific than their status, by type name."""

NO_RESPONSE: dict[str, ProviderErrorKind] = {
    # Timeouts first: to some they are connection errors too.
    "APITimeoutError": ProviderErrorKind.TIMEOUT,
    "TimeoutException": ProviderErrorKind.TIMEOUT,
    "Timeout": ProviderErrorKind.TIMEOUT,
    "TimeoutError": ProviderErrorKind.TIMEOUT,
    "APIConnectionError": ProviderErrorKind.OUTAGE,
    "TransportError": ProviderErrorKind.OUTAGE,
    "ClientConnectionError": ProviderErrorKind.OUTAGE,
    "ConnectionError": ProviderErrorKind.OUTAGE,
    "URLError": ProviderErrorKind.OUTAGE,
    "gaierror": ProviderErrorKind.OUTAGE,
}
"""Exceptions without a response, by the names of their types and base classes. One with a status
had a response: `urllib` derives those from `URLError`."""


MESSAGES: tuple[tuple[ProviderErrorKind, tuple[str, ...]], ...] = (
    (ProviderErrorKind.QUOTA, ("billing",)),
    (ProviderErrorKind.CONTEXT_LENGTH, ("too many tokens",)),
    (
        ProviderErrorKind.RATE_LIMIT,
        (*("rate limit", "rate_limit", "ratelimit", "too many requests", "usage limit"),),
    ),
    (
        ProviderErrorKind.OVERLOAD,
        ("overloaded", "service unavailable", "at capacity", "high demand"),
    ),
    (
        ProviderErrorKind.AUTH,
        (
            *("incorrect api key", "authentication", "unauthorized", "not logged in"),
            *("please run /login", "no api key", "api_key environment variable", "auth method"),
        ),
    ),
    (ProviderErrorKind.TIMEOUT, ("etimedout",)),
    (
        ProviderErrorKind.OUTAGE,
        (
            *("econnrefused", "econnreset", "enotfound", "eai_again", "fetch failed"),
            *("connection refused", "connection reset", "connection failed", "connection error"),
            *("connect error", "connecterror", "unable to connect", "cannot connect"),
            *("could not connect", "network error", "stream disconnected", "error sending request"),
            *(
                "socket hang up",
                "internal server error",
                "bad gateway",
                "internal_error",
                "api_error",
            ),
        ),
    ),
)
"""What a message of a program means that states no status. Too loose for a message that has one."""
_GENERIC = ("api_error", "server_error", "permission_denied", "slow_down", "content_filter")
_WRITTEN_CODES = re.compile(
    "|".join(
        code for code in (*CODES, "resource_exhausted") if "_" in code and code not in _GENERIC
    )
)
"""Codes that are unmistakable within a text; other programs print the generic ones too."""
_PRECEDENCE = (
    *(
        ProviderErrorKind.QUOTA,
        ProviderErrorKind.CONTENT_POLICY,
        ProviderErrorKind.CONTEXT_LENGTH,
        ProviderErrorKind.AUTH,
    ),
    *(
        ProviderErrorKind.RATE_LIMIT,
        ProviderErrorKind.OVERLOAD,
        ProviderErrorKind.TIMEOUT,
        ProviderErrorKind.OUTAGE,
    ),
)
"""Of several codes the most specific counts."""


def kind_of_codes(
    codes: frozenset[str], message: str = "", delay_s: float | None = None
) -> ProviderErrorKind | None:
    """The most specific kind of these codes, in lower case. `delay_s`: the wait in the body, in seconds."""
    found = {CODES[code] for code in codes if code in CODES}
    if "resource_exhausted" in codes:
        # Google uses it for both: a rate limit says when to retry, a quota that money is needed.
        is_rate = delay_s is not None or "quota" not in message
        found.add(ProviderErrorKind.RATE_LIMIT if is_rate else ProviderErrorKind.QUOTA)
    return next((kind for kind in _PRECEDENCE if kind in found), None)


def kind_of_phrase(message: str, status: int | None) -> ProviderErrorKind | None:
    """The kind of a message in lower case, where its status has several meanings."""
    return _first(PHRASES, message) if status in AMBIGUOUS else None


def kind_of_status(status: int) -> ProviderErrorKind | None:
    """The kind of an HTTP status; `None` below 400.

    >>> [str(kind_of_status(status)) for status in (404, 408, 504)]
    ['bad_request', 'timeout', 'timeout']
    """
    if status < 400:
        return None
    return STATUSES.get(
        status, ProviderErrorKind.OUTAGE if status >= 500 else ProviderErrorKind.BAD_REQUEST
    )


def kind_of_message(
    message: str, status: int | None = None, delay_s: float | None = None
) -> ProviderErrorKind | None:
    """The kind of an error that a program prints, in lower case; `None`: not a provider's error.

    `delay_s`: the wait that the message asks for, in seconds.

    >>> kind_of_message("api error: 529 overloaded_error"), kind_of_message("not logged in")
    (<ProviderErrorKind.OVERLOAD: 'overload'>, <ProviderErrorKind.AUTH: 'auth'>)
    """
    kind = kind_of_codes(frozenset(_WRITTEN_CODES.findall(message)), message, delay_s)
    kind = kind or kind_of_phrase(message, status)
    if kind is None and status is not None:
        return kind_of_status(status)
    return kind or _first(MESSAGES, message)


def _first(
    table: tuple[tuple[ProviderErrorKind, tuple[str, ...]], ...], message: str
) -> ProviderErrorKind | None:
    return next(
        (kind for kind, phrases in table if any(phrase in message for phrase in phrases)), None
    )


LOOKED_AT = 4_000
"""Characters of a message that are looked at."""
LARGEST_BODY = 200_000
"""Characters of a body that is parsed; a longer one is no error message."""
_CAUSES = 5
_MOST_KEYS = 1000


class ProviderError(NamedTuple):
    """An error of a provider, understood."""

    kind: ProviderErrorKind
    status: int | None = None
    """The HTTP status, if there was one."""
    retry_after_s: float | None = None
    """How long the provider asked us to stay away."""
    text: str = ""
    """One line, redacted."""

    @property
    def is_provider_failure(self) -> bool:
        """Whether it counts against the circuit of the provider."""
        return self.kind in PROVIDER_FAILURES

    @property
    def may_fail_over(self) -> bool:
        """Whether the next provider of a chain may be asked instead."""
        return self.kind not in NO_FAILOVER


class _Facts(NamedTuple):
    """What an error carries, wherever its SDK puts it."""

    status: int | None
    codes: frozenset[str]
    """Codes and types, in small letters."""
    message: str
    delay_s: float | None
    """What the body asks for, as Google's does."""


def classify(error: BaseException) -> ProviderError | None:
    """What an exception of an SDK means; `None`: it is none of a provider. Never raises.

    >>> classify(TimeoutError("30 s")).kind
    <ProviderErrorKind.TIMEOUT: 'timeout'>
    >>> classify(KeyError("mine")) is None
    True
    """
    try:
        return _classified(error)
    except BaseException as trouble:  # a strange exception is not replaced by another one
        if is_interrupt(trouble):
            raise
        return None


def classify_response(
    status: int, headers: Mapping[str, str] | None = None, body: Any = None
) -> ProviderError | None:
    """What an HTTP response means; `None`: it is no error. `body`: a text, bytes or parsed JSON.

    >>> classify_response(429, {"Retry-After": "20"}).retry_after_s
    20.0
    """
    facts = _facts(status, _parsed(body))
    if status < 400 and not facts.codes & CODES.keys():
        return None
    kind = (
        kind_of_codes(facts.codes, facts.message, facts.delay_s)
        or kind_of_phrase(facts.message, facts.status)
        or kind_of_status(status)
        or ProviderErrorKind.OUTAGE
    )
    answer = _Headers(headers)
    wait_s = retry_after_s(answer) or facts.delay_s
    text = redact(f"HTTP {status}: {facts.message}" if facts.message else f"HTTP {status}")
    return ProviderError(kind, status, wait_s if kind in PROVIDER_FAILURES else None, text)


def was_not_started(error: BaseException) -> bool:
    """Whether it says itself that the provider began nothing, by its status. Never raises.

    What it was raised from does not count: whoever wraps an error may have paid for calls before.
    What broke off in the middle has no such status.
    """
    try:
        found = _understood(error)
    except BaseException as trouble:  # a strange exception says nothing
        if is_interrupt(trouble):
            raise
        return False
    return found is not None and found.kind in NOT_STARTED and (found.status or 0) >= 400


def provider_signal(error: BaseException, seconds: float | None = None) -> Signal:
    """What to tell the circuit of the provider: a failure only where it is the provider's."""
    found = classify(error)
    if found is None or not found.is_provider_failure:
        return Signal()
    return Signal(ok=False, seconds=seconds, error=found.text, retry_after_s=found.retry_after_s)


def agent_signal(error: BaseException, seconds: float | None = None) -> Signal:
    """What to tell the circuit of the agent: the provider's failures are no evidence against it."""
    found = classify(error)
    if is_no_evidence(error) or (found is not None and found.kind not in AGENT_FAILURES):
        return Signal()
    return Signal(ok=False, seconds=seconds, error=describe(error))


def is_provider_failure(error: BaseException) -> bool:
    """For `failure_if` of a breaker: `panel.breaker("provider/openai", failure_if=is_provider_failure)`."""
    found = classify(error)
    return found is not None and found.is_provider_failure


class _Headers(Exception):
    """Never raised: it carries headers to whoever reads them."""

    def __init__(self, headers: Mapping[str, str] | None) -> None:
        super().__init__()
        self.headers = headers


def _classified(error: BaseException) -> ProviderError | None:
    if is_no_evidence(error):
        return None
    found = next(filter(None, map(_understood, _with_causes(error))), None)
    return None if found is None else found._replace(text=describe(error))


def _understood(error: BaseException) -> ProviderError | None:
    """What the exception itself says, whatever it was raised from."""
    names = [kind.__name__ for kind in type(error).__mro__]
    facts = _facts_of(error)
    kind = (
        kind_of_codes(facts.codes, facts.message, facts.delay_s)
        or _by_names(names[:2], EXCEPTIONS)
        or kind_of_phrase(facts.message, facts.status)
    )
    if kind is None and facts.status is not None:
        kind = kind_of_status(facts.status)
    kind = kind or _by_names(names, EXCEPTIONS) or _by_names(names, NO_RESPONSE)
    if kind is None:
        return None
    wait_s = (retry_after_s(error) or facts.delay_s) if kind in PROVIDER_FAILURES else None
    return ProviderError(kind, facts.status, wait_s)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from: frameworks wrap what SDKs raise."""
    one: BaseException | None = error
    for _ in range(_CAUSES):
        if one is None:
            return
        yield one
        one = CAUSE(one)


def _facts_of(error: BaseException) -> _Facts:
    response = getattr(error, "response", None)
    status = next(filter(_is_status, _statuses(error, response)), None)
    bodies = [getattr(error, name, None) for name in ("body", "details", "error")]
    bodies += [response, *({name: getattr(error, name, None)} for name in ("code", "type"))]
    parts = [_facts(status, _parsed(body)) for body in bodies if isinstance(body, dict | list)]
    codes = frozenset(word for part in parts for word in part.codes)
    if status is None and not codes & CODES.keys():
        return _Facts(None, frozenset(), "", None)  # its text is that of anybody's exception
    message = str(error)[:LOOKED_AT].lower()
    delays = [part.delay_s for part in parts if part.delay_s is not None]
    return _Facts(status, codes, message, delays[0] if delays else None)


def _statuses(error: BaseException, response: Any) -> Iterator[Any]:
    for holder in (error, response):
        for name in ("status_code", "http_status", "status", "code"):
            yield getattr(holder, name, None)
    if isinstance(response, dict):  # as botocore has it
        about = response.get("ResponseMetadata")
        yield about.get("HTTPStatusCode") if isinstance(about, dict) else None


def _is_status(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599


def _parsed(body: Any) -> Any:
    if isinstance(body, bytes | bytearray):
        body = bytes(body[: LARGEST_BODY + 1]).decode("utf-8", "replace")
    if not isinstance(body, str):
        return body
    if len(body) > LARGEST_BODY:
        return {"message": body[:LOOKED_AT]}
    import json  # noqa: PLC0415  only for an error

    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return {"message": body[:LOOKED_AT]}


def _facts(status: int | None, body: Any) -> _Facts:
    codes: set[str] = set()
    message, delay_s = "", None
    for part in _parts(body):
        for key, value in islice(part.items(), _MOST_KEYS):
            name = str(key).lower()
            if name in {"type", "code", "status", "reason"} and isinstance(value, str):
                codes.add(value.strip().lower()[:100])
            elif name == "message" and isinstance(value, str):
                message = message or value[:LOOKED_AT]
            elif name == "retrydelay" and isinstance(value, str):
                delay_s = _delay_s(value) or delay_s
    return _Facts(status, frozenset(codes), message.lower(), delay_s)


def _parts(body: Any) -> Iterator[dict[Any, Any]]:
    """The mappings of a body that speak of the error, a few levels deep."""
    level = [body]
    for _ in range(4):
        below: list[Any] = []
        for one in level[:50]:
            if isinstance(one, list):
                below += one[:50]
            elif isinstance(one, dict):
                yield one
                below += [
                    value
                    for key, value in islice(one.items(), _MOST_KEYS)
                    if str(key).lower() in {"error", "details", "innererror", "inner_error"}
                ]
        level = below


def _delay_s(text: str) -> float | None:
    """Google's durations: `34s`, `1.5s`."""
    try:
        delay_s = float(text.strip().removesuffix("s"))
    except ValueError:
        return None
    return delay_s if 0 < delay_s < 1e9 else None


def _by_names(names: list[str], known: Mapping[str, ProviderErrorKind]) -> ProviderErrorKind | None:
    return next((known[name] for name in names if name in known), None)
