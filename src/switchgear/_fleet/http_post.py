"""One HTTP request with a deadline in total. Import it only to send, because it loads an HTTP client."""

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
    """The HTTP status; `None`: no response arrived."""
    problem: str = ""
    """Why no response arrived."""
    retry_after_s: float | None = None
    """The wait that the server requests, in seconds, at most an hour."""
    is_final: bool = False
    """Without a status: the request itself is invalid, so a retry cannot help."""


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

    # A daemon, because a name server that never answers must not keep the process from ending.
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
    """The connections of one request. Thread-safe: the caller shuts down those that its thread opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] | None = []
        """`None`: the request is over."""

    def add(self, connection: http.client.HTTPConnection) -> None:
        """Add an open connection that can be shut down later. Raises OSError after `shut_down`."""
        with self._lock:
            if self._open is None or connection.sock is None:
                raise TimeoutError
            # A second handle, because TLS takes over the first.
            self._open.append(socket.socket(fileno=os.dup(connection.sock.fileno())))

    def shut_down(self) -> None:
        with self._lock:
            found, self._open = self._open or [], None
        for each in found:
            with suppress(OSError):  # the server has closed it
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _send(
    url: str, body: bytes, headers: dict[str, str], timeout_s: float, sockets: _Sockets
) -> Response:
    ours = {"Content-Type": "application/json", "User-Agent": "switchgear"}
    request = urllib.request.Request(url, body, ours | headers, method="POST")  # noqa: S310  checked
    opener = urllib.request.build_opener(_NoRedirect, _Connections(sockets))
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return Response(int(response.status))  # the body is not needed
    except urllib.error.HTTPError as error:
        with error:
            return Response(error.code, retry_after_s=retry_after(error.headers))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, because a message is signed for one address."""

    def redirect_request(self, *_: Any) -> None:
        pass


class _Connections(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens connections that can be shut down."""

    def __init__(self, sockets: _Sockets) -> None:
        super().__init__()
        self._sockets = sockets

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_PostConnection, self._sockets), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_TlsConnection, self._sockets), req)


class _PostConnection(http.client.HTTPConnection):
    def __init__(self, sockets: _Sockets, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._sockets = sockets

    def connect(self) -> None:
        """Connect, and add the connection to those that can be shut down."""
        super().connect()
        self._sockets.add(self)


class _TlsConnection(_PostConnection, http.client.HTTPSConnection):
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
    # Invalid host names raise a UnicodeError, which is a ValueError.
    is_final = isinstance(error, ValueError | http.client.InvalidURL)
    return Response(None, f"{type(error).__name__}: {error}", is_final=is_final)
