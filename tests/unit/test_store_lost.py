"""What happens while a shared store is gone, and when it is back."""

import asyncio
import threading

import pytest

from switchgear import Cooldown, Mode, Phase, Policy, Rejected, Signal, detectors
from switchgear.core.types import Circuit, Event, EventKind, Message, Order, Step
from switchgear.errors import StoreFull, StoreTooNew, StoreUnavailable
from switchgear.panel import Panel
from switchgear.stores.backlog import LISTED
from switchgear.testing import FakeClock, FlakyStore

BAD = Signal(ok=False, error="529 overloaded")
POLICY = Policy([detectors.ConsecutiveFailures(3)], Cooldown(10.0))
STRICT = POLICY.replace(strict=True)


class Bench:
    """A clock, a store to cut off, a panel over it, and what its sinks heard."""

    def __init__(self, policy: Policy = POLICY, refresh_s: float | None = 0.1) -> None:
        self.clock = FakeClock(1000.0)
        self.store = FlakyStore(clock=self.clock, refresh_s=refresh_s)
        self.heard: list[Event] = []
        self.panel = Panel(self.store, clock=self.clock, sinks=[self.heard.append])
        self.breaker = self.panel.breaker("api", policy)

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.heard]

    def stored(self) -> Circuit:
        found = self.store.get("api")
        assert found is not None
        return found.circuit


def test_calls_go_on_and_an_event_says_so() -> None:
    bench = Bench()
    bench.store.cut()
    assert bench.breaker.call(len, "abc") == 3
    with pytest.raises(ZeroDivisionError):
        bench.breaker.call(lambda: 1 / 0)
    assert bench.kinds() == [EventKind.STORE_LOST]
    assert "flaky: cannot be reached: it was cut off" in bench.heard[0].reason
    assert bench.breaker.call(len, "abc") == 3


def test_the_last_known_state_holds_and_goes_on_by_itself() -> None:
    bench = Bench()
    bench.breaker.tell(BAD._replace(count=2))
    bench.store.cut()
    bench.breaker.tell(BAD)
    with pytest.raises(Rejected, match="3 failures in a row"):
        bench.breaker.call(len, "abc")
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.MOVED]
    bench.clock.advance(10.0)
    assert bench.breaker.call(len, "abc") == 3
    assert bench.breaker.state == "closed"


def test_on_return_the_store_hears_everything_once_and_in_order() -> None:
    bench = Bench()
    bench.breaker.call(len, "abc")
    bench.breaker.tell(BAD)
    bench.store.cut()
    for _ in range(5):
        bench.breaker.call(len, "abc")
    bench.breaker.tell(BAD._replace(error="last"))
    bench.store.mend()
    bench.clock.advance(1.0)
    assert bench.breaker.totals[:2] == (6, 2)
    assert bench.stored().totals[:2] == (6, 2)
    assert bench.stored().failures[-1].error == "last"
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.STORE_BACK]
    assert "is back after 1 s; it was told 6 things that it had missed" in bench.heard[-1].reason
    assert [entry.event.kind for entry in bench.store.events()] == [EventKind.STORE_BACK]


def test_a_trip_that_happened_meanwhile_happens_in_the_store_too() -> None:
    bench = Bench()
    bench.store.cut()
    for _ in range(3):
        bench.breaker.tell(BAD)
    assert bench.breaker.state == "open"
    bench.store.mend()
    bench.clock.advance(1.0)
    assert bench.breaker.state == "open"
    assert bench.stored().phase is Phase.OPEN
    with pytest.raises(Rejected):
        bench.breaker.call(len, "abc")


def test_a_trip_that_others_made_meanwhile_is_seen_on_return() -> None:
    bench = Bench()
    other = Panel(bench.store, clock=bench.clock).breaker("api", POLICY)
    bench.store.cut()
    assert bench.breaker.call(len, "abc") == 3
    bench.store.mend()
    for _ in range(3):
        other.tell(BAD)
    bench.clock.advance(1.0)
    with pytest.raises(Rejected, match="3 failures in a row"):
        bench.breaker.call(len, "abc")


def test_a_store_that_comes_back_empty_gets_the_last_known_state() -> None:
    bench = Bench()
    for _ in range(3):
        bench.breaker.tell(BAD)
    bench.store.cut()
    bench.clock.advance(1.0)
    with pytest.raises(Rejected):
        bench.breaker.call(len, "abc")
    assert bench.breaker.state == "open"  # looks, and finds the store gone
    bench.store.mend(empty=True)
    bench.clock.advance(1.0)
    assert bench.breaker.state == "open"
    assert bench.stored().phase is Phase.OPEN
    assert bench.stored().totals.failed == 3


