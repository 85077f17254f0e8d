"""Time comes from the breaker's clock alone; setting the wall clock changes nothing."""

import subprocess
import sys
import time

import pytest

from switchgear import CircuitBreaker, Policy, Rejected, Signal, detectors
from switchgear._panel.panel import Panel
from switchgear.testing import FakeClock, FlakyStore

HOUR_S = 3600.0
JUMPS = [
    pytest.param(HOUR_S, id="an hour forward"),
    pytest.param(-HOUR_S, id="an hour back"),
]
POLICIES = [
    Policy([detectors.ConsecutiveFailures(2)]),
    Policy([detectors.FailuresInWindow(2, 60.0)]),
    Policy([detectors.FailureRate(window=2, threshold=0.5)]),
    Policy([detectors.ConsecutiveFailures(2), detectors.SlowCalls(slow_s=1.0)]),
]


def set_wall_clock(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Set the wall clock for all code that reads it."""
    wall, wall_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: wall() + by_s)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + int(by_s * 1e9))


def retry_after_s(breaker: CircuitBreaker) -> float:
    with pytest.raises(Rejected) as refused:
        breaker.call(int)
    assert refused.value.retry_after_s is not None
    return refused.value.retry_after_s


@pytest.mark.parametrize("by_s", JUMPS)
@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda policy: "+".join(d.kind for d in policy.detectors)
)
def test_setting_the_wall_clock_neither_drops_failures_nor_changes_the_wait(
    policy: Policy, by_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = CircuitBreaker("api", policy=policy)
    breaker.record(Signal(ok=False, seconds=0.1))
    set_wall_clock(monkeypatch, by_s)
    assert breaker.state == "closed"
    breaker.record(Signal(ok=False, seconds=0.1))
    assert 50.0 < retry_after_s(breaker) <= 60.0
    set_wall_clock(monkeypatch, by_s)
    assert breaker.state == "open"
    assert 50.0 < retry_after_s(breaker) <= 60.0


# A wall clock that was bound before it is set would escape the test above.
IN_A_NEW_PROCESS = """
import time
offset_s, wall = 0.0, time.time
time.time = lambda: wall() + offset_s

from switchgear import CircuitBreaker, Rejected, Signal

breaker = CircuitBreaker("api", threshold=1)
breaker.record(Signal(ok=False))
for offset_s in (3600.0, -3600.0):
    assert breaker.state == "open"
    try:
        breaker.call(int)
    except Rejected as refused:
        assert 50.0 < refused.retry_after_s <= 60.0, refused
    else:
        raise AssertionError("admitted")
"""


def test_a_breaker_never_binds_the_wall_clock() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_clock_that_runs_backwards_does_not_move_a_circuit_back_in_time() -> None:
    clock = FakeClock(1000.0)
    breaker = CircuitBreaker("api", threshold=1, clock=clock)
    breaker.record(Signal(ok=False))
    clock.now_s = 1060.0
    assert breaker.state == "half_open"
    clock.now_s = 900.0
    assert breaker.state == "half_open"
    assert breaker.call(int) == 0
    assert breaker.state == "closed"


def test_two_breakers_on_one_clock_each_keep_their_own_wait() -> None:
    clock = FakeClock()
    first = CircuitBreaker("a", threshold=1, clock=clock)
    second = CircuitBreaker("b", threshold=1, base_timeout=10.0, clock=clock)
    first.record(Signal(ok=False))
    second.record(Signal(ok=False))
    clock.advance(10.0)
    assert (first.state, second.state) == ("open", "half_open")


class Suspicious(FakeClock):
    """A clock that is user code, and must not be read while a breaker's lock is held."""

    breaker: CircuitBreaker | None = None

    def __call__(self) -> float:
        assert self.breaker is None or not self.breaker._lock.is_mine()
        return super().__call__()


@pytest.mark.parametrize("refresh_s", [None, 0.1])
@pytest.mark.parametrize("policy", POLICIES[:3], ids=repr)
def test_no_clock_is_read_under_a_lock(policy: Policy, refresh_s: float | None) -> None:
    own, wall = Suspicious(1000.0), FakeClock(5000.0)
    store = FlakyStore(clock=wall, refresh_s=refresh_s)
    for breaker in (
        Panel(store, clock=own).breaker("api", policy),
        CircuitBreaker("api", policy=policy, clock=own),
    ):
        own.breaker = breaker
        breaker.call(int)
        breaker.record(Signal(ok=False, count=2))
        assert retry_after_s(breaker) == 60.0
        own.advance(60.0)
        wall.advance(60.0)
        assert breaker.state == "half_open"
        breaker.call(int)
        assert breaker.state == "closed"


def test_after_a_pause_a_run_of_successes_is_dated_when_it_was_due() -> None:
    clock = FakeClock(1000.0)
    policy = Policy([detectors.LatencyP95(1.0, window_s=30.0, min_calls=5)])
    breaker = CircuitBreaker("api", policy=policy, clock=clock)
    for _ in range(10):
        breaker.call(int)
    clock.advance(200.0)
    assert breaker.readings()["latency_p95"].reason == "0 of the 5 calls needed to judge"
    assert breaker.totals.succeeded == 10
