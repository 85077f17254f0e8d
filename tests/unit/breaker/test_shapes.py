"""The behaviour of a guarded call is the same in every shape in which it can be guarded."""

import asyncio
import re

import pytest

from stress.crew import in_time
from switchgear import CircuitBreaker, Policy, Rejected, detectors
from switchgear.testing import FakeClock
from unit.shapes import ALL, CALLS, Shape

# Blocks have no result, and the items of a stream are not its result.
WITH_A_RESULT = [shape for shape in CALLS if not re.search("generator|stream", shape.__name__)]
ZERO = dict.fromkeys(CircuitBreaker("api").totals._fields, 0)
every_shape = pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.__name__)


def down() -> str:
    raise ConnectionError("down")


def up() -> str:
    return "answer"


@every_shape
def test_a_success_returns_its_result_and_counts_once(shape: Shape) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    assert shape(breaker, up) == "answer"
    assert breaker.totals._asdict() == {**ZERO, "succeeded": 1}


@every_shape
def test_a_failure_is_raised_as_it_is_and_counts_once(shape: Shape) -> None:
    breaker, error = CircuitBreaker("api", clock=FakeClock()), ConnectionError("down")

    def fails() -> None:
        raise error

    with pytest.raises(ConnectionError) as caught:
        shape(breaker, fails)
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert breaker.totals._asdict() == {**ZERO, "failed": 1}


@every_shape
def test_an_open_circuit_refuses_without_running_anything(shape: Shape) -> None:
    breaker, ran = CircuitBreaker("api", threshold=1, clock=FakeClock()), list[str]()
    with pytest.raises(ConnectionError):
        shape(breaker, down)
    for _ in range(3):
        with pytest.raises(Rejected):
            shape(breaker, lambda: ran.append("ran"))
    assert ran == []
    assert breaker.totals._asdict() == {**ZERO, "failed": 1, "refused": 3}


@every_shape
def test_one_successful_probe_closes_and_counts_once(shape: Shape) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    with pytest.raises(ConnectionError):
        shape(breaker, down)
    clock.advance(60.0)
    assert shape(breaker, up) == "answer"
    assert breaker.state == "closed"
    assert breaker.totals._asdict() == {**ZERO, "failed": 1, "succeeded": 1}


@every_shape
def test_one_failed_probe_re_opens_at_once_and_counts_once(shape: Shape) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            shape(breaker, down)
        assert breaker.state == "open"
        clock.advance(60.0)
    assert breaker.totals._asdict() == {**ZERO, "failed": 2}


@every_shape
def test_a_half_open_circuit_admits_no_other_call_during_a_probe(shape: Shape) -> None:
    clock, ran = FakeClock(), list[str]()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    with pytest.raises(ConnectionError):
        shape(breaker, down)
    clock.advance(60.0)

    def probe() -> str:
        with pytest.raises(Rejected, match="a probe is under way"):
            in_time(lambda: shape(breaker, lambda: ran.append("ran")))
        return "probed"

    assert shape(breaker, probe) == "probed"
    assert ran == []
    assert breaker.state == "closed"


@every_shape
@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError], ids=lambda kind: kind.__name__
)
def test_an_interrupted_probe_is_not_evidence_and_frees_the_probe(
    shape: Shape, stop: type[BaseException]
) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    with pytest.raises(ConnectionError):
        shape(breaker, down)
    clock.advance(60.0)

    def interrupted() -> None:
        raise stop

    with pytest.raises(stop):
        shape(breaker, interrupted)
    assert breaker.state == "half_open"
    assert shape(breaker, up) == "answer"
    assert breaker.state == "closed"
    assert breaker.totals._asdict() == {**ZERO, "failed": 1, "ignored": 1, "succeeded": 1}


@every_shape
def test_a_success_from_before_the_trip_neither_closes_nor_uses_up_a_probe(shape: Shape) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)

    def outlasts_the_outage() -> str:
        with pytest.raises(ConnectionError):
            breaker.call(down)
        clock.advance(60.0)
        assert breaker.state == "half_open"
        return "late"

    assert shape(breaker, outlasts_the_outage) == "late"
    assert breaker.state == "half_open"
    assert breaker.totals._asdict() == {**ZERO, "failed": 1, "late": 1}
    breaker.call(up)
    assert breaker.state == "closed"


@every_shape
def test_a_failure_from_before_the_trip_neither_reopens_nor_uses_up_a_probe(shape: Shape) -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)

    def fails_late() -> str:
        with pytest.raises(ConnectionError):
            breaker.call(down)
        clock.advance(60.0)
        assert breaker.state == "half_open"
        raise TimeoutError("at last")

    with pytest.raises(TimeoutError):
        shape(breaker, fails_late)
    assert breaker.state == "half_open"
    assert breaker.totals._asdict() == {**ZERO, "failed": 1, "late": 1}
    breaker.call(up)
    assert breaker.state == "closed"


@every_shape
def test_a_slow_success_is_slow_in_every_shape(shape: Shape) -> None:
    clock = FakeClock()
    slow_calls = detectors.SlowCalls(slow_s=10.0, window=2, threshold=0.0)
    breaker = CircuitBreaker("api", policy=Policy([slow_calls]), clock=clock)
    shape(breaker, lambda: clock.advance(10.0))
    shape(breaker, lambda: clock.advance(10.0))
    assert breaker.state == "closed"
    shape(breaker, lambda: clock.advance(10.5))
    assert breaker.state == "open"


@every_shape
def test_a_closed_circuit_may_be_entered_again_from_inside(shape: Shape) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    assert shape(breaker, lambda: shape(breaker, lambda: shape(breaker, up))) == "answer"
    assert breaker.totals.succeeded == 3


@every_shape
def test_a_refusal_by_an_inner_circuit_is_not_evidence_against_the_outer(shape: Shape) -> None:
    outer = CircuitBreaker("agent", threshold=1, clock=FakeClock())
    inner = CircuitBreaker("provider", threshold=1, clock=FakeClock())
    with pytest.raises(ConnectionError):
        inner.call(down)
    with pytest.raises(Rejected, match="circuit 'provider' is open"):
        shape(outer, lambda: inner.call(up))
    assert outer.state == "closed"
    assert outer.totals._asdict() == {**ZERO, "ignored": 1}


@pytest.mark.parametrize("shape", WITH_A_RESULT, ids=lambda shape: shape.__name__)
def test_a_bad_result_is_a_failure_and_the_caller_still_gets_it(shape: Shape) -> None:
    breaker = CircuitBreaker(
        "api", threshold=1, failure_if_result=lambda result: result == "sorry", clock=FakeClock()
    )
    assert shape(breaker, up) == "answer"
    assert shape(breaker, lambda: "sorry") == "sorry"
    assert breaker.state == "open"
    with pytest.raises(Rejected, match="the result is a failure"):
        shape(breaker, up)
