"""HTTP/1.1 to the client: requests parsed strictly, responses written as they arrive, deadlines for both.

A parser that is stricter than the upstream's prevents request smuggling: llhttp rejects conflicting
lengths, folded headers and bare line feeds, and this module rejects the ambiguities that llhttp accepts.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple, cast

import httptools

Headers = list[tuple[bytes, bytes]]

_MOST_PIPELINED = 4
_READ_AHEAD = 256 * 1024
"""Maximum bytes of a body that are read ahead."""
_WRITE_AHEAD = 64 * 1024
LEAST_CHUNK = 8
"""Bytes of framing that are allowed per byte of a body, so that chunks of one byte are accepted."""
_LINGER_S = 5.0
"""Seconds for which the rest of a rejected request is read and dropped, so that its client reads the response."""
SWEEP_S = 1.0
"""Seconds between two checks of the deadlines."""
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_REASONS[529] = b"Overloaded"


class Limits(NamedTuple):
    """The limits for a client: sizes in bytes and times in seconds."""

    body_bytes: int = 64 * 1024 * 1024
    header_bytes: int = 64 * 1024
    headers: int = 200
    head_s: float = 20.0
    """Time until the headers of a request are complete."""
    idle_s: float = 75.0
    """Time between two requests of a connection."""
    read_s: float = 60.0
    """Time between two parts of a body."""
    body_s: float = 600.0
    """Time for a whole body."""
    write_s: float = 300.0
    """Time in which the client does not read its response."""
    connections: int = 4096


DEFAULT_LIMITS = Limits()


class BadRequest(Exception):
    """A request that is rejected, with the status and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Disconnected(Exception):
    """The client has disconnected or was too slow."""


@dataclass(slots=True)
class Request:
    """One request. Its body is read at most once, by one task."""

    _connection: "Connection"
    method: str
    target: bytes
    headers: Headers
    length: int | None = 0
    """The length of the body in bytes; `None`: it is chunked."""
    minor: int = 1
    is_kept_alive: bool = True
    _parts: deque[bytes] = field(default_factory=deque)
    _size: int = 0
    _ended: bool = False
    _wakes: "asyncio.Future[None] | None" = None

    def header(self, name: bytes) -> bytes:
        """The value of the first header with this name, given in lower case; empty if there is none."""
        for key, value in self.headers:
            if key.lower() == name:
                return value
        return b""

    @property
    def has_body(self) -> bool:
        """Whether the client announced a body."""
        return self.length is None or self.length > 0

    @property
    def is_read(self) -> bool:
        """Whether the whole body was received and read."""
        return self._ended and not self._parts

    async def read(self, most: int) -> bytes:
        """The whole body. Raises `BadRequest` if it is larger than `most` bytes, `Disconnected`."""
        if self.length is not None and self.length > most:
            raise BadRequest(413, f"the body has {self.length} bytes, and at most {most} are read")
        parts: list[bytes] = []
        size = 0
        while True:
            part = await self.next_part()
            if not part:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            size += len(part)
            if size > most:
                raise BadRequest(413, f"the body has more than {most} bytes")
            parts.append(part)

    async def next_part(self) -> bytes:
        """The next part of the body; empty: it is complete. Raises `Disconnected`."""
        while not self._parts:
            if self._ended:
                return b""
            self._connection.want_body(self)
            self._wakes = asyncio.get_running_loop().create_future()
            await self._wakes
        part = self._parts.popleft()
        self._size -= len(part)
        if self._size < _READ_AHEAD:
            self._connection.resume_reading()
        return part

    def feed(self, part: bytes) -> bool:
        """Add a received part of the body; returns whether to read on."""
        self._parts.append(part)
        self._size += len(part)
        wake(self._wakes)
        return self._size < _READ_AHEAD

    def end(self) -> None:
        self._ended = True
        wake(self._wakes)

    def fail(self) -> None:
        """End the request because the client has disconnected in the middle of the body."""
        wake(self._wakes, Disconnected())


def wake(waiting: "asyncio.Future[None] | None", error: Exception | None = None) -> None:
    """Resume the task that awaits this future, or raise an error in it. Idempotent."""
    if waiting is not None and not waiting.done():
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)


