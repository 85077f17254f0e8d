"""Proposes a policy for a false-stop rate: one factor for all thresholds, and a model if asked.

One number is chosen, not one for each detector: with few runs, a search over many rules finds what
fits these runs and no others.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from switchgear._agents.recordings.recording import RecordedRun, RecordingTally
from switchgear._analysis.backtest.engine import Judging, Recordings, each_run
from switchgear._analysis.backtest.outcomes import INFERRED
from switchgear._analysis.backtest.replay import Named, times
from switchgear._analysis.backtest.statistics import Counts, Rate, most_likely_below, rate
from switchgear._core.detector import Detector
from switchgear._core.policy import AnyDetector, Policy
from switchgear._core.values import Value
from switchgear._detectors.stuck_probability import (
    FEATURES,
    StuckProbability,
    Trail,
    moved_on,
    probability,
)


def as_config(policy: Policy) -> dict[str, Any]:
    """What stands under the name of a policy; what is as it would be anyway is left out.

    >>> from switchgear._detectors import SameError
    >>> from switchgear._core.policy import Latched
    >>> as_config(Policy([SameError(3)], Latched()))["recovery"]
    'latched'
    """
    found: dict[str, Any] = {
        "detectors": [_part(detector) for detector in policy.detectors],
        "recovery": _part(policy.recovery),
    }
    if not isinstance(policy.combine, AnyDetector):
        found["combine"] = _part(policy.combine)
    if policy.tripping_at is not None:
        found["tripping_at"] = policy.tripping_at
    if policy.strict:
        found["strict"] = True
    return found


def _part(part: Any) -> Any:
    """A part by its kind: the bare name, or with its fields."""
    fields = {name: _value(value) for name, value in _fields(part).items() if value is not None}
    return {part.kind: fields} if fields else part.kind


def _fields(part: Value) -> dict[str, Any]:
    return part.fields()


def _value(value: Any) -> Any:
    """Pairs are a mapping in the file."""
    return dict(value) if isinstance(value, tuple) else value


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
    inferred: bool = False
    """Whether the outcome is inferred."""


class Profiling(NamedTuple):
    """The task that makes profiles under a policy; `learning`: with samples for the model."""

    policy: Policy
    learning: bool = False

    def profile(self, run: RecordedRun) -> Profile:
        stops = _stops(self.policy, run)
        samples = _samples(run) if self.learning else ()
        inferred = run.outcome_from == INFERRED
        return Profile(run.group, run.solved, len(run.steps), stops, samples, inferred=inferred)


class Believing(NamedTuple):
    """The task that computes when each run's own model would have stopped it."""

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
    import hashlib  # noqa: PLC0415  not needed for a replay

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


FOLDS = 5
FEWEST_UNSOLVED = 10
"""With fewer runs that went wrong nothing can be said of what would be caught."""

Stop = Callable[[Profile], int | None]
"""The step after which a run would have been stopped."""


class TooLittle(NamedTuple):
    """Why nothing can be proposed, in a sentence."""

    why: str


class Held(NamedTuple):
    """What was seen on runs whose tasks had no say in the thresholds that judged them."""

    false_stops: Rate
    caught: Rate
    saved_steps: int
    unsolved_steps: int


def fewest_solved(asked: float, folds: int = FOLDS) -> int:
    """How many solved runs it takes at least to show a rate, when a fold is always held out."""
    return math.ceil(math.log(0.05) / math.log1p(-asked) * folds / (folds - 1))


def too_little(profiles: Sequence[Profile], asked: float) -> TooLittle | None:
    """Whether there are runs enough to say anything."""
    solved = sum(profile.solved is True for profile in profiles)
    unsolved = sum(profile.solved is False for profile in profiles)
    groups = len({profile.group for profile in profiles if profile.solved is not None})
    needed = fewest_solved(asked)
    if solved < needed:
        best = f"they show a rate of {3 / solved:.1%} at best" if solved else "nothing is known"
        return TooLittle(
            f"{solved:,} runs are known to be solved, and {best}: with n solved runs and no false "
            f"stop the rate is below 3/n. For {asked:.2%} it takes {needed:,} ({FOLDS} folds)"
        )
    if unsolved < FEWEST_UNSOLVED:
        return TooLittle(
            f"{unsolved:,} runs are known to be unsolved: it takes {FEWEST_UNSOLVED} to say what a "
            "threshold catches"
        )
    if groups < 2 * FOLDS:
        return TooLittle(f"the runs have {groups:,} tasks: it takes {2 * FOLDS} to hold some out")
    return None


