"""What an error of a model provider means: who is to blame, and whether another may be asked.

Knows the exceptions of the SDKs (Anthropic, OpenAI, Google, and those that look like them) and HTTP
responses by what they carry, not by their types: no SDK is imported. The name of the error in the
body comes first, because a stream that breaks in the middle has status 200; then phrases, where one
status stands for several things; then the status.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from switchgear._breaker.evidence import describe, is_no_evidence, retry_after_s
from switchgear._core.interrupts import CAUSE, is_interrupt
from switchgear._core.types import Signal
from switchgear._text.redact import redact

WORDS: dict[str, str] = {
    # Anthropic
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "quota",
    "request_too_large": "context_length",
    "rate_limit_error": "rate_limit",
    "api_error": "outage",
    "overloaded_error": "overload",
    "timeout_error": "timeout",
    # OpenAI and Azure
    "invalid_api_key": "auth",
    "account_deactivated": "auth",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "context_length_exceeded": "context_length",
    "string_above_max_length": "context_length",
    "content_filter": "content_policy",
    "content_policy_violation": "content_policy",
    "moderation_blocked": "content_policy",
    "responsibleaipolicyviolation": "content_policy",
    "rate_limit_exceeded": "rate_limit",
    "slow_down": "overload",
    "server_overloaded": "overload",
    "server_error": "outage",
    # Google
    "unauthenticated": "auth",
    "permission_denied": "auth",
    "api_key_invalid": "auth",
    "prohibited_content": "content_policy",
    "unavailable": "overload",
    "internal": "outage",
    "deadline_exceeded": "timeout",
    # AWS
    "accessdeniedexception": "auth",
    "servicequotaexceededexception": "quota",
    "throttlingexception": "rate_limit",
    "serviceunavailableexception": "overload",
    "internalserverexception": "outage",
    "modeltimeoutexception": "timeout",
}
"""Codes and types in the body of an error; `resource_exhausted` is judged by what stands beside it."""

PHRASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("quota", ("credit balance", "exceeded your current quota", "check your plan and billing")),
    (
        "context_length",
        (
            *("prompt is too long", "maximum context length", "context window", "context length"),
            *("input token count", "maximum number of tokens", "input is too long"),
        ),
    ),
    (
        "content_policy",
        (
            *("content filtering policy", "content management policy", "safety system"),
            *("content policy", "usage policies", "flagged as potentially violating"),
        ),
    ),
    ("auth", ("api key not valid", "api key expired", "invalid api key", "invalid x-api-key")),
)
"""What a message says where its status alone says too little."""

STATUSES: dict[int, str] = {
    401: "auth",
    402: "quota",
    403: "auth",
    407: "auth",
    408: "timeout",
    413: "context_length",
    425: "overload",
    429: "rate_limit",
    503: "overload",
    504: "timeout",
    529: "overload",
}
"""What is not here is an outage from 500 on, and a bad request below."""

NAMES: dict[str, str] = {
    "ContentFilterFinishReasonError": "content_policy",
    "ContentPolicyViolationError": "content_policy",
    "BlockedPromptException": "content_policy",
    "LengthFinishReasonError": "context_length",
    "ContextWindowExceededError": "context_length",
}
"""Exceptions that say more than their status, by the names of their types."""

UNANSWERED: dict[str, str] = {
    # Timeouts first: to some they are connection errors too.
    "APITimeoutError": "timeout",
    "TimeoutException": "timeout",
    "Timeout": "timeout",
    "TimeoutError": "timeout",
    "APIConnectionError": "outage",
    "TransportError": "outage",
    "ClientConnectionError": "outage",
    "ConnectionError": "outage",
    "URLError": "outage",
    "gaierror": "outage",
}
"""Exceptions that say that nobody answered, by the names of their types and of those that they
derive from. One that has a status was answered: `urllib` derives those from `URLError`."""


LOOKED_AT = 4_000
"""Characters of a message that are looked at."""
LARGEST_BODY = 200_000
"""Characters of a body that is parsed; a longer one is no error message."""
_AMBIGUOUS = (400, 403, 413, 422, 429, None)
_CAUSES = 5
_MOST_KEYS = 1000


class Complaint(StrEnum):
    """What kind of error it is."""

    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"
    OUTAGE = "outage"
    TIMEOUT = "timeout"
    AUTH = "auth"
    """The key or its permissions: nothing changes until a person changes it."""
    QUOTA = "quota"
    """The account's money or allowance is used up."""
    CONTEXT_LENGTH = "context_length"
    CONTENT_POLICY = "content_policy"
    """Refused for what it says."""
    BAD_REQUEST = "bad_request"


