"""SDK exceptions and HTTP responses of model providers, classified by `table.py`.

Reads the exceptions of the SDKs (Anthropic, OpenAI, Google, and others of the same shape) by their
attributes and not by their types, so no SDK is imported.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from switchgear._breaker.signals import describe, is_no_evidence, retry_after_s
from switchgear._core.errors import CAUSE, is_interrupt
from switchgear._core.types import Signal
from switchgear._providers.table import (
    AGENT_FAILURES,
    CODES,
    EXCEPTIONS,
    NO_FAILOVER,
    NO_RESPONSE,
    NOT_STARTED,
    PROVIDER_FAILURES,
    ProviderErrorKind,
    kind_of_codes,
    kind_of_phrase,
    kind_of_status,
)
from switchgear._providers.waits import wait_s
from switchgear._text.redact import redact

LONGEST_MESSAGE = 4_000
"""Maximum number of characters of a message that are read."""
LARGEST_BODY = 200_000
"""Maximum length of a body that is parsed; a longer one is no error message."""
_CAUSES = 5
_MOST_KEYS = 1000


class ProviderError(NamedTuple):
    """A classified error of a provider."""

    kind: ProviderErrorKind
    status: int | None = None
    retry_after_s: float | None = None
    """The wait that the provider requested, in seconds."""
    text: str = ""
    """One line, redacted."""

    @property
    def is_provider_failure(self) -> bool:
        """Whether it counts against the circuit of the provider."""
        return self.kind in PROVIDER_FAILURES

    @property
    def may_fail_over(self) -> bool:
        """Whether the next provider of a chain may be used instead."""
        return self.kind not in NO_FAILOVER


class _Facts(NamedTuple):
    """The facts of an error, wherever its SDK puts them."""

    status: int | None
    codes: frozenset[str]
    """Codes and types, in lower case."""
    message: str
    delay_s: float | None
    """The wait in the body in seconds, as Google sends it."""


def classify(error: BaseException) -> ProviderError | None:
    """Classify an exception of an SDK; `None`: not a provider error. Never raises.

    >>> classify(TimeoutError("30 s")).kind
    <ProviderErrorKind.TIMEOUT: 'timeout'>
    >>> classify(KeyError("mine")) is None
    True
    """
    try:
        if is_no_evidence(error):
            return None
        found = next(filter(None, map(_classify_alone, _with_causes(error))), None)
        return None if found is None else found._replace(text=describe(error))
    except BaseException as trouble:  # a defect of an exception must not replace the exception
        if is_interrupt(trouble):
            raise
        return None


def classify_response(
    status: int,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    now_s: float | None = None,
) -> ProviderError | None:
    """Classify an HTTP response; `None`: not an error. `body` is a text, bytes or parsed JSON.

    `now_s` is the time since the epoch in seconds; `None`: now.

    >>> classify_response(429, {"Retry-After": "20"}).retry_after_s
    20.0
    """
    facts = _facts(status, _parse_body(body))
    if status < 400 and not facts.codes & CODES.keys():
        return None
    kind = (
        kind_of_codes(facts.codes, facts.message, facts.delay_s)
        or kind_of_phrase(facts.message, facts.status)
        or kind_of_status(status)
        or ProviderErrorKind.OUTAGE
    )
    at_s = time.time() if now_s is None else now_s
    requested_s = _wait_s(_Headers(headers), status, facts.delay_s, at_s)
    text = redact(f"HTTP {status}: {facts.message}" if facts.message else f"HTTP {status}")
    return ProviderError(kind, status, requested_s if kind in PROVIDER_FAILURES else None, text)


def was_not_started(error: BaseException) -> bool:
    """Whether the status of an error means that the provider has not started any work. Never raises.

    The cause of the error is ignored, because code that wraps an error may have paid for earlier calls.
    An error in the middle of a response has no such status.
    """
    try:
        found = _classify_alone(error)
    except BaseException as trouble:  # a defect of an exception is no evidence
        if is_interrupt(trouble):
            raise
        return False
    return found is not None and found.kind in NOT_STARTED and (found.status or 0) >= 400


def provider_signal(error: BaseException, seconds: float | None = None) -> Signal:
    """The signal for the circuit of the provider: a failure only if the provider caused the error."""
    found = classify(error)
    if found is None or not found.is_provider_failure:
        return Signal()
    return Signal(ok=False, seconds=seconds, error=found.text, retry_after_s=found.retry_after_s)


def agent_signal(error: BaseException, seconds: float | None = None) -> Signal:
    """The signal for the circuit of the agent, against which failures of the provider do not count."""
    found = classify(error)
    if is_no_evidence(error) or (found is not None and found.kind not in AGENT_FAILURES):
        return Signal()
    return Signal(ok=False, seconds=seconds, error=describe(error))


def is_provider_failure(error: BaseException) -> bool:
    """For `failure_if` of a breaker: `panel.breaker("provider/openai", failure_if=is_provider_failure)`."""
    found = classify(error)
    return found is not None and found.is_provider_failure


class _Headers(Exception):
    """Carries headers for `retry_after_s`; never raised."""

    def __init__(self, headers: Mapping[str, str] | None) -> None:
        super().__init__()
        self.headers = headers


def _classify_alone(error: BaseException) -> ProviderError | None:
    """Classify the exception itself, without its cause; `None`: not a provider error."""
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
    if kind not in PROVIDER_FAILURES:
        return ProviderError(kind, facts.status)
    requested_s = _wait_s(error, facts.status or 0, facts.delay_s, time.time())
    return ProviderError(kind, facts.status, requested_s)


def _wait_s(error: Any, status: int, delay_s: float | None, now_s: float) -> float | None:
    """The wait in seconds: in the headers of an error, in its body, or until its used-up rate limits are renewed."""
    requested_s = retry_after_s(error) or delay_s
    if requested_s is not None:
        return requested_s
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    return wait_s(status, headers, now_s) if isinstance(headers, Mapping) else None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and its causes, because frameworks wrap the exceptions of SDKs."""
    current: BaseException | None = error
    for _ in range(_CAUSES):
        if current is None:
            return
        yield current
        current = CAUSE(current)


