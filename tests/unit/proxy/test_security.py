"""Hostile clients and upstreams: smuggling, injection, sizes, pace, redirects, hosts, tokens."""

import gzip
import hashlib
import json
import socket
import time

import pytest

from switchgear._proxy.guard import GuardSettings
from switchgear._proxy.http1 import Limits
from timeouts import LIMIT_S, eventually
from unit.proxy_stage import (
    FakeUpstream,
    Heard,
    answers,
    ask,
    message,
    proxying,
    read_all,
    reply,
)

BODY = json.dumps(ask()).encode()
HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
SECOND = b"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def length(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n" % len(body)


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + length(BODY) + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
        HEAD + b"Transfer-Encoding: chunked\r\n" + length(BODY) + b"\r\n0\r\n\r\n" + SECOND,
        HEAD + length(BODY) + length(BODY) + b"\r\n" + BODY,
        HEAD + length(BODY) + length(BODY + SECOND) + b"\r\n" + BODY + SECOND,
        HEAD + b"Content-Length: +5\r\n\r\nhello",
        HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
        HEAD + b"Content-Length: 0x5\r\n\r\nhello",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length : 5\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        HEAD + b"X-Nul: a\x00b\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"X-Return: a\rb\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"X-Latin: \xff\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"X Y: 1\r\nContent-Length: 0\r\n\r\n",
        b"POST /v1/messages HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n",
        b"POST /v1/messages HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nContent-Length: 0\r\n\r\n",
        b"CONNECT evil:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://evil/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET //evil/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /s/../v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /s/a/../../v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /s/%2e%2e/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /s/a%2f..%2fb/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /s/a%0d%0ax-evil:1/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models%0d%0ax-evil:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1\\models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /v1/models HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_ambiguous_and_malformed_requests_are_rejected_and_reach_no_upstream(raw: bytes) -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        got = stage.raw(raw)
    assert got.startswith((b"HTTP/1.1 4", b"HTTP/1.1 50"))
    assert got.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in got
    assert not up.heard


def test_requests_in_one_segment_are_answered_in_their_order() -> None:
    def speak(client: socket.socket, heard: Heard) -> None:
        client.sendall(reply({"path": heard.line}))

    with proxying(FakeUpstream(speak)) as stage:
        one = b"GET /v1/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
        two = b"GET /v1/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        got = stage.raw(one + one + two)
    assert got.count(b"HTTP/1.1 200") == 3
    assert got.index(b"/v1/a") < got.index(b"/v1/b")


def test_a_body_is_forwarded_with_one_length_whatever_its_encoding() -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        stage.raw(
            HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"%x;ext=1\r\n%s\r\n0\r\nX-Trailer: dropped\r\n\r\n" % (len(BODY), BODY)
        )
    heard = up.heard[0].headers()
    assert up.heard[0].body == BODY
    assert heard["content-length"] == str(len(BODY))
    assert "transfer-encoding" not in heard
    assert "x-trailer" not in heard


def test_a_header_of_the_upstream_cannot_add_headers_of_the_proxy() -> None:
    up = FakeUpstream(answers(reply(message(), headers="x-switchgear-session: forged\r\n")))
    with proxying(up) as stage:
        got = stage.post(ask(), "/s/mine/v1/messages")
    assert got.headers["x-switchgear-session"] == "mine"


def test_a_session_header_with_strange_characters_is_made_safe() -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        got = stage.post(ask(), headers={"x-claude-code-session-id": "../../etc x;y"})
    assert got.headers["x-switchgear-session"] == ".._.._etc_x_y"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
def test_a_body_beyond_the_limit_is_rejected_unread(path: str) -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up, body_bytes=10_000) as stage:
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % path.encode()
        announced = stage.raw(head + b"Content-Length: 10001\r\n\r\n" + b"x" * 5_000)
        chunked = stage.raw(
            head + b"Transfer-Encoding: chunked\r\n\r\n" + b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
        )
    assert announced.startswith(b"HTTP/1.1 413")
    assert chunked.startswith(b"HTTP/1.1 413")
    assert not [heard for heard in up.heard if len(heard.body) > 10_000]


