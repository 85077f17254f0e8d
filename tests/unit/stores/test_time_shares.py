"""Shares over a time window, through guarded calls and over virtual time."""

import pytest

from switchgear import CircuitBreaker, Panel, Policy, Rejected, detectors
from switchgear._core.types import EventKind, Override
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock


def down() -> None:
    raise ConnectionError("down")


def fail(breaker: CircuitBreaker, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionError):
            breaker.call(down)


def made(detector: detectors.Detector, *, shared: bool) -> tuple[CircuitBreaker, FakeClock]:
    clock, policy = FakeClock(1000.0), Policy([detector])
    if not shared:
        return CircuitBreaker("api", policy=policy, clock=clock), clock
    panel = Panel(MemoryStore(clock=clock), policies={"*": policy}, clock=clock)
    return panel.breaker("api"), clock


in_both = pytest.mark.parametrize("shared", [False, True])


@in_both
def test_a_share_is_evaluated_from_the_minimum_on_and_trips_at_the_threshold(shared: bool) -> None:
    breaker, _ = made(detectors.FailureShare(60.0, 0.5, 10), shared=shared)
    fail(breaker, 9)
    assert breaker.state == "closed"
    fail(breaker, 1)
    assert breaker.state == "open"


@in_both
@pytest.mark.parametrize(("failed", "state"), [(4, "closed"), (5, "open")])
def test_exactly_the_threshold_trips(shared: bool, failed: int, state: str) -> None:
    breaker, _ = made(detectors.FailureShare(60.0, 0.5, 10), shared=shared)
    for _ in range(10 - failed):
        breaker.call(len, "abc")
    fail(breaker, failed)
    assert breaker.state == state


@in_both
def test_successes_count_when_they_happened_and_not_when_they_are_recorded(shared: bool) -> None:
    breaker, clock = made(detectors.FailureShare(60.0, 0.5, 10), shared=shared)
    guarded = breaker(len)
    for _ in range(500):
        guarded("abc")
    clock.advance(120.0)
    fail(breaker, 10)
    assert breaker.state == "open", "successes of two minutes ago say nothing of now"


@in_both
def test_successes_of_this_minute_count_although_they_are_not_recorded_yet(shared: bool) -> None:
    breaker, clock = made(detectors.FailureShare(60.0, 0.5, 10), shared=shared)
    guarded = breaker(len)
    for _ in range(500):
        guarded("abc")
        clock.advance(0.05)
    fail(breaker, 100)
    assert breaker.state == "closed"
    assert breaker.readings()["failure_share"].value == 100 / 600


def test_failures_leave_the_window() -> None:
    breaker, clock = made(detectors.FailureShare(60.0, 0.5, 10), shared=False)
    fail(breaker, 9)
    clock.advance(61.0)
    fail(breaker, 9)
    assert breaker.state == "closed"


def test_slow_calls_trip_and_fast_ones_do_not() -> None:
    breaker, clock = made(detectors.SlowCallShare(2.0, 60.0, 0.5, 4), shared=False)

    def takes(seconds: float) -> None:
        clock.advance(seconds)

    for _ in range(10):
        breaker.call(takes, 2.0)
    assert breaker.state == "closed"
    with pytest.raises(Rejected):
        for _ in range(30):
            breaker.call(takes, 2.1)


@pytest.mark.parametrize("threshold", [0.0, 1.1, -0.1, True, "half"])
def test_a_threshold_is_a_share_above_zero(threshold: float) -> None:
    with pytest.raises(ValueError, match=r"FailureShare\.threshold"):
        detectors.FailureShare(threshold=threshold)


def test_all_of_the_calls_is_a_threshold() -> None:
    breaker, _ = made(detectors.FailureShare(60.0, 1.0, 3), shared=False)
    breaker.call(len, "abc")
    fail(breaker, 20)
    assert breaker.state == "closed"


def test_a_remark_that_requests_a_probe_is_an_override() -> None:
    assert Override("x", "y", kind=EventKind.UNDECIDED, probe=True).is_override
