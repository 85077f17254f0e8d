"""Breakers pickle and copy with their state; their time continues from where it stood."""

import copy
import pickle
from typing import NoReturn

import pytest

from switchgear import (
    CircuitBreaker,
    Cooldown,
    Event,
    Mode,
    Policy,
    Rejected,
    Signal,
    detectors,
)
from switchgear.testing import FakeClock

HEARD = list[Event]()


def hear(event: Event) -> None:
    HEARD.append(event)


def bad(result: object) -> bool:
    return result == "sorry"


def instead(*_: object) -> str:
    return "cached"


def raises(error: Exception) -> NoReturn:
    raise error


def fails() -> NoReturn:
    raise ConnectionError("down")


def again(breaker: CircuitBreaker) -> CircuitBreaker:
    loaded = pickle.loads(pickle.dumps(breaker))
    assert isinstance(loaded, CircuitBreaker)
    return loaded


def retry_after_s(breaker: CircuitBreaker) -> float | None:
    with pytest.raises(Rejected) as refused:
        breaker.call(int)
    return refused.value.retry_after_s


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_fresh_breaker_pickles_by_every_protocol(protocol: int) -> None:
    loaded = pickle.loads(pickle.dumps(CircuitBreaker("api", threshold=3), protocol))
    assert loaded.name == "api"
    assert loaded.policy == CircuitBreaker("api", threshold=3).policy
    assert loaded.state == "closed"


def test_a_row_of_failures_continues_after_pickling() -> None:
    breaker = CircuitBreaker("api", threshold=3, clock=FakeClock())
    for _ in range(2):
        with pytest.raises(ConnectionError):
            breaker.call(fails)
    loaded = again(breaker)
    with pytest.raises(ConnectionError):
        loaded.call(fails)
    assert loaded.state == "open"
    assert breaker.state == "closed"


def test_counts_that_were_not_recorded_yet_are_pickled_too() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    for _ in range(10):
        breaker.call(int)
    with pytest.raises(ConnectionError):
        breaker.call(fails)
    for _ in range(4):
        with pytest.raises(Rejected):
            breaker.call(int)
    loaded = again(breaker)
    assert loaded.totals == breaker.totals
    assert loaded.totals.succeeded == 10
    assert loaded.totals.refused == 4


def test_an_open_circuit_waits_the_rest_of_its_wait_on_a_clock_that_shows_another_time() -> None:
    clock = FakeClock(1000.0)
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(Signal(ok=False, error="down"))
    clock.advance(18.0)
    stored = pickle.dumps(breaker)
    for start_s in (0.0, 1e6):
        # The other process: its clock has nothing to do with ours.
        loaded = pickle.loads(stored)
        loaded = loaded._restore(
            {**loaded._config(), "clock": FakeClock(start_s)}, *loaded.__reduce__()[1][1:]
        )
        assert retry_after_s(loaded) == 42.0
        other = loaded._config()["clock"]
        other.advance(41.0)
        assert loaded.state == "open"
        other.advance(1.0)
        assert loaded.state == "half_open"
        once_more = again(loaded)
        assert once_more.state == "half_open"
        assert once_more.call(int) == 0


def test_a_breaker_on_the_real_clock_continues_its_wait() -> None:
    breaker = CircuitBreaker("api", threshold=1)
    breaker.record(Signal(ok=False))
    left_s = retry_after_s(again(again(breaker)))
    assert left_s is not None
    assert 50.0 < left_s <= 60.0


def test_a_probe_under_way_keeps_its_lease() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(Signal(ok=False))
    clock.advance(60.0)
    permit = breaker.enter()
    loaded = again(breaker)
    assert retry_after_s(loaded) == 60.0
    loaded.record(Signal(ok=True), permit)
    assert loaded.state == "closed"
    assert breaker.state == "half_open"


def test_a_hold_keeps_its_operator_and_reason() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.hold_open(by="ann", why="maintenance")
    loaded = again(breaker)
    assert loaded.mode is Mode.HELD_OPEN
    with pytest.raises(Rejected, match="held open by ann: maintenance"):
        loaded.call(int)


def test_policy_fallback_predicates_and_sinks_are_pickled_too() -> None:
    policy = Policy(
        [detectors.FailureRate(window=4, threshold=0.5), detectors.SlowCalls(slow_s=1.0)],
        Cooldown(5.0, probes=2, jitter=0.1),
        tripping_at=0.5,
    )
    breaker = CircuitBreaker(
        "api",
        policy=policy,
        fallback=instead,
        failure_if=OSError,
        failure_if_result=bad,
        ignore=TimeoutError,
        clock=FakeClock(),
        sinks=[hear],
    )
    loaded = again(breaker)
    assert loaded.policy == policy
    HEARD.clear()
    loaded.call(lambda: "sorry")
    assert loaded.totals.failed == 1
    for error in (TimeoutError(), ValueError()):
        with pytest.raises(type(error)):
            loaded.call(raises, error)
    assert (loaded.totals.failed, loaded.totals.ignored) == (1, 2)
    loaded.hold_open(by="ann", why="test")
    assert loaded.call(int) == "cached"  # type: ignore[comparison-overlap]
    assert HEARD[-1].by == "ann"


def test_event_numbers_continue_without_a_gap() -> None:
    HEARD.clear()
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock(), sinks=[hear])
    breaker.record(Signal(ok=False))
    again(breaker).reset(by="ann", why="test")
    assert [event.seq for event in HEARD] == [1, 2, 3]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_starts_from_the_same_state_and_is_independent(copied: object) -> None:
    breaker = CircuitBreaker("api", threshold=2, clock=FakeClock())
    breaker.record(Signal(ok=False))
    other = copied(breaker)  # type: ignore[operator]
    other.record(Signal(ok=False))
    assert other.state == "open"
    assert breaker.state == "closed"


def test_a_refusal_copies_and_keeps_its_notes() -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    breaker.record(Signal(ok=False, error="529"))
    with pytest.raises(Rejected) as refused:
        breaker.call(int)
    refused.value.add_note("while answering ann")
    for other in (
        copy.copy(refused.value),
        copy.deepcopy(refused.value),
        pickle.loads(pickle.dumps(refused.value)),
    ):
        assert str(other) == str(refused.value)
        assert other.__notes__ == ["while answering ann"]
        assert other.retry_after_s == 60.0
        assert other.last_error == "529"
