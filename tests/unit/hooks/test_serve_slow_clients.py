"""Slow, many or malformed clients of `switchgear serve`: each gets an answer, and none delays the others."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from switchgear._hooks import server as serving
from switchgear._hooks import undecided
from switchgear._hooks.process import open_store
from switchgear._hooks.server import MAX_CONNECTIONS, HookServer
from timeouts import LIMIT_S
from unit.hook_calls import before

TOKEN = "a-token-for-this-test"
HEAD = "POST /hooks/claude-code HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n"
PATIENCE_S = 0.5


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(serving, "REQUEST_TIMEOUT_S", PATIENCE_S)
    made = HookServer(str(tmp_path), TOKEN, open_store)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join(LIMIT_S)
    made.server_close()


def connect(server: HookServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)


def head(server: HookServer, *lines: str) -> bytes:
    return (HEAD.format(server.port, TOKEN) + "".join(f"{line}\r\n" for line in lines)).encode()


def ask(server: HookServer, command: str = "ls") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    body = json.dumps(before("Bash", {"command": command})).encode()
    connection.request("POST", "/hooks/codex", body, {"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    found = response.status, json.loads(response.read())
    connection.close()
    return found


def drip(line: socket.socket, stopped: threading.Event) -> bytes:
    """Send bytes slowly, so that no single wait is long; the response."""
    line.settimeout(0.02)
    while not stopped.is_set():
        with suppress(OSError):  # closed by now: the response can still be read
            line.sendall(b"x")
        try:
            return line.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return b"reset"
    return b"stopped"


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        (lambda _: b"POST /hooks", b"HTTP/1.1 200 "),
        (lambda server: head(server) + b"X-Slow: ", b"HTTP/1.1 200 "),
        (lambda server: head(server, "Content-Length: 100000") + b"\r\n{", b"HTTP/1.1 200 "),
    ],
)
def test_a_request_that_drips_is_answered_and_closed_at_the_deadline(
    server: HookServer, begin: Callable[[HookServer], bytes], answer: bytes
) -> None:
    with connect(server) as line:
        line.sendall(begin(server))
        stopped = threading.Event()
        timer = threading.Timer(LIMIT_S, stopped.set)
        timer.start()
        found = drip(line, stopped)
        timer.cancel()
    assert found.startswith(answer)
    assert json.loads(found.partition(b"\r\n\r\n")[2])["decision"] == "block"


def test_a_body_that_never_comes_is_counted_as_undecided(server: HookServer) -> None:
    with connect(server) as line:
        line.sendall(head(server, "Content-Length: 10") + b"\r\n")
        found = line.recv(65536)
    assert b"took longer than 0.5 s to send its request" in found
    told = json.loads(found.partition(b"\r\n\r\n")[2])
    assert told["decision"] == "block", "what was not read is not admitted"


@pytest.mark.parametrize("slow", ["headers", "body"])
def test_a_hook_is_answered_promptly_while_64_clients_are_slow(
    server: HookServer, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_TIMEOUT_S", 600.0)
    begin = head(server) if slow == "headers" else head(server, "Content-Length: 1000") + b"\r\n{"
    lines = [connect(server) for _ in range(64)]
    try:
        for line in lines:
            line.sendall(begin)
        began_s = time.monotonic()
        assert ask(server) == (200, {})
        assert time.monotonic() - began_s < LIMIT_S
    finally:
        for line in lines:
            line.close()


def test_with_too_many_connections_the_slowest_gets_an_error_and_the_new_one_is_answered(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_TIMEOUT_S", 600.0)
    before = threading.active_count()  # earlier tests of this process may have left some
    lines = [connect(server) for _ in range(MAX_CONNECTIONS)]
    try:
        for line in lines:
            line.sendall(b"POST /ho")
        assert ask(server) == (200, {})
        found = lines[0].recv(65536)
        assert found.startswith(b"HTTP/1.1 200 "), "agents take every other status for approval"
        told = json.loads(found.partition(b"\r\n\r\n")[2])
        assert told["decision"] == "block"
        assert "192 connections are open" in told["reason"]
        assert threading.active_count() < before + MAX_CONNECTIONS + 50
    finally:
        for line in lines:
            line.close()


def test_a_decision_that_takes_too_long_is_answered_as_the_process_would(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undecided, "CIRCUITS_S", 0.2)
    released = threading.Event()

    def slow(*_: Any) -> Any:
        released.wait(LIMIT_S)
        raise OSError("late")

    monkeypatch.setattr(server, "open_store", slow)
    try:
        status, told = ask(server)
        forbidden = ask(server, "rm -rf /etc")[1]
    finally:
        released.set()
    assert status == 200
    assert "the circuits could not be consulted in time" in json.dumps(told)
    assert forbidden["hookSpecificOutput"]["permissionDecision"] == "deny", "the rule stands"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET nonsense / \r\n\r\n", b"400"),
        (b"PUT /hooks/codex HTTP/1.1\r\n\r\n", b"501"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/9.0\r\n\r\n", b"505"),
    ],
)
def test_an_invalid_request_gets_an_answer_in_json(
    server: HookServer, request_: bytes, status: bytes
) -> None:
    with connect(server) as line:
        line.sendall(request_)
        found = line.recv(65536)
    assert found.startswith(b"HTTP/1.1 " + status)
    assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]


def test_a_chunked_body_is_refused_with_a_reason(server: HookServer) -> None:
    with connect(server) as line:
        line.sendall(head(server, "Transfer-Encoding: chunked") + b"\r\n5\r\nhello\r\n")
        found = line.recv(65536)
    assert found.startswith(b"HTTP/1.1 200 ")
    told = json.loads(found.partition(b"\r\n\r\n")[2])
    assert told["decision"] == "block"
    assert "Content-Length is missing" in told["reason"]


def test_a_client_without_a_token_receives_its_refusal_despite_a_long_body(
    server: HookServer,
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    connection.request("POST", "/hooks/codex", b"x" * 3_000_000, {"Authorization": "Bearer no"})
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["decision"]) == (200, "block")
    connection.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"POST /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /hooks/claude-code HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"POST /hooks/claude-code HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
        b"POST /hooks/claude-code HTTP/9.0\r\n\r\n",
        b"POST /hooks/claude-code HTTP/x\r\n\r\n",
        b"POST /hooks/claude-code\r\n\r\n",
        b"POST /hooks/claude-code HTTP/1.0\r\n\r\n",
        b"POST /hooks/claude-code HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    ],
)
def test_a_malformed_post_is_refused_in_a_form_that_agents_obey(
    server: HookServer, request_: bytes
) -> None:
    with connect(server) as line:
        line.sendall(request_)
        found = line.recv(65536)
    assert found.startswith(b"HTTP/1.1 200 ")
    assert json.loads(found.partition(b"\r\n\r\n")[2])["decision"] == "block"


def test_a_refusal_that_cannot_be_counted_in_time_is_given_anyway(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undecided, "CIRCUITS_S", 0.2)
    released = threading.Event()

    def jammed(*_: Any) -> Any:
        released.wait(LIMIT_S)
        raise OSError("late")

    monkeypatch.setattr(server, "open_store", jammed)
    try:
        with connect(server) as line:
            line.sendall(head(server, "Transfer-Encoding: chunked") + b"\r\n")
            found = line.recv(65536)
    finally:
        released.set()
    assert json.loads(found.partition(b"\r\n\r\n")[2])["decision"] == "block"


def test_a_hook_that_no_thread_can_be_started_for_is_refused(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadingHTTPServer, "process_request", full)
    with connect(server) as line:
        found = line.recv(65536)
    assert json.loads(found.partition(b"\r\n\r\n")[2])["decision"] == "block"


def test_a_client_that_disconnects_affects_no_others(server: HookServer) -> None:
    for _ in range(5):
        with connect(server) as line:
            line.sendall(head(server, "Content-Length: 1000") + b"\r\n{")
    assert ask(server) == (200, {})