AGAINST_DEPENDENCY = frozenset(
    (Complaint.RATE_LIMIT, Complaint.OVERLOAD, Complaint.OUTAGE, Complaint.TIMEOUT)
)
"""What speaks against the provider; all others say something of the request or the account."""
AGAINST_AGENT = frozenset(
    (Complaint.CONTEXT_LENGTH, Complaint.CONTENT_POLICY, Complaint.BAD_REQUEST)
)
"""What speaks against whoever wrote the request."""
NEVER_FAILS_OVER = frozenset((Complaint.AUTH, Complaint.CONTENT_POLICY, Complaint.BAD_REQUEST))
"""What a person must hear of: another provider would hide it, or refuse it as well."""

TURNED_AWAY = frozenset((Complaint.RATE_LIMIT, Complaint.OVERLOAD, Complaint.AUTH, Complaint.QUOTA))
"""What a provider says instead of beginning. The others may be billed, or not be a provider's."""


class ProviderError(NamedTuple):
    """An error of a provider, understood."""

    kind: Complaint
    status: int | None = None
    """The HTTP status, if there was one."""
    retry_after_s: float | None = None
    """How long the provider asked us to stay away."""
    text: str = ""
    """One line, redacted."""

    @property
    def speaks_against_dependency(self) -> bool:
        """Whether it counts against the circuit of the provider."""
        return self.kind in AGAINST_DEPENDENCY

    @property
    def may_fail_over(self) -> bool:
        """Whether the next provider of a chain may be asked instead."""
        return self.kind not in NEVER_FAILS_OVER


class _Said(NamedTuple):
    """What an error carries, wherever its SDK puts it."""

    status: int | None
    words: frozenset[str]
    """Codes and types, in small letters."""
    message: str
    delay_s: float | None
    """What the body asks for, as Google's does."""


def classify(error: BaseException) -> ProviderError | None:
    """What an exception of an SDK means; `None`: it is none of a provider. Never raises.

    >>> classify(TimeoutError("30 s")).kind
    <Complaint.TIMEOUT: 'timeout'>
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
    said = _said(status, _parsed(body))
    if status < 400 and not said.words & WORDS.keys():
        return None
    kind = _by_words(said) or _by_phrase(said) or _by_status(status) or Complaint.OUTAGE
    answer = _Answer(headers)
    asked_s = retry_after_s(answer) or said.delay_s
    text = redact(f"HTTP {status}: {said.message}" if said.message else f"HTTP {status}")
    return ProviderError(kind, status, asked_s if kind in AGAINST_DEPENDENCY else None, text)


def is_turned_away(error: BaseException) -> bool:
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
    return found is not None and found.kind in TURNED_AWAY and (found.status or 0) >= 400


def dependency_signal(error: BaseException, seconds: float | None = None) -> Signal:
    """What to tell the circuit of the provider: a failure only where it is the provider's."""
    found = classify(error)
    if found is None or not found.speaks_against_dependency:
        return Signal()
    return Signal(ok=False, seconds=seconds, error=found.text, retry_after_s=found.retry_after_s)


