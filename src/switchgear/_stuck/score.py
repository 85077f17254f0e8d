"""The score of a circuit: the sum of the weights of its detectors that trip."""

from collections.abc import Sequence
from typing import NamedTuple

from switchgear._core.detector import Detector
from switchgear._core.policy import Policy, WeightedSum
from switchgear._core.types import Reading
from switchgear._detectors import Violation

MAX_POINTS = 100.0
MIN_WHOLE_THRESHOLD = 10.0


class Share(NamedTuple):
    kind: str
    points: float
    """The detector's weight, whether it trips or not."""
    trips: bool
    reason: str
    alone: float = 0.0
    """The score from a detector without a weight; it is not added to the others."""

    @property
    def effect(self) -> str:
        if self.alone:
            return f"{self.alone:.0f} on its own"
        return f"+{self.points:g}" if self.trips else ""


class Score(NamedTuple):
    """The sum of the weights of the detectors that trip, the threshold, and the shares of all detectors in order."""

    points: float
    """At most 100, or the threshold if that is higher."""
    threshold: float
    shares: tuple[Share, ...]

    @property
    def text(self) -> str:
        """In whole points of 100; if the threshold is small, exact and of the threshold.

        >>> Score(40.0, 60.0, ()).text, Score(0.5, 0.8, ()).text
        ('40/100', '0.5/0.8')
        """
        if self.threshold < MIN_WHOLE_THRESHOLD:
            return f"{self.points:g}/{self.threshold:g}"
        return f"{self.points:.0f}/{max(MAX_POINTS, self.threshold):.0f}"

    @property
    def evidence(self) -> tuple[str, ...]:
        """The reasons of the detectors that trip, with their shares, and of one that determines the score alone."""
        return tuple(
            f"{each.reason} ({each.effect})"
            for each in self.shares
            if each.trips or each.alone >= self.points > 0.0
        )


def score_of(policy: Policy, readings: Sequence[Reading]) -> Score | None:
    """The score of these readings; `None`: the policy has no weights.

    A detector without a weight counts alone, from the heat `alone_from` on: its score is its heat times the
    threshold.
    """
    combine = policy.combine
    if not isinstance(combine, WeightedSum):
        return None
    weights = dict(combine.weights)
    shares: list[Share] = []
    weighted, alone = 0.0, 0.0
    for detector, reading in zip(policy.detectors, readings, strict=True):
        trips = reading.heat >= 1.0
        points, standalone = weights.get(detector.kind), 0.0
        if points is None:
            points = combine.threshold
            if combine.alone_from is not None and reading.heat >= combine.alone_from:
                standalone = points * min(reading.heat, 1.0)
        elif trips:
            weighted += points
        alone = max(alone, standalone)
        shares.append(Share(detector.kind, points, trips, reading.reason, standalone))
    max_points = max(MAX_POINTS, combine.threshold)
    return Score(min(max(weighted, alone), max_points), combine.threshold, tuple(shares))


def evidence_score(policy: Policy, readings: Sequence[Reading]) -> Score:
    """The score; for a policy without weights, the highest heat in percent.

    So the evidence against a stuck agent has the same form for every policy.
    """
    score = score_of(policy, readings)
    if score is not None:
        return score
    shares = tuple(
        Share(detector.kind, round(100 * reading.heat), reading.heat >= 1.0, reading.reason)
        for detector, reading in zip(policy.detectors, readings, strict=True)
    )
    return Score(max(share.points for share in shares), 100.0, shares)


def session_policy(score: Policy, progress: Policy | None) -> Policy:
    """The policy of an agent's session: the stuck score and the progress detectors in one circuit.

    Each detector of `progress` counts alone, from `tripping_at` of that policy on; `None`: no progress detectors.
    `Violation` is added, so that a session can be stopped for a definite reason: a time limit, an operator's
    abort, a change of its guard.
    """
    kinds = {detector.kind for detector in score.detectors}
    more: list[Detector] = [] if progress is None else list(progress.detectors)
    extra = [each for each in (*more, Violation()) if each.kind not in kinds]
    combine = score.combine
    if isinstance(combine, WeightedSum) and extra and combine.alone_from is None:
        warns_at = None if progress is None else progress.tripping_at
        combine = WeightedSum(combine.weights, combine.threshold, warns_at or 1.0)
    return Policy(
        (*score.detectors, *extra), score.recovery, combine, score.tripping_at, strict=score.strict
    )
