"""Trains the model of `stuck_probability`: logistic regression by Newton's method, plain Python.

Each run weighs the same, however long it was, and solved runs as much as unsolved ones together, so
that a probability does not tell how many runs went wrong in all. The label is the outcome of the whole run, so early
steps of a run that failed later are noise that the averages must outgrow. A small penalty on the
weights keeps them finite where few runs separate the two kinds perfectly.
"""

import math
from collections.abc import Sequence

from switchgear._analysis.backtest.profile import Profile
from switchgear._detectors.stuck_probability import FEATURES, StuckProbability

PENALTY = 1.0
MOST_SAMPLES = 30_000
_ROUNDS = 25
_SIZE = len(FEATURES) + 1


def train(profiles: Sequence[Profile]) -> tuple[float, ...] | None:
    """The bias and the weights; `None`: the runs have only one kind of outcome."""
    known = [profile for profile in profiles if profile.solved is not None and profile.samples]
    if len({profile.solved for profile in known}) < 2:
        return None
    every = max(sum(len(profile.samples) for profile in known) // MOST_SAMPLES, 1)
    share = {
        kind: sum(each.solved is kind for each in known) / len(known) for kind in (True, False)
    }
    rows = [
        (
            (1.0, *sample),
            0.0 if profile.solved else 1.0,
            every / len(profile.samples) / share[profile.solved is True] / 2,
        )
        for profile in known
        for sample in profile.samples[::every]
    ]
    weights = [0.0] * _SIZE
    for _ in range(_ROUNDS):
        gradient, curve = _slopes(rows, weights)
        change = solved(curve, gradient)
        weights = [old + new for old, new in zip(weights, change, strict=True)]
        if max(abs(each) for each in change) < 1e-6:
            break
    return tuple(float(f"{weight:.4g}") for weight in weights)


def model_of(weights: Sequence[float], threshold: float = 0.9) -> StuckProbability | None:
    """The detector with these weights; `None`: it could not fire, or would at once."""
    bias, *rest = weights
    named = dict(zip(FEATURES, rest, strict=True))
    try:
        return StuckProbability(threshold, bias, **named)
    except ValueError:
        return None


Row = tuple[tuple[float, ...], float, float]


def _slopes(rows: Sequence[Row], weights: Sequence[float]) -> tuple[list[float], list[list[float]]]:
    """The gradient and the curvature of the likelihood, with the penalty on all but the bias."""
    gradient = [0.0, *(-PENALTY * weight for weight in weights[1:])]
    curve = [[0.0] * _SIZE for _ in range(_SIZE)]
    for place in range(_SIZE):
        curve[place][place] = PENALTY if place else 1e-9
    for facts, label, weight in rows:
        score = sum(one * other for one, other in zip(facts, weights, strict=True))
        likely = 1.0 / (1.0 + math.exp(-max(-60.0, min(score, 60.0))))
        off, bend = weight * (label - likely), weight * likely * (1.0 - likely)
        for i, fact in enumerate(facts):
            gradient[i] += off * fact
            bent, line = bend * fact, curve[i]
            for j in range(i + 1):
                line[j] += bent * facts[j]
    for i in range(_SIZE):
        for j in range(i):
            curve[j][i] = curve[i][j]
    return gradient, curve


def solved(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """The solution of a system of linear equations, by elimination with pivots.

    >>> solved([[2.0, 1.0], [1.0, 3.0]], [3.0, 5.0])
    [0.8, 1.4]
    """
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for place in range(size):
        best = max(range(place, size), key=lambda at: abs(rows[at][place]))
        rows[place], rows[best] = rows[best], rows[place]
        for other in range(place + 1, size):
            share = rows[other][place] / rows[place][place]
            for column in range(place, size + 1):
                rows[other][column] -= share * rows[place][column]
    found = [0.0] * size
    for place in reversed(range(size)):
        rest = sum(rows[place][at] * found[at] for at in range(place + 1, size))
        found[place] = round((rows[place][size] - rest) / rows[place][place], 12)
    return found
