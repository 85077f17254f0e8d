"""Proposes a policy for a false-stop rate: one factor for all thresholds.

One factor is chosen, rather than one for each detector: with few runs, a search over many thresholds
overfits.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from switchgear._agents.recordings.recording import RecordedRun, RecordingTally
from switchgear._analysis.backtest.engine import Judging, Recordings, each_run
from switchgear._analysis.backtest.findings import Counts, Rate, most_likely_below, rate
from switchgear._analysis.backtest.outcomes import INFERRED
from switchgear._analysis.backtest.replay import Named, times
from switchgear._core.detector import Detector
from switchgear._core.policy import AnyDetector, Policy
from switchgear._text.formats import plural


def as_config(policy: Policy) -> dict[str, Any]:
    """A policy as in the configuration file, without values that equal the defaults.

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
    fields = {
        name: dict(value)
        if isinstance(value, tuple)
        else value  # pairs become a mapping in the file
        for name, value in part.fields().items()
        if value is not None
    }
    return {part.kind: fields} if fields else part.kind


FACTORS = (
    *(0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.65, 1.8, 2.0),
    *(2.25, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0),
)
"""The factors that are tried, in ascending order."""
_TUNABLE = ("limit", "threshold")

Stops = tuple[int | None, ...]
"""For each factor, the step after which it would have stopped the run."""


class Profile(NamedTuple):
    """The facts about one run that tuning needs."""

    group: str
    solved: bool | None
    steps: int
    stops: Stops
    """For each of `FACTORS`."""
    inferred: bool = False

    def stop(self, index: int | None) -> int | None:
        """The step after which the factor at this index stops the run; `None`: not before its last step."""
        at = None if index is None else self.stops[index]
        return at if at is not None and at < self.steps else None


def profile_of(policy: Policy, run: RecordedRun) -> Profile:
    inferred = run.outcome_from == INFERRED
    return Profile(run.group, run.solved, len(run.steps), _stops(policy, run), inferred)


