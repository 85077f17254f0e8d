"""Anthropic's SDK: `client = guard(Anthropic())`, sync and async, through the SDK's own middleware.

Versions of the SDK without middleware are guarded in their HTTP client, like OpenAI's SDK.
"""

import json
from types import SimpleNamespace
from typing import Any, TypeVar, Unpack
from urllib.parse import urlsplit

import anthropic
from anthropic import Anthropic, AsyncAnthropic

from switchgear._providers.traffic import ModelRequest
from switchgear.integrations._guard import (
    REFUSED_HEADER,
    Fallback,
    GuardedHttpCall,
    HttpAttempt,
    HttpGuard,
    HttpGuardOptions,
    ModelUsage,
    Outgoing,
    exchange,
)
from switchgear.integrations._http import (
    answered,
    guard_http_client,
    guard_stream,
    library_of,
)
from switchgear.integrations._steps import adrive, drive

__all__ = ["Fallback", "ModelUsage", "guard"]

Client = TypeVar("Client", bound=Anthropic | AsyncAnthropic)


def guard(client: Client, **options: Unpack[HttpGuardOptions]) -> Client:
    """A copy of the client whose calls are guarded; it shares the connections of the original.

    The guard runs inside the SDK's retries: each attempt counts as a call, and a refusal is not
    retried. `HttpGuardOptions` describes the options; the default key is `"provider"`. In versions of the
    SDK without middleware, the client itself is guarded and returned.
    """
    anything: Any = client
    has_middleware = hasattr(anything, "with_middleware")
    http_guard = HttpGuard(
        **options,
        default_key="provider",
        owner="anthropic",
        sdk_retries_errors=not has_middleware,
    )
    if not has_middleware:
        guard_http_client(anything._client, http_guard)  # noqa: SLF001  the SDK has no public name for it
        return client
    others = [one for one in anything.middleware if not isinstance(one, GuardMiddleware)]
    guarded: Client = anything.with_options(
        middleware=[*others, middleware_class()(client, http_guard)]
    )
    return guarded


class GuardMiddleware:
    """Guards each HTTP attempt of one client."""

    def __init__(self, client: Any, http_guard: HttpGuard) -> None:
        self._client, self._guard = client, http_guard

    def handle(self, request: Any, call_next: Any) -> Any:
        """Send a request of a blocking client, guarded."""
        wire = _MiddlewareWire(self._client, request, call_next)
        return wire.wrapper_of(drive(exchange(self._guard, self._attempts(request), wire)))

    async def handle_async(self, request: Any, call_next: Any) -> Any:
        """Send a request of an async client, guarded."""
        wire = _MiddlewareWire(self._client, request, call_next, is_async=True)
        served = exchange(self._guard, self._attempts(request), wire)
        return wire.wrapper_of(await adrive(served))

    def _attempts(self, request: Any) -> list[HttpAttempt]:
        base = self._client.base_url
        scheme, host, target = base.scheme, base.netloc.decode("latin-1"), str(request.url)
        if "://" in target:
            parts = urlsplit(target)
            scheme, host = parts.scheme, parts.netloc
            target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        else:
            target = base.path.rstrip("/") + "/" + target.lstrip("/")
        body = None if request.json is None else json.dumps(request.json, default=str).encode()
        headers = {key: value for key, value in request.headers.items() if isinstance(value, str)}
        return self._guard.attempts(Outgoing(request.method, scheme, host, target, headers, body))


def middleware_class() -> Any:
    """`GuardMiddleware` as a subclass of the SDK's middleware class, which older versions lack."""
    base: Any = getattr(anthropic, "Middleware")  # noqa: B009
    return type("SwitchgearMiddleware", (GuardMiddleware, base), {})


class _MiddlewareWire:
    """Sends through the other middleware, and checks the HTTP response in the SDK's wrapper."""

    def __init__(
        self, client: Any, request: Any, call_next: Any, *, is_async: bool = False
    ) -> None:
        self._client, self._request, self._call_next = client, request, call_next
        self._is_async = is_async
        self._wrappers: dict[int, Any] = {}

    def wrapper_of(self, response: Any) -> Any:
        """The SDK's wrapper of an HTTP response."""
        return self._wrappers[id(response)]

    def send(self, attempt: HttpAttempt) -> Any:
        return self._unwrapped(self._call_next(self._sent(attempt)))

    async def asend(self, attempt: HttpAttempt) -> Any:
        return self._unwrapped(await self._call_next(self._sent(attempt)))

    def hand_over(self, response: Any, call: GuardedHttpCall) -> Any:
        guard_stream(response, call, is_async=self._is_async)
        return response

    def refuse(self, error: Exception, request: ModelRequest | None) -> Any:
        """Raise the SDK's typed error for a refusal; its headers forbid a retry."""
        library = library_of(self._client._client)  # noqa: SLF001
        sent = library.Request("POST", str(self._client.base_url))
        response = answered(library, error, request, sent)
        raise self._client._make_status_error_from_response(response) from error  # noqa: SLF001

    def _unwrapped(self, wrapper: Any) -> Any:
        response = getattr(wrapper, "http_response", None)
        if response is None:  # another middleware has answered without sending anything
            response = SimpleNamespace(
                status_code=200, headers={REFUSED_HEADER: ""}, is_closed=True, content=b""
            )
        self._wrappers[id(response)] = wrapper
        return response

    def _sent(self, attempt: HttpAttempt) -> Any:
        if not attempt.is_rewritten:
            return self._request
        _, scheme, host, target, headers, body = attempt.outgoing
        own: dict[str, Any] = {key: headers[key] for key in headers if key.lower() != "x-api-key"}
        key = headers.get("x-api-key")
        if key is not None or host != self._client.base_url.netloc.decode("latin-1"):
            # Without these headers, the SDK would send the caller's key to another provider.
            own |= {"X-Api-Key": key or "none", "Authorization": anthropic.Omit()}
        url = f"{scheme}://{host}{target}"
        return self._request.copy(url=url, headers=own, body=json.loads(body or b"null"))
