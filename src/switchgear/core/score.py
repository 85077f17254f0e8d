"""The score of a circuit: how much each of its detectors adds, where they are weighed (seed 002)."""

from collections.abc import Sequence
from typing import NamedTuple

from switchgear.core.policy import Policy, WeightedSum
from switchgear.core.types import Reading


class Share(NamedTuple):
    """What one detector adds."""

    kind: str
    points: float
    """Its weight, whether it trips or not."""
    trips: bool
    reason: str


class Score(NamedTuple):
    """The sum of those that trip, what it is held against, and the shares in the policy's order."""

    points: float
    threshold: float
    shares: tuple[Share, ...]

    @property
    def evidence(self) -> tuple[str, ...]:
        """The reasons of those that trip, each with its share."""
        return tuple(f"{each.reason} (+{each.points:g})" for each in self.shares if each.trips)


def score_of(policy: Policy, readings: Sequence[Reading]) -> Score | None:
    """The score that these readings come to; `None`: the policy does not weigh its detectors."""
    if not isinstance(policy.combine, WeightedSum):
        return None
    weights = dict(policy.combine.weights)
    shares = tuple(
        Share(detector.kind, weights[detector.kind], reading.heat >= 1.0, reading.reason)
        for detector, reading in zip(policy.detectors, readings, strict=True)
    )
    points = sum(share.points for share in shares if share.trips)
    return Score(points, policy.combine.threshold, shares)


def grounds_of(policy: Policy, readings: Sequence[Reading]) -> Score:
    """The score; of detectors that are not weighed, the heat of the hottest in percent.

    So whoever steps in for a stuck agent is told the same way what any policy has found.
    """
    score = score_of(policy, readings)
    if score is not None:
        return score
    shares = tuple(
        Share(detector.kind, round(100 * reading.heat), reading.heat >= 1.0, reading.reason)
        for detector, reading in zip(policy.detectors, readings, strict=True)
    )
    return Score(max(share.points for share in shares), 100.0, shares)