def fold_of(group: str, folds: int) -> int:
    """The fold that a group belongs to, the same on every machine."""
    import hashlib  # noqa: PLC0415  not needed for a replay

    digest = hashlib.sha256(group.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % folds


def tunable(detector: Detector) -> str | None:
    """The field of a detector that can be scaled; `None`: it has none."""
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
    """The policy with its thresholds multiplied by a factor; integers are rounded up."""
    return policy.replace(detectors=[_scale_detector(one, factor) for one in policy.detectors])


def _scale_detector(detector: Detector, factor: float) -> Detector:
    name = tunable(detector)
    if name is None:
        return detector
    value = detector.fields()[name]
    if isinstance(value, int):
        return detector.replace(**{name: max(-int(-value * factor // 1), 1)})
    return detector.replace(**{name: float(f"{value * factor:.4g}")})


def _stops(policy: Policy, run: RecordedRun) -> Stops:
    """The stops for all factors, from one replay under the highest thresholds, so that no factor is missed."""
    highest = scaled(policy, FACTORS[-1])
    raised = [
        FACTORS[-1] if tunable(detector) is not None else 1.0 for detector in policy.detectors
    ]
    memories, index = highest.fresh_memories(), 0
    stops: list[int | None] = [None] * len(FACTORS)
    for number, (each, now_s) in enumerate(zip(run.steps, times(run.steps), strict=True), 1):
        memories = highest.fold(memories, each.signal(), now_s)
        pairs = zip(highest.detectors, memories, strict=True)
        heats = [one.heat(memory, now_s) for one, memory in pairs]
        index = _note_reached(stops, index, number, heats, raised)
        if index == len(FACTORS):
            break
    return tuple(stops)


def _note_reached(
    stops: list[int | None],
    index: int,
    number: int,
    heats: Sequence[float],
    raised: Sequence[float],
) -> int:
    """Record which factors this step reaches; a detector that cannot be scaled reaches all of them."""
    fixed = any(heat >= 1 for heat, by in zip(heats, raised, strict=True) if by == 1.0)
    heat = max((heat * by for heat, by in zip(heats, raised, strict=True) if by != 1.0), default=0)
    while index < len(FACTORS) and (fixed or heat >= FACTORS[index]):
        stops[index] = number
        index += 1
    return index


FOLDS = 5
FEWEST_UNSOLVED = 10
"""Minimum number of unsolved runs to measure the share that would be caught."""


class TooLittle(NamedTuple):
    """Why nothing can be proposed, as a sentence."""

    why: str
    more_may_do: bool = True
    """Whether more runs, or more outcomes, could change that."""


class Held(NamedTuple):
    """The result on held-out tasks, which were not used to choose the thresholds."""

    false_stops: Rate
    caught: Rate
    saved_steps: int
    unsolved_steps: int


def fewest_solved(rate: float, folds: int = FOLDS) -> int:
    """The number of solved runs needed to show a rate, when one fold is always held out."""
    return math.ceil(math.log(0.05) / math.log1p(-rate) * folds / (folds - 1))


def too_little(profiles: Sequence[Profile], rate: float) -> TooLittle | None:
    """Why there are too few runs for a proposal; `None`: there are enough."""
    solved = sum(profile.solved is True for profile in profiles)
    unsolved = sum(profile.solved is False for profile in profiles)
    groups = len({profile.group for profile in profiles if profile.solved is not None})
    needed = fewest_solved(rate)
    if solved < needed:
        shown = 1 - 0.05 ** (FOLDS / (FOLDS - 1) / solved) if solved else 1.0
        best = f", which can prove a rate of {shown:.1%} at best" if solved else ""
        return TooLittle(
            f"{plural(solved, 'run')} known to be solved{best}: a fifth of them is always held out, and "
            f"with n solved runs and no false stop the rate is below 3/n. For {rate:.2%} it takes {needed:,}"
        )
    if unsolved < FEWEST_UNSOLVED:
        return TooLittle(
            f"{unsolved:,} runs are known to be unsolved: {FEWEST_UNSOLVED} are needed to measure "
            "what a threshold catches"
        )
    if groups < 2 * FOLDS:
        return TooLittle(f"the runs have {groups:,} tasks: {2 * FOLDS} are needed to hold some out")
    return None


def allowed(solved: int, rate: float) -> int:
    """The highest number of false stops among the solved runs that still shows the rate; -1: not even 0 does."""
    found = -1
    while found + 1 < solved and most_likely_below(found + 1, solved) <= rate:
        found += 1
    return found


def choose(profiles: Sequence[Profile], rate: float) -> int | None:
    """The index of the lowest factor whose false stops are allowed; `None`: there is none.

    A higher factor never stops a run that a lower factor does not stop.
    """
    solved = [profile for profile in profiles if profile.solved]
    most = allowed(len(solved), rate)
    for index in range(len(FACTORS)):
        if sum(profile.stop(index) is not None for profile in solved) <= most:
            return index
    return None


def cross_validate(
    profiles: Sequence[Profile], choose_place: Callable[[Sequence[Profile]], int | None]
) -> Held:
    """Evaluate each run with the factor that was chosen without its fold. Groups are never split."""
    false_stops = solved = caught = unsolved = saved = steps = 0
    for fold in range(FOLDS):
        inside = [each for each in profiles if fold_of(each.group, FOLDS) == fold]
        index = choose_place([each for each in profiles if fold_of(each.group, FOLDS) != fold])
        for each in inside:
            at = each.stop(index)
            solved += each.solved is True
            false_stops += at is not None and each.solved is True
            if each.solved is False:
                unsolved += 1
                steps += each.steps
                caught += at is not None
                saved += 0 if at is None else each.steps - at
    return Held(rate(false_stops, solved), rate(caught, unsolved), saved, steps)


class Proposal(NamedTuple):
    """A proposed policy, and its results."""

    policy: Policy
    factor: float
    held: Held
    """The result on held-out tasks."""
    replayed: Counts
    """The result of the proposed policy on all runs."""


class Tuned(NamedTuple):
    """The result of tuning."""

    solved: int
    unsolved: int
    unknown: int
    tasks: int
    result: Proposal | TooLittle
    inferred: int = 0
    """How many of the outcomes are inferred."""


def tune(read: Recordings, policy: Policy, rate: float, tally: RecordingTally) -> Tuned:
    """Propose thresholds of a policy for a rate of false stops, from 0 to 1.

    Raises ValueError for a policy that has nothing to tune.
    """
    if not isinstance(policy.combine, AnyDetector):
        raise ValueError("only a policy whose detectors trip by themselves (any) can be tuned")
    if not any(tunable(detector) for detector in policy.detectors):
        raise ValueError("no detector of the policy has a threshold that can be raised")
    profiles = list(each_run(read, partial(profile_of, policy), tally))
    known = [profile for profile in profiles if profile.solved is not None]
    counts = (
        sum(profile.solved is True for profile in known),
        sum(profile.solved is False for profile in known),
        len(profiles) - len(known),
        len({profile.group for profile in known}),
    )
    problem = too_little(profiles, rate)
    inferred = sum(profile.inferred for profile in known)
    if problem is not None:
        return Tuned(*counts, problem, inferred)
    return Tuned(*counts, _propose(read, policy, rate, known), inferred)


def _propose(
    read: Recordings, policy: Policy, rate: float, known: Sequence[Profile]
) -> Proposal | TooLittle:
    index = choose(known, rate)
    if index is None:
        return TooLittle(
            f"even with thresholds {FACTORS[-1]:g} times as high, more solved runs are stopped "
            f"than {rate:.2%} allows; try another policy (--policy), or accept a higher rate",
            more_may_do=False,
        )
    proposed, counts = scaled(policy, FACTORS[index]), Counts("tuned")
    for row in each_run(read, Judging((Named("tuned", proposed),)).row, RecordingTally()):
        counts.add(row.run, row.judged[0])
    held = cross_validate(known, partial(choose, rate=rate))
    return Proposal(proposed, FACTORS[index], held, counts)
