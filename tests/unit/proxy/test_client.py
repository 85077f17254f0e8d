"""Unusual behaviour of upstreams: the proxy forwards it, reports it, or ends the connection in time."""

import json
import socket
import time

import pytest

from switchgear._proxy.guard import GuardSettings
from timeouts import eventually
from unit.proxy_stage import (
    FakeUpstream,
    Heard,
    answers,
    ask,
    message,
    proxying,
    read_message,
    reply,
)

OK = reply(message())


def test_connections_to_an_upstream_are_kept() -> None:
    ports = []

    def speak(client: socket.socket, _: Heard) -> None:
        ports.append(client.getpeername()[1])
        client.sendall(OK)

    with proxying(FakeUpstream(speak)) as stage:
        for _ in range(3):
            assert stage.post(ask()).status == 200
    assert len(set(ports)) == 1


def test_a_kept_connection_that_the_upstream_closed_is_not_used_again() -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(OK)
        client.close()

    up = FakeUpstream(speak)
    with proxying(up) as stage:
        for _ in range(3):
            assert stage.post(ask()).status == 200
            time.sleep(0.05)  # the end of the connection arrives
    assert len(up.heard) == 3


def test_informational_responses_are_skipped() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    with proxying(FakeUpstream(answers(early + OK))) as stage:
        got = stage.post(ask())
        assert (got.status, got.json()) == (200, message())
        assert "link" not in got.headers


def test_a_body_that_ends_with_the_connection_is_forwarded_whole() -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        body = OK.partition(b"\r\n\r\n")[2]
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + body)
        client.close()

    with proxying(FakeUpstream(speak)) as stage:
        assert stage.post(ask()).json() == message()


def test_a_response_without_a_body_ends_at_its_head() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"
    with proxying(FakeUpstream(answers(head, head, b"HTTP/1.1 204 No Content\r\n\r\n"))) as stage:
        for _ in range(2):
            got = stage.request("HEAD", "/v1/models")
            assert (got.status, got.headers["content-length"]) == (200, "5000")
        assert stage.request("DELETE", "/v1/files/1").status == 204


def test_an_upstream_may_answer_before_it_has_read_the_body() -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        raise AssertionError("the body is never complete")

    up = FakeUpstream(speak)

    def serve(client: socket.socket) -> None:
        with client:
            client.recv(1000)
            client.sendall(reply({"error": "too large"}, 413))
            time.sleep(0.5)

    up._serve = serve  # type: ignore[method-assign]
    with proxying(up) as stage:
        got = stage.request("POST", "/v1/files", b"x" * 3_000_000)
        assert (got.status, got.json()) == (413, {"error": "too large"})


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 600 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 300_000,
        b"",
    ],
    ids=["other", "te-and-length", "lengths", "upgrade", "many", "large", "nothing"],
)
def test_a_response_that_is_not_http_is_a_failure_of_the_upstream(raw: bytes) -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(raw)
        client.close()

    with proxying(FakeUpstream(speak)) as stage:
        got = stage.post(ask())
        assert got.status == 502
        assert "anthropic" in got.json()["error"]["message"]
        failed = stage.panel.breaker("provider/anthropic/claude-sonnet-4-5")
        assert failed.totals.failed == 1


def test_a_silent_upstream_ends_in_a_timeout_and_releases_the_money() -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        time.sleep(3.0)

    guard = GuardSettings(session_budget_micros=10_000_000)
    with proxying(FakeUpstream(speak), guard=guard, read_s=0.4) as stage:
        got = stage.post(ask(), "/s/quiet/v1/messages")
        assert got.status == 504
        assert stage.settled("proxy-session-quiet") == 0


def test_unrequested_bytes_end_the_connection() -> None:
    with proxying(FakeUpstream(answers(OK + OK))) as stage:
        for _ in range(3):
            got = stage.post(ask())
            assert (got.status, got.json()) == (200, message())


def test_a_second_response_in_the_same_segment_changes_nothing_of_the_first() -> None:
    more = b"HTTP/1.1 403 Forged\r\nx-more: 1\r\ncontent-length: 4\r\n\r\nmore"
    with proxying(FakeUpstream(answers(OK + more))) as stage, stage.open() as client:
        body = json.dumps(ask()).encode()
        head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        rest = b""
        for _ in range(2):
            client.sendall(request)
            got, rest = read_message(client, rest)
            assert got is not None
            assert (got.line, json.loads(got.body)) == ("HTTP/1.1 200 Status", message())
            assert "x-more" not in got.headers()
        assert rest == b""


@pytest.mark.parametrize("end", [b"0\r\nx-trailer: ", b"5;x="])
def test_endless_trailers_and_extensions_of_an_upstream_are_a_failure(end: bytes) -> None:
    sent = 0

    def speak(client: socket.socket, _: Heard) -> None:
        nonlocal sent
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        client.sendall(head + b"5\r\n{    \r\n" + end)
        while sent < 64 * 1024 * 1024:
            sent += client.send(b"a" * 65_536)

    with proxying(FakeUpstream(speak)) as stage:
        assert stage.post(ask()).status == 200
        breaker = stage.panel.breaker("provider/anthropic/claude-sonnet-4-5")
        eventually(lambda: breaker.totals.failed == 1, "the failure is recorded")
    assert sent < 16 * 1024 * 1024
