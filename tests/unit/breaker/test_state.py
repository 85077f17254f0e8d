"""The state is one of four phases, advances with time, and heat shows how close a trip is."""

import pytest

from switchgear import (
    CircuitBreaker,
    Cooldown,
    Event,
    Latched,
    Phase,
    Policy,
    Rejected,
    Signal,
    WindowEnd,
    detectors,
)
from switchgear.testing import FakeClock

FAILED = Signal(ok=False)


def test_the_four_states_are_the_documented_ones_and_are_texts() -> None:
    assert [str(phase) for phase in Phase] == ["closed", "tripping", "open", "half_open"]
    assert CircuitBreaker("api").state == "closed"
    assert f"{CircuitBreaker('api').state}" == "closed"


def test_a_tripping_circuit_admits_and_closes_when_the_evidence_ages() -> None:
    clock, seen = FakeClock(), list[Event]()
    policy = Policy([detectors.FailuresInWindow(4, 60.0)], tripping_at=0.5)
    breaker = CircuitBreaker("api", policy=policy, clock=clock, sinks=[seen.append])
    breaker.record(FAILED)
    assert breaker.state == "closed"
    breaker.record(FAILED)
    assert breaker.state == "tripping"
    assert breaker.call(int) == 0
    clock.advance(61.0)
    assert breaker.state == "closed"
    assert [event.after for event in seen] == ["tripping", "closed"]


def test_a_tripping_circuit_opens_when_the_heat_reaches_one() -> None:
    policy = Policy([detectors.ConsecutiveFailures(4)], tripping_at=0.5)
    breaker, states = CircuitBreaker("api", policy=policy, clock=FakeClock()), list[str]()
    for _ in range(4):
        breaker.record(FAILED)
        states.append(breaker.state)
    assert states == ["closed", "tripping", "tripping", "open"]


def test_heat_rises_to_one_at_the_trip_and_falls_to_zero_by_a_success() -> None:
    breaker, heats = CircuitBreaker("api", threshold=4, clock=FakeClock()), list[float]()
    for _ in range(3):
        breaker.record(FAILED)
        heats.append(breaker.heat)
    breaker.call(int)
    assert [*heats, breaker.heat] == [0.25, 0.5, 0.75, 0.0]


@pytest.mark.parametrize(
    ("recovery", "wait_s", "state"),
    [
        (Cooldown(10.0), 10.0, "half_open"),
        (WindowEnd(10.0), 10.0, "closed"),
        (Latched(), 1e9, "open"),
    ],
)
def test_an_open_circuit_recovers_by_time_without_a_call(
    recovery: Cooldown | WindowEnd | Latched, wait_s: float, state: str
) -> None:
    clock = FakeClock()
    policy = Policy([detectors.ConsecutiveFailures(1)], recovery)
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    breaker.record(FAILED)
    clock.advance(wait_s - 0.001)
    assert breaker.state == "open"
    clock.advance(0.001)
    assert breaker.state == state


def test_a_call_works_without_a_read_of_the_state_before() -> None:
    clock = FakeClock()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(FAILED)
    with pytest.raises(Rejected):
        breaker.call(int)
    clock.advance(60.0)
    assert breaker.call(int) == 0


def test_the_lease_of_a_probe_lasts_as_long_as_the_wait_it_ended() -> None:
    clock, leases = FakeClock(), list[float]()
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(FAILED)
    for wait_s in (60.0, 120.0, 240.0, 300.0, 300.0):
        clock.advance(wait_s)
        permit = breaker.enter()
        assert permit.lease_until_s is not None
        leases.append(permit.lease_until_s - clock())
        breaker.record(FAILED, permit)
    assert leases == [60.0, 120.0, 240.0, 300.0, 300.0]


def test_a_policy_may_require_several_probes_and_several_successes() -> None:
    clock = FakeClock()
    policy = Policy([detectors.ConsecutiveFailures(1)], Cooldown(60.0, probes=2, successes=3))
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    breaker.record(FAILED)
    clock.advance(60.0)
    first, second = breaker.enter(), breaker.enter()
    with pytest.raises(Rejected):
        breaker.enter()
    breaker.record(Signal(ok=True), first)
    breaker.record(Signal(ok=True), second)
    assert breaker.state == "half_open"
    breaker.call(int)
    assert breaker.state == "closed"


def test_reduced_load_admits_its_share_and_refuses_the_rest() -> None:
    clock = FakeClock()
    slow = detectors.SlowCalls(slow_s=1.0, window=2, threshold=0.0, admit=0.25)
    breaker = CircuitBreaker("api", policy=Policy([slow]), clock=clock)
    for _ in range(2):
        breaker.record(Signal(ok=True, seconds=2.0))
    assert breaker.state == "open"
    admitted = 0
    for _ in range(100):
        try:
            breaker.call(int)
        except Rejected as refused:
            assert "load reduced to 25%" in refused.reason  # noqa: PT017  not every call is refused
        else:
            admitted += 1
    assert admitted == 25


def test_the_repr_names_circuit_state_and_mode() -> None:
    breaker = CircuitBreaker("api", clock=FakeClock())
    breaker.shadow(by="ann", why="test")
    assert repr(breaker) == "<CircuitBreaker 'api' closed mode=shadow>"


def test_two_detectors_of_one_kind_have_a_reading_each() -> None:
    policy = Policy([detectors.FailuresInWindow(4, 60.0), detectors.FailuresInWindow(8, 600.0)])
    breaker = CircuitBreaker("api", policy=policy, clock=FakeClock())
    breaker.record(FAILED)
    heats = {name: reading.heat for name, reading in breaker.readings().items()}
    assert heats == {"failures_in_window": 0.25, "failures_in_window#2": 0.125}
