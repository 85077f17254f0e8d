"""Timeouts of tasks: fixed, estimated from the size, or learned from similar tasks.

Pure functions of sizes and past durations, which return seconds and an explanation. Time warnings are computed
here as well, from the time used and the warnings already given.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from switchgear._core import values

POLICIES = ("fixed", "adaptive", "learned", "longest")
LEARNING = ("learned", "longest")
"""The policies that use the durations of similar tasks."""
OVER = 100
"""The last mark, in percent of the time limit: the time is over."""


class Timeouts(NamedTuple):
    """The rules of timeouts. Immutable; `checked` validates them."""

    policy: str = "adaptive"
    """`fixed`, `adaptive`, `learned`, or `longest`: the longest of the three."""
    fixed_s: float = 300.0
    base_s: float = 120.0
    per_file_s: float = 30.0
    per_line_s: float = 0.1
    per_dependency_s: float = 60.0
    complex_factor: float = 2.0
    deviations: float = 4.0
    """A learned timeout is the mean plus this many standard deviations."""
    min_runs: int = 5
    """Minimum number of past durations to learn from; with fewer, the size is used."""
    session_s: float | None = None
    """Time limit of a guarded session in seconds; `None`: no limit."""


class Estimate(NamedTuple):
    files: int = 0
    lines: int = 0
    dependencies: int = 0
    complex: bool = False


class ChosenTimeout(NamedTuple):
    seconds: float
    why: str


class Due(NamedTuple):
    percent: int
    """70, 90 or 100."""
    left_s: float


def checked(rules: Timeouts) -> Timeouts:
    """The rules, if they are valid. Raises ValueError with the field, the value and the rule."""
    values.check_one_of("Timeouts.policy", rules.policy, POLICIES)
    for field in ("fixed_s", "base_s"):
        values.check_seconds(f"Timeouts.{field}", getattr(rules, field))
    for field in ("per_file_s", "per_line_s", "per_dependency_s", "deviations"):
        values.check_at_least(f"Timeouts.{field}", getattr(rules, field), 0.0)
    values.check_at_least("Timeouts.complex_factor", rules.complex_factor, 1.0)
    values.check_int("Timeouts.min_runs", rules.min_runs, least=2)
    if rules.session_s is not None:
        values.check_seconds("Timeouts.session_s", rules.session_s)
    return rules


def adaptive(rules: Timeouts, estimate: Estimate) -> ChosenTimeout:
    """The timeout from the size: `base + 30 per file + 1 per 10 lines + 60 per dependency`, doubled if complex.

    >>> adaptive(Timeouts(), Estimate(files=3, lines=150, dependencies=1))
    ChosenTimeout(seconds=285.0, why='120 + 3 x 30 + 150 x 0.1 + 1 x 60 s')
    """
    seconds = (
        rules.base_s
        + estimate.files * rules.per_file_s
        + estimate.lines * rules.per_line_s
        + estimate.dependencies * rules.per_dependency_s
    )
    why = (
        f"{rules.base_s:g} + {estimate.files} x {rules.per_file_s:g}"
        f" + {estimate.lines} x {rules.per_line_s:g}"
        f" + {estimate.dependencies} x {rules.per_dependency_s:g} s"
    )
    if estimate.complex:
        return ChosenTimeout(seconds * rules.complex_factor, f"({why}) x {rules.complex_factor:g}")
    return ChosenTimeout(seconds, why)


def learned(rules: Timeouts, durations_s: Sequence[float]) -> ChosenTimeout | None:
    """The timeout from the durations of similar tasks: their mean plus `deviations` standard deviations.

    `None`: there are fewer than `min_runs`.

    >>> learned(Timeouts(), [100.0, 110.0, 90.0, 100.0, 100.0]).why
    'mean 100 s + 4 x 6.3 s of 5 similar tasks'
    """
    count = len(durations_s)
    if count < rules.min_runs:
        return None
    mean_s = math.fsum(durations_s) / count
    deviation_s = math.sqrt(math.fsum((each - mean_s) ** 2 for each in durations_s) / count)
    why = (
        f"mean {mean_s:.0f} s + {rules.deviations:g} x {deviation_s:.1f} s of {count} similar tasks"
    )
    return ChosenTimeout(mean_s + rules.deviations * deviation_s, why)


def timeout(
    rules: Timeouts, estimate: Estimate, durations_s: Sequence[float] = ()
) -> ChosenTimeout:
    """The timeout of the policy; without enough history, it is computed from the size."""
    fixed = ChosenTimeout(rules.fixed_s, "fixed")
    by_size, by_history = adaptive(rules, estimate), learned(rules, durations_s)
    if rules.policy == "fixed":
        return fixed
    if rules.policy == "adaptive":
        return by_size
    if rules.policy == "learned":
        if by_history is not None:
            return by_history
        few = f"{len(durations_s)} of the {rules.min_runs} similar tasks needed to learn"
        return by_size._replace(why=f"{by_size.why}; {few}")
    return max((c for c in (fixed, by_size, by_history) if c), key=lambda chosen: chosen.seconds)


def due(used_s: float, limit_s: float, given: Sequence[int]) -> Due | None:
    """The highest mark that is passed, if its warning was not given yet; else `None`.

    The marks are 70, 90 and 100 percent of the time limit. The caller adds the returned mark and all below it to
    `given` (`with_given`), so that each warning is given once.

    >>> due(215.0, 300.0, ()), due(280.0, 300.0, (70,)), due(290.0, 300.0, (70, 90))
    (Due(percent=70, left_s=85.0), Due(percent=90, left_s=20.0), None)
    """
    passed = [mark for mark in (70, 90, OVER) if used_s * 100 >= limit_s * mark]
    if not passed or passed[-1] in given:
        return None
    return Due(passed[-1], max(0.0, limit_s - used_s))


def still_given(used_s: float, limit_s: float, given: Sequence[int]) -> tuple[int, ...]:
    """The given marks that are still passed, after the time limit was extended.

    >>> still_given(285.0, 350.0, (70, 90))
    (70,)
    """
    return tuple(mark for mark in given if used_s * 100 >= limit_s * mark)


def with_given(given: Sequence[int], mark: int) -> tuple[int, ...]:
    """The given marks, with this one and all below it.

    >>> with_given((), 90)
    (70, 90)
    """
    return tuple(each for each in (70, 90, OVER) if each <= mark or each in given)
