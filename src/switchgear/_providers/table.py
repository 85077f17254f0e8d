"""What an error of a model provider means: one table for SDK exceptions, HTTP responses and CLI messages.

The error code in the body comes first, because a stream that breaks in the middle has status 200; then
phrases, if the status has several meanings; then the status; then phrases of messages without a status.
Two decisions that are easy to get wrong:

- 404 is a bad request: the model or the URL does not exist, and the provider works.
- 408 and 504 are timeouts: failures of the provider.

Pure, and cheap to import: the commands of agents use it too.
"""

import re
from enum import StrEnum


class ProviderErrorKind(StrEnum):
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
    """The provider refused the content of the request."""
    BAD_REQUEST = "bad_request"


(
    RATE_LIMIT,
    OVERLOAD,
    OUTAGE,
    TIMEOUT,
    AUTH,
    QUOTA,
    CONTEXT_LENGTH,
    CONTENT_POLICY,
    BAD_REQUEST,
) = ProviderErrorKind

PROVIDER_FAILURES = frozenset((RATE_LIMIT, OVERLOAD, OUTAGE, TIMEOUT))
"""Count against the circuit of the provider; all others concern the request or the account."""
AGENT_FAILURES = frozenset((CONTEXT_LENGTH, CONTENT_POLICY, BAD_REQUEST))
"""Count against the circuit of the agent that made the request."""
NO_FAILOVER = frozenset((AUTH, CONTENT_POLICY, BAD_REQUEST))
"""Raised at once, because another provider would hide the error, or refuse the request as well."""
NOT_STARTED = frozenset((RATE_LIMIT, OVERLOAD, AUTH, QUOTA))
"""Errors before the provider starts work. Calls with other errors may be billed."""

CODES: dict[str, ProviderErrorKind] = {
    # Anthropic
    "authentication_error": AUTH,
    "permission_error": AUTH,
    "billing_error": QUOTA,
    "request_too_large": CONTEXT_LENGTH,
    "rate_limit_error": RATE_LIMIT,
    "api_error": OUTAGE,
    "overloaded_error": OVERLOAD,
    "timeout_error": TIMEOUT,
    # OpenAI and Azure
    "invalid_api_key": AUTH,
    "account_deactivated": AUTH,
    "insufficient_quota": QUOTA,
    "billing_hard_limit_reached": QUOTA,
    "billing_not_active": QUOTA,
    "context_length_exceeded": CONTEXT_LENGTH,
    "string_above_max_length": CONTEXT_LENGTH,
    "content_filter": CONTENT_POLICY,
    "content_policy_violation": CONTENT_POLICY,
    "moderation_blocked": CONTENT_POLICY,
    "responsibleaipolicyviolation": CONTENT_POLICY,
    "rate_limit_exceeded": RATE_LIMIT,
    "slow_down": OVERLOAD,
    "server_overloaded": OVERLOAD,
    "server_error": OUTAGE,
    # Google
    "unauthenticated": AUTH,
    "permission_denied": AUTH,
    "api_key_invalid": AUTH,
    "prohibited_content": CONTENT_POLICY,
    "unavailable": OVERLOAD,
    "internal": OUTAGE,
    "deadline_exceeded": TIMEOUT,
    # AWS
    "accessdeniedexception": AUTH,
    "servicequotaexceededexception": QUOTA,
    "throttlingexception": RATE_LIMIT,
    "serviceunavailableexception": OVERLOAD,
    "internalserverexception": OUTAGE,
    "modeltimeoutexception": TIMEOUT,
}
"""Codes and types in the body of an error. `resource_exhausted` depends on the rest of the body."""

PHRASES: tuple[tuple[ProviderErrorKind, tuple[str, ...]], ...] = (
    (QUOTA, ("credit balance", "exceeded your current quota", "check your plan and billing")),
    (
        CONTEXT_LENGTH,
        (
            *("prompt is too long", "maximum context", "context window", "context length"),
            *("input token count", "maximum number of tokens", "input is too long"),
        ),
    ),
    (
        CONTENT_POLICY,
        (
            *("content filtering policy", "content management policy", "safety system"),
            *("content policy", "usage policies", "flagged as potentially violating"),
        ),
    ),
    (AUTH, ("api key not valid", "api key expired", "invalid api key", "invalid x-api-key")),
)
"""The meaning of a message whose status has several meanings."""
AMBIGUOUS = frozenset((400, 403, 413, 422, 429, None))
"""Statuses with several meanings; `None`: no status."""

