"""Which limits hold for a loop when only some of them are set. Pure.

A limit is set by a flag, by a preset or by a task of a batch; all others have their defaults. A limit
that was set takes precedence over those that were not:

- an unset count of failures or of equal errors is raised, so that it does not stop the loop before
  the count that was set;
- where a count of failures or of equal errors is set, an iteration that failed is judged by those
  two alone: an unset `no_progress` and an unset `output_decline_percent` ignore it;
- where `no_progress` is set, an unset `output_decline_percent` ignores iterations without progress.

0 (never) sets a limit too, but raises no other.
"""

from typing import NamedTuple

from switchgear._core.types import Signal
from switchgear._run.options import RunOptions

FAILURES = frozenset({"consecutive_failures", "same_error"})


class Limits(NamedTuple):
    """What stops a loop; `None`: not watched."""

    consecutive_failures: int | None
    same_error: int | None
    no_progress: int | None
    output_decline_percent: float | None
    standstill_ignores_failures: bool = False
    output_ignores_failures: bool = False
    output_ignores_standstill: bool = False

    def signal(self, signal: Signal, *, failed: bool) -> Signal:
        """The facts of an iteration without those that a detector which was not set must ignore."""
        progress = bool(signal.files_changed)
        if failed and not progress and self.standstill_ignores_failures:
            signal = signal._replace(files_changed=None, tests_passing=None)
        if (failed and self.output_ignores_failures) or (
            not progress and self.output_ignores_standstill
        ):
            signal = signal._replace(output_chars=None)
        return signal


_TEXTS = {
    "consecutive_failures": "failed iterations in a row: {}",
    "same_error": "occurrences of the same error: {}",
    "no_progress": "iterations without progress: {}, then one more",
    "output_decline_percent": "output under {:g}% of its usual length, twice in a row",
}


def limits_of(options: RunOptions) -> Limits:
    """The limits that hold for a run.

    >>> limits_of(RunOptions("t", "demo", consecutive_failures=8, given=("consecutive_failures",)))[:3]
    (8, 8, 3)
    """
    chosen = frozenset(options.given)
    failures_set, standstill_set = bool(chosen & FAILURES), "no_progress" in chosen
    return Limits(
        _raised(options, "consecutive_failures", chosen),
        _raised(options, "same_error", chosen),
        options.no_progress,
        options.output_decline_percent,
        standstill_ignores_failures=failures_set and not standstill_set,
        output_ignores_failures=failures_set and "output_decline_percent" not in chosen,
        output_ignores_standstill=standstill_set and "output_decline_percent" not in chosen,
    )


def _raised(options: RunOptions, name: str, chosen: frozenset[str]) -> int | None:
    """A count; one that was not set is at least as high as those that were."""
    value: int | None = getattr(options, name)
    if value is None or name in chosen:
        return value
    others: list[int | None] = [getattr(options, other) for other in FAILURES & chosen]
    if "no_progress" in chosen and options.no_progress is not None:
        others.append(options.no_progress + 1)  # it warns first, and stops after one more
    return max([value, *(other for other in others if other is not None)])


def words_on(options: RunOptions) -> list[str]:
    """The limits as lines: what stops the loop, and which of them were set."""
    limits, chosen = limits_of(options), frozenset(options.given)
    lines = []
    for name, text in _TEXTS.items():
        value = getattr(limits, name)
        how = "set" if name in chosen else "default"
        if name not in chosen and value != getattr(options, name):
            how = "default, raised to what is set"
        elif (name == "no_progress" and limits.standstill_ignores_failures) or (
            name == "output_decline_percent" and limits.output_ignores_failures
        ):
            how = "default, without failed iterations"
        off = f"{name.replace('_', ' ').removesuffix(' percent')}: off"
        lines.append(off if value is None else f"{text.format(value)} ({how})")
    return lines
