"""Closed calls where a shared store pushes changes: they send nothing and take the fast path."""

import asyncio
from typing import Any

import pytest

from switchgear import CircuitBreaker, Cooldown, Policy, Rejected, Signal, detectors
from switchgear._breaker.tickets import TICKETS
from switchgear._core.types import Message, Step
from switchgear._panel.panel import Panel
from switchgear.testing import FakeClock, FlakyStore

POLICY = Policy([detectors.ConsecutiveFailures(3)], Cooldown(10.0))
SUCCESSES = 3 * TICKETS


class CountingStore(FlakyStore):
    """Counts the messages; `refresh_s=None` is how a store says that pushes arrive."""

    messages = 0
    pushes = True

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        self.messages += 1
        return super().apply(key, policy, message, now_s)


def made(refresh_s: float | None) -> tuple[CountingStore, CircuitBreaker]:
    clock = FakeClock(1000.0)
    store = CountingStore(clock=clock, refresh_s=refresh_s)
    return store, Panel(store, clock=clock).breaker("api", POLICY)


def test_closed_calls_send_nothing_however_many_there_are() -> None:
    store, breaker = made(None)
    store.messages = 0
    for _ in range(SUCCESSES):
        breaker.call(len, "abc")
    assert store.messages == 0
    breaker.flush()
    assert (store.messages, breaker.totals.succeeded) == (1, SUCCESSES)


def test_awaited_calls_send_nothing_either() -> None:
    store, breaker = made(None)

    async def succeed() -> None:
        pass

    async def call() -> None:
        for _ in range(SUCCESSES):
            await breaker.acall(succeed)

    store.messages = 0
    asyncio.run(call())
    assert store.messages == 0
    assert breaker.totals.succeeded == SUCCESSES


def test_deferred_results_are_recorded_before_a_failure() -> None:
    _, breaker = made(None)
    breaker.record(Signal(ok=False, count=2))
    for _ in range(SUCCESSES):
        breaker.call(len, "abc")
    breaker.record(Signal(ok=False, count=2))
    assert breaker.state == "closed"
    assert (breaker.totals.succeeded, breaker.totals.failed) == (SUCCESSES, 4)


def test_a_deferred_result_is_stale_after_a_transition_and_not_lost() -> None:
    store, breaker = made(None)
    for _ in range(SUCCESSES):
        breaker.call(len, "abc")
    other = Panel(store, clock=store._clock).breaker("api", POLICY)
    other.record(Signal(ok=False, count=3))
    breaker.adopt(other.snapshot())
    totals = breaker.totals
    assert (totals.late, totals.succeeded, totals.failed) == (SUCCESSES, 0, 3)


@pytest.mark.parametrize(("before", "after"), [(0.1, None), (None, 0.1)])
def test_the_fast_path_is_taken_while_pushes_arrive_and_only_then(
    before: float | None, after: float | None
) -> None:
    store, breaker = made(before)
    assert (breaker._fast is not None) == (before is None)
    store.refresh_s = after
    breaker.call(len, "abc")
    breaker.flush()
    assert (breaker._fast is not None) == (after is None)


TIMED = Policy([detectors.ConsecutiveFailures(3), detectors.SlowCalls(slow_s=10.0)], Cooldown(10.0))


def answer() -> str:
    return "answer"


@pytest.mark.parametrize("refresh_s", [None, 0.1])
def test_a_timed_function_takes_its_fast_path_until_its_run_is_due(
    refresh_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, slowly = FakeClock(1000.0), list[float]()
    store = CountingStore(clock=clock, refresh_s=0.1)
    breaker = Panel(store, clock=clock).breaker("api", TIMED)
    guarded = breaker(answer)  # before anything is known of pushes
    store.refresh_s = refresh_s
    usual = CircuitBreaker._call

    def slow_path(self: CircuitBreaker, *call: Any) -> Any:
        slowly.append(clock())
        return usual(self, *call)

    monkeypatch.setattr(CircuitBreaker, "_call", slow_path)
    clock.advance(2.0)
    guarded()
    breaker.flush()  # as the panel's keeper does every second
    slowly.clear()
    for _ in range(10):
        guarded()
    assert slowly == []
    clock.advance(2.0)
    guarded()
    assert slowly == [1004.0]
    assert breaker.totals.succeeded == 12


def test_a_timed_function_reads_changes_of_other_processes_when_its_run_is_due() -> None:
    clock = FakeClock(1000.0)
    store = CountingStore(clock=clock, refresh_s=0.1)
    breaker = Panel(store, clock=clock).breaker("api", TIMED)
    guarded = breaker(answer)
    assert guarded() == "answer"
    other = Panel(store, clock=clock).breaker("api", TIMED)
    other.record(Signal(ok=False, count=3))
    clock.advance(0.1)
    with pytest.raises(Rejected):
        guarded()