def test_too_many_and_too_large_headers_are_rejected() -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        many = stage.raw(HEAD + b"X-A: 1\r\n" * 300 + b"\r\n")
        large = stage.raw(HEAD + b"X-A: " + b"a" * 600_000 + b"\r\n\r\n")
        name = stage.raw(HEAD + b"A" * 70_000 + b": 1\r\n\r\n")
        sum_of_all = stage.raw(HEAD + (b"X-A: " + b"a" * 1_000 + b"\r\n") * 70 + b"\r\n")
        long = stage.raw(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert many.startswith(b"HTTP/1.1 431")
    assert large.startswith(b"HTTP/1.1 431")
    assert name.startswith(b"HTTP/1.1 431")
    assert sum_of_all.startswith(b"HTTP/1.1 431")
    assert long.startswith(b"HTTP/1.1 414")
    assert not up.heard


@pytest.mark.parametrize("end", [b"0\r\nX-Trailer: ", b"5;x=", b"0\r\n" + b"X-A: 1\r\n" * 1000])
@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/files"])
def test_endless_trailers_and_extensions_of_chunks_are_rejected(path: bytes, end: bytes) -> None:
    up = FakeUpstream(answers(reply(message())))
    endless = (b"b" if end.endswith(b"=") else b"a: b\r\n") * 500_000
    with proxying(up) as stage:
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % path
        got = stage.raw(head + b"5\r\nhello\r\n" + end + endless)
        assert stage.post(ask()).status == 200
    assert got.startswith(b"HTTP/1.1 431")
    assert [heard.body for heard in up.heard if b"/v1/messages" in heard.head] == [BODY]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files", "/s//v1/messages"])
def test_a_client_that_sends_too_much_receives_the_reason_and_no_reset(path: str) -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up, body_bytes=10_000, limits=Limits(body_bytes=10_000)) as stage:
        got = stage.post(b"x" * 20_000_000, path)
        assert got.status == (400 if "//" in path else 413)
        assert b"switchgear proxy" in got.body
        assert stage.post(ask()).status == 200


def test_the_rest_of_a_rejected_request_is_not_read_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("switchgear._proxy.http1._LINGER_S", 0.2)
    up = FakeUpstream(answers(reply(message())))
    with proxying(up, body_bytes=10_000) as stage, stage.open() as client:
        client.sendall(HEAD + b"Content-Length: 1000000000\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 413")

        def is_closed() -> bool:
            try:
                client.sendall(b"x" * 1000)
            except OSError:
                return True
            return False

        eventually(is_closed, "the connection is closed")


def test_a_body_in_chunks_of_one_byte_is_forwarded_whole() -> None:
    up = FakeUpstream(answers(reply(message())))
    raw = json.dumps(ask("x" * 100_000)).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in raw) + b"0\r\n\r\n"
    with proxying(up) as stage:
        head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert stage.raw(head + chunks).startswith(b"HTTP/1.1 200")
    assert up.heard[0].body == raw


def test_a_response_to_head_has_no_body_even_where_the_proxy_answers() -> None:
    up = FakeUpstream(answers(reply(message())))
    up.close()
    with proxying(up) as stage:
        head = b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\n"
        got = stage.raw(head + b"\r\n" + head + b"Connection: close\r\n\r\n")
    assert got.count(b"HTTP/1.1 502") == 2
    assert b"upstream" not in got
    assert got.endswith(b"\r\n\r\n")


def test_slow_headers_and_bodies_end_at_their_deadlines() -> None:
    up = FakeUpstream(answers(reply(message())))
    limits = Limits(head_s=0.3, read_s=0.3, idle_s=0.3, body_s=1.0)
    with proxying(up, limits=limits) as stage:
        assert stage.raw(b"POST /v1/mess").startswith(b"HTTP/1.1 408")
        assert stage.raw(HEAD + b"Content-Length: 100\r\n\r\n{").startswith(b"HTTP/1.1 408")
        assert stage.raw(b"") == b""  # idle: closed without a word
        with stage.open() as client:  # a byte now and then does not help
            client.sendall(HEAD + b"X-A: ")
            started_s = time.monotonic()
            try:
                while time.monotonic() - started_s < 60:
                    client.sendall(b"a")
                    time.sleep(0.05)
            except OSError:
                pass
            assert time.monotonic() - started_s < 60
    assert not up.heard


