"""Clients of the console that are slow: each request has a deadline, and none delays the others."""

import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from switchgear._console import process
from timeouts import LIMIT_S
from unit.console_stage import CLIENT, READ, bearer, real_server

PATIENCE_S = 0.5
HEAD = "GET /v1/now HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = (
    "POST /v1/circuits/a/acquire HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    f"Authorization: Bearer {CLIENT}\r\nContent-Length: 100000\r\n\r\n"
)


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(process, "PATIENCE_S", PATIENCE_S)
    (tmp_path / ".git").mkdir()
    with real_server(tmp_path) as found:
        yield found


def dripped(address: tuple[str, int], begin: str) -> bytes:
    """The response to a request whose bytes arrive slowly."""
    end_s = time.monotonic() + LIMIT_S
    with socket.create_connection(address, timeout=LIMIT_S) as line:
        line.sendall(begin.encode())
        line.settimeout(0.05)
        while time.monotonic() < end_s:
            try:
                line.sendall(b"x")
                return line.recv(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                return b"reset"
    pytest.fail("the server still waits")


@pytest.mark.parametrize("begin", ["GET /", HEAD, BODY], ids=["first line", "headers", "body"])
def test_a_request_that_drips_is_answered_and_closed_at_the_deadline(
    address: tuple[str, int], begin: str
) -> None:
    answer = dripped(address, begin)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"].startswith(
        "the request was not complete after"
    )


def test_a_second_request_on_a_connection_has_a_deadline_too(address: tuple[str, int]) -> None:
    connection = HTTPConnection(*address, timeout=LIMIT_S)
    for _ in range(2):  # a pause between requests is none of them
        connection.request("GET", "/v1/now", headers=bearer(READ))
        assert connection.getresponse().read()
        time.sleep(2 * PATIENCE_S)
    assert connection.sock is not None
    connection.sock.sendall(HEAD.encode())
    assert connection.sock.recv(65536).startswith(b"HTTP/1.1 408 ")
    connection.close()


def test_a_request_is_answered_while_64_clients_are_slow(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "PATIENCE_S", LIMIT_S)
    lines = [socket.create_connection(address, timeout=LIMIT_S) for _ in range(64)]
    for number, line in enumerate(lines):
        line.sendall((HEAD if number % 2 else BODY).encode())
    connection = HTTPConnection(*address, timeout=LIMIT_S)
    connection.request("GET", "/v1/now", headers=bearer(READ))
    assert connection.getresponse().status == 200
    connection.close()
    for line in lines:
        line.close()
