"""Iterations that change nothing: a loop that stands still, whatever it says (seed 000)."""

from typing import Any, ClassVar

from switchgear.core import record
from switchgear.core.detectors.base import LAST_CHANCE, Detector, Measure, plural
from switchgear.core.detectors.outputs import BASELINE, DECLINED, NEEDED
from switchgear.core.detectors.standstill import Standstill
from switchgear.core.types import Signal


class NoProgress(Detector):
    """Warns after `threshold` iterations without progress (default 3); one more trips.

    Progress is measured, never claimed: files changed, more tests passing than ever before, or an
    output that is back at `recovers_at` (0.7) of its baseline after it was under it. The first
    count of tests is no progress. An iteration counts when its files or tests were measured.

    >>> NoProgress().reason(Standstill(iterations=2), now_s=0.0)
    '2 iterations without progress (threshold 3, then one more)'
    """

    __slots__ = ("threshold", "recovers_at")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "no_progress"
    threshold: int
    recovers_at: float

    def __init__(self, threshold: int = 3, recovers_at: float = DECLINED) -> None:
        self._set(
            threshold=record.whole("NoProgress.threshold", threshold),
            recovers_at=record.fraction(
                "NoProgress.recovers_at", recovers_at, low_open=True, whole_too=True
            ),
        )

    def start(self) -> Standstill:
        """Nothing measured yet."""
        return Standstill()

    def fold(self, memory: Standstill, signal: Signal, now_s: float) -> Standstill:
        """Progress ends the standstill, an iteration without lengthens it."""
        del now_s
        measured = (signal.files_changed, signal.tests_passing, signal.output_chars)
        if all(number is None for number in measured):
            return memory
        steps = min(signal.count, BASELINE)
        for _ in range(steps):
            memory = self._one(memory, signal)
        # From then on equal signals change nothing but how long it lasts.
        if (more := signal.count - steps) and signal.output_chars is not None:
            memory = memory._replace(outputs=memory.outputs.settled(more))
        if more and memory.iterations and _counts(signal):
            memory = memory._replace(iterations=memory.iterations + more)
        return memory

    def _one(self, memory: Standstill, signal: Signal) -> Standstill:
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
        """The standstill against the threshold; at it, the last chance, beyond it a trip."""
        del now_s
        if memory.iterations > self.threshold:
            return memory.iterations / (self.threshold + 1)
        return LAST_CHANCE * memory.iterations / self.threshold

    def reason(self, memory: Standstill, now_s: float) -> str:
        """The standstill in words."""
        del now_s
        return (
            f"{plural(memory.iterations, 'iteration')} without progress "
            f"(threshold {self.threshold}, then one more)"
        )

    def objection(self, signal: Signal) -> str | None:
        """A probe that changed no file has failed, whatever it reports."""
        return "made no progress" if signal.files_changed == 0 else None

    def measure(self, memory: Standstill, now_s: float) -> Measure:
        """The standstill, and the first iteration that is too many."""
        del now_s
        return Measure(memory.iterations, self.threshold + 1, "iterations")

    def dump(self, memory: Standstill) -> list[Any]:
        """The fields."""
        return memory.dump()

    def load(self, data: Any) -> Standstill:
        """The inverse of `dump`."""
        return Standstill.load(data)


def _counts(signal: Signal) -> bool:
    """Whether enough was measured to say that an iteration made no progress."""
    return signal.files_changed is not None or signal.tests_passing is not None
