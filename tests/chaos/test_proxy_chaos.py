"""The proxy while its upstream, its store or itself dies: no reservation leaks, nothing is charged twice."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.server import running
from switchgear import Panel
from switchgear._budgets.fold import apply
from switchgear._budgets.tree import PassTime, is_reservation
from switchgear._proxy import allotments
from switchgear._proxy.guard import GuardSettings
from timeouts import LIMIT_S, eventually
from unit.proxy_stage import (
    FakeUpstream,
    Heard,
    ProxyProcess,
    Stage,
    answers,
    ask,
    loop_history,
    message,
    message_stream,
    process,
    proxying,
    read_all,
    reply,
)

pytestmark = pytest.mark.stress

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def stream_until(release: threading.Event) -> object:
    """Begin a stream, and end it when released."""
    whole = message_stream()

    def speak(client: socket.socket, heard: Heard) -> None:
        if b'"stream": true' not in heard.body:
            client.sendall(reply(message()))
            return
        client.sendall(HEAD + whole[:300])
        release.wait(LIMIT_S)
        client.sendall(whole[300:])
        client.close()

    return speak


def test_an_upstream_that_is_killed_mid_stream_is_charged_for_the_received_part_only() -> None:
    def speak(client: socket.socket, _: Heard) -> None:
        client.sendall(HEAD + message_stream(cut=True))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()  # a reset, as of a process that was killed

    up = FakeUpstream(speak)
    with proxying(up, guard=GuardSettings(budget_node="proxy")) as stage:
        stage.panel.budgets.open("proxy", 10_000_000)
        for _ in range(3):
            raw = json.dumps(ask(stream=True)).encode()
            head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
            got = stage.raw(head + b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
            assert not got.endswith(b"0\r\n\r\n")  # the client can tell that it is incomplete
        spent = stage.settled("proxy")
        failures = (
            stage.panel.breaker("provider/anthropic/claude-sonnet-4-5").snapshot().totals.failed
        )
    assert 9_000 <= spent <= 9_600
    assert failures == 3


def test_a_locked_file_stops_calls_with_a_budget_and_no_others(tmp_path: Path) -> None:
    place = tmp_path / "state.db"
    panel = Panel(f"sqlite:///{place}")

    def lose() -> Callable[[], object]:
        lock = _locked(place)

        def unlock() -> None:
            lock.terminate()
            lock.wait()

        return unlock

    _without_its_store(panel, lose)


def test_a_redis_server_that_is_killed_stops_calls_with_a_budget_and_no_others() -> None:
    with running() as server:

        def lose() -> Callable[[], object]:
            server.kill()
            return server.start

        _without_its_store(Panel(server.url), lose, keeps=False)


def test_a_redis_server_that_hangs_stops_calls_with_a_budget_and_no_others() -> None:
    with running() as server:

        def lose() -> Callable[[], object]:
            server.pause()
            return server.resume

        _without_its_store(Panel(server.url), lose)


def _without_its_store(
    panel: Panel, lose: Callable[[], Callable[[], object]], *, keeps: bool = True
) -> None:
    """Money fails closed: refused, with a header and a message. `keeps`: the store survives."""
    up = FakeUpstream(answers(reply(message())))
    panel.budgets.open("proxy", 10_000_000)
    with proxying(up, store=panel, guard=GuardSettings(budget_node="proxy")) as stage:
        assert stage.post(ask()).status == 200
        spent = stage.settled("proxy")
        give_back = lose()
        try:
            eventually(lambda: stage.post(ask()).status == 529, "calls with a budget wait")
            for _ in range(3):
                seen = len(up.heard)
                began_s = time.monotonic()
                got = stage.post(ask())
                assert time.monotonic() - began_s < 15.0  # nobody waits for it one after another
                assert (got.status, got.headers["x-switchgear-refused"]) == (529, "store")
                assert got.headers["x-switchgear-store"] == "unavailable"
                assert "the budget cannot be checked" in got.json()["error"]["message"]
                assert int(got.headers["retry-after"]) >= 1
                assert len(up.heard) == seen
            assert stage.request("GET", "/v1/models").status == 200
            assert stage.request("GET", "/healthz").status == 200
            free = stage.post(ask(), "/v1/messages/count_tokens")
            assert free.status == 200  # it costs nothing, so it needs no budget
        finally:
            give_back()
        if not keeps:  # a server without persistence starts empty: the budget is gone with it
            panel.budgets.open("proxy", 10_000_000)
            eventually(lambda: stage.post(ask()).status == 200, "it goes on with the store")
            eventually(lambda: stage.settled("proxy") >= 4_500, "what comes now is charged")
        else:
            eventually(lambda: stage.post(ask()).status == 200, "it goes on with the store")
            paid = [heard for heard in up.heard if heard.line.startswith("POST /v1/messages HTTP")]
            eventually(lambda: stage.settled("proxy") == 4_500 * len(paid), "each is charged once")
            assert stage.settled("proxy") > spent
        assert not [path for path in reservations(panel) if path]
        assert not stage.panel.budgets.audit("proxy").problems


def test_without_a_budget_calls_continue_while_the_store_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "state.db"
    up = FakeUpstream(answers(reply(message())))
    with proxying(up, store=f"sqlite:///{place}") as stage:
        assert stage.post(ask()).status == 200
        lock = _locked(place)
        try:
            for number in range(3):
                history = loop_history(number + 1)
                assert stage.post(ask(messages=history), "/s/one/v1/messages").status == 200
        finally:
            lock.terminate()
            lock.wait()


def test_a_proxy_that_is_killed_leaks_no_reservation_and_charges_nothing_twice(
    tmp_path: Path,
) -> None:
    release = threading.Event()
    up = FakeUpstream(stream_until(release))  # type: ignore[arg-type]
    with process(tmp_path, up.url, "--budget", "10") as proxy:
        for _ in range(3):
            assert proxy.client.post(ask()).status == 200
        panel = Panel(proxy.store)
        settled = Stage(proxy.port, panel, None, [])  # type: ignore[arg-type]
        assert settled.settled("proxy") == 13_500
        client = proxy.send_stream()
        [worker] = proxy.workers()
        [left] = reservations(panel)
        os.kill(worker, signal.SIGKILL)
        with client:
            read_all(client)
        release.set()
        eventually(lambda: proxy.workers() not in ([], [worker]), "another worker takes over")
        eventually(lambda: _answers(proxy), "it answers")
        eventually(lambda: reservations(panel) == [left], "only the killed worker's is left")
        amount = panel.budgets.book("proxy").nodes[left].limit_micros
        assert amount is not None
        assert amount <= 4 * 1.5 * 4_500  # for as many calls as came within the second before
        later_s = time.time() + allotments.LEASE_S + 5
        book = apply(panel.budgets.book("proxy"), PassTime(), later_s).book
        assert list(book.nodes) == ["proxy"]  # its lease has ended
        assert book.nodes["proxy"].held_micros == 0
        assert book.nodes["proxy"].spent_micros == 4 * 4_500 + amount
        assert not panel.budgets.audit("proxy").problems
        panel.close()


def reservations(panel: Panel) -> list[str]:
    return [path for path in panel.budgets.book("proxy").nodes if is_reservation(path)]


def test_a_restart_drops_no_stream_and_refuses_no_connection(tmp_path: Path) -> None:
    release = threading.Event()
    up = FakeUpstream(stream_until(release))  # type: ignore[arg-type]
    with process(tmp_path, up.url) as proxy:
        [before] = proxy.workers()
        client = proxy.send_stream()
        proxy.process.send_signal(signal.SIGHUP)
        statuses = []

        def is_restarted() -> bool:
            statuses.append(proxy.client.request("GET", "/v1/models").status)
            return before in proxy.workers() and len(proxy.workers()) == 2

        eventually(is_restarted, "a new worker runs beside the old one")
        release.set()
        with client:
            assert b"message_stop" in read_all(client)
        eventually(lambda: before not in proxy.workers(), "the old worker has ended")
        assert set(statuses) == {200}
        assert proxy.client.post(ask()).status == 200


def test_a_stop_finishes_the_streams_under_way(tmp_path: Path) -> None:
    release = threading.Event()
    up = FakeUpstream(stream_until(release))  # type: ignore[arg-type]
    with process(tmp_path, up.url, "--budget", "10") as proxy:
        client = proxy.send_stream()
        proxy.process.terminate()

        def is_closed() -> bool:
            try:
                proxy.client.open().close()
            except ConnectionRefusedError:
                return True
            return False

        eventually(lambda: is_closed() or proxy.process.poll() is not None, "it accepts no more")
        assert proxy.process.poll() is None
        release.set()
        with client:
            assert b"message_stop" in read_all(client)
        assert proxy.process.wait(LIMIT_S) == 0
        with Panel(proxy.store) as panel:
            node = panel.budgets.book("proxy").nodes["proxy"]
            assert (node.held_micros, node.spent_micros) == (0, 4_500)


def test_workers_share_a_budget_in_a_file(tmp_path: Path) -> None:
    share_a_budget(tmp_path, f"sqlite:///{tmp_path}/state.db")


def test_workers_share_a_budget_on_a_redis_server(tmp_path: Path) -> None:
    with running() as server:
        share_a_budget(tmp_path, server.url)


def share_a_budget(folder: Path, store: str) -> None:
    up = FakeUpstream(answers(reply(message())))
    with process(folder, up.url, "--workers", "2", "--budget", "0.05", store=store) as proxy:
        threads = [
            threading.Thread(target=lambda: [proxy.client.post(ask()) for _ in range(6)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with Panel(proxy.store) as panel:
            stage = Stage(proxy.port, panel, None, [])  # type: ignore[arg-type]
            assert stage.settled("proxy") == 4_500 * len(up.heard)
            assert stage.settled("proxy") <= 50_000
    up.close()
    assert len(up.heard) >= 6


def test_workers_share_circuits(tmp_path: Path) -> None:
    busy = reply({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, 529)
    up = FakeUpstream(answers(busy))
    with process(tmp_path, up.url, "--workers", "2") as proxy:

        def is_refused() -> bool:
            return "x-switchgear-refused" in proxy.client.post(ask()).headers

        eventually(lambda: all(is_refused() for _ in range(10)), "both workers refuse")
        seen = len(up.heard)
        assert all(is_refused() for _ in range(10))
        assert len(up.heard) == seen
    up.close()


def _answers(proxy: ProxyProcess) -> bool:
    try:
        return proxy.client.post(ask()).status == 200
    except OSError:
        return False


def _locked(place: Path) -> "subprocess.Popen[str]":
    """A process that locks the file of the store, so that no other process can write."""
    code = (
        "import sqlite3, sys, time\n"
        f"c = sqlite3.connect({str(place)!r}, isolation_level=None)\n"
        "c.execute('PRAGMA busy_timeout=60000')\n"
        "c.execute('BEGIN EXCLUSIVE')\nprint('locked', flush=True)\ntime.sleep(600)"
    )
    lock = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert lock.stdout is not None
    assert lock.stdout.readline() == "locked\n"
    lock.stdout.close()
    return lock
