"""One HTTP POST with a deadline for all of it: name lookup, connection, TLS, request and response.

A socket's timeout bounds one operation, so a server that sends a byte now and then is never late.
The request therefore runs in a thread of its own, and at the deadline its connection is shut down.
"""

import http.client
import os
import socket
import threading
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from functools import partial
from time import time
from typing import Any, NamedTuple

LONGEST_RETRY_AFTER_S = 3600.0


class Response(NamedTuple):
    """What a server answered, or why there is no answer."""

    status: int | None
    """The HTTP status; `None`: none arrived."""
    problem: str = ""
    """Why none arrived."""
    retry_after_s: float | None = None
    """How long the server asks to wait, at most an hour."""
    is_final: bool = False
    """Without a status: the request itself is wrong, so that trying again cannot help."""


def post(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Response:
    """Send a request and return what became of it within `timeout_s`. Never raises."""
    request = _Request(url, body, headers, timeout_s)
    # A daemon: a name server that never answers must not keep the process from ending.
    thread = threading.Thread(target=request.run, name="switchgear-post", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # no more threads, or the interpreter is ending
        return Response(None, str(error))
    thread.join(timeout_s)
    return request.result(f"no complete response within {timeout_s:g} s (timed out)")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A message that is signed for one address is not carried to another."""

    def redirect_request(self, *_: Any) -> None:
        """Not followed: the caller sees the status."""


class _Request:
    """One request. `run` is called by its thread, `result` by the caller."""

    def __init__(self, url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> None:
        self._url, self._body, self._headers = url, body, headers
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._is_over = False
        self._connections: list[socket.socket] = []
        self._response: Response | None = None

    def run(self) -> None:
        """Send the request, and keep what became of it."""
        try:
            found = self._send()
        except BaseException as error:  # noqa: BLE001  a thread has no caller that could handle it
            found = _failed(error)
        with self._lock:
            self._response = found
        self._shut_down()

    def result(self, if_late: str) -> Response:
        """The response, or that it is late; then the connection is shut down."""
        with self._lock:
            self._is_over = True
            found = self._response
        self._shut_down()
        return Response(None, if_late) if found is None else found

    def connected(self, connection: http.client.HTTPConnection) -> None:
        """A connection is there: from now on it can be shut down. Raises OSError if it is too late."""
        with self._lock:
            if not self._is_over and connection.sock is not None:
                # A second handle: TLS takes the first one over.
                self._connections.append(socket.socket(fileno=os.dup(connection.sock.fileno())))
                return
        raise TimeoutError

    def _shut_down(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the server was quicker
            finally:
                connection.close()

    def _send(self) -> Response:
        request = urllib.request.Request(  # noqa: S310  the scheme was checked
            self._url,
            data=self._body,
            headers={"Content-Type": "application/json", "User-Agent": "switchgear"}
            | self._headers,
            method="POST",
        )
        opener = urllib.request.build_opener(_NoRedirect, _Http(self), _Https(self))
        try:
            with opener.open(request, timeout=self._timeout_s) as answer:
                return Response(int(answer.status))  # its body says nothing that is needed
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, retry_after_s=retry_after(error.headers))


class _Http(urllib.request.HTTPHandler):
    """Opens connections that the request can shut down."""

    def __init__(self, owner: _Request) -> None:
        super().__init__()
        self._owner = owner

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open one."""
        return self.do_open(partial(_Connection, self._owner), req)


class _Https(urllib.request.HTTPSHandler):
    """The same over TLS."""

    def __init__(self, owner: _Request) -> None:
        super().__init__()
        self._owner = owner

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open one."""
        return self.do_open(partial(_TlsConnection, self._owner), req)


class _Connection(http.client.HTTPConnection):
    def __init__(self, owner: _Request, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._owner = owner

    def connect(self) -> None:
        """Connect, and let the request know."""
        super().connect()
        self._owner.connected(self)


class _TlsConnection(http.client.HTTPSConnection):
    def __init__(self, owner: _Request, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._owner = owner

    def connect(self) -> None:
        """Connect, and let the request know. A handshake has one timeout for all of it."""
        super().connect()
        self._owner.connected(self)


def retry_after(headers: Any, now_s: float | None = None) -> float | None:
    """The header Retry-After in seconds, at most an hour; `None`: absent or not understood.

    >>> retry_after({"Retry-After": "7"})
    7.0
    """
    text = str(headers.get("Retry-After") or "").strip() if headers is not None else ""
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_RETRY_AFTER_S)
    try:
        at_s = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    wait_s = at_s - (time() if now_s is None else now_s)
    return min(max(wait_s, 0.0), LONGEST_RETRY_AFTER_S)


def _failed(error: BaseException) -> Response:
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        error = error.reason
    is_ours = isinstance(error, ValueError | http.client.InvalidURL)
    # Of the UnicodeErrors, one comes from a host name that no server can have.
    return Response(None, f"{type(error).__name__}: {error}", is_final=is_ours)
