"""The reason of a weighted policy: the score appears only if several detectors count."""

from switchgear import CircuitBreaker, Policy, Signal, WeightedSum, detectors

DETECTORS = (detectors.ConsecutiveFailures(threshold=2), detectors.SlowCalls(slow_s=1.0, window=2))


def weighed(failures: float, slow: float, threshold: float) -> CircuitBreaker:
    weights = {"consecutive_failures": failures, "slow_calls": slow}
    return CircuitBreaker(
        "x", policy=Policy(DETECTORS, combine=WeightedSum(weights, threshold=threshold))
    )


def reason(breaker: CircuitBreaker) -> str:
    return breaker.snapshot().outage.reason


def test_a_single_deciding_detector_gives_its_own_reason() -> None:
    breaker = weighed(2, 1, 2)
    breaker.record(Signal(ok=False, seconds=0.1, count=2))
    assert breaker.state == "open"
    assert reason(breaker) == "2 failures in a row (threshold 2)"


def test_several_detectors_give_the_score_its_threshold_and_their_shares() -> None:
    breaker = weighed(40, 50, 60)
    breaker.record(Signal(ok=False, seconds=5.0, count=2))
    assert breaker.state == "open"
    assert reason(breaker) == (
        "score 90 (trips at 60): 2 failures in a row (threshold 2) (+40); "
        "2 of the last 2 calls took longer than 1 s (100%, threshold 50%) (+50)"
    )


def test_a_score_below_its_threshold_shows_the_present_points() -> None:
    breaker = weighed(40, 50, 60)
    breaker.record(Signal(ok=False, seconds=0.1, count=2))
    circuit = breaker.snapshot()
    policy = breaker.policy
    assert breaker.state == "closed"
    assert policy.reason(circuit.memories, circuit.seen_s) == (
        "score 40 (trips at 60): 2 failures in a row (threshold 2) (+40)"
    )
