"""Requests through a running proxy: bytes, circuits, budgets, sessions, loops, refusals."""

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear import Mode, Panel
from switchgear._config import preset_policy
from switchgear._proxy.guard import GuardSettings
from switchgear._proxy.metrics import proxy_families
from switchgear._sinks.metrics import exposition
from timeouts import LIMIT_S, eventually
from unit.proxy_stage import (
    FakeUpstream,
    Heard,
    Speak,
    Stage,
    answers,
    ask,
    loop_history,
    message,
    message_stream,
    proxying,
    read_all,
    received,
    reply,
)

OVERLOADED = reply({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, 529)
STREAM = "text/event-stream"


def test_a_request_and_its_response_pass_byte_for_byte() -> None:
    body = b'{"model": "claude-sonnet-4-5",  "max_tokens":1, "messages":[{"role":"user","content":"\xc3\xa9 \\u00e9"}]}'
    sent = json.dumps(message(), indent=3).encode()
    with behind_proxy(answers(reply(sent, headers="request-id: r1\r\nx-a: 1\r\nx-a: 2\r\n"))) as (
        up,
        stage,
    ):
        got = stage.post(
            body, "/v1/messages?beta=true", {"X-Custom-Thing": "Kept As Is", "x-api-key": "k"}
        )
    heard = up.heard[0]
    assert got.body == sent
    assert got.headers["request-id"] == "r1"
    assert heard.body == body
    assert heard.line == "POST /v1/messages?beta=true HTTP/1.1"
    assert heard.headers()["x-custom-thing"] == "Kept As Is"
    assert b"X-Custom-Thing: Kept As Is" in heard.head
    assert heard.headers()["x-api-key"] == "k"
    assert heard.headers()["host"] == up.url.removeprefix("http://")


def test_headers_of_one_connection_are_not_forwarded() -> None:
    with behind_proxy(answers(reply(message()))) as (up, stage):
        stage.post(
            ask(),
            headers={"Connection": "x-mine", "X-Mine": "1", "Keep-Alive": "5", "TE": "trailers"},
        )
    assert not {"x-mine", "keep-alive", "te"} & up.heard[0].headers().keys()


def test_a_stream_passes_byte_for_byte_and_its_parts_as_they_come() -> None:
    first_read = threading.Event()
    whole = message_stream()

    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        )
        client.sendall(whole[:50])
        assert first_read.wait(LIMIT_S)  # the proxy must not wait for more
        client.sendall(whole[50:])
        client.close()

    with behind_proxy(speak) as (_, stage), stage.open() as client:
        raw = json.dumps(ask(stream=True)).encode()
        head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
        data = b""
        while b"event: message_start" not in data:
            data += received(client)
        first_read.set()
        data += read_all(client)
    body = data.partition(b"\r\n\r\n")[2]
    assert unchunked(body) == whole


def test_a_compressed_response_passes_unchanged_and_is_metered() -> None:
    raw = gzip.compress(json.dumps(message()).encode())
    with behind_proxy(answers(reply(raw, headers="content-encoding: gzip\r\n"))) as (up, stage):
        got = stage.post(ask(), headers={"accept-encoding": "gzip, deflate, br, zstd"})
        assert got.body == raw
        assert up.heard[0].headers()["accept-encoding"] == "gzip, deflate"
        eventually(lambda: stage.log, "the request is logged")
        entry = json.loads(stage.log[-1])
    assert (entry["input_tokens"], entry["output_tokens"]) == (1000, 100)
    assert entry["cost_micros"] == 4500


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("POST", "/v1/embeddings"),
        ("DELETE", "/v1/files/f1"),
        ("PUT", "/x?y=%20z"),
    ],
)
def test_other_requests_are_passed_through(method: str, path: str) -> None:
    with behind_proxy(answers(reply(b"\x00\xff", content_type="image/png"))) as (up, stage):
        got = stage.request(method, path, b"payload" if method in {"POST", "PUT"} else None)
    assert got.body == b"\x00\xff"
    assert up.heard[0].line == f"{method} {path} HTTP/1.1"
    assert up.heard[0].body == (b"payload" if method in {"POST", "PUT"} else b"")