def allowed(solved: int, asked: float) -> int:
    """How many false stops of so many solved runs still show the rate; -1: not even none."""
    found = -1
    while found + 1 < solved and most_likely_below(found + 1, solved) <= asked:
        found += 1
    return found


def choose(profiles: Sequence[Profile], stops: Sequence[Stop], asked: float) -> int | None:
    """The first candidate, the most eager, whose false stops are allowed; `None`: there is none.

    The candidates are ordered: a later one stops no run that an earlier one lets pass.
    """
    solved = [profile for profile in profiles if profile.solved]
    most = allowed(len(solved), asked)
    for place, stop in enumerate(stops):
        if sum(is_stop(profile, stop) for profile in solved) <= most:
            return place
    return None


def is_stop(profile: Profile, stop: Stop) -> bool:
    """Whether a run would have been stopped before its last step."""
    at = stop(profile)
    return at is not None and at < profile.steps


def cross_validate(
    profiles: Sequence[Profile], choose_stop: Callable[[Sequence[Profile]], Stop | None]
) -> Held:
    """Judge each run by what was chosen without its fold. Groups are never torn apart."""
    false_stops = solved = caught = unsolved = saved = steps = 0
    for fold in range(FOLDS):
        inside = [each for each in profiles if fold_of(each.group, FOLDS) == fold]
        stop = choose_stop([each for each in profiles if fold_of(each.group, FOLDS) != fold])
        for each in inside:
            at = each.steps if stop is None else stop(each)
            stopped = at is not None and at < each.steps
            solved += each.solved is True
            false_stops += stopped and each.solved is True
            if each.solved is False:
                unsolved += 1
                steps += each.steps
                caught += stopped
                saved += each.steps - at if stopped and at is not None else 0
    return Held(rate(false_stops, solved), rate(caught, unsolved), saved, steps)


class Proposal(NamedTuple):
    """A policy, and what is known of it."""

    policy: Policy
    factor: float
    model: StuckProbability | None
    model_why: str
    """Why there is no model, where one was asked for."""
    held: Held
    """On tasks that were held out."""
    replayed: Counts
    """The proposed policy itself on all runs."""


class Tuned(NamedTuple):
    """What tuning came to."""

    solved: int
    unsolved: int
    unknown: int
    tasks: int
    result: Proposal | TooLittle
    inferred: int = 0
    """How many of the outcomes are inferred."""


class Choice(NamedTuple):
    """The places of the chosen candidates; no probability: there is no model."""

    factor: int
    probability: int | None = None

    def stop(self, profile: Profile) -> int | None:
        """The step after which either of them would have stopped a run."""
        found = [profile.stops[self.factor]]
        if self.probability is not None and profile.likely:
            found.append(profile.likely[self.probability])
        return min((each for each in found if each is not None), default=None)


def tune(
    read: Recordings, policy: Policy, asked: float, tally: RecordingTally, *, learning: bool = False
) -> Tuned:
    """Propose thresholds of a policy for a rate of false stops, from 0 to 1.

    Raises ValueError for a policy that has nothing to tune.
    """
    if not isinstance(policy.combine, AnyDetector):
        raise ValueError("only a policy whose detectors trip by themselves (any) can be tuned")
    if not any(tunable(detector) for detector in policy.detectors) and not learning:
        raise ValueError("no detector of the policy has a threshold that can be raised")
    profiles = list(each_run(read, Profiling(policy, learning=learning).profile, tally))
    known = [profile for profile in profiles if profile.solved is not None]
    counts = (
        sum(profile.solved is True for profile in known),
        sum(profile.solved is False for profile in known),
        len(profiles) - len(known),
        len({profile.group for profile in known}),
    )
    problem = too_little(profiles, asked)
    inferred = sum(profile.inferred for profile in known)
    if problem is not None:
        return Tuned(*counts, problem, inferred)
    found = _Tuning(read, policy, asked).result(profiles, learning=learning)
    return Tuned(*counts, found, inferred)