def test_a_body_that_is_shorter_than_announced_is_not_forwarded() -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        with stage.open() as client:
            client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (len(BODY) + 5) + BODY)
        with stage.open() as client:
            client.sendall(
                b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nabc"
            )
        assert stage.post(ask()).status == 200
    assert len(up.heard) == 1


def test_garbage_after_the_body_ends_the_connection() -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        got = stage.raw(HEAD + length(BODY) + b"\r\n" + BODY + b"garbage\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400")
    assert got.count(b"HTTP/1.1 ") == 1


def test_a_client_that_reads_nothing_stops_the_upstream_and_not_the_memory() -> None:
    sent = 0

    def speak(client: socket.socket, _: Heard) -> None:
        nonlocal sent
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        client.settimeout(LIMIT_S)
        while True:
            sent += client.send(b": " + b"x" * 65_534)

    up = FakeUpstream(speak)
    with proxying(up) as stage, stage.open() as client:
        client.sendall(HEAD + length(BODY) + b"\r\n" + BODY)
        settled = [-1]

        def is_stalled() -> bool:
            before, settled[0] = settled[0], sent
            time.sleep(0.3)
            return sent > 0 and before == sent

        eventually(is_stalled, "the upstream is no longer read")
        assert sent < 64 * 1024 * 1024


@pytest.mark.parametrize(
    "location",
    [
        "https://evil.example/v1/messages",
        "//evil.example/x",
        "/\\evil.example/x",
        "\\\\evil.example",
        "/v1/same\r\nlocation: https://evil.example/",
        "http://[evil",
        "http://127.0.0.1@evil.example/",
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/models"])
def test_redirects_to_another_host_are_neither_followed_nor_returned(
    location: str, path: str
) -> None:
    up = FakeUpstream(answers(reply(b"", 307, f"location: {location}\r\n")))
    with proxying(up) as stage:
        got = stage.post(ask(), path, {"x-api-key": "sk-ant-1"})
    assert got.status == 502
    assert "location" not in got.headers
    assert len(up.heard) == 1


def test_a_redirect_on_the_same_host_is_returned_and_not_followed() -> None:
    up = FakeUpstream(answers(reply(b"", 307, "location: /v2/models\r\n")))
    with proxying(up) as stage:
        got = stage.request("GET", "/v1/models")
    assert (got.status, got.headers["location"]) == (307, "/v2/models")
    assert len(up.heard) == 1


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:4738", "127.0.0.1.evil.example", ""]
)
def test_only_local_hosts_are_served_without_a_token(host: str) -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        got = stage.request("GET", "/v1/models", headers={"Host": host})
        assert stage.request("GET", "/v1/models", headers={"Host": "localhost:1"}).status == 200
        assert stage.request("GET", "/v1/models", headers={"Host": "[::1]:1"}).status == 200
    assert got.status == 421
    assert len(up.heard) == 2


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://localhost.evil.example", "null"]
)
def test_requests_of_pages_of_other_sites_are_refused(origin: str) -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up, keys={"anthropic": "sk-ant-of-the-proxy"}) as stage:
        assert stage.post(ask(), headers={"Origin": origin}).status == 403
        assert not up.heard
        for ours in ("http://localhost:3000", "http://127.0.0.1", "vscode-file://vscode-app"):
            assert stage.post(ask(), headers={"Origin": ours}).status == 200


def test_a_key_in_the_query_is_not_sent_to_an_upstream_with_its_own() -> None:
    path = "/v1beta/models/gemini-2.5-pro:generateContent"
    up = FakeUpstream(answers(reply({"candidates": []})))
    with proxying(up, keys={"google": "theirs"}) as stage:
        stage.post({"contents": []}, f"{path}?alt=json&key=AIzaMine&key=AIzaMine2&x=1")
        stage.post({"contents": []}, f"{path}?key=AIzaMine")
    assert [heard.line.split()[1] for heard in up.heard] == [f"{path}?alt=json&x=1", path]
    assert not any(b"AIza" in heard.head for heard in up.heard)


