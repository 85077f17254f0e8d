"""While a shared store is unavailable: which callers wait, with threads and at close."""

import asyncio
import threading

import pytest

from switchgear import Mode, Policy, Signal, detectors
from switchgear._core.errors import StoreFull, StoreUnavailable
from switchgear._core.types import DatedRecord, Message, Override, Record, Step
from switchgear._stores.backlog import LISTED
from switchgear._stores.fallback import Resilient
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock
from timeouts import LIMIT_S
from unit.lost_store import BAD, Bench

# Threads


def test_threads_over_an_unstable_store_lose_and_double_nothing() -> None:
    bench = Bench(Policy([detectors.ConsecutiveFailures(10**9)]), refresh_s=None)
    threads, each = 8, 300
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        for number in range(each):
            bench.breaker.record(Signal(ok=number % 3 != 0, error=f"error {number % 7}"))

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


# Waiting once


def test_one_caller_checks_a_lost_store_for_all() -> None:
    bench = Bench()
    bench.store.cut()
    bench.panel.breaker("new")
    assert bench.store.tries == 1, "making a breaker asks for its policy, then for its state"
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="it was cut off"):
            bench.panel.view("api")
        bench.panel.breaker("another").record(BAD)
    assert bench.store.tries == 1
    bench.clock.advance(1.0)
    with pytest.raises(StoreUnavailable):
        bench.panel.view("api")
    assert bench.store.tries == 2
    bench.store.mend()
    bench.clock.advance(1.0)
    assert bench.panel.view("new") is not None


def test_a_store_that_refuses_writes_can_still_be_read() -> None:
    bench = Bench()
    bench.breaker.record(BAD)

    def full(*_: object) -> Step:
        raise StoreFull("flaky:", "no space left", "make room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "apply", full)
        bench.breaker.record(BAD)
        assert bench.panel.store.is_lost
        view = bench.panel.view("api")
        assert view is not None
        assert view.circuit.totals.failed == 1


def test_no_caller_tries_a_store_that_another_thread_checks() -> None:
    bench = Bench()
    bench.panel.store.is_kept = True
    bench.store.cut()
    for _ in range(5):
        bench.breaker.record(BAD)
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
    """A lock that signals when a thread begins to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waited_for = threading.Event()
        self.release = self._lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if timeout > 0:
            self.waited_for.set()
        return self._lock.acquire(blocking, timeout)


def test_closing_waits_for_a_running_save_and_saves_the_rest() -> None:
    bench = Bench()
    bench.store.cut()
    for number in range(50):
        bench.breaker.record(Signal(ok=number % 2 == 0, cost_micros=number))
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
        assert telling.wait(LIMIT_S)
        bench.panel.close()
        totals = bench.stored().totals
        teller.join()
    assert lock.waited_for.is_set()
    assert totals.cost_micros == sum(range(50))
    assert totals[:2] == (25, 25)


def test_closing_saves_a_large_backlog_in_few_messages() -> None:
    bench = Bench(Policy([detectors.ConsecutiveFailures(10**9)]))
    breakers = [bench.panel.breaker(f"api {number}", bench.breaker.policy) for number in range(4)]
    bench.store.cut()
    for number in range(LISTED):
        for breaker in breakers:
            breaker.record(Signal(ok=number % 2 == 0, error=f"error {number}", cost_micros=number))
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


def test_updates_that_were_never_saved_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.store.cut()
    for number in range(7):
        bench.breaker.record(Signal(ok=False, error=f"error {number}"))
    bench.panel.close()
    assert "7 updates could not be saved to flaky:: " in caplog.text


def test_an_override_from_an_event_loop_checks_the_token_in_a_thread() -> None:
    bench = Bench()
    asked_by: list[int] = []

    def digest() -> None:
        asked_by.append(threading.get_ident())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.store, "operator_digest", digest)
        asyncio.run(bench.breaker.asend(Override("ada", "drill", Mode.HELD_OPEN)))
    assert asked_by
    assert threading.get_ident() not in asked_by
    assert bench.stored().mode is Mode.HELD_OPEN


class SentTogether(MemoryStore):
    """A store that takes a report together with a message, and is lost while it does."""

    is_gone = True

    def __init__(self, before_in_doubt: str | None) -> None:
        super().__init__()
        self.before_in_doubt = before_in_doubt
        self.identities: list[str | None] = []

    def apply(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        *,
        identity: str | None = None,
        before: DatedRecord | None = None,
    ) -> Step:
        if self.is_gone:
            error = StoreUnavailable(self.label, "it is gone", "wait")
            error.in_doubt, error.before_in_doubt = "two", self.before_in_doubt
            raise error
        self.identities.append(identity)
        return super().apply(key, policy, message, now_s)


@pytest.mark.parametrize(
    ("before_in_doubt", "succeeded", "identities"),
    [("one", 3, ["one", "two"]), (None, 3, ["two", None]), ("", 0, ["two"])],
    ids=["in doubt", "not sent", "applied"],
)
def test_messages_sent_together_are_kept_until_they_are_applied(
    before_in_doubt: str | None, succeeded: int, identities: list[str | None]
) -> None:
    inner = SentTogether(before_in_doubt)
    clock = FakeClock()
    policy = Policy([detectors.ConsecutiveFailures(10**9)])
    store = Resilient(inner, clock=clock)
    before = DatedRecord(1.0, Record(Signal(ok=True, count=3)))
    done = store.apply("api", policy, Record(BAD), 2.0, before=before)
    assert (done.circuit.totals.succeeded, done.circuit.totals.failed) == (succeeded, 1)
    again = store.apply("api", policy, Record(BAD), 3.0, before=before)
    assert again.circuit.totals.succeeded == succeeded + 3, "also while the store is gone"
    inner.is_gone = False
    clock.advance(1.0)
    store.try_again()
    assert not store.is_lost
    stored = next(iter(inner.find("api"))).circuit.totals
    assert (stored.succeeded, stored.failed) == (succeeded + 3, 2)
    assert inner.identities[: len(identities)] == identities
