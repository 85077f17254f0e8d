"""One HTTP request with a deadline for all of it. Imported only to send: it loads the HTTP client."""

import http.client
import os
import queue
import socket
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from time import time
from typing import Any, NamedTuple

LONGEST_RETRY_AFTER_S = 3600.0


class Response(NamedTuple):
    status: int | None
    """The HTTP status; `None`: none arrived."""
    problem: str = ""
    """Why none arrived."""
    retry_after_s: float | None = None
    """The wait that the server requests, in seconds, at most an hour."""
    is_final: bool = False
    """Without a status: the request itself is wrong, so that trying again cannot help."""


def post(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Response:
    """Send a request and return the result within `timeout_s` seconds. Never raises."""
    sockets = _Sockets()
    responses: queue.SimpleQueue[Response] = queue.SimpleQueue()

    def work() -> None:
        try:
            responses.put(_send(url, body, headers, timeout_s, sockets))
        except BaseException as error:  # noqa: BLE001  a thread has no caller that could handle it
            responses.put(_failed_response(error))
        finally:
            sockets.shut_down()

    # A daemon: a name server that never answers must not keep the process from ending.
    thread = threading.Thread(target=work, name="switchgear-post", daemon=True)
    try:
        thread.start()
        return responses.get(timeout=timeout_s)
    except RuntimeError as error:  # no more threads, or the interpreter is ending
        return Response(None, str(error))
    except queue.Empty:
        return Response(None, f"no complete response within {timeout_s:g} s (timed out)")
    finally:
        sockets.shut_down()


class _Sockets:
    """The connections of one request. Thread-safe: the caller shuts down what its thread opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] | None = []
        """`None`: the request is over."""

    def add(self, connection: http.client.HTTPConnection) -> None:
        """Note an open connection, so that it can be shut down. Raises OSError if it is too late."""
        with self._lock:
            if self._open is None or connection.sock is None:
                raise TimeoutError
            # A second handle: TLS takes the first one over.
            self._open.append(socket.socket(fileno=os.dup(connection.sock.fileno())))

    def shut_down(self) -> None:
        with self._lock:
            found, self._open = self._open or [], None
        for each in found:
            with suppress(OSError):  # the server was first
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _send(
    url: str, body: bytes, headers: dict[str, str], timeout_s: float, sockets: _Sockets
) -> Response:
    ours = {"Content-Type": "application/json", "User-Agent": "switchgear"}
    request = urllib.request.Request(url, body, ours | headers, method="POST")  # noqa: S310  checked
    opener = urllib.request.build_opener(_NoRedirect, _Connections(sockets))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return Response(int(answer.status))  # its body is not needed
    except urllib.error.HTTPError as error:
        with error:
            return Response(error.code, retry_after_s=retry_after(error.headers))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a message is signed for one address."""

    def redirect_request(self, *_: Any) -> None:
        pass


class _Connections(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections that can be shut down."""

    def __init__(self, sockets: _Sockets) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, self._sockets), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_TlsConnection, self._sockets), req)


class _Connection(http.client.HTTPConnection):
    def __init__(self, sockets: _Sockets, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._sockets = sockets

    def connect(self) -> None:
        """Connect, and note the connection. A TLS handshake has one timeout in total."""
        super().connect()
        self._sockets.add(self)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    pass


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


def _failed_response(error: BaseException) -> Response:
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        error = error.reason
    is_ours = isinstance(error, ValueError | http.client.InvalidURL)
    # Of the UnicodeErrors, one comes from a host name that no server can have.
    return Response(None, f"{type(error).__name__}: {error}", is_final=is_ours)