def _facts_of(error: BaseException) -> _Facts:
    response = getattr(error, "response", None)
    status = next(filter(_is_status, _statuses(error, response)), None)
    bodies = [getattr(error, name, None) for name in ("body", "details", "error")]
    bodies += [response, *({name: getattr(error, name, None)} for name in ("code", "type"))]
    parts = [_facts(status, _parse_body(body)) for body in bodies if isinstance(body, dict | list)]
    codes = frozenset(word for part in parts for word in part.codes)
    if status is None and not codes & CODES.keys():
        return _Facts(None, frozenset(), "", None)  # an exception that may not be of an SDK
    message = str(error)[:LONGEST_MESSAGE].lower()
    delays = [part.delay_s for part in parts if part.delay_s is not None]
    return _Facts(status, codes, message, delays[0] if delays else None)


def _statuses(error: BaseException, response: Any) -> Iterator[Any]:
    for holder in (error, response):
        for name in ("status_code", "http_status", "status", "code"):
            yield getattr(holder, name, None)
    if isinstance(response, dict):  # botocore
        metadata = response.get("ResponseMetadata")
        yield metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None


def _is_status(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599


def _parse_body(body: Any) -> Any:
    if isinstance(body, bytes | bytearray):
        body = bytes(body[: LARGEST_BODY + 1]).decode("utf-8", "replace")
    if not isinstance(body, str):
        return body
    if len(body) > LARGEST_BODY:
        return {"message": body[:LONGEST_MESSAGE]}
    import json  # noqa: PLC0415  only needed for errors

    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return {"message": body[:LONGEST_MESSAGE]}


def _facts(status: int | None, body: Any) -> _Facts:
    codes: set[str] = set()
    message, delay_s = "", None
    for part in _parts(body):
        for key, value in islice(part.items(), _MOST_KEYS):
            name = str(key).lower()
            if name in {"type", "code", "status", "reason"} and isinstance(value, str):
                codes.add(value.strip().lower()[:100])
            elif name == "message" and isinstance(value, str):
                message = message or value[:LONGEST_MESSAGE]
            elif name == "retrydelay" and isinstance(value, str):
                delay_s = _delay_s(value) or delay_s
    return _Facts(status, frozenset(codes), message.lower(), delay_s)


def _parts(body: Any) -> Iterator[dict[Any, Any]]:
    """The mappings in a body that describe the error, at most four levels deep."""
    level = [body]
    for _ in range(4):
        below: list[Any] = []
        for part in level[:50]:
            if isinstance(part, list):
                below += part[:50]
            elif isinstance(part, dict):
                yield part
                below += [
                    value
                    for key, value in islice(part.items(), _MOST_KEYS)
                    if str(key).lower() in {"error", "details", "innererror", "inner_error"}
                ]
        level = below


def _delay_s(text: str) -> float | None:
    """The seconds in a duration of Google: `34s`, `1.5s`."""
    try:
        delay_s = float(text.strip().removesuffix("s"))
    except ValueError:
        return None
    return delay_s if 0 < delay_s < 1e9 else None


def _by_names(names: list[str], known: Mapping[str, ProviderErrorKind]) -> ProviderErrorKind | None:
    return next((known[name] for name in names if name in known), None)
