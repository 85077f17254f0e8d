"""Results from before the trip, and probes that hang: counted, and nothing else."""

import threading
from collections.abc import Callable

import pytest

from stress.crew import PATIENCE_S, together
from switchgear import CircuitBreaker, Cooldown, Policy, Rejected, Signal, detectors
from switchgear.testing import FakeClock
from unit.shapes import Shape, block, call, decorated, decorated_coroutine, decorated_generator

SHAPES = [call, decorated, block, decorated_generator, decorated_coroutine]
CROWD = 8


def outlasting(
    breaker: CircuitBreaker, shape: Shape, meanwhile: Callable[[], None], *, fails: bool
) -> None:
    """Start several calls, run a function, and let all calls end after it."""
    inside, over = threading.Barrier(CROWD + 1), threading.Event()

    def slow() -> None:
        inside.wait(PATIENCE_S)
        assert over.wait(PATIENCE_S)
        if fails:
            raise ConnectionError("at last")

    def caller() -> None:
        try:
            shape(breaker, slow)
        except ConnectionError:
            assert fails

    def conductor() -> None:
        inside.wait(PATIENCE_S)
        try:
            meanwhile()
        finally:
            over.set()

    together(conductor, *[caller] * CROWD)


@pytest.mark.parametrize("fails", [False, True], ids=["successes", "failures"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_results_from_before_the_trip_change_nothing_while_open(shape: Shape, fails: bool) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    outlasting(breaker, shape, lambda: trip(breaker), fails=fails)
    assert breaker.state == "open"
    with pytest.raises(Rejected) as refused:
        breaker.call(int)
    assert refused.value.retry_after_s == 60.0
    assert breaker.totals.late == CROWD


@pytest.mark.parametrize("fails", [False, True], ids=["successes", "failures"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_results_from_before_the_trip_neither_close_nor_reopen_nor_use_up_a_probe(
    shape: Shape, fails: bool
) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)

    def half_open() -> None:
        trip(breaker)
        clock.advance(60.0)
        assert breaker.state == "half_open"

    outlasting(breaker, shape, half_open, fails=fails)
    assert breaker.state == "half_open"
    assert breaker.totals._asdict() == {
        **dict.fromkeys(breaker.totals._fields, 0),
        "failed": 1,
        "late": CROWD,
    }
    permit = breaker.enter()
    assert permit.probe == 1
    breaker.record(Signal(ok=True), permit)
    assert breaker.state == "closed"


@pytest.mark.parametrize("fails", [False, True], ids=["successes", "failures"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_results_from_before_the_trip_do_not_count_after_the_recovery_either(
    shape: Shape, fails: bool
) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=2, clock=clock)

    def recover_and_fail_once() -> None:
        trip(breaker)
        clock.advance(60.0)
        breaker.call(int)
        breaker.record(Signal(ok=False))
        assert breaker.state == "closed"

    outlasting(breaker, shape, recover_and_fail_once, fails=fails)
    assert breaker.state == "closed"
    assert breaker.totals.late == CROWD
    # Neither did a late success end the new row, nor a late failure lengthen it.
    breaker.record(Signal(ok=False))
    assert breaker.state == "open"


def trip(breaker: CircuitBreaker) -> None:
    while breaker.state == "closed":
        breaker.record(Signal(ok=False))


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
@pytest.mark.parametrize("lease_s", [None, 7.0])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_hung_probe_loses_its_permit_when_its_lease_ends_and_the_next_caller_probes(
    shape: Shape, lease_s: float | None, fails: bool
) -> None:
    clock = FakeClock()
    policy = Policy([detectors.ConsecutiveFailures(1)], Cooldown(60.0, lease_s=lease_s))
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    trip(breaker)
    clock.advance(60.0)
    lasts_s = 60.0 if lease_s is None else lease_s
    hung, give_up = threading.Event(), threading.Event()

    def hangs() -> None:
        hung.set()
        assert give_up.wait(PATIENCE_S)
        if fails:
            raise ConnectionError("too late")

    def hanging_caller() -> None:
        try:
            shape(breaker, hangs)
        except ConnectionError:
            assert fails

    def next_callers() -> None:
        try:
            assert hung.wait(PATIENCE_S)
            clock.advance(lasts_s - 0.5)
            with pytest.raises(Rejected) as refused:
                shape(breaker, int)
            assert refused.value.retry_after_s == 0.5
            clock.advance(0.5)
            shape(breaker, int)
            assert breaker.state == "closed"
        finally:
            give_up.set()

    together(hanging_caller, next_callers)
    assert breaker.state == "closed"
    assert breaker.totals.late == 1


def test_while_one_probe_after_another_hangs_only_one_is_admitted() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    trip(breaker)
    clock.advance(60.0)
    for number in range(1, 6):
        assert breaker.enter().probe == number
        with pytest.raises(Rejected):
            breaker.enter()
        clock.advance(60.0)
    assert breaker.state == "half_open"
