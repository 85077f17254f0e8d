"""Outputs that become short and stay short: a sign that an agent has given up; and missing progress."""

from typing import Any, ClassVar, NamedTuple, Self

from switchgear._core import values
from switchgear._core.detector import LAST_CHANCE, Detector, Measure
from switchgear._core.types import Signal
from switchgear._text.formats import plural

BASELINE = 20
"""Maximum number of outputs in the baseline."""
NEEDED = 3
"""Default number of outputs that the baseline needs."""
DECLINED = 0.7
"""Default share of the baseline below which an output counts as low."""


class Outputs(NamedTuple):
    """The lengths of a loop's outputs, in characters, oldest first."""

    latest: tuple[int, ...] = ()
    baseline: tuple[int, ...] = ()
    """The latest lengths that were not low, so that a decline does not lower the baseline."""
    low: int = 0
    """Number of low outputs in a row."""

    def push(self, chars: int, *, share: float, needed: int) -> "Outputs":
        """Add an output; it is low if it is under `share` of the baseline's median."""
        latest, baseline = (*self.latest, chars)[-BASELINE:], self.baseline
        # Rounded: 0.7 * 3 is 2.0999999999999996.
        if len(baseline) >= needed and chars < round(share * median(baseline), 9):
            return Outputs(latest, baseline, self.low + 1)
        return Outputs(latest, (*baseline, chars)[-BASELINE:], 0)

    def settled(self, more: int) -> "Outputs":
        """The outputs after `more` further ones equal to the latest, when only the count still changes."""
        return self._replace(low=self.low + more) if self.low else self

    def has_recovered_from(self, before: "Outputs") -> bool:
        """Whether the output is long again, after it was low."""
        return bool(before.low) and not self.low

    def dump(self) -> list[Any]:
        return [list(self.latest), list(self.baseline), self.low]

    @classmethod
    def load(cls, data: Any) -> Self:
        latest, baseline, low = values.check_list("the outputs", data, 3)
        low = values.check_int("low outputs in a row", low, least=0)
        loaded = cls(_lengths("the latest", latest), _lengths("the baseline", baseline), low)
        if max(len(loaded.latest), len(loaded.baseline)) > BASELINE:
            raise ValueError(f"at most {BASELINE} outputs are remembered")
        if bool(loaded.latest) is not bool(loaded.baseline):
            raise ValueError("outputs have a baseline as soon as there is one")
        if low and not loaded.latest:
            raise ValueError(f"no output cannot have been low {low} times")
        return loaded


def median(lengths: tuple[int, ...]) -> float:
    ordered = sorted(lengths)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _lengths(field: str, data: Any) -> tuple[int, ...]:
    return tuple(
        values.check_int("a length", chars, least=0) for chars in values.check_list(field, data)
    )


class Standstill(NamedTuple):
    """Iterations without progress, and the values that the next one is compared with."""

    iterations: int = 0
    """Number of iterations in a row without progress."""
    best_tests: int | None = None
    progress_at_s: float | None = None
    """When the last progress was measured, in seconds since the epoch, if known."""
    outputs: Outputs = Outputs()

    def dump(self) -> list[Any]:
        return [self.iterations, self.best_tests, self.progress_at_s, self.outputs.dump()]

    @classmethod
    def load(cls, data: Any) -> Self:
        iterations, best, at_s, outputs = values.check_list("a standstill", data, 4)
        return cls(
            values.check_int("iterations without progress", iterations, least=0),
            None if best is None else values.check_int("the most tests passing", best, least=0),
            None if at_s is None else values.check_number("the time of progress", at_s),
            Outputs.load(outputs),
        )


