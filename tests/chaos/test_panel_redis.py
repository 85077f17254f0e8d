"""A panel over a Redis server in trouble: calls continue, strict ones refuse, updates are saved later."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from servers.cluster import running_cluster
from servers.proxy import Proxy
from servers.server import Server, eventually, running
from switchgear import Cooldown, Mode, Phase, Policy, Rejected, Signal, detectors
from switchgear._core.errors import StoreError
from switchgear._core.types import Circuit, Event, EventKind
from switchgear._panel.panel import Panel
from switchgear._stores.redis import RedisStore

pytestmark = pytest.mark.stress

POLICY = Policy([detectors.ConsecutiveFailures(3)], Cooldown(60.0))
STRICT = POLICY.replace(strict=True)
BAD = Signal(ok=False, error="529 overloaded")
TIMEOUT_S = 0.3


class Site:
    """A panel on a server, a panel on another machine, and the events that the first one's sinks received."""

    def __init__(self, url: str, direct_url: str | None = None) -> None:
        self.heard: list[Event] = []
        self.panel = Panel(RedisStore(url, timeout_s=TIMEOUT_S), sinks=[self.heard.append])
        self.other = Panel(RedisStore(direct_url or url, timeout_s=TIMEOUT_S))
        self.breaker = self.panel.breaker("api", POLICY)
        self.strict = self.panel.breaker("budget", STRICT)

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.heard if event.circuit == "api"]

    def stored(self) -> Circuit:
        found = self.panel.store.get("api")
        assert found is not None
        return found.circuit

    def is_back(self) -> bool:
        """Check repeatedly, as calls do; true once the store has received everything."""
        self.breaker.refresh()
        return not self.panel.store.is_lost

    def close(self) -> None:
        self.panel.close()
        self.other.close()


@contextmanager
def site(url: str, direct_url: str | None = None) -> Iterator[Site]:
    made = Site(url, direct_url)
    try:
        yield made
    finally:
        made.close()


def fails() -> None:
    raise ConnectionError("529 overloaded")


