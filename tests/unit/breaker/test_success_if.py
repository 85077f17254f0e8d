"""`success_if`: an exception that proves the service alive counts as a success."""

import asyncio
import threading
from typing import Any

import pytest

from switchgear import CircuitBreaker, Policy, Rejected, Signal, detectors
from switchgear.testing import FakeClock
from timeouts import LIMIT_S
from unit.shapes import ALL, Shape

every_shape = pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.__name__)


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


def is_404(error: BaseException) -> bool:
    return isinstance(error, HttpError) and error.status == 404


def answers(status: int) -> Any:
    def call() -> None:
        raise HttpError(status)

    return call


def absent() -> None:
    raise KeyError("absent")


def half_open(**options: Any) -> tuple[CircuitBreaker, FakeClock]:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock, **options)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    return breaker, clock


@every_shape
def test_a_success_by_exception_closes_a_half_open_circuit(shape: Shape) -> None:
    breaker, _ = half_open(success_if=is_404)
    with pytest.raises(HttpError):
        shape(breaker, answers(404))
    assert breaker.state == "closed"


@pytest.mark.parametrize("test", [LookupError, (KeyError, LookupError), lambda _: True])
def test_types_and_predicates_are_taken(test: Any) -> None:
    breaker = CircuitBreaker("api", threshold=1, success_if=test, clock=FakeClock())
    with pytest.raises(KeyError):
        breaker.call(absent)
    assert (breaker.state, breaker.totals.succeeded) == ("closed", 1)


def test_a_success_by_exception_ends_failures_in_a_row() -> None:
    breaker = CircuitBreaker("api", threshold=3, success_if=is_404, clock=FakeClock())
    for status in (500, 500, 404, 500, 500):
        with pytest.raises(HttpError):
            breaker.call(answers(status))
    assert breaker.state == "closed"


def test_ignore_is_checked_before_success_if_and_failure_if_last() -> None:
    options: dict[str, Any] = {"failure_if": HttpError, "success_if": HttpError}
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock(), **options)
    with pytest.raises(HttpError):
        breaker.call(answers(500))
    assert breaker.totals.succeeded == 1
    breaker = CircuitBreaker("api", threshold=1, ignore=HttpError, clock=FakeClock(), **options)
    with pytest.raises(HttpError):
        breaker.call(answers(500))
    assert (breaker.totals.succeeded, breaker.totals.ignored) == (0, 1)


def test_an_interruption_is_never_a_success() -> None:
    breaker = CircuitBreaker("api", success_if=lambda _: True, clock=FakeClock())

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(breaker.acall(cancelled))
    assert breaker.totals.succeeded == 0


@pytest.mark.parametrize(
    ("statuses", "expected"), [((404, 404), "succeeded"), ((404, 500), "failed")]
)
def test_a_group_is_a_failure_if_one_member_is(statuses: tuple[int, ...], expected: str) -> None:
    breaker = CircuitBreaker("api", success_if=is_404, clock=FakeClock())

    def several() -> None:
        raise ExceptionGroup("several", [HttpError(status) for status in statuses])

    with pytest.raises(ExceptionGroup):
        breaker.call(several)
    assert breaker.totals._asdict()[expected] == 1


def test_a_slow_success_by_exception_is_slow() -> None:
    clock = FakeClock()
    policy = Policy([detectors.SlowCalls(1.0, window=1)])
    breaker = CircuitBreaker("api", policy=policy, success_if=is_404, clock=clock)

    def slow() -> None:
        clock.advance(5.0)
        raise HttpError(404)

    with pytest.raises(HttpError):
        breaker.call(slow)
    assert breaker.state == "open"


def test_an_invalid_predicate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"CircuitBreaker\.success_if is 404"):
        CircuitBreaker("api", success_if=404)  # type: ignore[arg-type]


def test_after_an_ignored_probe_the_next_call_probes_at_once() -> None:
    breaker, _ = half_open(ignore=is_404)
    for _ in range(20):
        with pytest.raises(HttpError):
            breaker.call(answers(404))
    assert (breaker.state, breaker.totals.refused) == ("half_open", 0)
    assert breaker.call(len, "abc") == 3
    assert breaker.state == "closed"


def test_during_an_ignored_probe_other_calls_wait_only_for_it() -> None:
    breaker, _ = half_open(ignore=is_404)
    inside, go_on = threading.Event(), threading.Event()

    def probe() -> None:
        inside.set()
        go_on.wait(LIMIT_S)
        raise HttpError(404)

    def guarded() -> None:
        with pytest.raises(HttpError):
            breaker.call(probe)

    thread = threading.Thread(target=guarded)
    thread.start()
    assert inside.wait(LIMIT_S)
    with pytest.raises(Rejected, match="a probe is under way"):
        breaker.call(len, "abc")
    go_on.set()
    thread.join(LIMIT_S)
    assert breaker.call(len, "abc") == 3


def test_success_if_is_pickled_with_the_breaker() -> None:
    import pickle  # noqa: PLC0415

    breaker = CircuitBreaker("api", threshold=1, success_if=KeyError)
    again = pickle.loads(pickle.dumps(breaker))
    with pytest.raises(KeyError):
        again.call(absent)
    assert again.totals.succeeded == 1
