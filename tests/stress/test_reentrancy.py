"""No lock is held while user code runs, so user code may use its own breaker.

Each kind of user code is told to look at the breaker from inside, and to have another thread
look at it too: a lock held by the caller would deadlock the one or the other.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from stress.crew import in_time
from switchgear import CircuitBreaker, Event, Policy, Rejected, detectors
from switchgear.testing import FakeClock

POLICIES = {
    "classic": Policy([detectors.ConsecutiveFailures(2)]),
    "timed": Policy([detectors.ConsecutiveFailures(2), detectors.SlowCalls(slow_s=10.0)]),
    "worried": Policy([detectors.ConsecutiveFailures(2)], tripping_at=0.5),
}
KINDS = [
    "function",
    "failure_if",
    "ignore",
    "failure_if_result",
    "fallback",
    "sink",
    "clock",
    "str",
]


class Intruder:
    """User code that uses its breaker, and has another thread use it, whenever it runs."""

    def __init__(self) -> None:
        self.breaker: CircuitBreaker | None = None
        self.visits = 0
        self._inside = False

    def intrude(self, *_: object) -> None:
        if self.breaker is None or self._inside:
            return  # it would go round in circles forever
        self._inside = True
        try:
            self.visits += 1
            self.use()
            in_time(self.use)
        finally:
            self._inside = False

    def hear(self, event: Event) -> None:
        """Use the breaker as a sink: it receives the events that it causes, so it must stop itself."""
        if self.visits < 20:
            self.intrude(event)

    def use(self) -> None:
        assert self.breaker is not None
        assert self.breaker.snapshot().phase == self.breaker.state
        assert self.breaker.readings()
        assert self.breaker.totals.succeeded >= 0
        with contextlib.suppress(Rejected):
            self.breaker.call(int)
        self.breaker.shadow(by="intruder", why="test")
        self.breaker.release(by="intruder", why="test")

    def then(self, result: Any) -> Callable[..., Any]:
        def hook(*_: object) -> Any:
            self.intrude()
            return result

        return hook


class IntrudingError(Exception):
    def __init__(self, intruder: Intruder) -> None:
        super().__init__()
        self._intruder = intruder

    def __str__(self) -> str:
        self._intruder.intrude()
        return "intruded"


class IntrudingClock(FakeClock):
    def __init__(self, intruder: Intruder) -> None:
        super().__init__()
        self._intruder = intruder

    def __call__(self) -> float:
        self._intruder.intrude()
        return super().__call__()


def breaker_with(kind: str, intruder: Intruder, policy: Policy) -> tuple[CircuitBreaker, FakeClock]:
    clock = IntrudingClock(intruder) if kind == "clock" else FakeClock()
    hooks: dict[str, dict[str, Any]] = {
        "failure_if": {"failure_if": intruder.then(True)},
        "ignore": {"ignore": intruder.then(False)},
        "failure_if_result": {"failure_if_result": intruder.then(False)},
        "fallback": {"fallback": intruder.then("cached")},
        "sink": {"sinks": [intruder.hear]},
    }
    return CircuitBreaker("api", policy=policy, clock=clock, **hooks.get(kind, {})), clock


def a_life(breaker: CircuitBreaker, clock: FakeClock, intruder: Intruder, kind: str) -> None:
    """Through all phases, so that user code runs in all of them."""

    def works() -> str:
        if kind == "function":
            intruder.intrude()
        return "answer"

    def fails() -> None:
        if kind == "function":
            intruder.intrude()
        raise IntrudingError(intruder) if kind == "str" else ConnectionError

    guarded, failing = breaker(works), breaker(fails)
    for _ in range(3):
        for _ in range(2):
            with contextlib.suppress(ConnectionError, IntrudingError, Rejected):
                failing()
            with contextlib.suppress(ConnectionError, IntrudingError, Rejected), breaker:
                fails()
        for call in (guarded, lambda: breaker.call(works)):
            with contextlib.suppress(Rejected):
                call()
        clock.advance(300.0)
        breaker.call(works)
        list(breaker(lambda: (yield works()))())
        with breaker:
            works()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", KINDS)
def test_user_code_may_use_the_breaker_and_so_may_other_threads_meanwhile(
    kind: str, policy: str
) -> None:
    intruder = Intruder()
    breaker, clock = breaker_with(kind, intruder, POLICIES[policy])
    intruder.breaker = breaker
    in_time(lambda: a_life(breaker, clock, intruder, kind))
    assert intruder.visits > 2, "the user code hardly ran: this test has tested nothing"


def test_a_sink_that_resets_the_circuit_whenever_it_opens_does_not_loop_or_deadlock() -> None:
    def reset(event: Any) -> None:
        if event.after == "open" and event.kind == "moved":
            breaker.reset(by="sink", why="I know better")

    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock(), sinks=[reset])

    def fails() -> None:
        raise ConnectionError

    for _ in range(3):
        with pytest.raises(ConnectionError):
            in_time(lambda: breaker.call(fails))
    assert breaker.state == "closed"


def test_a_guarded_function_may_trip_reset_and_hold_its_own_circuit() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)

    def fails() -> None:
        raise ConnectionError

    def busy() -> str:
        with pytest.raises(ConnectionError):
            breaker.call(fails)
        breaker.reset(by="itself", why="test")
        breaker.hold_open(by="itself", why="test")
        with pytest.raises(Rejected):
            breaker.call(fails)
        breaker.release(by="itself", why="test")
        return "done"

    assert in_time(lambda: breaker.call(busy)) == "done"
    assert breaker.state == "closed"