def test_with_a_token_every_request_needs_it_and_it_is_not_forwarded() -> None:
    digest = hashlib.sha256(b"correct-horse-battery").digest()
    up = FakeUpstream(answers(reply(message())))
    with proxying(up, token_digest=digest) as stage:
        assert stage.post(ask()).status == 401
        assert stage.post(ask(), headers={"x-switchgear-token": "wrong"}).status == 401
        assert (
            stage.post(ask(), headers={"x-switchgear-token": "correct-horse-battery"}).status == 200
        )
        assert stage.post(ask(), "/t/correct-horse-battery/s/a/v1/messages").status == 200
        assert stage.post(ask(), "/t/wrong/s/a/v1/messages").status == 401
        eventually(lambda: len(stage.log) >= 2, "requests are logged")
        assert "correct-horse" not in "".join(stage.log)
    assert len(up.heard) == 2
    assert not any(b"correct-horse" in heard.head for heard in up.heard)


def test_one_broken_request_does_not_end_the_worker() -> None:
    up = FakeUpstream(lambda client, _: client.sendall(b"HTTP/9 nonsense\r\n\r\n"))
    with proxying(up) as stage:
        assert stage.post(ask()).status == 502
        up.speak = answers(reply(message()))
        assert stage.post(ask()).status == 200


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b"{", b'{"messages": 5}', b'{"messages": [[[1]]]}', b"[" * 100_000]
)
def test_bodies_that_cannot_be_read_are_forwarded_as_they_are(raw: bytes) -> None:
    up = FakeUpstream(answers(reply({"error": "bad"}, 400)))
    with proxying(up) as stage:
        for path in (
            "/v1/messages",
            "/v1/responses",
            "/v1/chat/completions",
            "/v1beta/models/g:generateContent",
        ):
            assert stage.post(raw, path).status == 400
    assert [heard.body for heard in up.heard] == [raw] * 4


@pytest.mark.parametrize("depth", [100, 490, 500, 990, 100_000])
def test_deeply_nested_bodies_are_forwarded_as_they_are(depth: int) -> None:
    inner = b"[" * depth + b"]" * depth
    raw = b'{"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": %s}]}' % inner
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        assert stage.post(raw).status == 200
    assert up.heard[0].body == raw


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_body_of_many_values_blocks_no_other_request(is_packed: bool) -> None:
    raw = b'{"model": "claude-sonnet-4-5", "messages": [%s0]}' % (b"0," * 8_000_000)
    raw = gzip.compress(raw) if is_packed else raw
    more = {"content-encoding": "gzip"} if is_packed else {}
    up = FakeUpstream(answers(reply(message())))
    budget = GuardSettings(session_budget_micros=1_000_000)
    with proxying(up, guard=budget) as stage:
        assert stage.post(ask()).status == 200  # what is read once is read
        began_s = time.process_time()
        got = stage.post(raw, headers=more)
        assert time.process_time() - began_s < 2.0
        assert got.headers["x-switchgear-refused"] == "price"  # what is not read is not paid for
    assert len(up.heard) == 1


@pytest.mark.parametrize(
    "path", ["/v1/messages/", "/v1/messages;a=b", "/v1/%6dessages", "/v1//messages"]
)
def test_other_spellings_of_a_path_are_guarded_anyway(path: str) -> None:
    with proxying(FakeUpstream(answers(reply(message())))) as stage:
        assert "x-switchgear-circuit" in stage.post(ask(), path).headers


def test_headers_that_a_client_lists_as_its_own_connections_are_dropped_and_nothing_else() -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        more = {"Connection": "x-mine, content-length, host", "x-mine": "1", "x-kept": "2"}
        assert stage.post(ask(), headers=more).status == 200
    heard = up.heard[0].headers()
    assert "x-mine" not in heard
    assert (heard["x-kept"], heard["content-length"]) == ("2", str(len(BODY)))
    assert heard["host"] == up.url.removeprefix("http://")
