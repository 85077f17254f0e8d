"""A signal with count n is n signals, and costs little more than one."""

from typing import Any

import pytest

from switchgear import _detectors
from switchgear._core.detector import Detector
from switchgear._core.machine import step
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Acquire, Circuit, Permit, Phase, Record, Signal

MILLION = 10**6
MOST_FOLDS = 30  # 20 steps bisect a million


@pytest.mark.parametrize(
    ("detector", "signal"),
    [
        (_detectors.ConsecutiveFailures(MILLION - 3), Signal(ok=False)),
        (_detectors.FailuresInWindow(MILLION - 3), Signal(ok=False)),
        (_detectors.FailureRate(MILLION, 0.5, 999_997), Signal(ok=False)),
        (_detectors.SlowCalls(1.0, MILLION, 0.5, 999_997), Signal(ok=True, seconds=9.0)),
        (_detectors.LatencyP95(1.0, min_calls=999_997), Signal(ok=True, seconds=9.0)),
    ],
    ids=lambda part: getattr(part, "kind", ""),
)
def test_the_exact_one_of_a_million_signals_trips_and_the_rest_is_stale(
    detector: Detector, signal: Signal
) -> None:
    policy = CountingPolicy([detector])
    told = Record(signal._replace(count=MILLION), Permit(1))
    done = step(policy, policy.start("k", 0.0), told, 0.0)
    assert (done.circuit.phase, done.circuit.totals.late) == (Phase.OPEN, 3)


class CountingPolicy(Policy):
    """A policy that counts the signals that it folds or checks: cost without a clock."""

    __slots__ = ()
    folds = 0

    def fold(self, *args: Any) -> tuple[Any, ...]:
        CountingPolicy.count()
        return super().fold(*args)

    def probed_memories(self, *args: Any) -> tuple[Any, ...]:
        CountingPolicy.count()
        return super().probed_memories(*args)

    def objection(self, signal: Signal) -> str | None:
        CountingPolicy.count()
        return super().objection(signal)

    @classmethod
    def count(cls) -> None:
        cls.folds += 1
        assert cls.folds <= MOST_FOLDS, "equal signals are folded one by one"


@pytest.fixture(autouse=True)
def _folds_are_counted_from_zero() -> None:
    CountingPolicy.folds = 0


@pytest.mark.parametrize("signal", [Signal(ok=True), Signal(ok=True, seconds=0.1), Signal()])
def test_a_million_signals_that_change_nothing_are_a_few_evaluations(signal: Signal) -> None:
    policy = CountingPolicy([_detectors.FailureRate(20), _detectors.SlowCalls(1.0, 20)])
    circuit = step(policy, policy.start("k", 0.0), Record(Signal(ok=False)), 0.0).circuit
    done = step(policy, circuit, Record(signal._replace(count=MILLION)), 0.0)
    assert (done.circuit.phase, done.events) == (Phase.CLOSED, ())


def test_a_window_that_fills_with_successes_trips_at_the_one_that_fills_it() -> None:
    policy = Policy([_detectors.FailureRate(20, 0.5)])
    circuit = policy.start("k", 0.0)
    circuit = step(policy, circuit, Record(Signal(ok=False, count=11), Permit(1)), 0.0).circuit
    assert circuit.phase is Phase.CLOSED
    done = step(policy, circuit, Record(Signal(ok=True, count=25), Permit(1)), 0.0)
    assert done.circuit.phase is Phase.OPEN
    assert done.circuit.outage.reason.startswith("11 of the last 20 calls failed")
    assert (done.circuit.totals.succeeded, done.circuit.totals.late) == (9, 16)


def test_successes_beyond_those_that_close_a_circuit_are_evidence_in_the_closed_one() -> None:
    policy = Policy([_detectors.FailureRate(4)], Cooldown(60.0, successes=2))
    circuit = step(policy, policy.start("k", 0.0), Record(Signal(ok=False, count=4)), 0.0).circuit
    done = step(policy, circuit, Record(Signal(ok=True, count=5)), 60.0)
    assert done.circuit.phase is Phase.CLOSED
    assert done.circuit.memories[0].total == 3


HALF = Cooldown(60.0, successes=MILLION // 2, of=MILLION)


def probing(detector: Detector) -> tuple[Policy, Circuit]:
    """A half-open circuit, of whose next million results half must succeed."""
    policy = CountingPolicy([detector], HALF)
    failed = Record(Signal(ok=False, seconds=9.0, count=4))
    circuit = step(policy, policy.start("k", 0.0), failed, 0.0).circuit
    circuit = step(policy, circuit, Acquire(), 60.0).circuit
    assert circuit.phase is Phase.HALF_OPEN
    CountingPolicy.folds = 0
    return policy, circuit


@pytest.mark.parametrize(
    ("detector", "signal"),
    [
        (_detectors.FailureRate(4), Signal(ok=False)),
        (_detectors.SlowCalls(1.0, 4), Signal(ok=True, seconds=9.0)),
    ],
    ids=["failed", "slow"],
)
@pytest.mark.parametrize("before", [0, 1, 1000])
def test_the_exact_one_of_a_million_probes_opens_the_circuit(
    detector: Detector, signal: Signal, before: int
) -> None:
    policy, circuit = probing(detector)
    circuit = step(policy, circuit, Record(signal._replace(count=before)), 60.0).circuit
    done = step(policy, circuit, Record(signal._replace(count=MILLION)), 60.0)
    assert done.circuit.phase is Phase.OPEN
    assert done.circuit.outage.reason.startswith("500001 of 500001 probes failed")


@pytest.mark.parametrize("before", [0, 1, 1000])
def test_the_exact_one_of_a_million_probes_closes_the_circuit(
    before: int,
) -> None:
    policy, circuit = probing(_detectors.FailureRate(4, 0.5))
    circuit = step(policy, circuit, Record(Signal(ok=True, count=before)), 60.0).circuit
    done = step(policy, circuit, Record(Signal(ok=True, count=MILLION)), 60.0)
    assert done.circuit.phase is Phase.CLOSED
    assert done.events[0].reason.startswith("500000 of 500000 probes succeeded")


def test_a_million_probes_without_a_result_decide_nothing() -> None:
    policy, circuit = probing(_detectors.FailureRate(4))
    done = step(policy, circuit, Record(Signal(count=MILLION)), 60.0)
    assert (done.circuit.phase, done.circuit.totals.ignored) == (Phase.HALF_OPEN, MILLION)
    assert CountingPolicy.folds == 0