def test_versions_never_fall_for_readers_when_the_store_lost_some() -> None:
    bench = Bench()
    for _ in range(20):
        bench.breaker.tell(Signal(ok=True))
    before = bench.breaker.snapshot().version
    bench.store.cut()
    for _ in range(20):
        bench.breaker.tell(Signal(ok=True))
    away = bench.breaker.snapshot().version
    bench.store.mend()
    bench.clock.advance(1.0)
    back = bench.breaker.snapshot().version
    assert before < away < back
    bench.breaker.hold_open(by="ada", why="drill")
    with pytest.raises(Rejected, match="held open by ada"):
        bench.breaker.call(len, "abc")


def test_the_store_is_tried_about_once_a_second_not_at_every_call() -> None:
    bench = Bench()
    bench.store.cut()
    for _ in range(100):
        bench.breaker.tell(BAD)
    assert bench.store.tries == 1
    bench.clock.advance(0.99)
    bench.breaker.tell(BAD)
    assert bench.store.tries == 1
    bench.clock.advance(0.01)
    bench.breaker.tell(BAD)
    assert bench.store.tries == 2


def test_one_outage_is_one_event_each_way_however_many_tries_it_takes() -> None:
    bench = Bench()
    bench.store.cut()
    for _ in range(5):
        bench.breaker.tell(Signal(ok=True))
        bench.clock.advance(1.0)
    bench.store.mend()
    bench.breaker.tell(Signal(ok=True))
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.STORE_BACK]
    assert bench.stored().totals.succeeded == 6


