"""What tuning needs of one run: at which step each candidate threshold would have stopped it.

One pass over a run tells it for all candidates. For most detectors heat is evidence over threshold,
so a run whose heat reaches 1.3 under the present thresholds is one that thresholds 1.3 times as
high would stop. What is proposed in the end is replayed as it is, so nothing rests on that.
"""

from collections.abc import Sequence
from typing import NamedTuple

from switchgear._agents.recordings.recording import RecordedRun
from switchgear._analysis.backtest.replay import times
from switchgear._core.detector import Detector
from switchgear._core.policy import Policy
from switchgear._detectors.stuck_probability import StuckProbability, Trail, moved_on, probability

FACTORS = (
    *(0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.65, 1.8, 2.0),
    *(2.25, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0),
)
"""How many times the present thresholds are tried; the last is the highest."""
PROBABILITIES = (
    *(0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9, 0.92, 0.94),
    *(0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995),
)
"""Thresholds that are tried of the model."""
SAMPLES = 20
"""Steps of a run that the model learns from, evenly spread."""
_TUNABLE = ("limit", "threshold")

Stops = tuple[int | None, ...]
"""For each candidate: the step after which it would have stopped the run."""


class Profile(NamedTuple):
    """One run, as far as tuning looks at it."""

    group: str
    solved: bool | None
    steps: int
    stops: Stops
    """For each of `FACTORS`."""
    samples: tuple[tuple[float, ...], ...] = ()
    """The averages of the model after some steps."""
    likely: Stops = ()
    """For each of `PROBABILITIES`, by a model that has not seen this run."""


class Profiling(NamedTuple):
    """The task that makes profiles under a policy; `learning`: with samples for the model."""

    policy: Policy
    learning: bool = False

    def profile(self, run: RecordedRun) -> Profile:
        """The profile of one run."""
        stops = _stops(self.policy, run)
        samples = _samples(run) if self.learning else ()
        return Profile(run.group, run.solved, len(run.steps), stops, samples)


class Believing(NamedTuple):
    """The task that tells when each run's own model would have stopped it."""

    models: tuple[tuple[float, ...], ...]
    """The bias and the weights of each fold's model."""

    def stops(self, run: RecordedRun) -> Stops:
        """For each of `PROBABILITIES`; the model is that of the run's fold."""
        bias, *weights = self.models[fold_of(run.group, len(self.models))]
        found: list[int | None] = [None] * len(PROBABILITIES)
        place, trail = 0, Trail()
        for number, each in enumerate(run.steps, 1):
            if not each.is_act:
                continue
            trail = moved_on(trail, each.signal())
            likely = probability(bias, weights, trail.averages)
            while place < len(PROBABILITIES) and likely >= PROBABILITIES[place]:
                found[place] = number
                place += 1
            if place == len(PROBABILITIES):
                break
        return tuple(found)


def fold_of(group: str, folds: int) -> int:
    """The fold that a group belongs to, the same on every machine."""
    import hashlib  # noqa: PLC0415  not for those who only replay

    digest = hashlib.sha256(group.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % folds


def tunable(detector: Detector) -> str | None:
    """The field of a detector that can be raised and lowered; `None`: it has none."""
    if isinstance(detector, StuckProbability):
        return None  # a probability is not raised eight times: it is chosen with the model
    for name in _TUNABLE:
        value = detector.fields().get(name)
        if value is not None:
            try:
                detector.replace(**{name: value * round(FACTORS[-1])})
            except ValueError:
                continue
            return name
    return None


def scaled(policy: Policy, factor: float) -> Policy:
    """The policy with its thresholds times a factor; whole ones are rounded up."""
    return policy.replace(detectors=[_scaled(one, factor) for one in policy.detectors])


def _scaled(detector: Detector, factor: float) -> Detector:
    name = tunable(detector)
    if name is None:
        return detector
    value = detector.fields()[name]
    if isinstance(value, int):
        return detector.replace(**{name: max(-int(-value * factor // 1), 1)})
    return detector.replace(**{name: float(f"{value * factor:.4g}")})


def _stops(policy: Policy, run: RecordedRun) -> Stops:
    """Under the highest thresholds, so that nothing is cut off below them."""
    highest = scaled(policy, FACTORS[-1])
    raised = [
        FACTORS[-1] if tunable(detector) is not None else 1.0 for detector in policy.detectors
    ]
    memories, found, place = highest.fresh_memories(), [None] * len(FACTORS), 0
    stops: list[int | None] = list(found)
    for number, (each, now_s) in enumerate(zip(run.steps, times(run.steps), strict=True), 1):
        memories = highest.fold(memories, each.signal(), now_s)
        pairs = zip(highest.detectors, memories, strict=True)
        heats = [one.heat(memory, now_s) for one, memory in pairs]
        place = _reached(stops, place, number, heats, raised)
        if place == len(FACTORS):
            break
    return tuple(stops)


def _reached(
    stops: list[int | None],
    place: int,
    number: int,
    heats: Sequence[float],
    raised: Sequence[float],
) -> int:
    """Note which factors this step reaches; a detector that cannot be raised reaches them all."""
    fixed = any(heat >= 1 for heat, by in zip(heats, raised, strict=True) if by == 1.0)
    heat = max((heat * by for heat, by in zip(heats, raised, strict=True) if by != 1.0), default=0)
    while place < len(FACTORS) and (fixed or heat >= FACTORS[place]):
        stops[place] = number
        place += 1
    return place


def _samples(run: RecordedRun) -> tuple[tuple[float, ...], ...]:
    every = max(len(run.steps) // SAMPLES, 1)
    found, trail = [], Trail()
    for number, each in enumerate(run.steps, 1):
        if each.is_act:
            trail = moved_on(trail, each.signal())
        if number % every == 0:
            found.append(trail.averages)
    return tuple(found)