def agent_signal(error: BaseException, seconds: float | None = None) -> Signal:
    """What to tell the circuit of the agent: the provider's failures are no evidence against it."""
    found = classify(error)
    if is_no_evidence(error) or (found is not None and found.kind not in AGAINST_AGENT):
        return Signal()
    return Signal(ok=False, seconds=seconds, error=describe(error))


def speaks_against_dependency(error: BaseException) -> bool:
    """For `failure_if` of a breaker: `panel.breaker("provider/openai", failure_if=speaks_against_dependency)`."""
    found = classify(error)
    return found is not None and found.speaks_against_dependency


class _Answer(Exception):
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
    said = _said_by(error)
    kind = _by_words(said) or _by_names(names[:2], NAMES) or _by_phrase(said)
    if kind is None and said.status is not None:
        kind = _by_status(said.status)
    kind = kind or _by_names(names, NAMES) or _by_names(names, UNANSWERED)
    if kind is None:
        return None
    asked_s = (retry_after_s(error) or said.delay_s) if kind in AGAINST_DEPENDENCY else None
    return ProviderError(kind, said.status, asked_s)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from: frameworks wrap what SDKs raise."""
    one: BaseException | None = error
    for _ in range(_CAUSES):
        if one is None:
            return
        yield one
        one = CAUSE(one)


def _said_by(error: BaseException) -> _Said:
    response = getattr(error, "response", None)
    status = next(filter(_is_status, _statuses(error, response)), None)
    bodies = [getattr(error, name, None) for name in ("body", "details", "error")]
    bodies += [response, *({name: getattr(error, name, None)} for name in ("code", "type"))]
    parts = [_said(status, _parsed(body)) for body in bodies if isinstance(body, dict | list)]
    words = frozenset(word for part in parts for word in part.words)
    if status is None and not words & WORDS.keys():
        return _Said(None, frozenset(), "", None)  # its text is that of anybody's exception
    message = str(error)[:LOOKED_AT].lower()
    delays = [part.delay_s for part in parts if part.delay_s is not None]
    return _Said(status, words, message, delays[0] if delays else None)


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


def _said(status: int | None, body: Any) -> _Said:
    words: set[str] = set()
    message, delay_s = "", None
    for part in _parts(body):
        for key, value in islice(part.items(), _MOST_KEYS):
            name = str(key).lower()
            if name in {"type", "code", "status", "reason"} and isinstance(value, str):
                words.add(value.strip().lower()[:100])
            elif name == "message" and isinstance(value, str):
                message = message or value[:LOOKED_AT]
            elif name == "retrydelay" and isinstance(value, str):
                delay_s = _delay_s(value) or delay_s
    return _Said(status, frozenset(words), message.lower(), delay_s)


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


def _by_words(said: _Said) -> Complaint | None:
    found = {WORDS[word] for word in said.words if word in WORDS}
    if "resource_exhausted" in said.words:
        # Google's word for both: one says when to come back, the other that money is needed.
        is_rate = said.delay_s is not None or "quota" not in said.message
        found.add("rate_limit" if is_rate else "quota")
    return next((kind for kind in _FIRST if kind in found), None)


_FIRST = (
    *(Complaint.QUOTA, Complaint.CONTENT_POLICY, Complaint.CONTEXT_LENGTH, Complaint.AUTH),
    *(Complaint.RATE_LIMIT, Complaint.OVERLOAD, Complaint.TIMEOUT, Complaint.OUTAGE),
)
"""Of several codes the one that says most counts."""


def _by_phrase(said: _Said) -> Complaint | None:
    if said.status not in _AMBIGUOUS:
        return None
    for kind, phrases in PHRASES:
        if any(phrase in said.message for phrase in phrases):
            return Complaint(kind)
    return None


def _by_status(status: int) -> Complaint | None:
    if status < 400:
        return None
    return Complaint(STATUSES.get(status, "outage" if status >= 500 else "bad_request"))


def _by_names(names: list[str], known: Mapping[str, str]) -> Complaint | None:
    return next((Complaint(known[name]) for name in names if name in known), None)