class NoProgress(Detector):
    """Warns after `threshold` iterations without progress (default 3); one more trips.

    Progress is measured: files changed, more tests passing than ever before, or an output that
    reaches `recovers_at` (0.7) of its baseline again after it was below. The first count of tests
    is not progress. An iteration counts if its files or tests were measured.

    >>> NoProgress().reason(Standstill(iterations=2), now_s=0.0)
    '2 iterations without progress (threshold 3, then one more)'
    """

    __slots__ = ("threshold", "recovers_at")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "no_progress"
    threshold: int
    recovers_at: float

    def __init__(self, threshold: int = 3, recovers_at: float = DECLINED) -> None:
        self._set(
            threshold=values.check_int("NoProgress.threshold", threshold),
            recovers_at=values.check_fraction(
                "NoProgress.recovers_at", recovers_at, low_open=True, whole_too=True
            ),
        )

    def start(self) -> Standstill:
        return Standstill()

    def fold(self, memory: Standstill, signal: Signal, now_s: float) -> Standstill:
        """Progress resets the count, an iteration without progress adds one."""
        measured = (signal.files_changed, signal.tests_passing, signal.output_chars)
        if all(number is None for number in measured):
            return memory
        steps = min(signal.count, BASELINE)
        for _ in range(steps):
            memory = self._fold_one(memory, signal)
        # From then on equal signals change only the count.
        if (more := signal.count - steps) and signal.output_chars is not None:
            memory = memory._replace(outputs=memory.outputs.settled(more))
        if more and memory.iterations and _counts(signal):
            memory = memory._replace(iterations=memory.iterations + more)
        return memory

    def _fold_one(self, memory: Standstill, signal: Signal) -> Standstill:
        outputs, best, tests = memory.outputs, memory.best_tests, signal.tests_passing
        if signal.output_chars is not None:
            outputs = outputs.push(signal.output_chars, share=self.recovers_at, needed=NEEDED)
        progress = (
            bool(signal.files_changed)
            or (tests is not None and best is not None and tests > best)
            or outputs.has_recovered_from(memory.outputs)
        )
        if tests is not None:
            best = tests if best is None else max(best, tests)
        if progress:
            return Standstill(0, best, signal.at_s or memory.progress_at_s, outputs)
        return Standstill(memory.iterations + _counts(signal), best, memory.progress_at_s, outputs)

    def heat(self, memory: Standstill, now_s: float) -> float:
        """The count relative to the threshold: just below 1 at the threshold, at least 1 above it."""
        if memory.iterations > self.threshold:
            return memory.iterations / (self.threshold + 1)
        return LAST_CHANCE * memory.iterations / self.threshold

    def reason(self, memory: Standstill, now_s: float) -> str:
        return (
            f"{plural(memory.iterations, 'iteration')} without progress "
            f"(threshold {self.threshold}, then one more)"
        )

    def objection(self, signal: Signal) -> str | None:
        """A probe that changed no file counts as failed, whatever it reports."""
        return "made no progress" if signal.files_changed == 0 else None

    def measure(self, memory: Standstill, now_s: float) -> Measure:
        """The count, and the first value that trips."""
        return Measure(memory.iterations, self.threshold + 1, "iterations")

    def dump(self, memory: Standstill) -> list[Any]:
        return memory.dump()

    def load(self, data: Any) -> Standstill:
        return Standstill.load(data)


def _counts(signal: Signal) -> bool:
    """Whether enough was measured to conclude that an iteration made no progress."""
    return signal.files_changed is not None or signal.tests_passing is not None


class OutputDecline(Detector):
    """Trips when the output stays under `threshold` (default 0.7) of the baseline's length.

    The baseline is the median of the last 20 outputs that were not low, and needs `min_iterations`
    (3). One low output warns, a second in a row trips.

    >>> OutputDecline().reason(Outputs((900, 90), (1000, 1200, 900), low=1), now_s=0.0)
    'output of 90 characters, 9% of the usual 1000 (threshold 70%)'
    """

    __slots__ = ("threshold", "min_iterations")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "output_decline"
    threshold: float
    min_iterations: int

    def __init__(self, threshold: float = DECLINED, min_iterations: int = NEEDED) -> None:
        least = values.check_int("OutputDecline.min_iterations", min_iterations)
        if least > BASELINE:
            raise ValueError(
                f"OutputDecline.min_iterations is {least}: it must not be above {BASELINE}, the "
                "most that the baseline has"
            )
        share = values.check_fraction(
            "OutputDecline.threshold", threshold, low_open=True, whole_too=True
        )
        self._set(threshold=share, min_iterations=least)

    def start(self) -> Outputs:
        return Outputs()

    def fold(self, memory: Outputs, signal: Signal, now_s: float) -> Outputs:
        """Compare each measured output with the earlier ones."""
        if signal.output_chars is None:
            return memory
        steps = min(signal.count, BASELINE)
        for _ in range(steps):
            memory = memory.push(
                signal.output_chars, share=self.threshold, needed=self.min_iterations
            )
        return memory.settled(signal.count - steps)

    def heat(self, memory: Outputs, now_s: float) -> float:
        """One low output warns, two trip."""
        return LAST_CHANCE if memory.low == 1 else memory.low / 2

    def reason(self, memory: Outputs, now_s: float) -> str:
        outputs = len(memory.baseline)
        if outputs < self.min_iterations:
            return f"{outputs} of the {self.min_iterations} outputs needed to judge"
        chars, middle = memory.latest[-1], median(memory.baseline)
        share = f"{chars / middle:.0%}" if middle else "all"
        return (
            f"output of {plural(chars, 'character')}, {share} of the usual {middle:g} "
            f"(threshold {self.threshold:.0%})"
        )

    def measure(self, memory: Outputs, now_s: float) -> Measure:
        return Measure(memory.low, 2, "outputs")

    def dump(self, memory: Outputs) -> list[Any]:
        """The lengths, and the row of low ones."""
        return memory.dump()

    def load(self, data: Any) -> Outputs:
        return Outputs.load(data)