class _Tuning(NamedTuple):
    """What is asked for, once it is known that there are runs enough."""

    read: Recordings
    policy: Policy
    asked: float

    def result(self, profiles: Sequence[Profile], *, learning: bool) -> Proposal | TooLittle:
        known = [profile for profile in profiles if profile.solved is not None]
        model, why = None, ""
        if learning:
            known, weights = self._with_models(profiles)
            model, why = self._model(known, weights)
        chosen = self._choice(known, with_model=model is not None)
        if chosen is None:
            return TooLittle(
                f"even with thresholds {FACTORS[-1]:g} times as high more solved runs are stopped "
                f"than {self.asked:.2%} allows; another policy may do"
            )
        proposed = scaled(self.policy, FACTORS[chosen.factor])
        if model is not None:
            kept = [one for one in proposed.detectors if not isinstance(one, StuckProbability)]
            proposed = proposed.replace(detectors=[*kept, model])
        held = cross_validate(known, partial(self._stop, with_model=model is not None))
        replayed = self._replayed(proposed)
        return Proposal(proposed, FACTORS[chosen.factor], model, why, held, replayed)

    def _choice(self, profiles: Sequence[Profile], *, with_model: bool) -> Choice | None:
        """The most eager choice that the rate allows.

        With a model the thresholds stay as they are, or are raised: what may still be stopped
        falsely is the model's, which was trained on these runs.
        """
        first = FACTORS.index(1.0) if with_model else 0
        factors: list[Stop] = [Choice(place).stop for place in range(first, len(FACTORS))]
        found = choose(profiles, factors, self.asked)
        if found is None:
            return None
        factor = first + found
        if not with_model:
            return Choice(factor)
        both: list[Stop] = [Choice(factor, place).stop for place in range(len(PROBABILITIES))]
        return Choice(factor, choose(profiles, both, self.asked))

    def _stop(self, profiles: Sequence[Profile], *, with_model: bool) -> Stop | None:
        choice = self._choice(profiles, with_model=with_model)
        return None if choice is None else choice.stop

    def _with_models(
        self, profiles: Sequence[Profile]
    ) -> tuple[list[Profile], tuple[float, ...] | None]:
        """The profiles with what models say of them that have not seen them; the whole model."""
        known = [each for each in profiles if each.solved is not None]
        models: list[tuple[float, ...]] = []
        for fold in range(FOLDS):
            weights = train([each for each in profiles if fold_of(each.group, FOLDS) != fold])
            if weights is None:
                return known, None
            models.append(weights)
        likely = each_run(self.read, Believing(tuple(models)).stops, RecordingTally())
        pairs = zip(profiles, likely, strict=True)
        with_likely = [each._replace(likely=stops) for each, stops in pairs]
        return [each for each in with_likely if each.solved is not None], train(profiles)

    def _model(
        self, profiles: Sequence[Profile], weights: tuple[float, ...] | None
    ) -> tuple[StuckProbability | None, str]:
        if weights is None:
            return None, "the runs do not teach a model that could tell a stuck run from another"
        choice = self._choice(profiles, with_model=True)
        if choice is None or choice.probability is None:
            return None, "no threshold of the model keeps the rate of false stops"
        model = model_of(weights, PROBABILITIES[choice.probability])
        if model is None:
            return None, "the model is never sure enough to trip at the threshold that it needs"
        return model, ""

    def _replayed(self, proposed: Policy) -> Counts:
        counts = Counts("tuned")
        for row in each_run(self.read, Judging((Named("tuned", proposed),)).row, RecordingTally()):
            counts.add(row.run, row.judged[0])
        return counts
