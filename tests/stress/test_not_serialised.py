"""Calls run side by side: all of a crowd are inside the guarded function at once."""

import threading
from typing import Any

import pytest

from stress.crew import PATIENCE_S, together
from switchgear import CircuitBreaker, Policy, Signal, detectors
from switchgear.testing import FakeClock
from unit.shapes import ALL, Shape

CROWD = 8
TIMED = Policy([detectors.FailureRate(window=99), detectors.SlowCalls(slow_s=99.0)])
WORRIED = Policy([detectors.ConsecutiveFailures(10)], tripping_at=0.1)
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "timed": {"policy": TIMED},
    "tripping": {"policy": WORRIED},
    "with hooks": {"failure_if_result": bool, "fallback": int, "failure_if": callable},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("shape", ALL, ids=lambda shape: shape.__name__)
def test_eight_threads_run_at_the_same_time(shape: Shape, settings: str) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock(), **SETTINGS[settings])
    if settings == "tripping":
        breaker.record(Signal(ok=False))
        assert breaker.state == "tripping"
    everybody = threading.Barrier(CROWD)

    def inside() -> None:
        everybody.wait(PATIENCE_S)  # nobody leaves before all are in

    together(*[lambda: shape(breaker, inside)] * CROWD)
    assert breaker.totals.succeeded == CROWD


@pytest.mark.parametrize("mode", ["hold_closed", "shadow"])
def test_calls_admitted_against_the_evidence_run_side_by_side_too(mode: str) -> None:
    breaker = CircuitBreaker("api", threshold=1, clock=FakeClock())
    breaker.record(Signal(ok=False))
    getattr(breaker, mode)(by="ann", why="test")
    everybody = threading.Barrier(CROWD)
    together(*[lambda: breaker.call(everybody.wait, PATIENCE_S)] * CROWD)
    assert breaker.totals.overruled == CROWD
