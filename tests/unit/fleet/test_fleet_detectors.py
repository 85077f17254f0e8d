"""The detectors of the fleet at their limits."""

from typing import Any

import pytest

from switchgear import CircuitBreaker, Latched, Phase, Policy, Signal, detectors
from switchgear._core.detector import Detector
from switchgear._core.machine import step
from switchgear._core.types import Record
from switchgear._fleet.categories import CATEGORIES
from switchgear.testing import FakeClock


def heat(detector: Detector, *signals: Signal, now_s: float = 0.0) -> float:
    memory: Any = detector.start()
    for signal in signals:
        memory = detector.fold(memory, signal, now_s)
    return detector.heat(memory, now_s)


def test_spend_trips_when_the_share_of_the_cap_is_reached() -> None:
    spend = detectors.Spend(hard_cap_micros=100, threshold=0.29)
    assert heat(spend, Signal(cost_micros=28)) < 1
    assert heat(spend, Signal(cost_micros=29)) == 1
    assert heat(spend, Signal(cost_micros=10, count=3)) > 1


def test_spend_drops_what_has_left_the_window() -> None:
    spend = detectors.Spend(hard_cap_micros=100, window_s=60.0)
    memory = spend.fold(spend.start(), Signal(cost_micros=100), 0.0)
    assert spend.heat(memory, 59.0) == 1
    assert spend.heat(memory, 60.0) == 0


def test_a_part_of_a_micro_dollar_is_rounded_up_and_never_zero() -> None:
    assert detectors.Spend(hard_cap_micros=3, threshold=0.5).limit_micros == 2
    assert detectors.Spend(hard_cap_micros=1, threshold=1e-9).limit_micros == 1


@pytest.mark.parametrize(
    ("threshold", "limit", "most"),
    [(1.0000004, 1, 1), (1.000004, 2, 1), (1.999996, 2, 1), (1.9999996, 2, 2)],
)
def test_a_millionth_of_a_micro_dollar_is_zero(threshold: float, limit: int, most: int) -> None:
    assert detectors.Spend(1, threshold).limit_micros == limit
    assert detectors.TotalCost(1, threshold).limit_micros == most


def test_spending_is_not_a_failure() -> None:
    spend = detectors.Spend(5)
    assert spend.fold(spend.start(), Signal(ok=False, cost_micros=3), 0.0).hits == 0


def test_a_cost_of_zero_changes_no_memory() -> None:
    both: list[Detector] = [detectors.Spend(5), detectors.TotalCost(5)]
    for detector in both:
        for cost in (None, 0, -7):
            memory = detector.fold(detector.start(), Signal(ok=True, cost_micros=cost), 99.0)
            assert memory == detector.start()


def test_total_cost_trips_strictly_above_its_share_of_the_budget() -> None:
    total = detectors.TotalCost(budget_micros=100, threshold=1.5)
    assert heat(total, Signal(cost_micros=150)) < 1
    assert heat(total, Signal(cost_micros=151)) == 1


def test_a_successful_probe_does_not_reduce_the_total_cost() -> None:
    total = detectors.TotalCost(budget_micros=100)
    assert total.recovered(70) == 70


@pytest.mark.parametrize("kind", [detectors.Spend, detectors.TotalCost])
def test_a_threshold_beyond_all_numbers_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"threshold is 1e\+308: times"):
        kind(10**6, 1e308)


def test_a_lock_is_contended_when_it_took_as_long_as_the_limit() -> None:
    wait = detectors.LockWait(limit_s=60.0)
    assert heat(wait, Signal(waited_s=59.999)) < 1
    assert heat(wait, Signal(waited_s=60.0)) == 1
    assert heat(wait, Signal(waited_s=60.001)) >= 1
    assert heat(wait, Signal(waited_s=600.0), Signal(waited_s=6.0)) < 0.1, "the last one counts"
    assert heat(wait, Signal(waited_s=600.0, count=0)) == 0
    assert heat(wait, Signal(waited_s=-5.0)) == 0


