"""The numbers that `readings()` shows: each detector on a short history, before it and after it."""

from typing import Any

import pytest

from switchgear import AgentStep, Signal, detectors
from switchgear._core.detector import Detector, Measure

FAILED, OK = Signal(ok=False, error="E: no such table"), Signal(ok=True)
STEP = Signal(ok=True, step=AgentStep("Read", "a.py", "the same text"))
DOLLAR = 1_000_000


def after(detector: Detector, signals: list[Signal]) -> Measure | None:
    """What the detector measures after one signal per second, in the second of the last one."""
    memory = detector.start()
    for second, signal in enumerate(signals):
        memory = detector.fold(memory, signal, float(second))
    return detector.measure(memory, float(max(0, len(signals) - 1)))


CASES: list[tuple[Detector, list[Signal], Measure, Measure]] = [
    (
        detectors.ConsecutiveFailures(5),
        [FAILED, FAILED],
        Measure(0, 5, "failures"),
        Measure(2, 5, "failures"),
    ),
    (
        detectors.FailuresInWindow(3, 60.0),
        [FAILED, OK, FAILED],
        Measure(0, 3, "failures"),
        Measure(2, 3, "failures"),
    ),
    (
        detectors.FailureRate(4, 0.5),
        [FAILED, OK, OK, OK],
        Measure(0.0, 0.5, "share"),
        Measure(0.25, 0.5, "share"),
    ),
    (
        detectors.LatencyP95(baseline_s=0.5, multiplier=2.0),
        [Signal(ok=True, seconds=2.0), Signal(ok=True, seconds=0.5)],
        Measure(0.0, 0.05, "share"),
        Measure(0.5, 0.05, "share"),
    ),
    (
        detectors.RetryAfter(2),
        [Signal(ok=False, retry_after_s=9.0)],
        Measure(0, 2, "requests"),
        Measure(1, 2, "requests"),
    ),
    (
        detectors.SameError(3),
        [FAILED, FAILED],
        Measure(0, 3, "times"),
        Measure(2, 3, "times"),
    ),
    (
        detectors.ToolFlood(20),
        [STEP, STEP],
        Measure(0, 21, "calls"),
        Measure(2, 21, "calls"),
    ),
    (
        detectors.SameTool(5),
        [STEP, STEP, STEP],
        Measure(0, 6, "calls"),
        Measure(3, 6, "calls"),
    ),
    (
        detectors.LockWait(30.0),
        [Signal(waited_s=12.0)],
        Measure(0.0, 30.0, "s"),
        Measure(12.0, 30.0, "s"),
    ),
    (
        detectors.Silence(120.0),
        [Signal(idle_s=50.0)],
        Measure(0.0, 120.0, "s"),
        Measure(50.0, 120.0, "s"),
    ),
    (
        detectors.Spend(DOLLAR),
        [Signal(cost_micros=300), Signal(cost_micros=200)],
        Measure(0, DOLLAR, "micros"),
        Measure(500, DOLLAR, "micros"),
    ),
    (
        detectors.TotalCost(DOLLAR, 1.0),
        [Signal(cost_micros=300)],
        Measure(0, DOLLAR + 1, "micros"),
        Measure(300, DOLLAR + 1, "micros"),
    ),
    (
        detectors.SpendVelocity(factor=2.0, window_s=100.0, least_micros=10),
        [Signal(cost_micros=100)] * 400,
        Measure(0, 10, "micros"),
        Measure(10_000, 20_067, "micros"),  # 30,000 in the 299 s before the window
    ),
    (
        detectors.ContextBurn(),
        [Signal(context_used=0.1 + second / 1000) for second in range(61)],
        Measure(0.0, 0.05, "share per minute"),
        Measure(0.06, 0.05, "share per minute"),
    ),
    (
        detectors.NoProgress(3),
        [Signal(ok=True, files_changed=0)],
        Measure(0, 4, "iterations"),
        Measure(1, 4, "iterations"),
    ),
    (
        detectors.OutputDecline(),
        [Signal(ok=True, output_chars=chars) for chars in (100, 100, 100, 10)],
        Measure(0, 2, "outputs"),
        Measure(1, 2, "outputs"),
    ),
    (
        detectors.Violation(),
        [Signal(violation="rule force-push")],
        Measure(0, 1, "violations"),
        Measure(1, 1, "violations"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: type(case[0]).kind)
def test_a_detector_measures_its_evidence_and_names_the_threshold_and_the_unit(case: Any) -> None:
    detector, signals, before, expected = case
    assert after(detector, []) == before
    assert after(detector, signals) == expected


@pytest.mark.parametrize("detector", [detectors.RepeatedErrors(), detectors.Stagnation()])
def test_a_score_is_measured_in_the_unit_of_its_limit(detector: Any) -> None:
    again = FAILED._replace(step=AgentStep("Bash", "make", "E: no such table"))
    measured = after(detector, [again, again])
    assert measured is not None
    assert 1.0 <= measured.value < measured.threshold == detector.limit
    memory = detector.fold(detector.fold(detector.start(), again, 0.0), again, 1.0)
    assert measured.value / measured.threshold == detector.heat(memory, 1.0)