def live_through(place: Site, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """One outage, from the first failure before it to the reconciliation after it."""
    place.breaker.record(BAD)
    assert place.strict.call(len, "abc") == 3
    begin()
    # Others continue on the last known state, and say so.
    place.breaker.record(BAD)
    assert place.breaker.call(len, "abc") == 3
    assert place.kinds() == [EventKind.STORE_LOST]
    # Strict policies refuse, whatever the last known state was.
    with pytest.raises(Rejected, match="its policy is strict and its state unknown"):
        place.strict.call(len, "abc")
    for _ in range(3):
        with pytest.raises(ConnectionError):
            place.breaker.call(fails)
    assert place.breaker.state == "open", "the evidence of before counts on"
    with pytest.raises(Rejected, match="3 failures in a row"):
        place.breaker.call(len, "abc")
    # Readers and operators are told instead of being given something old.
    with pytest.raises(StoreError):
        list(place.panel.circuits())
    with pytest.raises(StoreError):
        place.breaker.hold_open(by="ann", why="maintenance")
    end()
    eventually(place.is_back, "the store is back and has been told")
    place.panel.flush()
    circuit = place.stored()
    assert circuit.phase is Phase.OPEN
    assert circuit.totals.failed == 5, "nothing is lost, nothing told twice"
    assert EventKind.STORE_BACK in place.kinds()
    assert place.breaker.state == "open"
    eventually(lambda: _admits(place), "the strict one admits again")
    view = place.other.view("api")
    assert view is not None
    assert view.circuit.phase is Phase.OPEN, "everybody knows"


def _admits(place: Site) -> bool:
    try:
        return bool(place.strict.call(len, "abc") == 3)
    except Rejected:
        return False


def test_killed_and_restarted_empty(redis_server: Server) -> None:
    with site(redis_server.url) as place:
        live_through(place, redis_server.kill, redis_server.start)


def test_frozen_and_thawed(redis_server: Server) -> None:
    with site(redis_server.url) as place:
        try:
            live_through(place, redis_server.pause, redis_server.resume)
        finally:
            redis_server.resume()


def test_cut_off_and_restored(redis_server: Server) -> None:
    with (
        Proxy(redis_server.port) as proxy,
        site(f"redis://127.0.0.1:{proxy.port}", redis_server.url) as place,
    ):
        live_through(place, proxy.cut, proxy.mend)


def test_failed_over_to_a_replica() -> None:
    with running_cluster(replicas=1) as cluster, site(cluster.url) as place:

        def fail_over() -> None:
            holder = cluster.holder("{switchgear}:probe")
            holder.say("WAIT", "1", "5000")
            holder.kill()

        live_through(place, fail_over, lambda: None)


def test_changes_of_other_processes_arrive_when_the_connection_is_restored(
    redis_server: Server,
) -> None:
    with (
        Proxy(redis_server.port) as proxy,
        site(f"redis://127.0.0.1:{proxy.port}", redis_server.url) as place,
    ):
        assert place.breaker.call(len, "abc") == 3
        proxy.cut()
        place.breaker.record(BAD)
        assert EventKind.STORE_LOST in place.kinds()
        place.other.breaker("api", POLICY).hold_open(by="ann", why="maintenance")
        assert place.breaker.call(len, "abc") == 3, "it cannot know yet"
        proxy.mend()
        eventually(place.is_back, "the store is back")
        with pytest.raises(Rejected, match="ann"):
            place.breaker.call(len, "abc")
        assert place.stored().totals.failed == 1


def test_an_override_of_another_process_arrives_by_push(redis_server: Server) -> None:
    with site(redis_server.url) as place:
        eventually(lambda: place.panel.store.refresh_s is None, "pushes arrive")
        assert place.breaker.call(len, "abc") == 3
        place.other.breaker("api", POLICY).hold_open(by="ann", why="maintenance")

        def refuses() -> bool:
            try:
                place.breaker.call(len, "abc")
            except Rejected:
                return True
            return False

        eventually(refuses, "the order has arrived")


def test_closed_successful_calls_send_no_command(redis_server: Server) -> None:
    with site(redis_server.url) as place:
        eventually(lambda: place.panel.store.refresh_s is None, "pushes arrive")
        place.breaker.call(len, "abc")
        place.panel.flush()
        redis_server.say("CONFIG", "RESETSTAT")
        started_s = time.monotonic()
        calls = 20_000
        for _ in range(calls):
            place.breaker.call(len, "abc")
        took_s = time.monotonic() - started_s
        stats = redis_server.say("INFO", "commandstats")
        evals = [line for line in stats.splitlines() if line.startswith("cmdstat_eval")]
        sent = sum(int(line.split("calls=")[1].split(",")[0]) for line in evals)
        # The background folds what was counted about once a second; the calls themselves are mute.
        assert sent <= 2 * (took_s + 1) + calls / 1000, stats
        place.panel.flush()
        assert place.stored().totals.succeeded == calls + 1


def test_an_idle_process_restores_what_a_restarted_server_has_lost(
    redis_server: Server,
) -> None:
    with site(redis_server.url) as place:
        place.breaker.record(BAD._replace(count=3))
        place.strict.hold_open(by="ann", why="maintenance")
        digest = place.panel.store.operator.digest = "0" * 64
        place.panel.store.operator.keep_again_in(place.panel.store)
        eventually(lambda: place.panel.store.refresh_s is None, "pushes arrive")
        redis_server.kill()
        redis_server.start()
        newcomer = RedisStore(redis_server.url)

        def is_back() -> bool:
            found = [newcomer.get(name) for name in ("api", "budget")]
            return None not in found and newcomer.operator_digest() == digest

        eventually(is_back, "nobody calls, and all is given back")
        states = {found.circuit.key: found.circuit for found in newcomer.find()}
        assert states["api"].phase is Phase.OPEN
        assert states["budget"].mode is Mode.HELD_OPEN
        assert {entry.event.kind for entry in newcomer.events()} == {EventKind.STORE_BACK}
        eventually(lambda: EventKind.STORE_BACK in place.kinds(), "sinks hear of it")
        newcomer.close()


# A server that is silent from the beginning


def took_s(work: Callable[[], object]) -> float:
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s


def test_a_server_that_never_answered_costs_one_timeout(redis_server: Server) -> None:
    redis_server.pause()
    try:
        panel = Panel(redis_server.url, operator_token_sha256="0" * 64)
        assert took_s(lambda: panel.breaker("api")) < 10.0, "one timeout of a second"
        breaker = panel.breaker("api")

        def all_that_waits_for_nobody() -> None:
            for number in range(20):
                with pytest.raises(ConnectionError):
                    panel.breaker(f"api {number}").call(fails)
            breaker.record(BAD)
            with pytest.raises(StoreError):
                breaker.hold_open(by="ann", why="maintenance")
            with pytest.raises(StoreError):
                panel.view("api")

        for _ in range(5):  # also when it is time to try again: another thread does
            assert took_s(all_that_waits_for_nobody) < 10.0
            time.sleep(0.5)
        assert took_s(panel.close) < 10.0
    finally:
        redis_server.resume()


def test_a_server_that_never_answered_does_not_block_the_event_loop(
    redis_server: Server,
) -> None:
    redis_server.pause()
    worst_s = 0.0

    async def afails() -> None:
        raise ConnectionError("529 overloaded")

    async def watch() -> None:
        nonlocal worst_s
        while True:
            asked_s = time.monotonic()
            await asyncio.sleep(0.005)
            worst_s = max(worst_s, time.monotonic() - asked_s)

    async def main(panel: Panel) -> None:
        breaker = panel.breaker("api", Policy([detectors.ConsecutiveFailures(10**6)]))
        watcher = asyncio.create_task(watch())
        until_s = time.monotonic() + 3.0
        while time.monotonic() < until_s:
            with pytest.raises(ConnectionError):
                await breaker.acall(afails)
            await asyncio.sleep(0.01)
        watcher.cancel()

    try:
        panel = Panel(redis_server.url)
        asyncio.run(main(panel))
        panel.close()
    finally:
        redis_server.resume()
    assert worst_s < 0.9, "the loop turned all the time"


@pytest.fixture
def redis_server() -> Iterator[Server]:
    with running() as server:
        yield server