def test_a_large_body_of_an_unguarded_request_is_streamed() -> None:
    with behind_proxy(answers(reply({}))) as (up, stage):
        stage.request("POST", "/v1/files", b"x" * 5_000_000)
    assert len(up.heard[0].body) == 5_000_000


def test_five_failures_open_the_circuit_and_the_sixth_request_gets_a_retry_after() -> None:
    with behind_proxy(answers(OVERLOADED)) as (up, stage):
        statuses = [stage.post(ask()).status for _ in range(5)]
        got = stage.post(ask())
        assert stage.panel.breaker("provider/anthropic/claude-sonnet-4-5").state == "open"
    assert statuses == [529] * 5
    assert len(up.heard) == 5
    assert got.status == 529
    assert 1 <= int(got.headers["retry-after"]) <= 60
    assert got.headers["x-switchgear-reaction"] == "wait"
    assert got.json()["error"]["type"] == "overloaded_error"
    assert "5 failures in a row" in got.json()["error"]["message"]


def test_circuits_are_separate_for_each_model() -> None:
    with behind_proxy(answers(OVERLOADED)) as (up, stage):
        for _ in range(6):
            stage.post(ask())
        stage.post(ask(model="claude-haiku-4-5"))
    assert len(up.heard) == 6


def test_errors_of_the_request_do_not_open_the_circuit() -> None:
    bad = reply({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, 400)
    with behind_proxy(answers(bad)) as (up, stage):
        statuses = [stage.post(ask()).status for _ in range(8)]
    assert statuses == [400] * 8
    assert len(up.heard) == 8


def test_a_stream_that_breaks_off_counts_as_a_failure() -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        client.sendall(message_stream(cut=True))
        client.close()

    with behind_proxy(speak) as (up, stage):
        for _ in range(5):
            stage.post(ask(stream=True))
        assert stage.post(ask(stream=True)).status == 529
    assert len(up.heard) == 5


def test_a_dead_upstream_answers_502_in_the_format_of_the_provider() -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        up.close()
        got = stage.post(ask())
    assert got.status == 502
    assert got.json()["type"] == "error"


def test_failing_keys_are_stopped_by_their_own_circuit() -> None:
    denied = reply(
        {"type": "error", "error": {"type": "authentication_error", "message": "bad"}}, 401
    )
    with behind_proxy(answers(denied)) as (up, stage):
        for _ in range(6):
            stage.post(ask(), headers={"x-api-key": "sk-ant-wrong"})
        stage.post(ask(), headers={"x-api-key": "sk-ant-other"})
        names = [view.name for view in stage.panel.circuits("key/*")]
    assert len(up.heard) == 6
    assert len(names) == 2
    assert not any("sk-ant" in name for name in names)


# Fallback


def test_a_rejected_key_of_the_upstream_is_not_blamed_on_the_client() -> None:
    rejected = {"type": "error", "error": {"type": "authentication_error", "message": "no"}}
    up = FakeUpstream(answers(reply(rejected, 401)))
    with proxying(up, keys={"anthropic": "sk-of-the-proxy"}) as stage:
        for _ in range(7):
            got = stage.post(ask(), headers={"x-api-key": "sk-of-the-client"})
            assert (got.status, got.headers.get("x-switchgear-refused")) == (401, None)
        assert up.heard[0].headers()["x-api-key"] == "sk-of-the-proxy"


def test_the_fallback_answers_while_the_primary_fails_and_the_primary_takes_over_again() -> None:
    first = FakeUpstream(answers(OVERLOADED))
    second = FakeUpstream(answers(reply(message({"input_tokens": 1, "output_tokens": 2}))))
    with proxying(first, second) as stage:
        assert [stage.post(ask()).status for _ in range(7)] == [200] * 7
        assert len(first.heard) == 5
        assert len(second.heard) == 7
        first.speak = answers(reply(message()))
        stage.panel.order("provider/anthropic/claude-sonnet-4-5", by="t", why="t", probe=True)
        stage.panel.flush()
        eventually(lambda: stage.post(ask()).status == 200 and len(first.heard) > 5, "it is back")


def test_without_a_healthy_fallback_the_error_of_the_upstream_is_returned() -> None:
    first, second = FakeUpstream(answers(OVERLOADED)), FakeUpstream(answers(OVERLOADED))
    with proxying(first, second) as stage:
        got = stage.post(ask())
    assert got.status == 529
    assert got.json()["error"]["message"] == "busy"
    assert (len(first.heard), len(second.heard)) == (1, 1)


def test_a_stream_that_has_started_is_never_sent_to_the_fallback() -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        client.sendall(message_stream(cut=True))
        client.close()

    first, second = FakeUpstream(speak), FakeUpstream(answers(reply(message())))
    with proxying(first, second) as stage:
        stage.post(ask(stream=True))
    assert not second.heard


# Budgets


def test_a_budget_is_charged_from_the_streamed_usage() -> None:
    stream = reply(message_stream(200), content_type=STREAM)
    with behind_proxy(answers(stream), guard=GuardSettings(budget_node="proxy")) as (_, stage):
        stage.panel.budgets.open("proxy", 1_000_000)
        stage.post(ask(stream=True))
        assert stage.settled("proxy") == 1000 * 3 + 200 * 15


def test_cache_reads_and_writes_have_their_own_prices() -> None:
    usage = {
        "input_tokens": 100,
        "cache_read_input_tokens": 10_000,
        "cache_creation_input_tokens": 1_000,
        "output_tokens": 10,
    }
    with behind_proxy(answers(reply(message(usage))), guard=GuardSettings(budget_node="proxy")) as (
        _,
        stage,
    ):
        stage.panel.budgets.open("proxy", 1_000_000)
        stage.post(ask())
        assert stage.settled("proxy") == 300 + 3_000 + 3_750 + 150


def test_an_exhausted_budget_stops_the_agent_and_names_the_solution() -> None:
    with behind_proxy(answers(reply(message())), guard=GuardSettings(budget_node="proxy")) as (
        up,
        stage,
    ):
        stage.panel.budgets.open("proxy", 10_000)
        statuses = [stage.post(ask()).status for _ in range(6)]
        got = stage.post(ask())
        spent = stage.settled("proxy")
    assert spent <= 10_000
    assert statuses[0] == 200
    assert got.status == 400
    assert got.headers["x-should-retry"] == "false"
    assert "switchgear budgets set proxy" in got.json()["error"]["message"]
    assert len(up.heard) == statuses.count(200)


def test_parallel_calls_never_overdraw_a_budget() -> None:
    with behind_proxy(answers(reply(message())), guard=GuardSettings(budget_node="proxy")) as (
        up,
        stage,
    ):
        stage.panel.budgets.open("proxy", 50_000)  # eleven calls of 4,500
        threads = [
            threading.Thread(target=lambda: [stage.post(ask()) for _ in range(5)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stage.settled("proxy") <= 50_000
        assert stage.settled("proxy") == 4_500 * len(up.heard)
        assert len(up.heard) >= 8


def test_every_session_and_key_has_its_own_budget() -> None:
    guard = GuardSettings(session_budget_micros=10_000, key_budget_micros=100_000)
    with behind_proxy(answers(reply(message())), guard=guard) as (up, stage):
        for _ in range(4):
            stage.post(ask(), "/s/one/v1/messages", {"x-api-key": "k1"})
        first = len(up.heard)
        assert stage.post(ask(), "/s/two/v1/messages", {"x-api-key": "k1"}).status == 200
        assert stage.settled("proxy-session-one") == 4_500 * first
    assert first < 4


def test_a_model_without_a_price_is_refused_where_there_is_a_budget() -> None:
    with behind_proxy(answers(reply(message())), guard=GuardSettings(budget_node="proxy")) as (
        up,
        stage,
    ):
        stage.panel.budgets.open("proxy", 1_000_000)
        got = stage.post(ask(model="no-such-model"))
    assert not up.heard
    assert got.headers["x-switchgear-refused"] == "price"
    assert "--price-in" in got.json()["error"]["message"]


def test_a_model_without_a_price_passes_where_it_is_allowed() -> None:
    guard = GuardSettings(budget_node="proxy", allow_unknown_price=True)
    with behind_proxy(answers(reply(message())), guard=guard) as (_, stage):
        stage.panel.budgets.open("proxy", 1_000_000)
        assert stage.post(ask(model="no-such-model")).status == 200


def test_errors_of_the_upstream_cost_nothing() -> None:
    with behind_proxy(answers(OVERLOADED), guard=GuardSettings(budget_node="proxy")) as (
        _,
        stage,
    ):
        stage.panel.budgets.open("proxy", 1_000_000)
        stage.post(ask())
        assert stage.settled("proxy") == 0


def test_a_client_that_disconnects_pays_for_what_was_streamed_and_gets_the_rest_back() -> None:
    went = threading.Event()

    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        client.sendall(message_stream(cut=True))
        client.settimeout(LIMIT_S)
        assert client.recv(1) == b""  # the proxy closes the connection, too
        went.set()

    with behind_proxy(speak, guard=GuardSettings(budget_node="proxy")) as (_, stage):
        stage.panel.budgets.open("proxy", 1_000_000)
        raw = json.dumps(ask(stream=True)).encode()
        with stage.open() as client:
            client.sendall(
                b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                % len(raw)
                + raw
            )
            data = b""
            while b"message_start" not in data:
                data += received(client)
        assert went.wait(LIMIT_S)
        spent = stage.settled("proxy")
        assert 3_000 < spent < 3_200  # a thousand tokens in, a few out
        assert stage.panel.breaker("provider/anthropic/claude-sonnet-4-5").state == "closed"


def test_count_tokens_is_free() -> None:
    guard = GuardSettings(budget_node="proxy")
    with behind_proxy(answers(reply({"input_tokens": 9})), guard=guard) as (_, stage):
        stage.panel.budgets.open("proxy", 1)
        assert stage.post(ask(), "/v1/messages/count_tokens").json() == {"input_tokens": 9}


# Sessions and loops


def test_a_tool_loop_is_refused_once_with_the_evidence_and_the_next_request_is_admitted() -> None:
    with behind_proxy(answers(reply(message()))) as (_, stage):
        replies = []
        for calls in range(1, 31):
            history = loop_history(calls, "nothing to do", failed=False)
            replies.append(stage.post(ask(messages=history), "/s/night/v1/messages"))
            if replies[-1].status != 200:
                break
        refused = replies[-1]
        again = stage.post(ask(messages=loop_history(len(replies) + 1)), "/s/night/v1/messages")
    assert refused.status == 400
    assert refused.headers["x-switchgear-refused"] == "loop"
    assert refused.headers["x-switchgear-session"] == "night"
    assert "without progress" in refused.json()["error"]["message"]
    assert again.status == 200
    assert any("x-switchgear-warning" in each.headers for each in replies)
    assert float(replies[-2].headers["x-switchgear-heat"]) > 0.5


def test_the_same_history_again_adds_no_evidence() -> None:
    with behind_proxy(answers(reply(message()))) as (_, stage):
        history = ask(messages=loop_history(3))
        heats = {
            stage.post(history, "/s/a/v1/messages").headers["x-switchgear-heat"] for _ in range(20)
        }
    assert len(heats) == 1


def test_a_history_that_arrives_at_once_is_evaluated_as_if_it_had_come_step_by_step() -> None:
    with behind_proxy(answers(reply(message()))) as (_, stage):
        got = stage.post(ask(messages=loop_history(30)), "/s/a/v1/messages")
    assert got.headers["x-switchgear-refused"] == "loop"


def test_a_loop_is_reset_when_the_user_has_written_since() -> None:
    with behind_proxy(answers(reply(message()))) as (_, stage):
        history = [
            *loop_history(30),
            {"role": "assistant", "content": "stuck"},
            {"role": "user", "content": "try X"},
        ]
        assert stage.post(ask(messages=history), "/s/a/v1/messages").status == 200


def test_compaction_repeats_no_step() -> None:
    with behind_proxy(answers(reply(message()))) as (_, stage):
        stage.post(ask(messages=loop_history(3)), "/s/a/v1/messages")
        kept = [{"role": "user", "content": "summary"}, *loop_history(2, start=1)[1:]]
        got = stage.post(ask(messages=kept), "/s/a/v1/messages")
        before = stage.post(ask(messages=loop_history(3)), "/s/b/v1/messages")
    assert got.headers["x-switchgear-heat"] == before.headers["x-switchgear-heat"]


def test_a_held_session_is_refused_until_it_is_released() -> None:
    with behind_proxy(answers(reply(message()))) as (up, stage):
        assert stage.post(ask(), "/s/held/v1/messages").status == 200
        stage.panel.order("session/held", by="ops", why="too expensive", mode=Mode.HELD_OPEN)
        eventually(
            lambda: stage.post(ask(), "/s/held/v1/messages").status == 400, "the hold is seen"
        )
        seen = len(up.heard)
        got = [stage.post(ask(), "/s/held/v1/messages") for _ in range(3)]
        assert len(up.heard) == seen
        stage.panel.order("session/held", by="ops", why="fine", mode=Mode.AUTO)
        eventually(lambda: stage.post(ask(), "/s/held/v1/messages").status == 200, "released")
    assert all("too expensive" in each.json()["error"]["message"] for each in got)
    assert got[0].headers["x-switchgear-refused"] == "session"


def test_a_hold_of_the_parent_stops_its_sub_agents() -> None:
    child = {
        "x-session-id": "ses_child",
        "x-parent-session-id": "ses_parent",
        "user-agent": "opencode/1",
    }
    with behind_proxy(answers(reply(message()))) as (_, stage):
        assert stage.post(ask(), headers=child).status == 200
        stage.panel.order("session/ses_parent", by="ops", why="stop", mode=Mode.HELD_OPEN)
        eventually(lambda: stage.post(ask(), headers=child).status == 400, "the hold is seen")


def called(number: int) -> bytes:
    """A response of the Responses API that calls the same command again."""
    call = {"type": "function_call", "call_id": f"call_{number}", "name": "shell"}
    body = {"id": f"resp_{number}", "object": "response", "status": "completed", "model": "gpt-5"}
    output = [{**call, "arguments": '{"cmd": "make"}'}]
    return reply({**body, "output": output, "usage": {"input_tokens": 10, "output_tokens": 1}})


@pytest.mark.parametrize("named_by", ["response", "conversation", "header"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_continued_response_feeds_its_calls_once(
    tmp_path: Path, workers: int, named_by: str
) -> None:
    store = f"sqlite:///{tmp_path}/state.db"
    up = FakeUpstream(answers(*(called(number) for number in range(40))))
    same = {"conversation": "conv_1"} if named_by == "conversation" else {}
    headers = {"authorization": "Bearer k"}
    if named_by == "header":
        headers["x-switchgear-session"] = "mine"
    with contextlib.ExitStack() as stack:
        stages = [stack.enter_context(proxying(up, store=store)) for _ in range(workers)]
        body: dict[str, Any] = {"model": "gpt-5", "input": "fix the build", "tools": [], **same}
        first = stages[0].post(body, "/v1/responses", headers)
        statuses = []
        for number in range(30):
            result = {"type": "function_call_output", "call_id": f"call_{number}"}
            body = {"model": "gpt-5", "input": [{**result, "output": "Exit code: 1"}], **same}
            if named_by != "conversation":
                body["previous_response_id"] = f"resp_{number}"
            stage = stages[number % workers if named_by != "conversation" else 0]
            got = stage.post(body, "/v1/responses", headers)
            assert got.headers["x-switchgear-session"] == first.headers["x-switchgear-session"]
            statuses.append(got.status)
            if got.status != 200:
                break
    assert statuses[-1] == 400
    assert 3 < len(statuses) < 8


def test_a_warning_reaches_the_model_only_where_hints_are_enabled() -> None:
    with behind_proxy(answers(reply(message())), hint=True) as (up, stage):
        for calls in range(1, 31):
            history = loop_history(calls, "nothing to do", failed=False)
            got = stage.post(ask(messages=history), "/s/a/v1/messages")
            if "x-switchgear-warning" in got.headers:
                break
    last = json.loads(up.heard[-1].body)["messages"][-1]["content"][-1]["text"]
    assert last.startswith("[switchgear]")


def test_a_hint_is_not_added_to_a_compressed_request() -> None:
    with behind_proxy(answers(reply(message())), hint=True) as (up, stage):
        for calls in range(1, 31):
            history = loop_history(calls, "nothing to do", failed=False)
            raw = gzip.compress(json.dumps(ask(messages=history)).encode())
            got = stage.post(raw, "/s/a/v1/messages", {"content-encoding": "gzip"})
            if "x-switchgear-warning" in got.headers:
                break
    assert "x-switchgear-warning" in got.headers
    assert up.heard[-1].body == raw


# The log


def test_the_log_has_no_keys_queries_or_contents() -> None:
    with behind_proxy(answers(reply(message()))) as (_, stage):
        stage.post(
            ask("my secret plan"),
            "/v1/messages?key=AIzaSecretSecretSecret",
            {"x-api-key": "sk-ant-api-secret-1"},
        )
        eventually(lambda: stage.log, "the request is logged")
        text = "".join(stage.log)
    assert "secret" not in text.lower()
    entry = json.loads(text)
    assert entry["status"] == 200
    assert entry["model"] == "claude-sonnet-4-5"
    assert len(entry["key"]) == 12


def test_health_needs_neither_upstream_nor_host() -> None:
    with behind_proxy(answers(reply({}))) as (up, stage):
        got = stage.request("GET", "/healthz", headers={"Host": "load-balancer"})
    # On a busy machine the answer may add that the store was not read lately.
    assert (got.status, got.json()["status"]) == (200, "ok")
    assert not up.heard


def test_requests_and_the_time_added_to_them_are_counted() -> None:
    up = FakeUpstream(answers(reply(message()), OVERLOADED))
    panel = Panel("memory:", policies=lambda _: preset_policy("provider"))
    with proxying(up, store=panel) as stage:
        for _ in range(7):
            stage.post(ask())
        stage.worker.stop()

        def shown() -> str:
            return exposition(proxy_families(panel.store.inner))

        eventually(lambda: "overhead_seconds_count 7" in shown(), "the counts are saved")
        text = shown()
    assert 'switchgear_proxy_requests_total{upstream="anthropic",outcome="success"} 1' in text
    assert 'switchgear_proxy_requests_total{upstream="anthropic",outcome="failure"} 5' in text
    assert 'switchgear_proxy_requests_total{upstream="anthropic",outcome="refused"} 1' in text


def unchunked(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        whole, data = whole + data[:length], data[length + 2 :]
    return whole


@contextlib.contextmanager
def behind_proxy(speak: Speak, **options: Any) -> Iterator[tuple[FakeUpstream, Stage]]:
    """One upstream, and a proxy in front of it."""
    up = FakeUpstream(speak)
    with proxying(up, **options) as stage:
        yield up, stage
