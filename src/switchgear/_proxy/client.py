"""HTTP/1.1 to upstreams: connections are reused, and responses are passed on as they arrive.

Nothing is sent twice: a request that an upstream may have received is never repeated here.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from switchgear._proxy.http1 import LEAST_CHUNK, Headers, wake

_READ_AHEAD = 256 * 1024
"""Maximum bytes of a response that are read before the client reads them."""
_WRITE_AHEAD = 64 * 1024
_MOST_HEADERS = 500
_MOST_HEADER_BYTES = 256 * 1024
_KEPT_S = 15.0
"""Seconds for which an idle connection is kept: less than upstreams keep it."""
_MOST_KEPT = 256
"""Maximum number of idle connections that are kept for one upstream."""


class UpstreamBroken(ConnectionError):
    """The upstream ended the connection, or sent something that is not HTTP."""


class Origin(NamedTuple):
    """The address of an upstream."""

    is_secure: bool
    host: str
    port: int
    name: bytes
    """The value of the `Host` header."""


@lru_cache(1024)
def origin_of(url: str) -> tuple[Origin, str]:
    """The origin of a URL, and the path after it.

    >>> origin_of("https://eu.example/anthropic")[1]
    '/anthropic'
    """
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    return Origin(is_secure, parts.hostname or "", port, parts.netloc.encode()), parts.path


@dataclass(slots=True)
class UpstreamResponse:
    """A response whose body is read in parts, by one task. It must be closed."""

    _link: "_UpstreamConnection"
    status: int = 0
    head_s: float = 0.0
    """When the head arrived, on the monotonic clock."""
    reason: bytes = b""
    headers: Headers = field(default_factory=list)
    is_complete: bool = False
    """Whether the whole body has arrived; parts of it may not be read yet."""
    is_framed: bool = False
    """Whether the upstream marks the end of the body, other than by closing the connection."""

    def header(self, name: bytes) -> str:
        """The value of the first header with this name, given in lower case; empty if there is none."""
        for key, value in self.headers:
            if key.lower() == name:
                return value.decode("latin-1")
        return ""

    @property
    def is_at_end(self) -> bool:
        """Whether everything has arrived and was read."""
        return self.is_complete and not self._link.parts

    def ready(self) -> bytes:
        """The part of the body that has arrived and is not read yet; may be empty."""
        return self._link.take_parts()

    async def read(self) -> bytes:
        """The next part of the body; empty at its end. Raises `UpstreamBroken`, `TimeoutError`."""
        return await self._link.read()

    def close(self) -> None:
        """Keep the connection for the next request, or end it if that is not possible."""
        self._link.finish()


class UpstreamClient:
    """The connections of one worker to its upstreams. Used in one event loop."""

    def __init__(self, connect_s: float, read_s: float) -> None:
        self._connect_s = connect_s
        self._read_s = read_s
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Origin, deque[_UpstreamConnection]] = {}
        self._links: set[_UpstreamConnection] = set()
        self._tls: ssl.SSLContext | None = None
        self._sweep_s = min(1.0, read_s / 4)
        self._sweep = self._loop.call_later(self._sweep_s, self._check)

    async def request(
        self,
        method: bytes,
        origin: Origin,
        target: bytes,
        headers: Headers,
        body: bytes | AsyncIterator[bytes] | None,
    ) -> UpstreamResponse:
        """Send a request and wait for the head of its response.

        A body in parts is sent in chunks unless `headers` contain its length. Raises OSError,
        `UpstreamBroken`, `TimeoutError`, and any exception of reading the body.
        """
        lines = [b"%s %s HTTP/1.1\r\nHost: %s\r\n" % (method, target, origin.name)]
        has_length = False
        for name, value in headers:
            lines.append(b"%s: %s\r\n" % (name, value))
            has_length = has_length or name.lower() == b"content-length"
        is_chunked = False
        if isinstance(body, bytes):
            lines.append(b"Content-Length: %d\r\n" % len(body))
        elif body is not None and not has_length:
            is_chunked = True
            lines.append(b"Transfer-Encoding: chunked\r\n")
        lines.append(b"\r\n")
        link = self._reuse_connection(origin) or await self._connect(origin)
        try:
            link.begin(is_head=method == b"HEAD")
            if isinstance(body, bytes):
                lines.append(body)
            link.write(b"".join(lines))
            if body is not None and not isinstance(body, bytes):
                await link.send(body, is_chunked=is_chunked)
            return await link.response()
        except BaseException:
            link.abort()
            raise

    def _reuse_connection(self, origin: Origin) -> "_UpstreamConnection | None":
        idle = self._idle.get(origin)
        while idle:
            link = idle.pop()
            if link.is_usable:
                return link
            link.abort()
        return None

    async def _connect(self, origin: Origin) -> "_UpstreamConnection":
        tls = None
        if origin.is_secure:
            if self._tls is None:
                self._tls = ssl.create_default_context()
                self._tls.set_alpn_protocols(["http/1.1"])
            tls = self._tls
        async with asyncio.timeout(self._connect_s):
            _, link = await self._loop.create_connection(
                lambda: _UpstreamConnection(self, origin, self._loop),
                origin.host,
                origin.port,
                ssl=tls,
            )
        self._links.add(link)
        return link

    def keep(self, link: "_UpstreamConnection") -> None:
        """Keep a connection for the next request to the same upstream."""
        idle = self._idle.setdefault(link.origin, deque())
        if len(idle) < _MOST_KEPT:
            idle.append(link)
        else:
            link.abort()

    def forget(self, link: "_UpstreamConnection") -> None:
        """Remove a connection that has ended."""
        self._links.discard(link)
        idle = self._idle.get(link.origin)
        if idle and link in idle:
            idle.remove(link)

    def _check(self) -> None:
        now_s = self._loop.time()
        for link in list(self._links):
            link.check(now_s, self._read_s)
        self._sweep = self._loop.call_later(self._sweep_s, self._check)

    def close(self) -> None:
        self._sweep.cancel()
        for link in list(self._links):
            link.abort()


class _UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream: one request at a time."""

    def __init__(
        self, client: UpstreamClient, origin: Origin, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._client = client
        self.origin = origin
        self._loop = loop
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self.parts: deque[bytes] = deque()
        self._size = 0
        self._parser: httptools.HttpResponseParser | None = None
        self._response = UpstreamResponse(self)
        self._has_head = self._is_head = self._is_reusable = False
        self._is_busy = self._is_closed = self._is_paused = False
        self._header_bytes = 0
        """Bytes of the response that are not content."""
        self._error: BaseException | None = None
        self._wakes: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._since_s = loop.time()
        """When the upstream last sent something, or the connection became idle."""

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_AHEAD)

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None or self._response.is_complete:  # data without a request
            self._is_reusable = False
            self.abort()
            return
        self._since_s = self._loop.time()
        self._header_bytes += len(data)
        try:
            parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(UpstreamBroken(f"the upstream sent no valid HTTP: {error}"))
            return
        if self._header_bytes > _MOST_HEADER_BYTES and not self._response.is_complete:
            self._fail(UpstreamBroken("the headers or trailers of the upstream are too large"))
            return
        if self._size >= _READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        wake(self._wakes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._client.forget(self)
        if self._is_busy and not self._response.is_complete:
            is_end = self._has_head and not self._response.is_framed and exc is None
            if is_end:  # the end of the connection is the end of the body
                self._response.is_complete = True
            elif self._error is None:
                why = f": {exc}" if exc is not None else ""
                self._error = UpstreamBroken(f"the upstream closed the connection{why}")
        wake(self._wakes)
        self.resume_writing()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        wake(self._drained)
        self._drained = None

    # Events of the parser

    def on_message_begin(self) -> None:
        if self._has_head:  # a second response to one request
            self._is_reusable = False

    def on_status(self, status: bytes) -> None:
        if not self._has_head:
            self._response.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # a header after the body is a trailer, which is dropped
            self._response.headers.append((name, value))
            if len(self._response.headers) > _MOST_HEADERS:
                self._fail(UpstreamBroken("the upstream sent too many headers"))

    def on_headers_complete(self) -> None:
        if self._error is not None or self._has_head:
            return
        response, parser = self._response, cast("httptools.HttpResponseParser", self._parser)
        response.status = parser.get_status_code()
        if response.status < 200:  # 100 Continue, 103 Early Hints: another head follows
            response.headers, response.reason = [], b""
            return
        self._has_head = True
        response.head_s = time.monotonic()
        self._is_reusable = parser.should_keep_alive() and not self._is_head
        names = {name.lower() for name, _ in response.headers}
        bare = self._is_head or response.status in {204, 304}
        response.is_framed = bare or b"content-length" in names or b"transfer-encoding" in names
        if self._is_head:
            response.is_complete = True

    def on_body(self, body: bytes) -> None:
        self._header_bytes = max(0, self._header_bytes - LEAST_CHUNK * len(body))
        if not self._response.is_complete:  # anything later belongs to no request
            self.parts.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if self._has_head:
            self._response.is_complete = True

    # One request and its response

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent."""
        return not self._is_closed and not self._is_busy and not self._transport.is_closing()

    def begin(self, *, is_head: bool) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._response = UpstreamResponse(self)
        self._has_head = self._is_reusable = False
        self._is_head, self._is_busy = is_head, True
        self._header_bytes = 0
        self._since_s = self._loop.time()

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    async def send(self, body: AsyncIterator[bytes], *, is_chunked: bool) -> None:
        """Send a body in parts, no faster than the upstream reads it."""
        async for part in body:
            if self._has_head or self._error is not None:
                self._is_reusable = False  # the upstream has answered before the end of the body
                return
            self.write(b"%x\r\n%s\r\n" % (len(part), part) if is_chunked else part)
            while self._drained is not None:
                await asyncio.shield(self._drained)
            self._since_s = self._loop.time()
        if is_chunked:
            self.write(b"0\r\n\r\n")

    async def response(self) -> UpstreamResponse:
        """Wait for the head of the response."""
        while not self._has_head:
            await self._wait()
        return self._response

    def take_parts(self) -> bytes:
        """Remove and return the part of the body that has arrived."""
        parts = self.parts
        if not parts:
            return b""
        data = parts.popleft() if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._size = 0
        if self._is_paused and not self._is_closed:
            self._is_paused = False
            self._since_s = self._loop.time()
            self._transport.resume_reading()
        return data

    async def read(self) -> bytes:
        """The next part of the body; empty at its end."""
        while not self.parts and not self._response.is_complete:
            await self._wait()
        return self.take_parts()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._wakes = self._loop.create_future()
        await self._wakes

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self.abort()
        wake(self._wakes)

    def check(self, now_s: float, read_s: float) -> None:
        """End the connection if the upstream is silent for too long, or if it is idle for too long."""
        silent_s = now_s - self._since_s
        if not self._is_busy:
            if silent_s > _KEPT_S:
                self.abort()
        elif silent_s > read_s and not self._is_paused and not self._response.is_complete:
            self._fail(TimeoutError(f"the upstream was silent for {read_s:g} s"))

    def finish(self) -> None:
        """End the current request, whose response was read or is no longer needed."""
        if not self._is_busy:
            return
        is_done = self._response.is_complete and not self.parts
        self._is_busy, self._parser = False, None
        self._since_s = self._loop.time()
        if is_done and self._is_reusable and not self._is_closed:
            self._client.keep(self)
        else:
            self.abort()

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._client.forget(self)
            self._transport.abort()
