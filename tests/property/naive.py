"""What the detectors' documentation says, recomputed from the full list of signals.

No window, ring, queue or running sum: a list of `(time, signal)` and the sentence it is held
against. One row of `KINDS` for each detector of the registry; a new detector needs a row.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Any, NamedTuple

from switchgear.core import detectors
from switchgear.core.detectors import Detector
from switchgear.core.policy import AnyDetector, Policy, WeightedSum
from switchgear.core.types import Signal

History = Sequence[tuple[float, Signal]]


def each(history: History) -> list[tuple[float, Signal]]:
    """One entry for each thing that happened: a signal with count n happened n times."""
    return [(at_s, signal) for at_s, signal in history for _ in range(signal.count)]


def exact(number: float) -> Fraction:
    """The number that a person wrote, not the nearest binary one."""
    return Fraction(repr(number))


def consecutive_failures(
    detector: detectors.ConsecutiveFailures, history: History, now_s: float
) -> float:
    row = 0
    for _, signal in reversed(each(history)):
        if signal.ok:
            break
        row += signal.ok is False
    return row / detector.threshold


def failures_in_window(
    detector: detectors.FailuresInWindow, history: History, now_s: float
) -> float:
    failed = [at_s for at_s, signal in each(history) if signal.ok is False]
    inside = [at_s for at_s in failed if now_s - at_s < detector.window_s]
    return min(len(inside), detector.threshold) / detector.threshold


def share(detector: detectors.FailureRate | detectors.SlowCalls, hits: Sequence[bool]) -> float:
    last = hits[-detector.window :]
    if len(last) < detector.min_calls:
        return 0.0
    fewest = next(n for n in range(len(last) + 2) if n > exact(detector.threshold) * len(last))
    return sum(last) / fewest


def failure_rate(detector: detectors.FailureRate, history: History, now_s: float) -> float:
    return share(detector, [s.ok is False for _, s in each(history) if s.ok is not None])


def slow_calls(detector: detectors.SlowCalls, history: History, now_s: float) -> float:
    times = [s.seconds for _, s in each(history) if s.seconds is not None]
    return share(detector, [seconds > detector.slow_s for seconds in times])


def p95_sample(detector: detectors.LatencyP95, history: History, now_s: float) -> list[float]:
    """The durations in the window; time is resolved to a thirtieth of it."""

    def thirtieth(at_s: float) -> int:
        return floor(Fraction(at_s) * 30 / Fraction(detector.window_s))

    first = thirtieth(now_s) - 29
    timed = [(at_s, s.seconds) for at_s, s in each(history) if s.seconds is not None]
    return [seconds for at_s, seconds in timed if thirtieth(at_s) >= first]


def p95(sample: Sequence[float]) -> float:
    """Nearest rank: the smallest value that 95 % of the sample do not exceed."""
    return sorted(sample)[ceil(Fraction(95, 100) * len(sample)) - 1]


def latency_p95(detector: detectors.LatencyP95, history: History, now_s: float) -> float:
    sample = p95_sample(detector, history, now_s)
    limit_s = detector.baseline_s * detector.multiplier
    if len(sample) < detector.min_calls:
        return 0.0
    over = sum(seconds > limit_s for seconds in sample)
    fewest = next(
        n for n in range(len(sample) + 1) if p95([0.0] * (len(sample) - n) + [1.0] * n) > 0.5
    )
    return over / fewest


def never_objects(detector: Any, signal: Signal) -> bool:
    return False


class Kind(NamedTuple):
    heat: Callable[[Any, History, float], float]
    memory_bound: Callable[[Any], int]
    """How many bytes the pickled memory may have, whatever happened."""
    objects: Callable[[Any, Signal], bool] = never_objects


KINDS: dict[type[Detector], Kind] = {
    detectors.ConsecutiveFailures: Kind(consecutive_failures, lambda _: 100),
    detectors.FailureRate: Kind(failure_rate, lambda d: 400 + d.window // 4),
    detectors.FailuresInWindow: Kind(failures_in_window, lambda d: 800 + 12 * d.threshold),
    detectors.LatencyP95: Kind(
        latency_p95,
        lambda _: 1200,
        lambda d, s: s.seconds is not None and s.seconds > d.baseline_s * d.multiplier,
    ),
    detectors.SlowCalls: Kind(
        slow_calls,
        lambda d: 400 + d.window // 4,
        lambda d, s: s.seconds is not None and s.seconds > d.slow_s,
    ),
}


def heats(policy: Policy, history: History, now_s: float) -> list[float]:
    return [KINDS[type(d)].heat(d, history, now_s) for d in policy.detectors]


def heat(policy: Policy, history: History, now_s: float) -> float:
    """How the detectors judge together."""
    each_heat = heats(policy, history, now_s)
    if isinstance(policy.combine, WeightedSum):
        weights = dict(policy.combine.weights)
        pairs = zip(policy.detectors, each_heat, strict=True)
        return sum(weights[d.kind] for d, hot in pairs if hot >= 1) / policy.combine.threshold
    assert isinstance(policy.combine, AnyDetector)
    return max(each_heat)


def admit(policy: Policy, history: History, now_s: float) -> float:
    """The share that the strictest of those that trip still admits."""
    pairs = zip(policy.detectors, heats(policy, history, now_s), strict=True)
    return min([getattr(d, "admit", 0.0) for d, hot in pairs if hot >= 1], default=0.0)


def objects(policy: Policy, signal: Signal) -> bool:
    return any(KINDS[type(d)].objects(d, signal) for d in policy.detectors)
