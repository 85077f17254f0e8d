"""Proposes a policy for a false-stop rate: one factor for all thresholds, and a model if asked.

One number is chosen, not one for each detector: with few runs, a search over many rules finds what
fits these runs and no others.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from switchgear._agents.recordings.recording import RecordingTally
from switchgear._analysis.backtest.engine import Judging, Recordings, each_run
from switchgear._analysis.backtest.profile import (
    FACTORS,
    PROBABILITIES,
    Believing,
    Profile,
    Profiling,
    fold_of,
    scaled,
    tunable,
)
from switchgear._analysis.backtest.replay import Named
from switchgear._analysis.backtest.statistics import Counts
from switchgear._analysis.backtest.thresholds import (
    FOLDS,
    Held,
    Stop,
    TooLittle,
    choose,
    cross_validate,
    too_little,
)
from switchgear._analysis.backtest.training import model_of, train
from switchgear._core.policy import AnyDetector, Policy
from switchgear._detectors.stuck_probability import StuckProbability


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
    if problem is not None:
        return Tuned(*counts, problem)
    return Tuned(*counts, _Tuning(read, policy, asked).result(profiles, learning=learning))


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