Handler = Callable[[Request, "Connection"], Awaitable[None]]


class Server:
    """The connections of one worker. Used in one event loop."""

    def __init__(self, handler: Handler, limits: Limits = DEFAULT_LIMITS) -> None:
        self.handler = handler
        self.limits = limits
        self.connections: set[Connection] = set()
        self.is_draining = False
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = self._loop.call_later(SWEEP_S, self._check)

    def connection(self) -> "Connection":
        """The protocol of a new connection, for `loop.create_server`."""
        return Connection(self, self._loop)

    @property
    def busy(self) -> int:
        return sum(connection.is_busy for connection in self.connections)

    def drain(self) -> None:
        """Answer the requests in progress, then close every connection."""
        self.is_draining = True
        for connection in list(self.connections):
            connection.close_if_idle()

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self.connections):
            connection.abort()

    def _check(self) -> None:
        now_s = self._loop.time()
        for connection in list(self.connections):
            connection.check(now_s)
        self._sweep = self._loop.call_later(SWEEP_S, self._check)


class Connection(asyncio.Protocol):
    """One connection of a client: requests in order, one response at a time."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._limits = server.limits
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._waiting: deque[Request] = deque()
        self._incoming: Request | None = None
        """The request whose head or body is being received."""
        self._current: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._url = b""
        self._headers: Headers = []
        self._head_bytes = self._header_bytes = 0
        """Bytes received since a head began, and bytes of its complete headers."""
        self._framing_bytes = 0
        """Bytes of a body that are not content: extensions of chunks, and trailers."""
        self._in_head = False
        self._is_closed = False
        self._is_reading = True
        self._is_chunked = False
        self._has_head = False
        self._head = b""
        """The head of the response, until it is written with the first part of the body."""
        self._closes = False
        self._drained: asyncio.Future[None] | None = None
        self._since_s = loop.time()
        """When the server began to wait for the rest of a head, a body or the next request."""
        self._head_since_s = self._body_since_s = 0.0
        self._stalled_s: float | None = None
        self._lingers_until_s: float | None = None

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_AHEAD)
        self._server.connections.add(self)
        if len(self._server.connections) > self._limits.connections:
            self._reject(503, "too many connections")

    def data_received(self, data: bytes) -> None:
        if self._is_closed:  # the rest of a request that was rejected
            return
        self._since_s = self._loop.time()
        if self._in_head or self._incoming is None:
            self._head_bytes += len(data)
        else:
            self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._reject(501, "CONNECT and Upgrade are not supported")
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, BadRequest):
                self._reject(cause.status, cause.why)
            else:
                self._reject(400, f"malformed request: {error}")
        except BadRequest as error:
            self._reject(error.status, error.why)
        else:
            if self._in_head and self._head_bytes > self._limits.header_bytes:
                self._reject(431, "the headers are too large")
            elif self._framing_bytes > self._limits.header_bytes:
                self._reject(431, "the extensions of chunks or the trailers are too large")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the current response, because the client has disconnected."""
        del exc
        self._is_closed = True
        self._server.connections.discard(self)
        for request in (self._incoming, self._current, *self._waiting):
            if request is not None:
                request.fail()
        self.resume_writing()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()
        self._stalled_s = self._loop.time()

    def resume_writing(self) -> None:
        wake(self._drained)
        self._drained = self._stalled_s = None

    # Events of the parser

    def on_message_begin(self) -> None:
        self._url, self._headers, self._in_head = b"", [], True
        self._header_bytes = 0
        self._head_since_s = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self._limits.header_bytes // 4:
            raise BadRequest(414, "the target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; after the body it is a trailer, which is dropped."""
        if not self._in_head:
            return
        if len(self._headers) >= self._limits.headers:
            raise BadRequest(431, f"more than {self._limits.headers} headers")
        if not value.isascii():
            try:
                value.decode()
            except UnicodeDecodeError:
                raise BadRequest(400, "a header is neither ASCII nor UTF-8") from None
        self._header_bytes += len(name) + len(value) + 4  # ": " and the end of the line
        if self._header_bytes > self._limits.header_bytes:
            raise BadRequest(431, "the headers are too large")
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Check the complete head, and begin to answer."""
        self._in_head = False
        self._head_bytes = self._framing_bytes = 0
        request = Request(self, self._parser.get_method().decode(), self._url, self._headers)
        version = self._parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            raise BadRequest(505, "only versions 1.1 and 1.0 of HTTP are supported")
        request.minor = int(version[-1])
        request.is_kept_alive = self._parser.should_keep_alive()
        request.length = _checked_length(request)
        _check_host(request)
        self._incoming = request
        self._body_since_s = self._loop.time()
        if self._current is None:
            self._start(request)
        else:
            self._waiting.append(request)
            if len(self._waiting) >= _MOST_PIPELINED:
                self._pause_reading()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = max(0, self._framing_bytes - LEAST_CHUNK * len(body))
        if self._incoming is not None and not self._incoming.feed(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        request, self._incoming = self._incoming, None
        self._framing_bytes = 0
        if request is not None:
            request.end()

    # Answering

    @property
    def is_busy(self) -> bool:
        return self._current is not None or self._incoming is not None

    @property
    def is_secure(self) -> bool:
        return self._transport.get_extra_info("ssl_object") is not None

    def _start(self, request: Request) -> None:
        self._current = request
        self._has_head = self._is_chunked = False
        self._closes = not request.is_kept_alive or self._server.is_draining
        self._task = self._loop.create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        try:
            await self._server.handler(request, self)
        except BadRequest as error:
            self._reject(error.status, error.why)
        except Disconnected:
            self.abort()
        except asyncio.CancelledError:
            if self._lingers_until_s is None:
                self.abort()
            if not self._is_closed:  # not cancelled because the client left
                raise
        except Exception as error:  # noqa: BLE001  one request must not end the worker
            self._loop.call_exception_handler(
                {"message": "a request of the proxy failed", "exception": error}
            )
            self._reject(500, "internal error of the proxy")
        else:
            self._finish(request)

    def _finish(self, request: Request) -> None:
        self._current = self._task = None
        self._since_s = self._loop.time()
        if self._is_closed:
            return
        if not request.is_read and self._has_head:
            self._linger()
            return
        if self._closes or self._server.is_draining or not self._has_head:
            self._transport.close()
            return
        if self._waiting:
            self._start(self._waiting.popleft())
        self.resume_reading()

    def send_head(self, status: int, reason: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Write the head of the response. `headers` have a content length, or the body is chunked."""
        request = self._current
        if request is None or self._has_head:
            raise RuntimeError  # a defect of this package: each request gets one head
        lines = [b"HTTP/1.1 %d %s\r\n" % (status, reason or _REASONS.get(status, b""))]
        has_length = False
        for name, value in headers:
            if name.lower() == b"content-length":
                has_length = True
            lines.append(b"%s: %s\r\n" % (name, value))
        is_bare = request.method == "HEAD" or status in {204, 304} or status < 200
        if not has_length and not is_bare:
            if request.minor:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self._closes = True
        if self._closes or not request.is_kept_alive:
            lines.append(b"connection: close\r\n")
            self._closes = True
        lines.append(b"\r\n")
        self._has_head = True
        self._head = b"".join(lines)

    def flush_head(self) -> None:
        """Write the head now, because the body may start late."""
        head, self._head = self._head, b""
        if head and not self._is_closed:
            self._transport.write(head)

    async def send(self, part: bytes) -> None:
        """Write a part of the body; waits while the client does not read. Raises `Disconnected`."""
        if self._is_closed:
            raise Disconnected
        if part:
            self._write(part)
        while self._drained is not None:
            await asyncio.shield(self._drained)
            if self._is_closed:
                raise Disconnected

    def write(self, part: bytes) -> None:
        """Write a whole, short body that `send_head` has announced; the response to HEAD has none."""
        request = self._current
        if part and not self._is_closed and request is not None and request.method != "HEAD":
            self._write(part)

    def _write(self, part: bytes) -> None:
        """Write a part; a head that is not written yet goes out in the same segment."""
        head, self._head = self._head, b""
        if self._is_chunked:
            self._transport.write(b"%s%x\r\n%s\r\n" % (head, len(part), part))
        else:
            self._transport.write(head + part if head else part)

    def end(self) -> None:
        """Complete the response."""
        self.flush_head()
        if self._is_chunked and not self._is_closed:
            self._transport.write(b"0\r\n\r\n")

    def _reject(self, status: int, why: str) -> None:
        """Send a short response, if none was started, and end the connection."""
        if self._is_closed:
            return
        if not self._has_head:
            body = b'{"error": {"type": "proxy_error", "message": "switchgear proxy: %s"}}' % (
                why.encode("ascii", "replace").replace(b"\\", b" ").replace(b'"', b"'")
            )
            head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            reason = _REASONS.get(status, b"")
            self._transport.write(head % (status, reason, len(body)) + b"connection: close\r\n\r\n")
            self._transport.write(body)
            self._has_head = True
            self._linger()
        else:
            self.abort()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task(self._loop):
            task.cancel()

    def _linger(self) -> None:
        """Close the connection once the client has sent the rest; an earlier close would send a reset."""
        self._is_closed = True
        self._incoming = self._current = None
        self._waiting.clear()
        if len(self._server.connections) > self._limits.connections:
            self._server.connections.discard(self)
            self._transport.close()
            return
        self._lingers_until_s = self._loop.time() + _LINGER_S
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()

    # Flow control and deadlines

    def want_body(self, request: Request) -> None:
        """Read on, and send the `100 Continue` that the client may wait for."""
        if request.header(b"expect").lower() == b"100-continue" and not self._has_head:
            request.headers = [each for each in request.headers if each[0].lower() != b"expect"]
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._since_s = self._loop.time()
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._is_reading and not self._is_closed:
            self._is_reading = False
            self._transport.pause_reading()

    def check(self, now_s: float) -> None:
        """Close the connection of a client that is too slow."""
        limits = self._limits
        if self._lingers_until_s is not None:
            late_s = now_s - self._lingers_until_s
            if late_s > (limits.write_s if self._transport.get_write_buffer_size() else 0.0):
                self.abort()
            return
        waited_s = now_s - self._since_s
        if self._stalled_s is not None and now_s - self._stalled_s > limits.write_s:
            self.abort()
        elif self._in_head:
            if now_s - self._head_since_s > limits.head_s:
                self._reject(408, "the headers did not arrive in time")
        elif self._incoming is not None and self._is_reading:
            if waited_s > limits.read_s or now_s - self._body_since_s > limits.body_s:
                self._reject(408, "the body did not arrive in time")
        elif self._current is None and waited_s > limits.idle_s:
            self._transport.close()

    def close_if_idle(self) -> None:
        self._closes = True
        if not self.is_busy and not self._in_head and not self._is_closed:
            self._transport.close()

    def abort(self) -> None:
        self._is_closed = True
        self._server.connections.discard(self)
        self._transport.abort()


def _checked_length(request: Request) -> int | None:
    """The length of the body; `None`: chunked. Raises `BadRequest` if the length is ambiguous."""
    lengths = [value for name, value in request.headers if name.lower() == b"content-length"]
    codings = [value for name, value in request.headers if name.lower() == b"transfer-encoding"]
    if codings:
        if len(codings) > 1 or codings[0].strip().lower() != b"chunked" or lengths:
            raise BadRequest(400, "only the transfer encoding 'chunked' is supported, alone")
        if not request.minor:
            raise BadRequest(400, "HTTP/1.0 has no transfer encoding")
        return None
    if len(lengths) > 1:
        raise BadRequest(400, "more than one content length")
    if not lengths:
        return 0
    if not lengths[0].isdigit() or len(lengths[0]) > 15:
        raise BadRequest(400, "the content length is not a number")
    return int(lengths[0])


def _check_host(request: Request) -> None:
    hosts = [value for name, value in request.headers if name.lower() == b"host"]
    if len(hosts) > 1 or (not hosts and request.minor):
        raise BadRequest(400, "a request has exactly one Host header")