STATUSES: dict[int, ProviderErrorKind] = {
    401: AUTH,
    402: QUOTA,
    403: AUTH,
    404: BAD_REQUEST,
    407: AUTH,
    408: TIMEOUT,
    413: CONTEXT_LENGTH,
    425: OVERLOAD,
    429: RATE_LIMIT,
    503: OVERLOAD,
    504: TIMEOUT,
    529: OVERLOAD,
}
"""Other statuses are an outage from 500 on, and a bad request below."""

EXCEPTIONS: dict[str, ProviderErrorKind] = {
    "ContentFilterFinishReasonError": CONTENT_POLICY,
    "ContentPolicyViolationError": CONTENT_POLICY,
    "BlockedPromptException": CONTENT_POLICY,
    "LengthFinishReasonError": CONTEXT_LENGTH,
    "ContextWindowExceededError": CONTEXT_LENGTH,
}
"""Exceptions that are more specific than their status, by type name."""

NO_RESPONSE: dict[str, ProviderErrorKind] = {
    # Timeouts first, because some SDKs derive them from connection errors.
    "APITimeoutError": TIMEOUT,
    "TimeoutException": TIMEOUT,
    "Timeout": TIMEOUT,
    "TimeoutError": TIMEOUT,
    "APIConnectionError": OUTAGE,
    "TransportError": OUTAGE,
    "ClientConnectionError": OUTAGE,
    "ConnectionError": OUTAGE,
    "URLError": OUTAGE,
    "gaierror": OUTAGE,
}
"""Exceptions without a response, by the names of their types and base classes. An exception with a
status had a response, although `urllib` derives it from `URLError`."""


MESSAGES: tuple[tuple[ProviderErrorKind, tuple[str, ...]], ...] = (
    (QUOTA, ("billing",)),
    (CONTEXT_LENGTH, ("too many tokens",)),
    (RATE_LIMIT, ("rate limit", "rate_limit", "ratelimit", "too many requests", "usage limit")),
    (OVERLOAD, ("overloaded", "service unavailable", "at capacity", "high demand")),
    (
        AUTH,
        (
            *("incorrect api key", "authentication", "unauthorized", "not logged in"),
            *("please run /login", "no api key", "api_key environment variable", "auth method"),
        ),
    ),
    (TIMEOUT, ("etimedout",)),
    (
        OUTAGE,
        (
            *("econnrefused", "econnreset", "enotfound", "eai_again", "fetch failed"),
            *("connection refused", "connection reset", "connection failed", "connection error"),
            *("connect error", "connecterror", "unable to connect", "cannot connect"),
            *("could not connect", "network error", "stream disconnected", "error sending request"),
            *("socket hang up", "internal server error", "bad gateway", "internal_error"),
            "api_error",
        ),
    ),
)
"""The meaning of a program's message without a status. Too loose for a message that has one."""
_GENERIC = ("api_error", "server_error", "permission_denied", "slow_down", "content_filter")
_WRITTEN_CODES = re.compile(
    "|".join(
        code for code in (*CODES, "resource_exhausted") if "_" in code and code not in _GENERIC
    )
)
"""Codes that are unmistakable within a text; other programs also print generic codes."""
_PRECEDENCE = (
    *(QUOTA, CONTENT_POLICY, CONTEXT_LENGTH, AUTH),
    *(RATE_LIMIT, OVERLOAD, TIMEOUT, OUTAGE),
)
"""The kinds in order of precedence, if an error has several codes."""


def kind_of_codes(
    codes: frozenset[str], message: str = "", delay_s: float | None = None
) -> ProviderErrorKind | None:
    """The most specific kind of codes in lower case. `delay_s` is the wait in the body in seconds."""
    found = {CODES[code] for code in codes if code in CODES}
    if "resource_exhausted" in codes:
        # Google uses this code for rate limits, which have a retry time, and for quotas, which need money.
        is_rate = delay_s is not None or "quota" not in message
        found.add(RATE_LIMIT if is_rate else QUOTA)
    return next((kind for kind in _PRECEDENCE if kind in found), None)


def kind_of_phrase(message: str, status: int | None) -> ProviderErrorKind | None:
    """The kind of a message in lower case, if its status has several meanings."""
    return _first(PHRASES, message) if status in AMBIGUOUS else None


def kind_of_status(status: int) -> ProviderErrorKind | None:
    """The kind of an HTTP status; `None` below 400.

    >>> [str(kind_of_status(status)) for status in (404, 408, 504)]
    ['bad_request', 'timeout', 'timeout']
    """
    if status < 400:
        return None
    return STATUSES.get(status, OUTAGE if status >= 500 else BAD_REQUEST)


def kind_of_message(
    message: str, status: int | None = None, delay_s: float | None = None
) -> ProviderErrorKind | None:
    """The kind of an error that a program prints, in lower case; `None`: not a provider's error.

    `delay_s`: the wait in the message, in seconds.

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
