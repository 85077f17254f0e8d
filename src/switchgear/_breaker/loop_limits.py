"""The limits of a loop that are in effect if only some of them were set.

A limit that was set takes precedence over the defaults of the others: with
`consecutive_failures=8`, failing iterations do not stop the loop after four of them because they
change no file.
"""

from collections.abc import Collection
from typing import NamedTuple

from switchgear._core.types import Signal

FAILURES = frozenset({"consecutive_failures", "same_error"})


class LimitsInEffect(NamedTuple):
    """The limits of a loop; `None`: not checked."""

    consecutive_failures: int | None = 3
    same_error: int | None = 5
    no_progress: int | None = 3
    output_decline_percent: float | None = 70.0
    standstill_ignores_failures: bool = False
    output_ignores_failures: bool = False
    output_ignores_standstill: bool = False

    def signal(self, signal: Signal, *, failed: bool) -> Signal:
        """The signal without the facts that must not count for detectors with default limits."""
        progress = bool(signal.files_changed)
        if failed and not progress and self.standstill_ignores_failures:
            signal = signal._replace(files_changed=None, tests_passing=None)
        if (failed and self.output_ignores_failures) or (
            signal.files_changed == 0 and self.output_ignores_standstill
        ):
            signal = signal._replace(output_chars=None)
        return signal

    @classmethod
    def of(cls, *limits: float | None) -> "LimitsInEffect":
        """The limits in effect if those that differ from their defaults were set.

        >>> LimitsInEffect.of(8, 5, 3, 70.0)[:3]
        (8, 8, 3)
        """
        given = cls(*limits)  # type: ignore[arg-type]
        usual = cls._field_defaults
        off = {name for name in (*FAILURES, "no_progress") if getattr(given, name) is None}
        differing = [name for name in cls._fields if getattr(given, name) != usual[name]]
        return given.with_set([name for name in differing if name not in off])

    def with_set(self, chosen: Collection[str]) -> "LimitsInEffect":
        """The limits in effect if those in `chosen` were set and the others are defaults.

        >>> LimitsInEffect(consecutive_failures=8).with_set({"consecutive_failures"})[:3]
        (8, 8, 3)
        """
        failures_set, standstill_set = bool(FAILURES & set(chosen)), "no_progress" in chosen
        return self._replace(
            consecutive_failures=self._raise_limit("consecutive_failures", chosen),
            same_error=self._raise_limit("same_error", chosen),
            standstill_ignores_failures=failures_set and not standstill_set,
            output_ignores_failures=failures_set and "output_decline_percent" not in chosen,
            output_ignores_standstill=standstill_set and "output_decline_percent" not in chosen,
        )

    def _raise_limit(self, name: str, chosen: Collection[str]) -> int | None:
        """A limit; one that was not set is raised to the highest that was."""
        value: int | None = getattr(self, name)
        if value is None or name in chosen:
            return value
        others: list[int | None] = [getattr(self, other) for other in FAILURES & set(chosen)]
        if "no_progress" in chosen and self.no_progress is not None:
            others.append(self.no_progress + 1)  # it warns first, and stops after one more
        return max([value, *(other for other in others if other is not None)])