def test_a_probe_that_waited_too_long_has_failed() -> None:
    wait = detectors.LockWait(limit_s=60.0)
    assert wait.objection(Signal(ok=True, waited_s=59.9)) is None
    assert wait.objection(Signal(ok=True, waited_s=60.0)) == "waited 60 s (threshold 60 s)"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0123, "0.0123 s"),
        (61.25, "61.25 s"),
        (600.0, "10 min"),
        (3600.4, "1 h"),
        (86_401.0, "24 h 1 s"),
        (5_400_000.0, "1,500 h"),
        (1e15, "1e+15 s"),
    ],
)
def test_long_waits_are_written_in_hours_and_minutes(seconds: float, said: str) -> None:
    wait = detectors.LockWait(limit_s=seconds)
    assert wait.reason(0.0, now_s=0.0) == f"waited 0 s (threshold {said})"


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0])
def test_a_failure_without_a_time_is_not_a_retry_after(seconds: float | None) -> None:
    asked = detectors.RetryAfter()
    assert heat(asked, Signal(ok=False, retry_after_s=seconds)) == 0
    assert heat(asked, Signal(ok=False, retry_after_s=0.5)) == 1


def test_responses_with_retry_after_count_in_a_row() -> None:
    asked = detectors.RetryAfter(threshold=2)
    limited = Signal(ok=False, retry_after_s=5.0)
    assert heat(asked, limited, Signal(ok=False), limited) == 1
    assert heat(asked, limited, Signal(ok=True), limited) == 0.5
    assert heat(asked, limited, Signal(retry_after_s=5.0), limited._replace(count=0)) == 0.5


def test_a_broken_rule_is_kept_and_the_last_one_is_named() -> None:
    violation = detectors.Violation()
    memory = violation.fold("rule a", Signal(ok=True), 0.0)
    assert (memory, violation.heat(memory, 1e9)) == ("rule a", 1.0)
    assert violation.fold(memory, Signal(violation="rule b"), 0.0) == "rule b"
    assert violation.fold(memory, Signal(violation="rule b", count=0), 0.0) == "rule a"
    assert violation.recovered(memory) == "rule a"
    assert violation.load(violation.dump(memory)) == "rule a"
    assert len(violation.fold(None, Signal(violation="x" * 1000), 0.0) or "") == 300


def test_a_probe_that_breaks_a_rule_has_failed() -> None:
    violation = detectors.Violation()
    assert violation.objection(Signal(ok=True)) is None
    assert violation.objection(Signal(ok=True, violation="rule a")) == "broke a rule: rule a"


def test_a_paused_task_is_resumed_by_a_reset() -> None:
    policy = Policy([detectors.TotalCost(budget_micros=100)], Latched())
    story = CircuitBreaker("story/S-12", policy=policy, clock=FakeClock(0.0))
    story.record(Signal(cost_micros=200))
    assert story.state is Phase.OPEN
    story.reset(by="ada", why="worth it")
    assert (story.state, story.heat) == (Phase.CLOSED, 0.0)


@pytest.mark.parametrize(
    ("detector", "data", "why"),
    [
        (detectors.LockWait(), -0.5, r"the last wait is -0\.5"),
        (detectors.RetryAfter(), -1, "requests to wait is -1"),
        (detectors.TotalCost(5), -1, "what was spent is -1"),
    ],
)
def test_a_negative_stored_amount_is_refused(detector: Detector, data: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        detector.load(data)


def test_a_threshold_of_two_seconds_trips_at_two_seconds() -> None:
    policy = CATEGORIES["resource_lock"](threshold_seconds=2).policy
    for waited_s, phase in ((1.99, Phase.TRIPPING), (2, Phase.OPEN), (2.01, Phase.OPEN)):
        told = Record(Signal(ok=True, waited_s=waited_s))
        assert step(policy, policy.start("lock/db", 0.0), told, 0.0).circuit.phase is phase


def test_the_failure_rate_of_an_agent_warns_before_its_window_is_full() -> None:
    policy = CATEGORIES["failure_rate"]().policy
    circuit = policy.start("agent/coder/failure_rate", 0.0)
    phases = []
    for at_s in range(20):
        circuit = step(policy, circuit, Record(Signal(ok=False)), float(at_s)).circuit
        phases.append(circuit.phase)
    assert phases == [Phase.CLOSED] * 8 + [Phase.TRIPPING] * 11 + [Phase.OPEN]
