"""The event stream: in order, without gaps or repetitions, resumable; slow clients are dropped."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from switchgear._config import Config
from switchgear._console import app as console_app
from switchgear._console import stream as streams
from switchgear._console.process import ConsoleProcess, ConsoleSettings
from switchgear._console.sources import Sources
from switchgear._console.stream import Client, EventHub, Message, cursor_key, encoded
from switchgear._core.types import Mode, Override
from switchgear._hooks.process import open_store
from switchgear._hooks.server import HookServer
from switchgear._panel.panel import Panel
from switchgear._stores.base import Transaction
from timeouts import LIMIT_S
from unit.console_stage import CLIENT, OPERATOR, READ, TOKENS, bearer, real_server

SSE = {"Accept": "text/event-stream"}


class Stream:
    """A client of the stream."""

    def __init__(
        self, address: tuple[str, int], query: str = "", token: str = READ, **headers: str
    ) -> None:
        self.connection = HTTPConnection(*address, timeout=LIMIT_S)
        self.connection.request("GET", f"/v1/events{query}", headers=bearer(token) | SSE | headers)
        self.response: HTTPResponse = self.connection.getresponse()
        assert self.response.status == 200

    def messages(self) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        while line := self.response.readline():
            text = line.decode().rstrip("\n")
            if not text:
                if "event" in found:
                    yield found
                found = {}
            elif not text.startswith(":"):
                field, _, value = text.partition(": ")
                found[field] = json.loads(value) if field == "data" else value

    def take(self, count: int, kind: str = "event") -> list[dict[str, Any]]:
        found = []
        for message in self.messages():
            if message["event"] == kind:
                found.append(message)
                if len(found) == count:
                    break
        return found

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def make_events(panel: Panel, count: int, name: str = "op/x") -> None:
    """Each override is one event."""
    store = panel.store.inner
    for number in range(count):
        mode = Mode.HELD_CLOSED if number % 2 else Mode.SHADOW
        store.apply(name, panel.policy_of(name), Override("test", f"{number}", mode), store.now_s())


@pytest.fixture(name="panel")
def other_process(tmp_path: Path) -> Iterator[Panel]:
    with Panel(f"sqlite:///{tmp_path}/state.db") as panel:
        yield panel


def test_events_of_another_process_arrive_in_order(tmp_path: Path, panel: Panel) -> None:
    with real_server(tmp_path) as address:
        stream = Stream(address)
        assert stream.take(1, "hello")[0]["data"] == {"cursor": "0"}
        make_events(panel, 20)
        found = stream.take(20)
        assert [each["data"]["seq"] for each in found] == [*range(1, 21)]
        assert [each["id"] for each in found] == [each["data"]["cursor"] for each in found]
        stream.close()


def test_a_client_resumes_after_the_last_event_without_gaps_or_repetitions(
    tmp_path: Path, panel: Panel
) -> None:
    make_events(panel, 5)
    with real_server(tmp_path) as address:
        stream = Stream(address, "?after=0")
        first = stream.take(3)
        stream.close()
        make_events(panel, 5)
    # The server has ended and another one begins.
    make_events(panel, 5)
    with real_server(tmp_path) as address:
        resumed = Stream(address, **{"Last-Event-ID": first[-1]["id"]})
        rest = resumed.take(12)
        resumed.close()
    assert [each["data"]["seq"] for each in first + rest] == [*range(1, 16)]


def test_a_client_that_resumes_while_events_arrive_misses_none(
    tmp_path: Path, panel: Panel
) -> None:
    total = 600
    writer = threading.Thread(target=make_events, args=(panel, total))
    with real_server(tmp_path) as address:
        writer.start()
        seen: list[int] = []
        cursor = "0"
        while len(seen) < total:
            stream = Stream(address, f"?after={cursor}")
            part = stream.take(min(97, total - len(seen)))
            stream.close()
            seen += [each["data"]["seq"] for each in part]
            cursor = part[-1]["id"]
        writer.join()
    assert seen == [*range(1, total + 1)]


def test_a_stream_can_be_limited_to_some_circuits_and_show_their_state(
    tmp_path: Path, panel: Panel
) -> None:
    with real_server(tmp_path) as address:
        stream = Stream(address, "?glob=" + quote("a/*") + "&views=1")
        stream.take(1, "hello")
        make_events(panel, 2, "b/1")
        make_events(panel, 1, "a/1")
        assert stream.take(1)[0]["data"]["circuit"] == "a/1"
        state = stream.take(1, "circuit")[0]["data"]
        assert (state["name"], state["mode"]) == ("a/1", "shadow")
        stream.close()


def test_events_that_are_not_kept_any_more_are_reported_as_a_gap(
    tmp_path: Path, panel: Panel
) -> None:
    make_events(panel, 30)
    panel.store.inner.vacuum(keep_events=10, idle_s=1e9, now_s=panel.store.now_s())
    with real_server(tmp_path) as address:
        stream = Stream(address, "?after=5")
        assert stream.take(1, "gap")[0]["data"]["next"] == 21
        assert [each["data"]["seq"] for each in stream.take(10)] == [*range(21, 31)]
        stream.close()


def test_a_cursor_from_a_newer_store_is_reported_and_the_stream_continues(
    tmp_path: Path, panel: Panel
) -> None:
    make_events(panel, 3)
    with real_server(tmp_path) as address:
        stream = Stream(address, "?after=999")
        assert "newer than the store" in stream.take(1, "reset")[0]["data"]["error"]
        stream.take(1, "hello")
        make_events(panel, 1)
        assert stream.take(1)[0]["data"]["seq"] == 4
        stream.close()


@pytest.mark.parametrize("cursor", ["x", "-1", "1-2-3", "9" * 40, "1.5", "\u0661"])
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match="not a cursor"):
        cursor_key(cursor)


def test_a_client_that_is_too_slow_is_dropped_and_the_others_get_everything(
    tmp_path: Path, panel: Panel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_QUEUED", 5)

    async def main() -> tuple[int, int, bool]:
        hub = EventHub(Sources(panel, Config(), tmp_path))
        dropped: list[bool] = []
        slow = Client("*", views=False, drop=lambda: dropped.append(True))
        quick = Client("*", views=False, drop=lambda: None)
        slow_stream, quick_stream = hub.serve(slow, None), hub.serve(quick, None)
        await anext(slow_stream)
        await anext(quick_stream)
        got = 0
        for number in range(1, 21):
            hub._send([Message(str(number), "c", encoded("event", {}, str(number)))])
            got += (await anext(quick_stream)).startswith(f"id: {number}\n".encode())
        return got, hub.dropped, dropped == [True] and slow.is_dropped

    assert asyncio.run(main()) == (20, 1, True)


def test_a_tcp_client_that_does_not_read_is_dropped_and_resumes_where_it_stopped(
    tmp_path: Path, panel: Panel
) -> None:
    """With the limits as they are: what the system buffers for a connection, and then 4,000 messages."""
    make_events(panel, 1)
    policy, long = panel.policy_of("c"), "x" * 2_000

    def many(tx: Transaction) -> None:
        for number in range(1_000):
            mode = Mode.SHADOW if number % 2 else Mode.AUTO
            tx.apply("c", policy, Override("ann", f"{number} {long}", mode))

    with real_server(tmp_path) as (host, port):

        def dropped() -> int:
            lines = ask_text(port, "/metrics").splitlines()
            found = next(
                each for each in lines if each.startswith("switchgear_event_stream_dropped")
            )
            return int(float(found.split()[1]))

        slow = socket.create_connection((host, port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(
            b"GET /v1/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
            b"Authorization: Bearer " + READ.encode() + b"\r\n\r\n"
        )
        quick = Stream((host, port), "?after=0")
        quick.take(1)
        sent = 0
        while not dropped():
            assert sent < 60, "60,000 events wait, and the slow client is not dropped"
            panel.store.inner.transact("bench", many)
            sent += 1
            quick.take(1_000)  # who reads gets everything in the meantime
        assert dropped() == 1
        got = bytearray()
        slow.settimeout(LIMIT_S)
        with suppress(OSError):
            while len(got) < 300_000 and (part := slow.recv(1 << 20)):
                got += part  # what the system had taken for it already
        slow.close()
        whole = re.compile(rb"\nid: (\d+)\nevent: event\ndata: [^\n]*\n\n")
        numbers = [int(each) for each in whole.findall(bytes(got))]
        assert numbers == sorted(set(numbers))
        last = numbers[-1]
        again = Stream((host, port), f"?after={last}")
        rest = again.take(1_000 * sent + 1 - last)
        assert [int(each["id"]) for each in rest] == [*range(last + 1, 1_000 * sent + 2)]
        again.close()
        quick.close()


def ask_text(port: int, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", path, headers=bearer(READ))
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_the_limit_of_wrong_tokens_cannot_be_evaded_by_naming_another_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_app, "FAILURES_AT_ONCE", 5.0)
    with real_server(tmp_path) as (_, port):
        statuses = []
        for number in range(10):
            connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
            forged = {"X-Forwarded-For": f"10.0.0.{number}", **bearer("wrong")}
            connection.request("GET", "/v1/now", headers=forged)
            statuses.append(connection.getresponse().status)
            connection.close()
        assert statuses[0] == 401
        assert statuses[-1] == 429
        assert json.loads(ask_text(port, "/v1/role"))["role"] == "read"


def test_text_from_agents_cannot_break_out_of_a_stream_message() -> None:
    nasty = "x\n\nevent: forged\ndata: 1\r\r\u2028\x00\ud800"
    text = encoded("event", {"reason": nasty}, "7").decode()
    assert text.count("\n") == 4
    assert "\r" not in text
    assert json.loads(text.split("\ndata: ", 1)[1])["reason"] == nasty


# The process beside the hook endpoint


@contextmanager
def serving(root: Path) -> Iterator[tuple[HookServer, ConsoleProcess]]:
    settings = ConsoleSettings(str(root), f"sqlite:///{root}/state.db", *TOKENS)
    process = ConsoleProcess(settings)
    server = HookServer(str(root), CLIENT, open_store, hand_over=process.hand_over)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server, process
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        process.stop()


def ask(
    port: int, path: str, token: str = READ, method: str = "GET", body: Any = None
) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        text = None if body is None else json.dumps(body)
        headers = bearer(token) | {"Content-Type": "application/json"}
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_hooks_and_the_console_share_a_port_and_the_console_starts_again_when_it_ends(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as (server, process):
        port = server.port
        assert ask(port, "/v1/now")[0] == 200
        hook = {
            "hook_event_name": "PreToolUse",
            "session_id": "s",
            "tool_name": "Read",
            "tool_input": {},
        }
        assert ask(port, "/hooks/claude", CLIENT, "POST", hook)[0] == 200
        assert (
            ask(port, f"/v1/circuits/{quote('a%2Fb', safe='')}/acquire", CLIENT, "POST")[1]["name"]
            == "a%2Fb"
        )
        assert process._process is not None
        first = process._process.pid
        os.kill(first, signal.SIGKILL)
        process._process.wait()
        assert ask(port, "/hooks/claude", CLIENT, "POST", hook)[0] == 200
        process._started_s = float("-inf")  # the pause between two starts is over

        def answers() -> bool:
            try:
                return ask(port, "/v1/now")[0] == 200
            except (OSError, ValueError):
                return False

        until(answers)
        assert process._process.pid != first


def test_after_a_kill_and_a_restart_a_client_resumes_without_a_gap(
    tmp_path: Path, panel: Panel
) -> None:
    with serving(tmp_path) as (server, process):
        address = ("127.0.0.1", server.port)
        make_events(panel, 5)
        stream = Stream(address, "?after=0")
        seen = [int(each["id"]) for each in stream.take(5)]
        assert process._process is not None
        os.kill(process._process.pid, signal.SIGKILL)
        process._process.wait()
        make_events(panel, 7)  # while no console runs
        stream.close()
        process._started_s = float("-inf")  # the pause between two starts is over
        again: list[Stream] = []

        def resumed() -> bool:
            with suppress(OSError, HTTPException, AssertionError):
                again.append(Stream(address, **{"Last-Event-ID": str(seen[-1])}))
            return bool(again)

        until(resumed)
        make_events(panel, 3)
        seen += [int(each["id"]) for each in again[0].take(10)]
        assert seen == [*range(1, 16)]
        again[0].close()


def test_serve_prints_where_the_console_is_and_keeps_tokens_to_the_user(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "switchgear", "serve", "--port", "0"]
    environment = {
        **os.environ,
        "SWITCHGEAR_STORE": f"sqlite:///{tmp_path}/state.db",
        "PYTHONUNBUFFERED": "1",
    }
    (tmp_path / ".git").mkdir()
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        try:
            lines = [served.stdout.readline() for _ in range(5)]
            port = int(lines[2].split("127.0.0.1:")[1].split("/")[0])
            tokens = {
                name: (tmp_path / ".switchgear" / f"{name}.token")
                for name in ("read", "serve", "operator")
            }
            assert {path.stat().st_mode & 0o777 for path in tokens.values()} == {0o600}
            read, operator = (tokens[name].read_text().strip() for name in ("read", "operator"))
            assert ask(port, "/v1/role", read)[1]["role"] == "read"
            body = {"action": "hold_open", "by": "a", "why": "b", "create": True}
            assert ask(port, "/v1/circuits/x/override", read, "POST", body)[0] == 403
            assert (
                ask(port, "/v1/circuits/x/override", operator, "POST", body)[1]["mode"]
                == "held_open"
            )
            assert ask(port, "/v1/role", OPERATOR)[0] == 401
        finally:
            served.terminate()
        assert served.wait(LIMIT_S) == 0
