"""Guarded transports for httpx and httpx2, whose APIs are equal. Imports neither."""

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from switchgear._providers.traffic import ModelRequest
from switchgear.integrations._guard import (
    AsyncGuardedChunks,
    GuardedChunks,
    GuardedHttpCall,
    HttpAttempt,
    HttpGuard,
    Outgoing,
    exchange,
    refusal_answer,
)
from switchgear.integrations._steps import adrive, drive

LIBRARIES = ("httpx", "httpx2")


def library_of(value: Any) -> Any:
    """The library of a request, response or client: httpx or httpx2; `None`: neither."""
    for kind in type(value).__mro__:
        name = kind.__module__.partition(".")[0]
        if name in LIBRARIES:
            return sys.modules[name]
    return None


def outgoing_of(request: Any) -> Outgoing:
    url = request.url
    try:
        body: bytes | None = request.content
    except Exception:  # noqa: BLE001  RequestNotRead of either library: the body is a stream
        body = None
    headers: Mapping[str, str] = request.headers
    host, target = url.netloc.decode("latin-1"), url.raw_path.decode("latin-1")
    return Outgoing(request.method, url.scheme, host, target, headers, body)


class _TransportWire:
    """Sends requests through the guarded transport."""

    def __init__(self, inner: Any, request: Any, *, is_async: bool = False) -> None:
        self._inner, self._request, self._is_async = inner, request, is_async
        self.library = library_of(request)

    def send(self, attempt: HttpAttempt) -> Any:
        return self._inner.handle_request(self._sent(attempt))

    async def asend(self, attempt: HttpAttempt) -> Any:
        return await self._inner.handle_async_request(self._sent(attempt))

    def hand_over(self, response: Any, call: GuardedHttpCall) -> Any:
        guard_stream(response, call, is_async=self._is_async)
        return response

    def _sent(self, attempt: HttpAttempt) -> Any:
        if not attempt.is_rewritten:
            return self._request
        method, scheme, host, target, headers, body = attempt.outgoing
        return self.library.Request(
            method,
            f"{scheme}://{host}{target}",
            headers=dict(headers),
            content=body,
            extensions=self._request.extensions,
        )

    def refuse(self, error: Exception, request: ModelRequest | None) -> Any:
        return answered(self.library, error, request, self._request)


def answered(library: Any, error: Exception, request: ModelRequest | None, sent: Any) -> Any:
    """A response object of the library for a refusal."""
    status, headers, body = refusal_answer(error, request)
    return library.Response(status, headers=headers, content=body, request=sent)


def guard_stream(response: Any, call: GuardedHttpCall, *, is_async: bool = False) -> None:
    """Guard the stream of a response, so that the call ends with its last byte."""
    class_of = _async_stream_class if is_async else _stream_class
    response.stream = class_of(library_of(response))(response.stream, call)


@cache
def _stream_class(library: Any) -> Any:
    """A subclass of the library's stream, because clients only accept streams of their own library."""
    return type("GuardedStream", (GuardedChunks, library.SyncByteStream), {})


@cache
def _async_stream_class(library: Any) -> Any:
    return type("AsyncGuardedStream", (AsyncGuardedChunks, library.AsyncByteStream), {})


class GuardedTransport:
    """A transport of httpx or httpx2 within its circuits, for blocking clients."""

    def __init__(self, inner: Any, http_guard: HttpGuard) -> None:
        self.inner, self.http_guard = inner, http_guard

    def handle_request(self, request: Any) -> Any:
        attempts = self.http_guard.attempts(outgoing_of(request))
        if not attempts:
            return self.inner.handle_request(request)
        return drive(exchange(self.http_guard, attempts, _TransportWire(self.inner, request)))

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.inner.__exit__(*error)


class AsyncGuardedTransport:
    """A transport of httpx or httpx2 within its circuits, for async clients."""

    def __init__(self, inner: Any, http_guard: HttpGuard) -> None:
        self.inner, self.http_guard = inner, http_guard

    async def handle_async_request(self, request: Any) -> Any:
        attempts = self.http_guard.attempts(outgoing_of(request))
        if not attempts:
            return await self.inner.handle_async_request(request)
        wire = _TransportWire(self.inner, request, is_async=True)
        return await adrive(exchange(self.http_guard, attempts, wire))

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.inner.__aexit__(*error)


class _EitherTransport(GuardedTransport, AsyncGuardedTransport):
    """A transport for blocking and async clients, such as `MockTransport`."""


Guarded = GuardedTransport | AsyncGuardedTransport


def _unguarded(transport: Any) -> Any:
    """The transport for a new guard, which replaces an earlier guard except that of `switchgear wrap`."""
    is_replaced = isinstance(transport, Guarded) and not transport.http_guard.is_sealed
    return transport.inner if is_replaced else transport


def guard_transport(transport: Any, http_guard: HttpGuard) -> Guarded:
    """A guarded transport; an earlier guard of the transport is replaced."""
    inner = _unguarded(transport)
    if not hasattr(inner, "handle_async_request"):
        return GuardedTransport(inner, http_guard)
    if not hasattr(inner, "handle_request"):
        return AsyncGuardedTransport(inner, http_guard)
    return _EitherTransport(inner, http_guard)


def guard_http_client(client: Any, http_guard: HttpGuard) -> None:
    """Guard all transports of a `Client` or `AsyncClient` of httpx or httpx2, in place."""
    if library_of(client) is None or not hasattr(client, "_transport"):
        raise TypeError(f"{client!r} is not a Client or AsyncClient of httpx or httpx2")
    is_async = hasattr(client, "aclose")
    guarded = AsyncGuardedTransport if is_async else GuardedTransport

    def wrap(transport: Any) -> Any:
        return guarded(_unguarded(transport), http_guard)

    client._transport = wrap(client._transport)  # noqa: SLF001  httpx has no public way to replace it
    mounts = client._mounts  # noqa: SLF001
    for pattern, transport in mounts.items():
        mounts[pattern] = None if transport is None else wrap(transport)
