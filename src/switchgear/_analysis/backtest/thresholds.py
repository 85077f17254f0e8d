"""Chooses thresholds for a false-stop rate, and says what holds on runs that had no say in it.

The rule: of n solved runs so many may be stopped falsely that the rate is, with 95 % confidence, not
above the one that was asked for. With n solved runs and no false stop at all, that is about 3/n: so
a rate below 3/n cannot be shown by n runs, whatever one does with them.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from switchgear._analysis.backtest.profile import Profile, fold_of
from switchgear._analysis.backtest.statistics import Rate, most_likely_below, rate

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