def test_a_store_that_goes_again_while_it_is_told_hears_nothing_twice() -> None:
    bench = Bench()
    bench.store.cut()
    for error in ("a", "b", "c"):
        bench.breaker.tell(Signal(ok=False, error=error))
    bench.store.mend()
    bench.clock.advance(1.0)
    real = bench.store.apply
    told: list[Message] = []

    def fails_at_the_second(key: str, policy: Policy, message: Message, now_s: float) -> Step:
        told.append(message)
        if len(told) == 2:
            raise StoreUnavailable("flaky:", "gone again", "wait")
        return real(key, policy, message, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", fails_at_the_second)
        bench.breaker.tell(Signal(ok=True))
    bench.clock.advance(1.0)
    bench.breaker.tell(Signal(ok=True))
    totals = bench.stored().totals
    assert (totals.failed, totals.succeeded) == (3, 2)


def test_a_full_store_is_gone_too_and_the_event_says_that_it_is_full() -> None:
    bench = Bench()
    bench.store.cut(StoreFull("flaky:", "no space left", "make room"))
    bench.breaker.tell(BAD)
    assert "flaky: is full: no space left; make room" in bench.heard[0].reason


def test_an_order_fails_loudly_when_the_store_is_gone() -> None:
    bench = Bench()
    bench.store.cut()
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        bench.breaker.hold_open(by="ada", why="drill")
    bench.breaker.tell(BAD)
    with pytest.raises(StoreUnavailable):
        bench.breaker.hold_open(by="ada", why="drill")
    assert bench.breaker.mode is Mode.AUTO


# Strict


def test_a_strict_circuit_refuses_while_its_store_is_gone_and_admits_when_it_is_back() -> None:
    bench = Bench(STRICT)
    assert bench.breaker.call(len, "abc") == 3
    bench.store.cut()
    with pytest.raises(Rejected, match="its policy is strict and its state unknown") as refused:
        bench.breaker.call(len, "abc")
    assert refused.value.retry_after_s == 1.0
    assert bench.kinds() == [EventKind.STORE_LOST]
    bench.store.mend()
    bench.clock.advance(1.0)
    assert bench.breaker.call(len, "abc") == 3
    assert bench.stored().totals.refused == 1
    assert bench.stored().totals.succeeded == 2


def test_a_strict_circuit_asks_before_every_call() -> None:
    bench = Bench(STRICT)
    other = Panel(bench.store, clock=bench.clock).breaker("api", STRICT)
    assert bench.breaker.call(len, "abc") == 3
    other.hold_open(by="ada", why="drill")
    with pytest.raises(Rejected, match="held open by ada"):
        bench.breaker.call(len, "abc")
    other.release(by="ada", why="over")
    assert bench.breaker.call(len, "abc") == 3


# Polling


def test_what_others_did_is_seen_when_the_snapshot_is_old() -> None:
    bench = Bench()
    other = Panel(bench.store, clock=bench.clock).breaker("api", POLICY)
    assert bench.breaker.call(len, "abc") == 3
    for _ in range(3):
        other.tell(BAD)
    bench.clock.advance(0.1)
    with pytest.raises(Rejected):
        bench.breaker.call(len, "abc")
    other.reset(by="ada", why="fixed")
    bench.clock.advance(0.1)
    assert bench.breaker.call(len, "abc") == 3


def test_successes_of_several_are_counted_in_one_circuit() -> None:
    bench = Bench()
    other = Panel(bench.store, clock=bench.clock).breaker("api", POLICY)
    guarded = bench.breaker(len)
    for _ in range(10):
        guarded("abc")
        with other:
            bench.clock.advance(0.03)
    assert bench.breaker.totals.succeeded == bench.stored().totals.succeeded
    assert other.totals.succeeded == 20


# Async


def test_the_same_from_an_event_loop() -> None:
    bench = Bench()

    async def fails() -> None:
        raise KeyError("x")

    async def works() -> int:
        return 3

    async def main() -> None:
        assert await bench.breaker.acall(works) == 3
        bench.store.cut()
        for _ in range(3):
            with pytest.raises(KeyError):
                await bench.breaker.acall(fails)
        with pytest.raises(Rejected):
            await bench.breaker.acall(works)
        bench.store.mend()
        bench.clock.advance(1.0)
        with pytest.raises(Rejected):
            async with bench.breaker:
                pytest.fail("it was admitted")

    asyncio.run(main())
    bench.breaker.refresh()
    assert bench.stored().phase is Phase.OPEN
    assert bench.stored().totals[:2] == (1, 3)


# Threads


def test_nothing_is_lost_or_doubled_by_threads_over_a_store_that_comes_and_goes() -> None:
    bench = Bench(Policy([detectors.ConsecutiveFailures(10**9)]), refresh_s=None)
    threads, each = 8, 300
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        for number in range(each):
            bench.breaker.tell(Signal(ok=number % 3 != 0, error=f"error {number % 7}"))

    def flicker() -> None:
        start.wait()
        for _ in range(40):
            bench.store.cut()
            bench.clock.advance(1.0)
            bench.store.mend()
            bench.clock.advance(1.0)

    crew = [threading.Thread(target=work) for _ in range(threads)]
    crew.append(threading.Thread(target=flicker))
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    bench.clock.advance(1.0)
    bench.breaker.refresh()
    totals = bench.stored().totals
    assert totals.failed == threads * each // 3
    assert totals.succeeded == threads * each - totals.failed
    numbers = [entry.event.seq for entry in bench.store.events()]
    assert numbers == list(range(1, len(numbers) + 1))


# One circuit's trouble


def test_a_circuit_that_the_store_cannot_read_takes_no_other_along() -> None:
    bench = Bench()
    other = bench.panel.breaker("other", POLICY)
    real = bench.store.apply

    def newer(key: str, policy: Policy, message: Message, now_s: float) -> Step:
        if key == "api":
            raise StoreTooNew("flaky:", "circuit 'api' is of a newer schema", "upgrade")
        return real(key, policy, message, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", newer)
        bench.breaker.tell(BAD)
        other.tell(BAD)
        bench.clock.advance(1.0)
        bench.breaker.tell(BAD)
        other.tell(BAD)
        assert not bench.panel.store.is_lost
        assert [event.circuit for event in bench.heard] == ["api"]
        found = bench.store.get("other")
        assert found is not None
        assert found.circuit.totals.failed == 2
    bench.clock.advance(1.0)
    bench.breaker.tell(Signal(ok=True))
    assert bench.stored().totals[:2] == (1, 2)
    assert bench.kinds() == [EventKind.STORE_LOST, EventKind.STORE_BACK]


def test_a_breaker_can_be_made_while_the_store_is_gone() -> None:
    bench = Bench()
    bench.store.cut()
    breaker = bench.panel.breaker("new")
    assert breaker.call(len, "abc") == 3
    assert EventKind.STORE_LOST in [event.kind for event in bench.heard]


# Waiting once


def test_who_finds_the_store_gone_waits_for_all() -> None:
    bench = Bench()
    bench.store.cut()
    bench.panel.breaker("new")
    assert bench.store.tries == 1, "making a breaker asks for its policy, then for its state"
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="it was cut off"):
            bench.panel.view("api")
        bench.panel.breaker("another").tell(BAD)
    assert bench.store.tries == 1
    bench.clock.advance(1.0)
    with pytest.raises(StoreUnavailable):
        bench.panel.view("api")
    assert bench.store.tries == 2
    bench.store.mend()
    bench.clock.advance(1.0)
    assert bench.panel.view("new") is not None


def test_a_store_that_only_takes_no_writes_can_still_be_read() -> None:
    bench = Bench()
    bench.breaker.tell(BAD)

    def full(*_: object) -> Step:
        raise StoreFull("flaky:", "no space left", "make room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", full)
        bench.breaker.tell(BAD)
        assert bench.panel.store.is_lost
        view = bench.panel.view("api")
        assert view is not None
        assert view.circuit.totals.failed == 1


def test_no_caller_tries_a_store_that_somebody_else_looks_after() -> None:
    bench = Bench()
    bench.panel.store.is_kept = True
    bench.store.cut()
    for _ in range(5):
        bench.breaker.tell(BAD)
        bench.clock.advance(1.0)
    assert bench.store.tries == 1
    bench.panel.store.try_again()
    assert bench.store.tries == 2
    bench.store.mend()
    bench.panel.store.try_again()
    assert bench.panel.store.is_lost, "it is not yet time"
    bench.clock.advance(1.0)
    bench.panel.store.try_again()
    assert bench.stored().totals.failed == 5


class Noted:
    """A lock that says when somebody begins to wait for it with patience."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()
        self.release = self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if timeout > 0:
            self.waited_for.set()
        return self._lock.acquire(blocking, timeout)


def test_closing_waits_for_who_is_telling_and_tells_the_rest() -> None:
    bench = Bench()
    bench.store.cut()
    for number in range(50):
        bench.breaker.tell(Signal(ok=number % 2 == 0, cost_micros=number))
    bench.store.mend()
    bench.clock.advance(1.0)
    lock, telling, real = Noted(), threading.Event(), bench.store.apply

    def once_the_closer_waits(key: str, policy: Policy, message: Message, now_s: float) -> Step:
        telling.set()
        lock.waited_for.wait(0.1)
        return real(key, policy, message, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", once_the_closer_waits)
        patch.setattr(bench.panel.store, "_returning", lock)
        teller = threading.Thread(target=bench.panel.store.try_again)
        teller.start()
        assert telling.wait(5.0)
        bench.panel.close()
        totals = bench.stored().totals
        teller.join()
    assert lock.waited_for.is_set()
    assert totals.cost_micros == sum(range(50))
    assert totals[:2] == (25, 25)


def test_closing_tells_very_much_in_few_messages() -> None:
    bench = Bench(Policy([detectors.ConsecutiveFailures(10**9)]))
    breakers = [bench.panel.breaker(f"api {number}", bench.breaker.policy) for number in range(4)]
    bench.store.cut()
    for number in range(LISTED):
        for breaker in breakers:
            breaker.tell(Signal(ok=number % 2 == 0, error=f"error {number}", cost_micros=number))
    bench.store.mend()
    bench.clock.advance(0.5)
    told: list[Message] = []
    real = bench.store.apply

    def counted(key: str, policy: Policy, message: Message, now_s: float) -> Step:
        told.append(message)
        return real(key, policy, message, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", counted)
        bench.panel.close()
    assert len(told) <= 10 * len(breakers)
    for breaker in breakers:
        found = bench.store.get(breaker.name)
        assert found is not None
        assert found.circuit.totals.cost_micros == sum(range(LISTED))


def test_what_could_never_be_told_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.store.cut()
    for number in range(7):
        bench.breaker.tell(Signal(ok=False, error=f"error {number}"))
    bench.panel.close()
    assert "the store flaky: was never told 7 things" in caplog.text


def test_an_order_from_an_event_loop_asks_for_the_token_elsewhere() -> None:
    bench = Bench()
    asked_by: list[int] = []

    def digest() -> None:
        asked_by.append(threading.get_ident())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "operator_digest", digest)
        asyncio.run(bench.breaker.asend(Order("ada", "drill", Mode.HELD_OPEN)))
    assert asked_by
    assert threading.get_ident() not in asked_by
    assert bench.stored().mode is Mode.HELD_OPEN
