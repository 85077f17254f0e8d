"""Refusals in the format of the provider, with a status to which each agent CLI reacts as intended. Pure.

*wait* is 429 or 529 with Retry-After: every CLI waits. *stop* ends the turn and shows the message; the
status for that depends on the CLI (see the table in docs/proxy.md, which an end-to-end test checks).
"""

import json
import math
from enum import StrEnum
from typing import Any, NamedTuple

from switchgear._providers.traffic import ModelProtocol
from switchgear._providers.upstreams import error_body


class Reaction(StrEnum):
    """What the client should do after a refusal."""

    WAIT = "wait"
    STOP = "stop"


class ProxyRefusal(NamedTuple):
    """Why a request is not forwarded."""

    reaction: Reaction
    why: str
    """One or more sentences, redacted, for the user of the client."""
    cause: str
    """`circuit`, `budget`, `loop`, `session`, `key`, `price` or `store`, for the log and a header."""
    retry_after_s: float | None = None
    circuit: str = ""


class HttpAnswer(NamedTuple):
    """An HTTP response."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


LONGEST_WAIT_S = 50.0
"""Maximum wait in seconds that is sent. Claude Code gives up at waits of many minutes, and SDKs ignore
waits of a minute or more and retry at once. After this wait they retry, and are refused again."""
_STOP_STATUS = {("claude", "anthropic"): 402}  # it retries a 400 six times
"""The status that ends a turn at once and shows the message, by agent and protocol, unless it is 400."""
_ANTHROPIC = {400: "invalid_request_error", 402: "billing_error", 403: "permission_error"}
_ANTHROPIC |= {429: "rate_limit_error", 529: "overloaded_error", 503: "api_error"}
_GOOGLE = {400: "INVALID_ARGUMENT", 402: "FAILED_PRECONDITION", 403: "PERMISSION_DENIED"}
_GOOGLE |= {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


def answer(refusal: ProxyRefusal, protocol: ModelProtocol, agent: str) -> HttpAnswer:
    family = protocol.family
    headers = [
        (b"content-type", b"application/json"),
        (b"x-switchgear-refused", refusal.cause.encode()),
        (b"x-switchgear-reaction", refusal.reaction.encode()),
    ]
    if refusal.circuit:
        headers.append((b"x-switchgear-circuit", header_value(refusal.circuit)))
    if refusal.reaction is Reaction.WAIT:
        status = 529 if family == "anthropic" else 429
        wait = max(1, math.ceil(min(refusal.retry_after_s or 1.0, LONGEST_WAIT_S)))
        headers.append((b"retry-after", b"%d" % wait))
        body = _body(family, status, refusal, wait)
    else:
        status = _STOP_STATUS.get((agent, family), 400)
        headers.append((b"x-should-retry", b"false"))
        body = _body(family, status, refusal, None)
    text = json.dumps(body, ensure_ascii=False).encode()
    headers.append((b"content-length", b"%d" % len(text)))
    return HttpAnswer(status, tuple(headers), text)


def _body(family: str, status: int, refusal: ProxyRefusal, wait: int | None) -> dict[str, Any]:
    if family == "anthropic":
        return error_body(family, status, _ANTHROPIC[status], refusal.why)
    if family == "google":
        body = error_body(family, status, _GOOGLE[status], refusal.why)
        if wait is not None:
            body["error"]["details"] = [
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait}s"}
            ]
        return body
    kind = {429: "rate_limit_error", 402: "insufficient_quota"}.get(status, "invalid_request_error")
    code = {"wait": "rate_limit_exceeded"}.get(refusal.reaction, f"switchgear_{refusal.cause}")
    return error_body(family, status, kind, refusal.why, code)


def failure(status: int, why: str, family: str) -> HttpAnswer:
    """The response for a failure of the proxy itself, in the provider's format."""
    kind = {"anthropic": "api_error", "google": "UNAVAILABLE"}.get(family, "server_error")
    text = json.dumps(error_body(family, status, kind, why), ensure_ascii=False).encode()
    return HttpAnswer(status, ((b"content-type", b"application/json"),), text)


def header_value(text: str) -> bytes:
    """A header value: one line of printable ASCII, at most 500 characters."""
    printable = "".join(char if " " <= char <= "~" else "?" for char in text[:500])
    return printable.strip().encode("ascii")
