"""Replies that get lost, come late or come twice: each message is counted once, no more and no less.

SWITCHGEAR_DEEP=1 sends up to 100,000 messages in all, as many as a machine manages in ten minutes.
"""

import asyncio
import gc
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import redis

from servers.faulty_proxy import FAULTS, STALE, FaultyProxy
from servers.server import Server, eventually, running
from stress.test_interruptions import interrupted_report
from switchgear._core.errors import StoreError
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Acquire, Phase, Record, Signal
from switchgear._detectors import ConsecutiveFailures, FailuresInWindow
from switchgear._panel.panel import Panel
from switchgear._stores.base import Amended, Transaction
from switchgear._stores.redis import RedisStore
from timeouts import LIMIT_S

pytestmark = pytest.mark.stress

DEEP = bool(os.environ.get("SWITCHGEAR_DEEP"))
TIMEOUT_S = 0.25
POLICY = Policy([ConsecutiveFailures(5)], Cooldown(60.0))
CALM = Policy([ConsecutiveFailures(10**9)], Cooldown(60.0))
FLAPPING = Policy([FailuresInWindow(3, 3600.0)], Cooldown(0.001))
FAILED = Record(Signal(ok=False, error="529"))
BAD = Signal(ok=False, error="529")


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@contextmanager
def store_behind(server: Server, **options: object) -> Iterator[tuple[RedisStore, FaultyProxy]]:
    with FaultyProxy(server.port, **options) as proxy:  # type: ignore[arg-type]
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}", timeout_s=TIMEOUT_S)
        try:
            yield store, proxy
        finally:
            proxy.share, proxy.next_fault = 0.0, []
            store.close()


def failed_of(server: Server, key: str = "api") -> int:
    store = RedisStore(server.url)
    found = store.get(key)
    store.close()
    return 0 if found is None else found.circuit.totals.failed


# An interrupt (Ctrl-C) instead of a fault


# An interrupt in a generator that is being closed cannot be raised on, and is printed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_moment_of_a_report_never_counts_it_twice(server: Server) -> None:
    counted = list[int]()
    gc.disable()  # so that no finalizer is what is interrupted
    try:
        with Panel(server.url) as panel:
            was = True
            while was:
                was, count = interrupted_report(panel, len(counted) + 1)
                counted.append(count)
    finally:
        gc.enable()
    assert len(counted) > 20, "hardly anything was interrupted"
    assert set(counted) <= {0, 3}
    assert counted[-1] == 3


