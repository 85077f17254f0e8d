"""Counts over many runs, and the confidence interval of a rate."""

import math
from collections import Counter
from typing import NamedTuple

from switchgear._analysis.backtest.replay import Judged, RunFacts

Z95 = 1.959963984540054
"""Standard deviations around the mean that contain 95 % of a normal distribution."""


class Rate(NamedTuple):
    """`seen` of `total`, with the 95 % interval of Wilson for the rate behind it.

    >>> rate(0, 100)
    Rate(seen=0, total=100, low=0.0, high=0.037)
    """

    seen: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The share that was seen; `None`: there was nothing to see it in."""
        return self.seen / self.total if self.total else None


def rate(count: int, total: int) -> Rate:
    """A rate with its interval: 0 to 1 where nothing was seen."""
    if not total:
        return Rate(0, 0, 0.0, 1.0)
    share, z2 = count / total, Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2)) / (1 + z2 / total)
    low = 0.0 if count == 0 else max(middle - half, 0.0)
    high = 1.0 if count == total else min(middle + half, 1.0)
    return Rate(count, total, round(low, 4), round(high, 4))


def most_likely_below(count: int, total: int, confidence: float = 0.95) -> float:
    """The rate that is not exceeded with that confidence (exact, one-sided).

    With none of n it is about 3/n: the rule of three.

    >>> round(most_likely_below(0, 300), 4)
    0.0099
    """
    if not total or count >= total:
        return 1.0
    low, high = count / total, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(count, total, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(count: int, total: int, share: float) -> float:
    """The probability of at most this many, by the binomial distribution."""
    if share <= 0.0:
        return 1.0
    if share >= 1.0:
        return 0.0
    return sum(
        math.exp(
            math.lgamma(total + 1)
            - math.lgamma(k + 1)
            - math.lgamma(total - k + 1)
            + k * math.log(share)
            + (total - k) * math.log1p(-share)
        )
        for k in range(count + 1)
    )


class Counts:
    """What one policy would have done with all runs. Added to by one thread."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.runs = self.steps = self.tokens = 0
        self.warned = self.stopped = self.too_late = 0
        self.saved_steps = self.saved_tokens = self.saved_micros = 0
        self.unpriced = 0
        """Stopped runs whose saving has no known price."""
        self.solved = self.false_stops = self.harmful = self.maybe_harmful = 0
        self.unsolved = self.caught = self.unsolved_steps = self.unsolved_saved = 0
        self.by_detector: Counter[str] = Counter()

    def add(self, run: RunFacts, judged: Judged) -> None:
        self.runs += 1
        self.steps += run.steps
        self.tokens += run.tokens
        self.warned += judged.warned_at is not None
        self.solved += run.solved is True
        if run.solved is False:
            self.unsolved += 1
            self.unsolved_steps += run.steps
            self.unsolved_saved += judged.saved_steps
        self.too_late += judged.tripped_at is not None and not judged.stopped
        if judged.stopped:
            self._stop(run, judged)

    def _stop(self, run: RunFacts, judged: Judged) -> None:
        self.stopped += 1
        self.by_detector[judged.detector] += 1
        self.saved_steps += judged.saved_steps
        self.saved_tokens += judged.saved_tokens
        self.saved_micros += judged.saved_micros or 0
        self.unpriced += judged.saved_micros is None
        self.caught += run.solved is False
        if run.solved:
            self.false_stops += 1
            self.harmful += judged.harmful is True
            self.maybe_harmful += judged.harmful is None

    @property
    def false_stop_rate(self) -> Rate:
        """Solved runs that would have been stopped."""
        return rate(self.false_stops, self.solved)

    @property
    def catch_rate(self) -> Rate:
        """Unsolved runs that would have been stopped."""
        return rate(self.caught, self.unsolved)