def test_an_interrupt_after_the_script_counts_the_report_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has counted it, and the thread is interrupted before it learns that."""
    with Panel(server.url) as panel:
        breaker = panel.breaker("api", CALM)
        breaker.record(Signal(ok=None))
        clients = panel.store.inner._clients  # type: ignore[attr-defined]
        usual: Callable[..., object] = clients.ask

        def interrupted(*words: object) -> object:
            usual(*words)
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(clients, "ask", interrupted)
        for _ in range(3):
            breaker.call(int)
        with pytest.raises(KeyboardInterrupt):
            breaker._fold_pending()
        breaker.flush()
        breaker.refresh()
        assert breaker.totals.succeeded == 3


# One message, one fault


@pytest.mark.parametrize("hot", [False, True], ids=["compares", "queues"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_and_the_successes_sent_with_it_are_counted_once(
    server: Server, fault: str, hot: bool
) -> None:
    for position in range(6):
        key = f"api {position}"
        with store_behind(server) as (store, proxy):
            panel = Panel(store)
            breaker = panel.breaker(key, CALM)
            for number in range(4):
                if number == 2:
                    proxy.next_fault = ["pass"] * position + [fault]
                breaker.call(int)
                breaker.call(int)
                store._protocol.known.set_hot(key, hot=hot)
                breaker.record(BAD)
            proxy.next_fault = []
            eventually(partial(_is_told, panel, breaker), "the store has been told")
            panel.close()
        found = RedisStore(server.url).get(key)
        assert found is not None
        assert (found.circuit.totals.succeeded, found.circuit.totals.failed) == (8, 4), position


@pytest.mark.parametrize("fault", FAULTS)
def test_ten_failures_are_ten_whatever_happens_to_the_reply_of_one(
    server: Server, fault: str
) -> None:
    with store_behind(server) as (store, proxy):
        panel = Panel(store)
        breaker = panel.breaker("api", CALM)
        for number in range(10):
            if number == 4:
                proxy.next_fault = [fault]
            breaker.record(BAD)
        eventually(lambda: not _refreshed(panel, breaker), "the store has been told")
        panel.close()
        assert proxy.counts[fault] == 1
    assert failed_of(server) == 10


def _is_told(panel: Panel, breaker: object) -> bool:
    return not _refreshed(panel, breaker)


def _refreshed(panel: Panel, breaker: object) -> bool:
    breaker.refresh()  # type: ignore[attr-defined]
    return panel.store.is_lost


@pytest.mark.parametrize("fault", ["drop", "cut"])
def test_four_failures_whose_replies_are_lost_do_not_open_a_circuit_with_threshold_five(
    server: Server, fault: str
) -> None:
    with store_behind(server) as (store, proxy):
        panel = Panel(store)
        breaker = panel.breaker("api", POLICY)
        for _ in range(4):
            proxy.next_fault = [fault] * 3
            breaker.record(BAD)
            proxy.next_fault = []
            eventually(lambda: not _refreshed(panel, breaker), "the store has been told")
        assert breaker.state == Phase.CLOSED
        assert breaker.totals.failed == 4
        panel.close()
    assert failed_of(server) == 4


@pytest.mark.parametrize("fault", ["drop", "cut", "duplicate"])
def test_a_backlog_whose_replies_are_lost_is_saved_once(server: Server, fault: str) -> None:
    with store_behind(server) as (store, proxy):
        panel = Panel(store)
        breaker = panel.breaker("api", CALM)
        breaker.record(BAD)
        server.pause()
        for number in range(1000):
            breaker.record(Signal(ok=False, error=f"error {number}"))
        server.resume()
        proxy.share, proxy.faults = 0.005, (fault,)
        eventually(lambda: not _refreshed(panel, breaker), "the store has been told")
        proxy.share = 0.0
        panel.close()
        assert proxy.counts[fault] >= 2, "the faults did happen"
    assert failed_of(server) == 1001


def test_a_lost_reply_to_a_probe_is_requested_again(server: Server) -> None:
    policy = Policy([ConsecutiveFailures(1)], Cooldown(0.001))
    with store_behind(server) as (store, proxy):
        store.apply("api", policy, FAILED, store.now_s())
        now_s = store.now_s() + 1.0
        proxy.next_fault = ["cut"]
        done = store.apply("api", policy, Acquire(), now_s)
        assert done.verdict.permit is not None
        assert done.verdict.permit.probe == 1, "the probe that was granted, not another one"
        assert [event.kind for event in done.events] == ["moved"], "with its events"


def test_a_message_in_doubt_is_reported_and_recognised_when_sent_again(server: Server) -> None:
    with store_behind(server) as (store, proxy):
        store.apply("api", CALM, FAILED, store.now_s())
        proxy.next_fault = ["drop"]
        with pytest.raises(StoreError) as caught:
            store.apply("api", CALM, FAILED, store.now_s())
        identity = caught.value.in_doubt
        assert identity is not None
        for _ in range(3):
            done = store.apply("api", CALM, FAILED, store.now_s(), identity=identity)
            assert done.circuit.totals.failed == 2


def test_a_queued_message_whose_connection_breaks_is_counted_once(server: Server) -> None:
    with store_behind(server) as (store, proxy):
        store.apply("api", CALM, FAILED, store.now_s())
        for _ in range(20):
            store._protocol.known.set_hot("api", hot=True)
            proxy.next_fault = ["cut"]
            store.apply("api", CALM, FAILED, store.now_s())
    assert failed_of(server) == 21
    assert server.say("LLEN", "{switchgear}:inbox:api").startswith(":0")


def test_receipts_do_not_pile_up(server: Server) -> None:
    store = RedisStore(server.url)
    for _ in range(500):
        store.apply("api", CALM, FAILED, store.now_s())
    left = _receipts(server)
    store.close()
    assert left <= 2
    assert _receipts(server) == 0, "a store that is closed leaves none"


def test_receipts_do_not_pile_up_where_several_write_one_circuit(server: Server) -> None:
    crew = [RedisStore(server.url) for _ in range(3)]
    begin = threading.Barrier(len(crew))

    def work(store: RedisStore) -> None:
        begin.wait(LIMIT_S)
        for _ in range(200):
            store.apply("api", CALM, FAILED, store.now_s())

    threads = [threading.Thread(target=work, args=(store,)) for store in crew]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert failed_of(server) == 600
    assert _receipts(server) <= 2 * len(crew)
    for store in crew:
        store.close()
    assert _receipts(server) == 0


def test_receipts_do_not_pile_up_where_others_amend_the_same_value_first(server: Server) -> None:
    one, other = RedisStore(server.url), RedisStore(server.url)
    ours, theirs = one.ledger(), other.ledger()

    def add(value: Any, _: float) -> Amended:
        return Amended(None, (value or 0) + 1)

    for _ in range(20):
        pending = [theirs]

        def add_as_the_second(value: Any, now_s: float, pending: list[Any] = pending) -> Amended:
            if pending:
                pending.pop().amend("s", "k", add)
            return add(value, now_s)

        ours.amend("s", "k", add_as_the_second)
    assert ours.value("s", "k") == 40
    assert _receipts(server) <= 2
    one.close()
    other.close()


def _receipts(server: Server) -> int:
    with redis.Redis(port=server.port) as client:
        return sum(1 for _ in client.scan_iter(match="{switchgear}:receipt:*"))


# Replies to another call


def _told(store: RedisStore, message: Record = FAILED, key: str = "api") -> None:
    """Send it until it is confirmed, as a sender does that knows which messages are in doubt."""
    in_doubt: str | None = None
    for _ in range(20):
        try:
            store.apply(key, CALM, message, store.now_s(), identity=in_doubt)
        except StoreError as error:
            in_doubt = in_doubt or error.in_doubt
        else:
            return
    raise AssertionError("it is never heard")


@pytest.mark.parametrize("hot", [False, True], ids=["compares", "queues"])
@pytest.mark.parametrize("fault", STALE)
def test_a_message_that_gets_the_reply_to_another_call_is_counted_once(
    server: Server, fault: str, hot: bool
) -> None:
    with store_behind(server) as (store, proxy):
        _told(store)
        for position in range(12):
            proxy.next_fault = ["pass"] * position + [fault]
            for _ in range(4):
                store._protocol.known.set_hot("api", hot=hot)
                _told(store)
            proxy.next_fault = []
        assert proxy.counts[fault] >= 4
    assert failed_of(server) == 1 + 12 * 4
    assert server.say("LLEN", "{switchgear}:inbox:api").startswith(":0")


@pytest.mark.parametrize("fault", STALE)
def test_the_same_holds_for_tasks(server: Server, fault: str) -> None:
    async def tell(store: RedisStore, proxy: FaultyProxy) -> None:
        for position in range(12):
            proxy.next_fault = ["pass"] * position + [fault]
            for _ in range(4):
                store._protocol.known.set_hot("api", hot=position % 2 == 0)
                in_doubt: str | None = None
                while True:
                    try:
                        await store.aapply("api", CALM, FAILED, store.now_s(), identity=in_doubt)
                    except StoreError as error:
                        in_doubt = in_doubt or error.in_doubt
                    else:
                        break
            proxy.next_fault = []
        await store.aclose()

    with store_behind(server) as (store, proxy):
        asyncio.run(asyncio.wait_for(tell(store, proxy), 60.0))
        assert proxy.counts[fault] >= 4
    assert failed_of(server) == 12 * 4


@pytest.mark.parametrize("fault", ["duplicate", *STALE])
def test_two_writers_whose_replies_are_swapped_are_counted_once(server: Server, fault: str) -> None:
    for position in range(30):
        key = f"api {position}"
        with store_behind(server) as (one, proxy), store_behind(server) as (two, _):
            proxy.next_fault = ["pass"] * position + [fault]

            def work(store: RedisStore, key: str = key) -> None:
                for _ in range(6):
                    store._protocol.known.set_hot(key, hot=True)
                    _told(store, key=key)

            crew = [threading.Thread(target=work, args=(store,)) for store in (one, two)]
            for thread in crew:
                thread.start()
            for thread in crew:
                thread.join(LIMIT_S)
        assert failed_of(server, key) == 12, f"reply {position}"


@pytest.mark.parametrize("fault", STALE)
def test_a_read_returns_the_requested_value(server: Server, fault: str) -> None:
    with store_behind(server) as (store, proxy):
        for key, count in (("a", 1), ("b", 2)):
            for _ in range(count):
                _told(store, key=key)
        budgets = store.ledger()
        budgets.amend("shelf", "x", lambda _, __: Amended(None, 1, ("line",)))
        store.set_operator_digest("old", instead_of=None)
        for position in range(10):
            proxy.next_fault = ["pass"] * position + [fault]
            a, b = store.get("a"), store.get("b")
            assert a is not None
            assert b is not None
            assert (a.circuit.totals.failed, b.circuit.totals.failed) == (1, 2)
            assert [found.circuit.key for found in store.find("*")] == ["a", "b"]
            assert store.events() == []
            assert store.operator_digest() == "old"
            assert not store.set_operator_digest("new", instead_of="another")
            assert budgets.keys("shelf") == ["x"]
            assert budgets.value("shelf", "x") == 1
            assert list(budgets.lines("shelf", "x")) == ["line"]
            proxy.next_fault = []
        assert proxy.counts[fault] == 10


@pytest.mark.parametrize("fault", ["cut", *STALE])
def test_a_note_whose_reply_is_swapped_is_written_once(server: Server, fault: str) -> None:
    def count(inside: Transaction) -> None:
        inside.note = str(int(inside.note or 0) + 1)

    with store_behind(server) as (store, proxy):
        store.get("api")
        for position in range(12):
            proxy.next_fault = ["pass"] * (position % 4) + [fault]
            store.transact("counter", count)
            proxy.next_fault = []
        assert store.transact("counter", lambda inside: inside.note) == "12"


# Money


@pytest.mark.parametrize("fault", [*FAULTS, *STALE])
def test_an_amendment_whose_reply_is_lost_is_made_once(server: Server, fault: str) -> None:
    with store_behind(server) as (store, proxy):
        panel = Panel(store)
        panel.budgets.open("atlas", 1_000_000)
        charged = 0
        for number in range(20):
            reservation = panel.budgets.reserve("atlas", 1000)
            proxy.next_fault = ["pass"] * (number % 3) + [fault]
            charged += reservation.settle(700)
            proxy.next_fault = []
        assert charged == 20 * 700, "each settlement says what it charged"
        assert panel.budgets.free_micros("atlas") == 1_000_000 - charged
        assert not panel.budgets.audit("atlas").problems
        panel.close()


# Many messages, many faults


def _crew(store_of: Callable[[], RedisStore], threads: int, each: int, deadline_s: float) -> int:
    """Record failures from several stores at once, each until it is confirmed; their number."""
    sent = [0] * threads

    def work(index: int) -> None:
        store = store_of()
        until_s = time.monotonic() + deadline_s
        in_doubt: str | None = None
        while (sent[index] < each or in_doubt) and time.monotonic() < until_s:
            try:
                store.apply("api", CALM, FAILED, store.now_s(), identity=in_doubt)
            except StoreError as error:
                in_doubt = in_doubt or error.in_doubt
            else:
                in_doubt = None
                sent[index] += 1
        assert in_doubt is None, "it is heard in time"
        with suppress(StoreError):
            store.close()

    crew = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(deadline_s + 150.0)
    assert not any(thread.is_alive() for thread in crew)
    assert sum(sent) == threads * each
    return sum(sent)


def _panels(store_of: Callable[[], RedisStore], panels: int, each: int, deadline_s: float) -> int:
    """The same over panels, which continue while the store is unavailable and save the results later."""
    sent = [0] * panels

    def work(index: int) -> None:
        panel = Panel(store_of())
        breaker = panel.breaker("api", CALM)
        for _ in range(each):
            breaker.record(BAD)
            sent[index] += 1
        eventually(lambda: not _refreshed(panel, breaker), "the store has been told", deadline_s)
        panel.close()

    crew = [threading.Thread(target=work, args=(index,)) for index in range(panels)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(deadline_s + 150.0)
    assert not any(thread.is_alive() for thread in crew)
    return sum(sent)


def _numbers(server: Server, key: str = "api") -> list[int]:
    store = RedisStore(server.url)
    found = [entry.event.seq for entry in store.events(limit=100_000) if entry.event.circuit == key]
    store.close()
    return found


def test_the_sum_sent_is_the_sum_counted_behind_a_proxy_that_spoils_replies(server: Server) -> None:
    with FaultyProxy(server.port, share=0.03, seed=11, delay_s=2 * TIMEOUT_S) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"

        def store_of() -> RedisStore:
            return RedisStore(url, timeout_s=TIMEOUT_S)

        sent = _crew(store_of, 4, 10_000 if DEEP else 150, 600.0 if DEEP else 90.0)
        counts = dict(proxy.counts)
    assert failed_of(server) == sent
    assert all(counts[fault] for fault in FAULTS), counts
    numbers = _numbers(server)
    assert numbers == list(range(1, len(numbers) + 1)), "event numbers have no gaps"


def test_the_sum_sent_is_the_sum_counted_while_connections_are_killed(server: Server) -> None:
    stop = threading.Event()
    killed = [0]

    def kill() -> None:
        luck = random.Random(3)
        with redis.Redis(port=server.port) as client:
            while not stop.wait(0.005):
                others = [one["id"] for one in client.client_list() if one["cmd"] != "client|list"]
                if others:
                    with suppress(redis.ResponseError):
                        client.client_kill_filter(_id=luck.choice(others))
                        killed[0] += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        store_of = lambda: RedisStore(server.url, timeout_s=1.0)  # noqa: E731
        sent = _crew(store_of, 4, 12_500 if DEEP else 800, 600.0 if DEEP else 90.0)
    finally:
        stop.set()
        killer.join()
    assert killed[0] > 10
    assert failed_of(server) == sent
    numbers = _numbers(server)
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_sum_sent_is_the_sum_counted_while_the_server_is_suspended_repeatedly(
    server: Server,
) -> None:
    stop = threading.Event()

    def freeze() -> None:
        luck = random.Random(5)
        while not stop.wait(luck.uniform(0.05, 0.3)):
            server.pause()
            stop.wait(luck.uniform(0.0, 3 * TIMEOUT_S))
            server.resume()

    freezer = threading.Thread(target=freeze)
    freezer.start()
    try:
        store_of = lambda: RedisStore(server.url, timeout_s=TIMEOUT_S)  # noqa: E731
        sent = _panels(store_of, 3, 5_000 if DEEP else 300, 600.0)
    finally:
        stop.set()
        freezer.join()
        server.resume()
    assert failed_of(server) == sent


def test_the_sum_sent_is_the_sum_counted_over_restarts_with_an_append_only_file() -> None:
    with running("--appendonly", "yes", "--appendfsync", "always") as server:
        stop = threading.Event()

        def restart() -> None:
            while not stop.wait(0.4):
                server.kill()
                server.start()

        store_of = lambda: RedisStore(server.url, timeout_s=1.0)  # noqa: E731
        again = threading.Thread(target=restart)
        again.start()
        try:
            sent = _panels(store_of, 3, 2_000 if DEEP else 200, 600.0)
        finally:
            stop.set()
            again.join()
        assert failed_of(server) == sent


def test_the_sum_sent_is_the_sum_counted_when_a_replica_takes_over() -> None:
    with running() as first, running("--replicaof", "127.0.0.1", str(first.port)) as second:
        eventually(
            lambda: "master_link_status:up" in second.say("INFO", "replication"), "a replica"
        )
        with FaultyProxy(first.port, share=0.01, seed=4) as proxy:
            url = f"redis://127.0.0.1:{proxy.port}"
            halves = threading.Barrier(2)

            def fail_over() -> None:
                halves.wait(LIMIT_S)
                # As a sentinel does it: no more writes, wait for the replica, promote, send over.
                with redis.Redis(port=first.port) as old:
                    old.execute_command("CLIENT", "PAUSE", 2000, "WRITE")
                    old.wait(1, 2000)
                second.say("REPLICAOF", "NO", "ONE")
                proxy.switch(second.port)

            other = threading.Thread(target=fail_over)
            other.start()
            store = RedisStore(url, timeout_s=TIMEOUT_S)
            panel = Panel(store)
            breaker = panel.breaker("api", CALM)
            sent = 2_000 if DEEP else 300
            for number in range(sent):
                if number == sent // 2:
                    halves.wait(LIMIT_S)
                breaker.record(BAD)
            other.join(LIMIT_S)
            eventually(lambda: not _refreshed(panel, breaker), "the store has been told")
            proxy.share = 0.0
            panel.close()
        assert failed_of(second) == sent


def test_a_circuit_that_flaps_behind_a_bad_network_has_events_without_gaps(server: Server) -> None:
    with store_behind(server, share=0.05, seed=9) as (store, proxy):
        sent = 0
        in_doubt: str | None = None
        for _ in range(400 if not DEEP else 4000):
            sent += 1
            while True:
                try:
                    store.apply("api", FLAPPING, FAILED, store.now_s(), identity=in_doubt)
                except StoreError as error:
                    in_doubt = error.in_doubt or in_doubt
                else:
                    in_doubt = None
                    break
        proxy.share = 0.0
        found = store.get("api")
        assert found is not None
        totals = found.circuit.totals
        assert totals.failed + totals.late == sent
    numbers = _numbers(server)
    assert len(numbers) > 20
    assert numbers == list(range(1, len(numbers) + 1))
